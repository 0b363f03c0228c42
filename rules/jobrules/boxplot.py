"""Box-plot figures of one series."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobrules.job import Metric
from jobrules.result import Box
from jobrules.rounding import apportion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.job import FloatArray, IntArray, Job, Panel

#: Name of the box that stands for all cores of a node.
ALL_CORES = "CPU"
#: Devices and nodes whose means differ by less are told as alike, in points.
ALIKE_POINTS = 5.0


def ordered(values: FloatArray) -> FloatArray:
    """The values in ascending order; at least one.

    Samplers give percents with two digits at most: many of those are counted, which is faster than sorting.
    """
    hundredths = np.rint(100 * values)
    if hundredths.min() >= 0 and hundredths.max() < len(values) and np.array_equal(hundredths / 100, values):
        counts = np.bincount(hundredths.astype(np.int64))
        return np.repeat(np.arange(len(counts)) / 100, counts)
    return np.sort(values)


def quantiles(ordered: FloatArray, probs: Sequence[float]) -> list[float]:
    """What ``np.quantile`` gives, of ascending values: nothing has to be put in order again."""
    place = (len(ordered) - 1) * np.asarray(probs)
    before = np.floor(place).astype(np.int64)
    part = place - before
    low, high = ordered[before], ordered[np.minimum(before + 1, len(ordered) - 1)]
    far = high - low
    # As numpy has it: from the nearer neighbour.
    found: list[float] = np.where(part < 0.5, low + far * part, high - far * (1 - part)).tolist()
    return found


def quartiles(ordered: FloatArray) -> dict[str, float]:
    """``p25, p50, p75, p95, upper, lower`` of the vendor's schema, of ascending values.

    Whiskers: ``upper = min(p75 + 1.5 iqr, max)``, ``lower = max(p25 - 1.5 iqr, min)``.
    """
    p25, p50, p75, p95 = quantiles(ordered, (0.25, 0.5, 0.75, 0.95))
    reach = 1.5 * (p75 - p25)
    return {
        "p25": p25,
        "p50": p50,
        "p75": p75,
        "p95": p95,
        "upper": min(p75 + reach, float(ordered[-1])),
        "lower": max(p25 - reach, float(ordered[0])),
    }


def box(panel: Panel, device: str, basis: str, values: FloatArray) -> Box:
    """The distribution of ``values``, samples of one device of a panel; at least one."""
    ascending = ordered(values)
    p5, p99 = quantiles(ascending, (0.05, 0.99))
    return Box(
        node=panel.node,
        device=device,
        metric=panel.metric,
        unit=panel.metric.unit,
        basis=basis,
        n=len(values),
        mean=float(values.mean()),
        min=float(ascending[0]),
        p5=p5,
        p99=p99,
        max=float(ascending[-1]),
        **shares(ascending),
        **quartiles(ascending),
    )


def shares(ordered: FloatArray) -> dict[str, float]:
    """``below_10, from_10_to_90, above_90``: shares of ascending percents that add up to 1.000."""
    low, high = int(np.searchsorted(ordered, 10)), int(np.searchsorted(ordered, 90, "right"))
    parts = apportion((low, high - low, len(ordered) - high), 1.0, 3)
    return dict(zip(("below_10", "from_10_to_90", "above_90"), parts, strict=True))


def all_boxes(job: Job) -> tuple[Box, ...]:
    """Boxes of the use and the memory of every GPU, and of each node's CPU: its mean over the cores.

    Each of the whole job and, where steps are known, of the training loop. They follow one another by
    metric: whoever wants one must choose.
    """
    found = job.gathered(_boxes)
    return tuple(one for metric in _BOXED for one in found if one.metric == metric)


_BOXED = (Metric.GPU_USE, Metric.GPU_MEMORY, Metric.CPU_USE)


def _boxes(part: Job) -> Iterator[Box]:
    for panel in part.panels:
        if panel.metric is Metric.CPU_USE:
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
