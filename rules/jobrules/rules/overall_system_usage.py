"""OverallSystemUsage: system utilization summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.node_totals import ALGORITHM, PLATFORM, summed
from jobrules.model import Metric, Reason, ReasonKind
from jobrules.model.order import quantiles
from jobrules.rule import Rule
from jobrules.text import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrules.model import FloatArray, Job, RuleResult

#: SageMaker Debugger's names, in its order. Two metrics are added up.
_METRICS: dict[str, tuple[Metric, ...]] = {
    "Network": ALGORITHM,
    "GPU": (Metric.GPU_UTILIZATION,),
    "CPU": (Metric.CPU_UTILIZATION,),
    "CPU memory": (Metric.HOST_MEMORY,),
    "GPU memory": (Metric.GPU_MEMORY_ACTIVITY,),
    "I/O": (Metric.IO_WAIT,),
}
_MORE_METRICS: dict[str, tuple[Metric, ...]] = {
    "Network receive": (Metric.NETWORK_RECEIVE,),
    "Network transmit": (Metric.NETWORK_TRANSMIT,),
    "Network platform": PLATFORM,
}


@dataclass(frozen=True, kw_only=True)
class OverallSystemUsage(Rule):
    """System utilization summary.

    What it checks
        Distribution of GPU, CPU, memory, I/O wait, and network per node, for the whole job and the training loop.

    Why it matters
        Other rules test windows; these numbers cover the whole job.

    What to do
        * Compare GPU and CPU percentiles: the one near 100% limits the job.
    """

    title: ClassVar[str] = "System utilization summary"
    section: ClassVar[str] = "utilization"
    can_trigger: ClassVar[bool] = False
    of_work: ClassVar[bool] = False

    def check(self, job: Job) -> RuleResult:
        """``Datapoints`` are the CPU snapshots of the node that has most, or GPU snapshots without CPU."""
        if not job.samples_us:
            return self.not_evaluated(
                Reason(kind=ReasonKind.NOT_RECORDED, what="system samples", verb="were")
            )
        whole: dict[str, dict[str, dict[str, float]]] = {name: {} for name in _METRICS | _MORE_METRICS}
        inside: dict[str, dict[str, dict[str, float]]] = {name: {} for name in whole}
        for name, node, of_all, of_loop in job.gathered(_figures):
            whole[name][node] = of_all
            if of_loop:
                inside[name][node] = of_loop
        snapshots = {
            metric: {
                f"{part.node}/{metric.label}": panel.snapshots
                for part in job.facts
                for panel in part.panels
                if panel.metric == metric
            }
            for metric in (Metric.CPU_UTILIZATION, Metric.GPU_UTILIZATION)
        }
        cpu, gpu = snapshots.values()
        counts = list((cpu or gpu).values()) or [0]
        return self.passed(
            f"{count(sum(counts), 'snapshot')} on {count(len(job.nodes), 'node')}",
            datapoints=max(counts),
            datapoints_per_series=cpu | gpu,
            details={name: whole[name] for name in _METRICS},
            more={name: whole[name] for name in _MORE_METRICS}
            | ({"TrainingLoop": inside} if job.step_count else {}),
        )


def _figures(part: Job) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """(key, node, figures of the whole job, figures of the loop); the last is empty without samples in the loop."""
    (node,) = part.nodes
    loop = part.loop_us(node)
    for name, metrics in (_METRICS | _MORE_METRICS).items():
        if found := summed(part, node, metrics):
            time_us, values = found
            inside = values[slice(*np.searchsorted(time_us, loop))] if loop else values[:0]
            yield name, node, _statistics(values), _statistics(inside) if len(inside) else {}


def _statistics(values: FloatArray) -> dict[str, Any]:
    p50, p90, p95, p99 = quantiles(values, (0.5, 0.9, 0.95, 0.99)).tolist()
    figures = {
        "max": values.max(),
        "p99": p99,
        "p95": p95,
        "p50": p50,
        "min": values.min(),
        "p90": p90,
        "mean": values.mean(),
    }
    # As SageMaker Debugger: 12.345 is a tie to numpy, which rounds it to even, and not to ``round``.
    rounded = np.round(list(figures.values()), 2).tolist()
    return dict(zip(figures, rounded, strict=True)) | {"n": len(values)}
