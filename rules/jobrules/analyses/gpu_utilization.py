"""Distribution of each device's samples over the whole job and the training loop."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from jobrules.measures.quartiles import quartiles, shares
from jobrules.model import FloatArray, IntArray, Job, Metric, Panel
from jobrules.model.names import NodeName, OwnText, ShownName
from jobrules.model.order import quantiles


class Box(Struct, frozen=True, kw_only=True):
    """Distribution of one device's samples of one metric; values in ``unit``."""

    node: NodeName
    device: ShownName
    metric: OwnText
    unit: OwnText
    #: ``whole job`` or ``training loop``.
    basis: OwnText
    #: Like the other fields with a default, None if the source does not give it.
    n: int | None = None
    mean: float | None = None
    min: float | None = None
    p5: float | None = None
    p25: float
    p50: float
    p75: float
    p95: float
    p99: float | None = None
    max: float
    #: Whisker ends: 1.5 times the interquartile range from the quartiles, cut at the extremes.
    lower: float
    upper: float
    #: Shares of the samples below 10, from 10 to 90, and above 90 (percent metrics), rounded so that they
    #: add up to 1.000.
    below_10: float | None = None
    from_10_to_90: float | None = None
    above_90: float | None = None


#: Device of the box of the mean over a node's cores.
ALL_CORES = "CPU"


def box(panel: Panel, device: str, basis: str, values: FloatArray) -> Box:
    """The distribution of ``values``, samples of one device of a panel; at least one."""
    p5, p99 = quantiles(values, (0.05, 0.99)).tolist()
    return Box(
        node=panel.node,
        device=device,
        metric=panel.metric,
        unit=panel.metric.unit,
        basis=basis,
        n=len(values),
        mean=float(values.mean()),
        min=float(values.min()),
        p5=p5,
        p99=p99,
        max=float(values.max()),
        **shares(values),
        **quartiles(values),
    )


def gpu_utilization(job: Job) -> tuple[Box, ...]:
    """Boxes of utilization and memory activity of each GPU, and of the mean over each node's cores.

    Each over the whole job and, if steps are known, over the training loop; ordered by metric.
    """
    found = job.gathered(_boxes)
    return tuple(one for metric in _BOXED for one in found if one.metric == metric)


_BOXED = (Metric.GPU_UTILIZATION, Metric.GPU_MEMORY_ACTIVITY, Metric.CPU_UTILIZATION)


def _boxes(part: Job) -> Iterator[Box]:
    for panel in part.panels:
        if panel.metric is Metric.CPU_UTILIZATION:
            yield from _pair(part, panel, ALL_CORES, panel.time_us, panel.mean)
        elif panel.metric in _BOXED:
            for column, device in enumerate(panel.devices):
                yield from _pair(part, panel, device, *panel.series(column))


def _pair(part: Job, panel: Panel, device: str, time_us: IntArray, values: FloatArray) -> Iterator[Box]:
    yield box(panel, device, "whole job", values)
    if loop := part.loop_us(panel.node):
        inside = values[slice(*np.searchsorted(time_us, loop))]
        if len(inside):
            yield box(panel, device, "training loop", inside)
