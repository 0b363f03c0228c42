"""What a job asked of its machines at the busiest: the basis of advice on their size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.sample_weights import sample_weights
from jobrules.measures.work import Work
from jobrules.measures.work_span import worked
from jobrules.model import SECOND_US, Amount, Count, FloatArray, IntArray, Job, Metric, Percent
from jobrules.model.order import quantiles

#: As AWS Compute Optimizer's default: rare peaks do not decide.
PERCENTILE = 99.5


class Demand(Struct, frozen=True, kw_only=True):
    """Use of all machines together during the work; None for what was not sampled."""

    #: GPUs and cores in full use: the 99.5th percentile over time of the sum over all devices.
    gpus: Amount | None
    cores: Amount | None
    #: Most host memory in use on a node, in percent of it; most memory in use of a GPU, and its size, in bytes.
    host_memory_percent: Percent | None
    gpu_memory: Amount | None
    gpu_memory_total: Amount | None
    #: Mean utilization of the most used GPU and of all.
    highest_gpu_percent: Percent | None
    mean_gpu_percent: Percent | None
    #: GPUs with use, of all.
    used_gpus: Count
    all_gpus: Count
    #: How long the work took, and how much of it samples of the GPUs stand for, in percent; of the cores without GPUs.
    seconds: Amount
    coverage_percent: Percent


class _Node(NamedTuple):
    gpus: FloatArray | None
    cores: FloatArray | None
    host_memory: float | None
    gpu_memory: float | None
    gpu_memory_total: float | None
    gpu_means: list[float]
    used_gpus: int
    covered: float


def demand(job: Job) -> Demand | None:
    """None if nothing was sampled during the work, or there was none."""
    work = Work.of(job)
    snapshots = max((panel.snapshots for part in job.facts for panel in part.panels), default=0)
    if work is None or work.length_us <= 0 or not snapshots:
        return None
    grid_us = np.linspace(work.begin_us, work.end_us, snapshots).astype(np.int64)
    known = (job.loop_facts and job.loop_facts.cores) or 0
    nodes = job.gathered(_of_node, work.clocks, work, grid_us, known)
    if not nodes:
        return None
    means = [mean for node in nodes for mean in node.gpu_means]
    return Demand(
        gpus=None if job.gpus_unknown else _peak([node.gpus for node in nodes if node.gpus is not None]),
        # Every node has cores.
        cores=_peak([node.cores for node in nodes if node.cores is not None])
        if all(node.cores is not None for node in nodes)
        else None,
        host_memory_percent=max((n.host_memory for n in nodes if n.host_memory is not None), default=None),
        gpu_memory=max((n.gpu_memory for n in nodes if n.gpu_memory is not None), default=None),
        gpu_memory_total=min(
            (n.gpu_memory_total for n in nodes if n.gpu_memory_total is not None), default=None
        ),
        highest_gpu_percent=max(means, default=None),
        mean_gpu_percent=sum(means) / len(means) if means else None,
        used_gpus=sum(node.used_gpus for node in nodes),
        all_gpus=len(means),
        seconds=work.length_us / SECOND_US,
        coverage_percent=100 * sum(node.covered for node in nodes) / len(nodes),
    )


def _peak(nodes: list[FloatArray]) -> float | None:
    """A percentile over time of the sum over nodes; times at which any node has no sample are left out."""
    if not nodes:
        return None
    total = np.sum(nodes, axis=0)
    known = total[~np.isnan(total)]
    return float(quantiles(known, (PERCENTILE / 100,))[0]) if len(known) else None


def _of_node(part: Job, clocks: Clocks, work: Work, grid_us: IntArray, cores: int) -> Iterator[_Node]:
    """``cores`` are those of the node, where a single series is the mean of all; 0 if they are not known."""
    (node,) = part.nodes
    if not part.panels:
        return
    grid = grid_us + clocks.late_us(node)
    sums: dict[Metric, FloatArray] = {}
    covered: dict[Metric, float] = {}
    for metric in (Metric.GPU_UTILIZATION, Metric.CPU_UTILIZATION):
        panel = part.panel(node, metric)
        if panel is None:
            continue
        weight_us = sample_weights(panel.time_us, *clocks.span_us(node)).weight_us
        row = np.maximum(np.searchsorted(panel.time_us, grid, side="right") - 1, 0)
        held = (grid >= panel.time_us[row]) & (grid <= panel.time_us[row] + weight_us[row])
        each = cores if metric is Metric.CPU_UTILIZATION and len(panel.devices) == 1 else 1
        if each:
            sums[metric] = np.where(held, each * np.nansum(panel.values, axis=1)[row] / 100, np.nan)
        inside = work.holds(panel.time_us, node)
        covered[metric] = min(1.0, float(weight_us[inside].sum()) / work.length_us)
    gpu = part.panel(node, Metric.GPU_UTILIZATION)
    values = gpu.values[work.holds(gpu.time_us, node)] if gpu else np.empty((0, 0))
    yield _Node(
        gpus=sums.get(Metric.GPU_UTILIZATION),
        cores=sums.get(Metric.CPU_UTILIZATION),
        host_memory=_highest(part, Metric.HOST_MEMORY),
        gpu_memory=_highest(part, Metric.GPU_MEMORY_USED),
        gpu_memory_total=_highest(part, Metric.GPU_MEMORY_TOTAL),
        gpu_means=[float(np.nanmean(column)) for column in values.T if not np.isnan(column).all()],
        used_gpus=int(np.count_nonzero(worked(values))),
        covered=next(iter(covered.values()), 0.0),
    )


def _highest(part: Job, metric: Metric) -> float | None:
    panel = part.panel(part.nodes[0], metric)
    return float(np.nanmax(panel.values)) if panel else None
