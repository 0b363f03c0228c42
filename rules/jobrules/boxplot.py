"""Box-plot figures of one series."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobrules.job import Metric
from jobrules.result import Box
from jobrules.rounding import apportion

if TYPE_CHECKING:
    from jobrules.job import FloatArray, IntArray, Job, Panel

#: Name of the box that stands for all cores of a node.
ALL_CORES = "CPU"
#: Devices and nodes whose means differ by less are told as alike, in points.
ALIKE_POINTS = 5.0


def quartiles(values: FloatArray) -> dict[str, float]:
    """``p25, p50, p75, p95, upper, lower`` of the vendor's schema.

    Whiskers: ``upper = min(p75 + 1.5 iqr, max)``, ``lower = max(p25 - 1.5 iqr, min)``.
    """
    p25, p50, p75, p95 = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75, 0.95)))
    reach = 1.5 * (p75 - p25)
    return {
        "p25": p25,
        "p50": p50,
        "p75": p75,
        "p95": p95,
        "upper": min(p75 + reach, float(values.max())),
        "lower": max(p25 - reach, float(values.min())),
    }


def box(panel: Panel, device: str, basis: str, values: FloatArray) -> Box:
    """The distribution of ``values``, samples of one device of a panel; at least one."""
    # In order, where quantiles are found fast.
    ordered, n = np.sort(values), len(values)
    p5, p99 = (float(q) for q in np.quantile(ordered, (0.05, 0.99)))
    return Box(
        node=panel.node,
        device=device,
        metric=panel.metric,
        unit=panel.metric.unit,
        basis=basis,
        n=n,
        mean=float(values.mean()),
        min=float(ordered[0]),
        p5=p5,
        p99=p99,
        max=float(ordered[-1]),
        **shares(ordered),
        **quartiles(ordered),
    )


def shares(ordered: FloatArray) -> dict[str, float]:
    """``below_10, from_10_to_90, above_90``: shares of ascending percents that add up to 1.000."""
    low, high = int(np.searchsorted(ordered, 10)), int(np.searchsorted(ordered, 90, "right"))
    parts = apportion((low, high - low, len(ordered) - high), 1.0, 3)
    return dict(zip(("below_10", "from_10_to_90", "above_90"), parts, strict=True))


def boxes(job: Job, metric: Metric) -> tuple[Box, ...]:
    """A box for every device of a metric: whole job and, where steps are known, training loop."""
    return tuple(
        found
        for panel in job.panels_of(metric)
        for column, device in enumerate(panel.devices)
        for found in _pair(job, panel, device, *panel.series(column))
    )


def all_boxes(job: Job) -> tuple[Box, ...]:
    """Boxes of the use and the memory of every GPU, and of each node's CPU: its mean over the cores.

    They follow one another by metric: whoever wants one must choose.
    """
    cpu = (
        found
        for panel in job.panels_of(Metric.CPU_USE)
        for found in _pair(job, panel, ALL_CORES, panel.time_us, panel.mean)
    )
    return (*boxes(job, Metric.GPU_USE), *boxes(job, Metric.GPU_MEMORY), *cpu)


def _pair(job: Job, panel: Panel, device: str, time_us: IntArray, values: FloatArray) -> list[Box]:
    found = [box(panel, device, "whole job", values)]
    if loop := job.loop_us(panel.node):
        inside = values[(time_us >= loop[0]) & (time_us < loop[1])]
        if len(inside):
            found.append(box(panel, device, "training loop", inside))
    return found
