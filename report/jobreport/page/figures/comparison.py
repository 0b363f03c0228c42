"""Figures of a comparison: blocks, cumulated and over time, and utilization."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.page.figures import theme
from jobreport.page.figures.canvas import Canvas
from jobreport.page.figures.chart import along, downward, quantity, upward
from jobreport.page.figures.names import fitted
from jobreport.page.figures.scales import ceiling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.page.figures.canvas import Figure

#: Classes of the lines in one plot, the base first.
STYLES = ("s0", *(style for style, _ in theme.SERIES))
MAX_LINES = len(STYLES)
#: Half the height of a mark in a row, and half its width in percent of the axis.
_HALF, _WIDE = 0.28, 0.3
#: Steps between the labels of durations: more labels do not fit on a phone.
_STEPS = 4
#: Quantile at which the axis of durations ends: rare long steps would flatten all others.
LAST_QUANTILE = 99


class Line(Struct, frozen=True, kw_only=True):
    """One variant in a plot of lines."""

    label: str
    values: Sequence[float]


def series(place: int) -> str:
    """What the key calls a line by its place."""
    return f"variant-{place + 1}"


def cumulated(lines: Sequence[Line], factor: float, unit: str) -> Figure:
    """Share of the steps that took at most so long; the values of a line are its percentiles, 0 to 100, in seconds."""
    ends = [line.values[LAST_QUANTILE] * factor for line in lines]
    start = min(line.values[0] for line in lines) * factor
    end = max(*ends, start * (1 + 1e-6), start + 1e-9)
    canvas = Canvas(along(start, end, _STEPS, unit=f" {unit}"), upward(100, 4, unit="%"))
    drawn = []
    for i, (line, style) in enumerate(zip(lines, STYLES, strict=False)):
        places = np.array(line.values) * factor
        inside = places <= end
        columns = {"name": [line.label] * int(inside.sum())}
        shares = np.arange(len(places))[inside]
        drawn.append(canvas.line(style, places[inside], shares, columns, series=series(i)))
    canvas.tooltip(
        [("Variant", "@name"), ("Steps", quantity("y", "%", 0)), ("took at most", quantity("x", unit, 2))],
        drawn,
    )
    return canvas.figure


def over_loop(lines: Sequence[Line], factor: float, unit: str) -> Figure:
    """Means of neighboring blocks over the share of the steps."""
    top = max(value for line in lines for value in line.values) * factor
    canvas = Canvas(along(0, 100, unit="%"), upward(ceiling(top), unit=f" {unit}"))
    drawn = []
    for i, (line, style) in enumerate(zip(lines, STYLES, strict=False)):
        n = len(line.values)
        places = (np.arange(n) + 0.5) * 100 / n
        means = np.array(line.values) * factor
        drawn.append(canvas.line(style, places, means, {"name": [line.label] * n}, series=series(i)))
    canvas.tooltip(
        [("Variant", "@name"), ("Place", quantity("x", "%", 0)), ("Mean step", quantity("y", unit, 2))], drawn
    )
    return canvas.figure


class Blocks(Struct, frozen=True, kw_only=True):
    """A row of blocks, with the mean and its intervals, in one unit."""

    label: str
    values: Sequence[float]
    mean: float


def blocks(rows: Sequence[Blocks], unit: str) -> Figure:
    """A mark for each block, a line for the mean."""
    ends = [value for row in rows for value in row.values]
    low, high = min(ends), max(ends)
    room = max((high - low) * 0.05, high * 1e-3, 1e-9)
    x = along(low - room, high + room, _STEPS, unit=f" {unit}")
    canvas = Canvas(x, downward([fitted(row.label) for row in rows]), left=theme.NAMES_PX)
    half = _WIDE / 100 * (x.end - x.start)
    middle = -0.5 - np.arange(len(rows))
    drawn = []
    for i, row in enumerate(rows):
        values = np.array(row.values)
        columns = {"value": values, "name": [row.label] * len(values)}
        sides = (values - half, values + half, middle[i] - _HALF, middle[i] + _HALF)
        drawn.append(canvas.bars("f2" if i == 0 else "u2", sides, columns))
    means = np.array([row.mean for row in rows])
    canvas.segments("mark", (means, means, middle - 0.45, middle + 0.45))
    canvas.tooltip([("Variant", "@name"), ("Mean of a block", quantity("value", unit, 2))], drawn)
    return canvas.figure


def utilization(own: Line, base: Line | None, mean: float, top: float) -> Figure:
    """The histogram of a variant before the outline of the base; a line at the mean."""
    canvas = Canvas(upward(100, 2, unit="%"), upward(top, unit="%"))
    edges = np.linspace(0, 100, len(own.values) + 1)
    left, right = edges[:-1], edges[1:]
    values = np.asarray(own.values, np.float32)
    drawn = canvas.bars("u3", (left, right, 0, own.values), {"share": values})
    canvas.outline("s1", edges, own.values)
    if base:
        canvas.outline("s0", edges, base.values)
    canvas.upright("mark", [mean])
    canvas.tooltip(
        [("Utilization", f"@left{{0}} to {quantity('right', '%', 0)}"), ("Time", quantity("share", "%"))],
        [drawn],
    )
    return canvas.figure
