"""Utilization per node: the distribution over its snapshots."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from jobrules.measures.node_totals import ALGORITHM, RDMA, summed
from jobrules.model import Count, FloatArray, Job, Metric
from jobrules.model.names import NodeName, OwnText
from jobrules.model.order import quantiles


class UsageRow(Struct, frozen=True, kw_only=True):
    """Distribution of one node's mean over devices of a metric, over its snapshots."""

    node: NodeName
    label: OwnText
    #: ``%``, ``B``, ``B/s``, ``1/s``, or ``cores``.
    unit: OwnText
    #: Snapshots; like the other fields with a default, None if the source does not give it.
    n: Count | None = None
    min: float
    p50: float
    p90: float | None = None
    p95: float
    p99: float
    max: float
    mean: float | None = None


def _row(node: str, label: str, unit: str, values: FloatArray) -> UsageRow:
    p50, p90, p95, p99 = quantiles(values, (0.5, 0.9, 0.95, 0.99)).tolist()
    return UsageRow(
        node=node,
        label=label,
        unit=unit,
        n=len(values),
        min=float(values.min()),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=float(values.max()),
        mean=float(values.mean()),
    )


def utilization(job: Job) -> tuple[UsageRow, ...]:
    """The utilization table: what is sampled per node, as far as its distribution says something."""
    return tuple(job.gathered(_usage_rows))


_LISTED = (
    Metric.GPU_UTILIZATION,
    Metric.GPU_SM_ACTIVITY,
    Metric.GPU_TENSOR_ACTIVITY,
    Metric.CPU_UTILIZATION,
    Metric.JOB_CPU,
    Metric.CONTAINER_CPU,
    Metric.CONTAINER_CPU_LIMIT,
    Metric.CONTAINER_CPU_THROTTLED,
    Metric.MACHINE_CPU,
    Metric.CPU_PRESSURE,
    Metric.IO_WAIT,
    Metric.IO_PRESSURE,
    Metric.DISK_READ,
    Metric.DISK_WRITE,
    Metric.DISK_OPERATIONS,
    Metric.HOST_MEMORY,
    Metric.HOST_MEMORY_USED,
    Metric.HOST_MEMORY_TOTAL,
    Metric.SWAP_USED,
    Metric.MEMORY_PRESSURE,
    Metric.GPU_MEMORY_ACTIVITY,
    Metric.GPU_DRAM_ACTIVITY,
    Metric.GPU_MEMORY_USED,
)
#: Sums of what is received and sent.
_TRAFFIC = {"Network": ALGORITHM, "RDMA": RDMA}


def _usage_rows(part: Job) -> Iterator[UsageRow]:
    (node,) = part.nodes
    for metric in _LISTED:
        panel = part.panel(node, metric)
        if panel is None:
            continue
        yield _row(node, metric.label, metric.unit, panel.mean)
        if metric is Metric.CPU_UTILIZATION and len(panel.devices) > 1:
            busiest = np.asarray(np.nanmax(panel.values, axis=1))
            yield _row(node, "CPU, busiest core", metric.unit, busiest)
    for label, metrics in _TRAFFIC.items():
        if traffic := summed(part, node, metrics):
            yield _row(node, label, metrics[0].unit, traffic[1])
