"""Histograms of GPU utilization: outlines that share a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from bokeh.models import ColumnDataSource, Line, Quad, VArea
from msgspec import Struct

from jobreport.figures import theme
from jobreport.figures.chart import Drawing, hover, live_plot, outline, quantity, upward
from jobreport.figures.scales import ceiling
from jobreport.formats import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bokeh.models import Plot

    from jobreport.figures.chart import Axis, Mark

#: Lines that one plot can hold apart.
MAX_LINES = len(theme.SERIES)


class Curve(Struct, frozen=True, kw_only=True):
    """The histogram of one GPU."""

    name: str
    #: Percent of its samples per bin, from 0 to 100% of utilization.
    values: tuple[float, ...]


class Histograms(Struct, frozen=True, kw_only=True):
    """What one plot shows: up to four curves, or one before the mean of its node."""

    curves: tuple[Curve, ...]
    #: Empty where the curves are all of the node.
    usual: tuple[float, ...] = ()


def frame(plots: Iterable[Histograms]) -> tuple[Axis, Axis]:
    """The axes that all plots share: utilization, and percent of the samples."""
    top = max(
        (v for plot in plots for one in (*(c.values for c in plot.curves), plot.usual) for v in one),
        default=0.0,
    )
    return upward(100, 4, unit="%"), upward(min(100.0, ceiling(top)) if top > 0 else 1.0, unit="%")


def series(place: int) -> str:
    """What the key calls a curve by its place in the plot."""
    return f"gpu-{place + 1}"


def load_drawing(plot: Histograms, axes: tuple[Axis, Axis]) -> Drawing:
    """The static drawing; a curve has the color and dash of its place."""
    x, y = axes
    marks: list[Mark] = []
    if plot.usual:
        marks.append(outline("n1", x, y, _edges(plot.usual), plot.usual))
    for i, (curve, (style, _)) in enumerate(zip(plot.curves, theme.SERIES, strict=False)):
        marks.append(outline(style, x, y, _edges(curve.values), curve.values, series=series(i)))
    return Drawing(x=x, y=y, marks=tuple(marks))


def load_plot(plot: Histograms, axes: tuple[Axis, Axis]) -> Plot:
    """The live plot: a bin under the pointer shows the share of each curve in it."""
    colors, edges = theme.light(), _edges(plot.curves[0].values)
    drawn = live_plot(*axes)
    lines = ColumnDataSource({"x": _packed(np.repeat(edges, 2))})
    bins = ColumnDataSource({"left": _packed(edges[:-1]), "right": _packed(edges[1:])})
    if plot.usual:
        lines.data["usual"], bins.data["usual"] = _outlined(plot.usual), _packed(plot.usual)
        drawn.add_glyph(lines, VArea(x="x", y1=0, y2="usual", fill_color=colors["line"], fill_alpha=1))
    for i, (curve, (token, dash)) in enumerate(zip(plot.curves, theme.SERIES, strict=False)):
        name = f"v{i}"
        lines.data[name], bins.data[name] = _outlined(curve.values), _packed(curve.values)
        bins.data[f"n{i}"] = [escape_name(curve.name, 40)] * len(curve.values)
        look = Line(
            x="x",
            y=name,
            line_color=colors[token],
            line_dash=dash,
            line_width=1.5,
        )
        drawn.add_glyph(lines, look, name=series(i))
    # Invisible; it answers to the pointer over the whole height of a bin.
    top = axes[1].end
    whole = Quad(
        left="left",
        right="right",
        bottom=0,
        top=top,
        fill_color=colors["paper"],
        fill_alpha=0,
        line_color=None,
    )
    target = drawn.add_glyph(bins, whole)
    rows = [("Utilization", f"@left{{0}} to {quantity('right', '%', 0)}")]
    rows += [("GPU", f"@n{i}: {quantity(f'v{i}', '% of samples', 2)}") for i in range(len(plot.curves))]
    if plot.usual:
        rows.append(("Mean of the node", quantity("usual", "% of samples", 2)))
    drawn.add_tools(hover(rows, [target]))
    return drawn


def _edges(values: Sequence[float]) -> np.ndarray:
    return np.linspace(0, 100, len(values) + 1)


def _packed(values: Sequence[float] | np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float32)


def _outlined(values: Sequence[float]) -> np.ndarray:
    """Two heights at every edge, from the floor to the floor."""
    return _packed(np.concatenate(([0], np.repeat(np.asarray(values), 2), [0])))
