"""Memory of a device that PyTorch's allocator gave out and reserved, over a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobreport.page.figures import chart
from jobreport.page.figures.canvas import Canvas, Figure
from jobreport.page.figures.chart import quantity
from jobreport.page.figures.scales import ceiling

if TYPE_CHECKING:
    from jobreport.formats import Scale
    from jobrules.model.captures import MemoryCurve


def allocated(curve: MemoryCurve, scale: Scale) -> Figure:
    """A band of allocated bytes, a line of reserved ones, and the size of the memory across."""
    ms = (curve.end_ns - curve.start_ns) / 1e6
    low, high = np.array(curve.allocated, np.float64).T / scale.factor
    edges = np.linspace(0, ms, len(high) + 1)
    reserved = np.array(curve.reserved, np.float64).reshape(-1, 2)[:, 1] / scale.factor
    size = (curve.total or 0) / scale.factor
    lowest = min(0.0, float(low.min()))
    top = ceiling(max(float(high.max()), float(reserved.max(initial=0)), size))
    y = (
        chart.upward(top, unit=f" {scale.unit}")
        if lowest >= 0
        else chart.along(lowest, top, unit=f" {scale.unit}")
    )
    canvas = Canvas(chart.along(0, ms, unit=" ms"), y, zoom=True)
    columns = {"low": low, "high": high}
    band = canvas.bars(
        "band", (edges[:-1], edges[1:], np.minimum(low, 0 * low), high), columns, series="allocated"
    )
    canvas.line("s1", np.repeat(edges, 2)[1:-1], np.repeat(high, 2), series="allocated")
    if len(reserved):
        canvas.line("s2", np.repeat(edges, 2)[1:-1], np.repeat(reserved, 2), series="reserved")
    if size:
        canvas.level("limit", size)
    rows = [
        ("From", quantity("left", "ms", 2)),
        ("Lowest allocated", quantity("low", scale.unit, 2)),
        ("Highest allocated", quantity("high", scale.unit, 2)),
    ]
    canvas.tooltip(rows, [band], mode="vline")
    return canvas.figure
