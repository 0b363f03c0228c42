"""LowGPUUtilization: a GPU is busy for only part of the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.gpu_checks import CheckedGPU, GPUChecks
from jobrules.measures.minutes import Windows, trailing_below, trailing_quantiles
from jobrules.measures.quartiles import ordered, quartiles
from jobrules.model import Metric
from jobrules.rule import Amount, Rule, in_samples, percent, reason_few_samples, samples
from jobrules.text import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jobrules.model import Finding, Job, RuleResult


@dataclass(frozen=True, kw_only=True)
class LowGPUUtilization(Rule):
    """A GPU is busy for only part of the time.

    What it checks
        Looks at the last ``window`` samples of every GPU once a minute, after ``patience`` samples.
        Low: their 95th percentile is below ``threshold_p95``. Fluctuating: the 95th percentile
        reaches ``threshold_p95`` while the 5th is below ``threshold_p5``. A minute without a sample of
        the GPU is not judged.

    Why it matters
        An idle GPU costs what a busy one costs, and is usually the dearest part of the machine.

    What to do
        Find what the GPU waits for: data loading, synchronization, checkpoints. If it waits for
        nothing, raise the batch size or take a machine with fewer or smaller GPUs.
    """

    title: ClassVar[str] = "GPU utilization is low or fluctuates"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION,)
    section: ClassVar[str] = "gpu-utilization"

    threshold_p95: float = percent(70.0, "a window is low when its 95th percentile is below this")
    threshold_p5: float = percent(
        10.0, "a window that is not low fluctuates when its 5th percentile is below this"
    )
    window: Amount = samples(500, "samples of one GPU that are judged together")
    patience: Amount = samples(1000, "samples of one GPU that are seen before it is judged")

    def check(self, job: Job) -> RuleResult:
        """Counts are of windows of one GPU: eight low GPUs in one minute count eight."""
        grid = Windows.of(job)
        gpus = job.gathered(self._judged, grid)
        judgement = GPUChecks.of(job, grid, gpus)
        seen_per_series = {gpu.name: gpu.samples for gpu in gpus}
        facts: dict[str, Any] = {
            "datapoints": max(seen_per_series.values()),
            "datapoints_per_series": seen_per_series,
            "counted": "one-minute windows of a GPU",
        }
        if not judgement.evaluated:
            longest = max(gpus, key=lambda gpu: gpu.samples)
            return self.not_evaluated(longest.reason, devices=judgement.answers, **facts)
        if not judgement.violating:
            return judgement.passed(self, "No window of a GPU was low or fluctuating", **facts)
        details: dict[str, Any] = {}
        for gpu in gpus:
            if gpu.details:
                details.setdefault(gpu.node, {})[gpu.device] = gpu.details
        details |= {
            "last_timestamp": judgement.last_start_us,
            "low": sum(gpu.low for gpu in gpus),
            "fluctuating": sum(gpu.fluctuating for gpu in gpus),
        }
        finding = self._finding(judgement, {gpu.name: gpu for gpu in gpus})
        return judgement.triggered(self, finding, details=details, **facts)

    def _judged(self, part: Job, grid: Windows) -> Iterator[_GPU]:
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
                unused = bool(values.max() <= 0)
                details: dict[str, Any] = {}
                if len(hit):
                    last = hit[-1]
                    q5, q95 = trailing_quantiles(values, ends[[last]], window, (0.05, 0.95))[0].tolist()
                    whole = ordered(values)
                    history = whole if ends[last] == len(values) else ordered(values[: ends[last]])
                    details = {
                        "gpu_max": float(history[-1]),
                        "gpu_95": q95,
                        "gpu_5": q5,
                        **quartiles(history),
                        **kinds,
                        "unused": unused,
                        "window_end": grid.begin_us(at[last] + 1),
                        "window_used": int(min(window, ends[last])),
                        "job": {"gpu_max": float(whole[-1]), "n": len(values), **quartiles(whole)},
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

    def _finding(self, judgement: GPUChecks, gpus: Mapping[str, _GPU]) -> Finding:
        told = [gpus[gpu.name] for gpu in judgement.named_gpus]
        low, swings = sum(gpu.low for gpu in told), sum(gpu.fluctuating for gpu in told)
        kind = "low" if not swings else "fluctuating" if not low else "low or fluctuating"
        p95, p5 = f"{self.threshold_p95:g}%", f"{self.threshold_p5:g}%"
        clauses = [
            f"{count(low, 'window')} with p95 below {p95}" if low else "",
            f"{count(swings, 'window')} with p95 of at least {p95} and p5 below {p5}" if swings else "",
        ]
        return judgement.finding(self, f"GPU use was {kind}", clauses)


class _GPU(CheckedGPU, frozen=True, kw_only=True, eq=False):
    samples: int
    #: Windows in violation by their kind.
    low: int
    fluctuating: int
    #: As told in the JSON; empty without a window in violation.
    details: dict[str, Any]
