"""OverallSystemUsage: how the machine's parts were used, in figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.job import Metric
from jobrules.rule import Rule
from jobrules.usage import ALGORITHM, PLATFORM, summed
from jobrules.words import count

if TYPE_CHECKING:
    from jobrules.job import FloatArray, Job
    from jobrules.result import RuleResult

#: The vendor's names, in its order, then ours. Two metrics are added up.
_METRICS: dict[str, tuple[Metric, ...]] = {
    "Network": ALGORITHM,
    "GPU": (Metric.GPU_USE,),
    "CPU": (Metric.CPU_USE,),
    "CPU memory": (Metric.MEMORY,),
    "GPU memory": (Metric.GPU_MEMORY,),
    "I/O": (Metric.IO_WAIT,),
    "Network receive": (Metric.NETWORK_RECEIVE,),
    "Network transmit": (Metric.NETWORK_TRANSMIT,),
    "Network platform": PLATFORM,
}


@dataclass(frozen=True, kw_only=True)
class OverallSystemUsage(Rule):
    """How the machine's parts were used, in figures.

    What it checks
        Nothing: it states, for every node, the distribution of the mean over its GPUs, its cores,
        its memories, its I/O wait and its network, over the whole job and over the training loop.

    Why it matters
        The other rules judge windows; these are the figures of the whole.

    What to do
        Compare the percentiles of GPU and CPU: the one near its ceiling is what limits the job.
    """

    title: ClassVar[str] = "System usage in figures"
    section: ClassVar[str] = "utilisation"
    judges: ClassVar[bool] = False

    def check(self, job: Job) -> RuleResult:
        """``Datapoints`` are the CPU snapshots of the node that has most, or GPU snapshots without CPU."""
        if not job.panels:
            return self.not_evaluated("no system samples")
        whole: dict[str, dict[str, dict[str, float]]] = {name: {} for name in _METRICS}
        inside: dict[str, dict[str, dict[str, float]]] = {name: {} for name in _METRICS}
        for node in job.nodes:
            loop = job.loop_us(node)
            for name, metrics in _METRICS.items():
                found = summed(job, node, metrics)
                if found is None:
                    continue
                time_us, values = found
                whole[name][node] = _statistics(values)
                in_loop = values[(time_us >= loop[0]) & (time_us < loop[1])] if loop else values[:0]
                if len(in_loop):
                    inside[name][node] = _statistics(in_loop)
        seen = {
            f"{p.node}/{m.label}": len(p.time_us)
            for m in (Metric.CPU_USE, Metric.GPU_USE)
            for p in job.panels_of(m)
        }
        cpu = [len(p.time_us) for p in job.panels_of(Metric.CPU_USE)]
        counts = cpu or list(seen.values()) or [0]
        return self.passed(
            f"{count(sum(counts), 'snapshot')} of {count(len(job.nodes), 'node')}",
            datapoints=max(counts),
            datapoints_per_series=seen,
            details=whole | ({"TrainingLoop": inside} if len(job.steps) else {}),
        )


def _statistics(values: FloatArray) -> dict[str, Any]:
    p50, p90, p95, p99 = np.quantile(values, (0.5, 0.9, 0.95, 0.99)).tolist()
    figures = {
        "max": values.max(),
        "p99": p99,
        "p95": p95,
        "p50": p50,
        "min": values.min(),
        "p90": p90,
        "mean": values.mean(),
    }
    return {name: round(float(value), 2) for name, value in figures.items()} | {"n": len(values)}
