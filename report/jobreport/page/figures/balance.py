"""Histograms of GPU utilization: outlines that share a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobreport.formats import escape_name
from jobreport.page.figures import theme
from jobreport.page.figures.canvas import Canvas
from jobreport.page.figures.chart import quantity, upward
from jobreport.page.figures.scales import ceiling

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobreport.page.figures.canvas import Figure
    from jobreport.page.figures.chart import Axis

#: Curves in one plot.
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


def histograms(plot: Histograms, axes: tuple[Axis, Axis]) -> Figure:
    """A curve has the color and dash of its place; a bin under the pointer shows the share of each curve in it."""
    canvas = Canvas(*axes)
    edges = np.linspace(0, 100, len(plot.curves[0].values) + 1)
    left, right = edges[:-1], edges[1:]
    columns: dict[str, Any] = {}
    rows = [("Utilization", f"@left{{0}} to {quantity('right', '%', 0)}")]
    if plot.usual:
        canvas.bars("n1", (left, right, 0, plot.usual))
    for i, (curve, (style, _)) in enumerate(zip(plot.curves, theme.SERIES, strict=False)):
        canvas.outline(style, edges, curve.values, series=series(i))
        columns[f"v{i}"] = np.asarray(curve.values, np.float32)
        columns[f"n{i}"] = [escape_name(curve.name, 40)] * len(curve.values)
        rows.append(("GPU", f"@n{i}: {quantity(f'v{i}', '% of samples', 2)}"))
    if plot.usual:
        columns["usual"] = np.asarray(plot.usual, np.float32)
        rows.append(("Mean of the node", quantity("usual", "% of samples", 2)))
    # Invisible; it answers to the pointer over the whole height of a bin.
    bins = canvas.bars("", (left, right, 0, axes[1].end), columns)
    canvas.tooltip(rows, [bins])
    return canvas.figure
