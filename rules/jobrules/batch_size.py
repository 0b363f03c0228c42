"""BatchSize: CPU, GPU and GPU memory are all little used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.boxplot import quartiles
from jobrules.job import Metric
from jobrules.result import Finding, Measure, RuleResult, Status
from jobrules.rule import Rule, patience_reason, percent, samples, severity_of
from jobrules.windows import Windows, judged, trailing_quantiles
from jobrules.words import between, listed, share

if TYPE_CHECKING:
    from jobrules.job import BoolArray, FloatArray, IntArray, Job, Panel


@dataclass(frozen=True, kw_only=True)
class BatchSize(Rule):
    """The work is small for the machine: CPU, GPU and GPU memory are all little used.

    What it checks
        Looks at the last ``window`` samples once a minute, after ``patience`` CPU samples of a node:
        the 95th percentiles of the node's mean CPU use, of a GPU's use and of its memory all lie
        below their thresholds. A GPU without memory samples is judged by the other two.

    Why it matters
        Nothing limits the speed but the size of the work handed over at a time. Says little about
        frameworks that reserve all GPU memory from the start.

    What to do
        Raise the batch size until GPU memory is well filled, and watch that the model still
        converges; or take a smaller machine.
    """

    title: ClassVar[str] = "CPU, GPU and GPU memory are all little used"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_USE, Metric.CPU_USE)
    section: ClassVar[str] = "gpu-use"

    cpu_threshold_p95: float = percent(70.0, "95th percentile of the node's mean CPU use")
    gpu_threshold_p95: float = percent(70.0, "95th percentile of a GPU's use")
    gpu_memory_threshold_p95: float = percent(70.0, "95th percentile of a GPU's memory use")
    patience: int = samples(1000, "CPU samples of a node that are seen before it is judged")
    window: int = samples(500, "samples that are judged together")

    def check(self, job: Job) -> RuleResult:
        """Counts are of windows of one GPU."""
        grid = Windows.of(job)
        details: dict[str, Any] = {}
        cpu_seen: dict[str, int] = {}
        hits: list[IntArray] = []
        evaluated = 0
        for gpu_panel in job.panels_of(Metric.GPU_USE):
            cpu = job.panel(gpu_panel.node, Metric.CPU_USE)
            if cpu is None:
                continue
            cpu_seen[cpu.node] = len(cpu.mean)
            memory = job.panel(gpu_panel.node, Metric.GPU_MEMORY)
            seen = grid.seen(cpu.time_us)
            at = judged(seen, max(self.window, self.patience))
            cpu_low = np.zeros(grid.count, dtype=np.bool_)
            cpu_low[at] = self._below(cpu.mean, seen[1:][at], self.cpu_threshold_p95)
            for column, gpu in enumerate(gpu_panel.devices):
                time_us, values = gpu_panel.series(column)
                gpu_seen = grid.seen(time_us)
                both = np.intersect1d(at, judged(gpu_seen, self.window))
                low = cpu_low[both] & self._below(values, gpu_seen[1:][both], self.gpu_threshold_p95)
                held = _device(memory, gpu)
                if held:
                    memory_seen = np.maximum(grid.seen(held[0])[1:], 1)
                    low &= self._below(held[1], memory_seen[both], self.gpu_memory_threshold_p95)
                evaluated += len(both)
                hit = both[low]
                if not len(hit):
                    continue
                hits.append(hit)
                last = hit[-1] + 1
                found = details.setdefault(cpu.node, {})
                found["cpu"] = quartiles(cpu.mean[: seen[last]])
                found[gpu] = quartiles(values[: gpu_seen[last]]) | {"unused": bool(values.max() <= 0)}
                if held:
                    found[f"{gpu}_memory"] = quartiles(held[1][: memory_seen[last - 1]])
        if not cpu_seen:
            return self.not_evaluated("no node has both GPU and CPU samples")
        most = max(cpu_seen.values())
        facts: dict[str, Any] = {
            "datapoints": most,
            "datapoints_per_series": cpu_seen,
            "counted": "one-minute windows of a GPU",
        }
        if not evaluated:
            return self.not_evaluated(patience_reason(most, max(self.patience, self.window)), **facts)
        violating = sum(map(len, hits))
        facts |= {
            "triggered": violating,
            "violations": violating,
            "evaluated": evaluated,
            "violating": violating,
            "measure": Measure(
                value=round(100 * violating / evaluated, 1),
                limits=(0.0,),
                scale=100.0,
                unit="% of windows",
                limit_text="triggers on any",
            ),
        }
        if not violating:
            headline = "CPU, GPU or GPU memory was well used in every window"
            return RuleResult(rule=self.name, status=Status.PASSED, headline=headline, **facts)
        starts = grid.starts_us[np.concatenate(hits)]
        first_us, last_us = int(starts.min()), int(starts.max())
        details["last_timestamp"] = last_us
        part = violating / evaluated
        gpus = [
            f"{node} {name}"
            for node, found in details.items()
            if isinstance(found, dict)
            for name, block in found.items()
            if "unused" in block
        ]
        finding = Finding(
            key="batch-size",
            severity=severity_of(part),
            title=f"CPU, GPU and GPU memory were all little used in {share(part)} of the windows judged",
            evidence=f"{listed(gpus)}, {between(first_us, last_us + grid.width_us)}.",
            advice=self.documentation().advice,
            rules=(self.name,),
            section=self.section,
            share=part,
            share_of="of windows",
            start_us=first_us,
            end_us=last_us + grid.width_us,
        )
        return RuleResult(
            rule=self.name,
            status=Status.TRIGGERED,
            headline=finding.title,
            findings=(finding,),
            details=details,
            first_us=first_us,
            last_us=last_us + grid.width_us,
            **facts,
        )

    def _below(self, values: FloatArray, ends: IntArray, limit: float) -> BoolArray:
        return trailing_quantiles(values, ends, self.window, (0.95,))[:, 0] < limit


def _device(panel: Panel | None, name: str) -> tuple[IntArray, FloatArray] | None:
    if panel is None or name not in panel.devices:
        return None
    return panel.series(panel.devices.index(name))
