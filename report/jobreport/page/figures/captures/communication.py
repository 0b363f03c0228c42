"""Waiting between ranks: what each rank suffered and caused, as two bars on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobreport.formats import escape_name
from jobreport.page.figures import chart, theme
from jobreport.page.figures.canvas import Canvas, Figure
from jobreport.page.figures.names import fitted
from jobreport.page.figures.scales import ceiling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.formats import TimeScale
    from jobrules.model.captures import Skew

_S_PER_NS = 1e-9
#: Class and name of both bars.
CAUSED, SUFFERED = ("l", "others waited for it"), ("l3", "it waited for others")
LONGEST, MEDIAN = ("l3", "longest"), ("l", "median")


def skew(found: Skew, scale: TimeScale) -> Figure:
    """Bars up to the longest skew of each stretch of time, and marks at the median."""
    columns = found.columns
    to_ms = np.array([column.start_ns for column in columns]) / 1e6
    width = found.column_ns / 1e6
    longest, median = (
        np.array([getattr(column, name) for column in columns]) * _S_PER_NS * scale.factor
        for name in ("longest_ns", "median_ns")
    )
    canvas = Canvas(
        chart.along(0, float(to_ms[-1]) + width, unit=" ms"),
        chart.upward(ceiling(max(float(longest.max()), 1e-6)), unit=f" {scale.unit}"),
        zoom=True,
    )
    values = {
        "median": median,
        "calls": [column.calls for column in columns],
        "last": [f"rank {column.last}" for column in columns],
    }
    drawn = [
        canvas.bars(style, (to_ms, to_ms + width, 0, heights), values | {"longest": longest}, series=series)
        for (style, _), heights, series in ((LONGEST, longest, "longest"), (MEDIAN, median, "median"))
    ]
    rows = [
        ("From", chart.quantity("left", "ms", 2)),
        ("Collectives", "@calls{0,0}"),
        ("Median", chart.quantity("median", scale.unit, 2)),
        ("Longest", chart.quantity("longest", scale.unit, 2)),
        ("Arrived last in it", "@last"),
    ]
    canvas.tooltip(rows, drawn[:1], mode="vline")
    return canvas.figure


def waiting(names: Sequence[str], caused: Sequence[float], suffered: Sequence[float]) -> Figure:
    """Two bars per rank in percent: caused above, suffered below."""
    top = ceiling(max((*caused, *suffered)))
    canvas = Canvas(
        chart.upward(top, 4, unit="%"), chart.downward([fitted(name) for name in names]), left=theme.NAMES_PX
    )
    slot = -np.arange(len(names), dtype=np.float64)
    named = {"name": [escape_name(name, 60) for name in names]}
    values = {"caused": np.array(caused), "suffered": np.array(suffered)}
    drawn = [
        canvas.bars(style, (0, values[series], slot - low, slot - high), named | values, series=series)
        for (style, _), low, high, series in (
            (CAUSED, 0.48, 0.16, "caused"),
            (SUFFERED, 0.84, 0.52, "suffered"),
        )
    ]
    rows = [
        ("Rank", "@name"),
        ("Others waited for it", chart.quantity("caused", "%", 2)),
        ("It waited for others", chart.quantity("suffered", "%", 2)),
    ]
    canvas.tooltip(rows, drawn)
    return canvas.figure
