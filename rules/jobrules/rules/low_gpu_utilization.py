"""LowGPUUtilization: GPU utilization is low or fluctuates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.gpu_checks import CheckedGPU, GPUChecks
from jobrules.measures.gpu_conditions import by_node
from jobrules.measures.minutes import Windows, trailing_below, trailing_quantiles
from jobrules.measures.quartiles import quartiles
from jobrules.measures.work_span import worked
from jobrules.model import Metric
from jobrules.rule import Amount, Role, Rule, in_samples, percent, reason_few_samples, samples
from jobrules.text import count, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jobrules.model import Finding, Job, RuleResult


@dataclass(frozen=True, kw_only=True)
class LowGPUUtilization(Rule):
    """GPU utilization is low or fluctuates.

    What it checks
        The last ``window`` samples of each GPU, once per minute. Low: p95 below ``threshold_p95``. Fluctuating: p95
        not low, p5 below ``threshold_p5``.

    Why it matters
        An idle GPU costs as much as a busy one.

    What to do
        * Find what the GPU waits for: data, synchronization, checkpoints.
        * If nothing, raise the batch size or use fewer or smaller GPUs.

    Details
        The first check comes after ``patience`` samples. A minute without a sample of the GPU has no check.
    """

    title: ClassVar[str] = "GPU utilization is low or fluctuates"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION,)
    section: ClassVar[str] = "gpu-utilization"
    role: ClassVar[Role] = Role.SYMPTOM

    threshold_p95: float = percent(70.0, "p95 below which a window is low")
    threshold_p5: float = percent(10.0, "p5 below which a window fluctuates")
    window: Amount = samples(500, "samples per check")
    patience: Amount = samples(1000, "samples before the first check")

    def check(self, job: Job) -> RuleResult:
        """Counts are of windows of one GPU: eight low GPUs in one minute count eight."""
        grid = Windows.of(job)
        gpus = job.gathered(self._checked, grid)
        checks = GPUChecks.of(job, grid, gpus)
        seen_per_series = {gpu.name: gpu.samples for gpu in gpus}
        facts: dict[str, Any] = {
            "datapoints": max(seen_per_series.values()),
            "datapoints_per_series": seen_per_series,
            "counted": "windows",
        }
        if not checks.evaluated:
            longest = max(gpus, key=lambda gpu: gpu.samples)
            return self.not_evaluated(longest.reason, devices=checks.answers, **facts)
        if not checks.violating:
            windows = count(checks.evaluated, "window")
            return checks.passed(self, f"GPU utilization was low or fluctuated in 0 of {windows}", **facts)
        details: dict[str, Any] = by_node((gpu.node, gpu.device, gpu.details) for gpu in gpus if gpu.details)
        details["last_timestamp"] = checks.last_start_us
        kinds = {
            "low": sum(gpu.low for gpu in gpus),
            "fluctuating": sum(gpu.fluctuating for gpu in gpus),
        }
        finding = self._finding(checks, {gpu.name: gpu for gpu in gpus})
        return checks.triggered(self, finding, details=details, more=kinds, **facts)

    def _checked(self, part: Job, grid: Windows) -> Iterator[_GPU]:
        """The GPUs of one node."""
        for panel in part.panels_of(Metric.GPU_UTILIZATION):
            for column, device in enumerate(panel.devices):
                time_us, values = panel.series(column)
                patience, window = (in_samples(amount, time_us) for amount in (self.patience, self.window))
                seen = grid.seen(time_us)
                at = seen.judged(patience)
                ends = seen.by(at)
                low = trailing_below(values, ends, window, 0.95, self.threshold_p95)
                swings = ~low & trailing_below(values, ends, window, 0.05, self.threshold_p5)
                hit = np.flatnonzero(low | swings)
                kinds = {"low": int(low.sum()), "fluctuating": int(swings.sum())}
                unused = not worked(values)
                details: dict[str, Any] = {}
                if len(hit):
                    last = hit[-1]
                    q5, q95 = trailing_quantiles(values, ends[[last]], window, (0.05, 0.95))[0].tolist()
                    history = values[: ends[last]]
                    details = {
                        "gpu_max": float(history.max()),
                        "gpu_95": q95,
                        "gpu_5": q5,
                        **quartiles(history),
                        **kinds,
                        "unused": unused,
                        "window_end": grid.begin_us(at[last] + 1),
                        "window_used": int(min(window, ends[last])),
                        "job": {"gpu_max": float(values.max()), "n": len(values), **quartiles(values)},
                    }
                yield _GPU(
                    node=panel.node,
                    device=device,
                    checks=len(at),
                    violations=at[hit],
                    unused=unused,
                    reason=reason_few_samples(len(values), patience),
                    samples=len(values),
                    **kinds,
                    details=details,
                )

    def _finding(self, checks: GPUChecks, gpus: Mapping[str, _GPU]) -> Finding:
        named = [gpus[gpu.name] for gpu in checks.named_gpus]
        low, fluctuating = sum(gpu.low for gpu in named), sum(gpu.fluctuating for gpu in named)
        kinds = [(low, "was low", "low"), (fluctuating, "fluctuated", "fluctuating")]
        found = [(n, did, state) for n, did, state in kinds if n]
        title = " and ".join(f"{did} in {number(n)}" for n, did, _ in found)
        state = " or ".join(state for _, _, state in found)
        return checks.finding(self, f"GPU utilization {title}", seen_as=f"{state} utilization")


class _GPU(CheckedGPU, frozen=True, kw_only=True, eq=False):
    samples: int
    #: Windows that violate by their kind.
    low: int
    fluctuating: int
    #: For the JSON; empty without a window that violates.
    details: dict[str, Any]
