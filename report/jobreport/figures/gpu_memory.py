"""GPU memory activity of a node over time: GPUs as lines over the band of all, and the jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from bokeh.models import ColumnDataSource, Line, Plot, Quad, Range1d, Scatter
from bokeh.models.annotations.geometry import Span
from msgspec import Struct

from jobreport.figures import chart, over_columns, theme
from jobreport.figures.chart import Axis, Drawing, Label, Rule
from jobreport.figures.time_line import boundaries
from jobreport.formats import NBSP, escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.analyses.gpu_memory import MemoryBand, MemoryLine, MemoryRise
    from jobrules.analyses.time_lines import Columns
    from jobrules.verdict.phases import JobPhases

PERCENT = chart.upward(100)
#: How the lines are called where the name of a GPU may not stand in a tooltip's frame.
_DASHES = ("Solid", "Dashed", "Dotted", "Dash-dot")


class NodeMemory(Struct, frozen=True, kw_only=True):
    """What is drawn of a node."""

    #: Names the series, so that each can be switched: ``n0``.
    key: str
    band: MemoryBand
    #: At most four.
    lines: tuple[MemoryLine, ...]
    rises: tuple[MemoryRise, ...]

    @property
    def has_mean(self) -> bool:
        """Whether there are more GPUs than lines, so that the mean of all adds something."""
        return self.band.devices > len(self.lines)

    def series(self, name: str) -> str:
        """A name for a series of this node."""
        return f"{self.key}-{name}"


def time_axis(columns: Columns) -> Axis:
    """All columns of the report."""
    return chart.over_time(columns.start_us, over_columns.end_us(columns))


def shared_range(columns: Columns) -> Range1d:
    """A range with which the plots of all nodes zoom together."""
    x = time_axis(columns)
    start, end = float(x.live(x.start)), float(x.live(x.end))
    return Range1d(start=start, end=end, bounds=(start, end))


def memory_drawing(node: NodeMemory, columns: Columns, course: JobPhases) -> Drawing:
    """The static twin of ``memory_plot``."""
    x, y = time_axis(columns), PERCENT
    mean, low, high = map(over_columns.numbers, (node.band.mean, node.band.low, node.band.high))
    marks: list[chart.Mark] = [
        *over_columns.hatch(x, _gaps(node, columns, course)),
        over_columns.band("band", x, y, columns, low, high, series=node.series("band")),
    ]
    if node.has_mean:
        drawn = over_columns.points(columns, mean)
        marks.append(chart.line("all", x, y, *drawn, series=node.series("mean")))
    for (token, _), one in zip(theme.SERIES, node.lines, strict=False):
        drawn = over_columns.points(columns, over_columns.numbers(one.mean))
        marks.append(chart.line(token, x, y, *drawn, series=node.series(token)))
    for boundary in boundaries(course):
        at = float(x.place(boundary))
        marks.append(Rule(style="dots", x1=at, x2=at, y1=0, y2=100))
    for rise in node.rises:
        at, height = float(x.place(rise.start_us)), 100 - float(y.place(rise.to_percent))
        marks.append(Label(text="▲", x=at, y=height, dy=0.35, style="strong"))
    return Drawing(x=x, y=y, marks=tuple(marks))


def memory_plot(node: NodeMemory, columns: Columns, course: JobPhases, x_range: Range1d) -> Plot:
    """Band from the lowest to the highest sample of any GPU, lines of single GPUs, triangles where one jumped."""
    colors = theme.light()
    x, y = time_axis(columns), PERCENT
    plot = chart.live_plot(x, y, x_range=x_range, zoom=True)
    over_columns.live_hatch(plot, x, y.end, _gaps(node, columns, course))
    mean, low, high = map(over_columns.numbers, (node.band.mean, node.band.low, node.band.high))
    there = ~np.isnan(mean)
    left, right = (x.live(side)[there] for side in over_columns.edges(columns))
    data: dict[str, Any] = {"left": left, "right": right}
    data |= {n: v[there].astype(np.float32) for n, v in (("low", low), ("high", high), ("mean", mean))}
    rows = [("From", x.told("@left"))]
    values = [over_columns.numbers(one.mean) for one in node.lines]
    for i, (one, level) in enumerate(zip(node.lines, values, strict=True)):
        data[f"v{i}"] = level[there].astype(np.float32)
        rows.append((_named(one.device, i), chart.quantity(f"v{i}", "%")))
    if node.has_mean:
        rows.append((f"Mean of {node.band.devices}{NBSP}GPUs", chart.quantity("mean", "%")))
    rows += [("Lowest sample", chart.quantity("low", "%")), ("Highest sample", chart.quantity("high", "%"))]
    band = plot.add_glyph(
        ColumnDataSource(data),
        Quad(
            left="left",
            right="right",
            bottom="low",
            top="high",
            fill_color=colors["used3"],
            line_color=colors["used3"],
        ),
        name=node.series("band"),
    )
    if node.has_mean:
        _line(plot, x, columns, mean, colors["ink2"], "solid", node.series("mean"))
    for (token, dash), level in zip(theme.SERIES, values, strict=False):
        _line(plot, x, columns, level, colors[token], dash, node.series(token))
    for boundary in boundaries(course):
        plot.add_layout(
            Span(
                location=float(x.live(boundary)),
                dimension="height",
                line_color=colors["ink2"],
                line_dash=[2, 3],
                line_width=1,
            )
        )
    if node.rises:
        _triangles(plot, x, node.rises)
    plot.add_tools(
        chart.hover(rows, [band], mode="vline", formatters={"@left": "datetime"}, attachment="horizontal")
    )
    return plot


def _gaps(node: NodeMemory, columns: Columns, course: JobPhases) -> list[tuple[int, int]]:
    """The gaps of the node, and the columns without a sample."""
    gaps = [(gap.start_us, gap.end_us) for gap in course.gaps if gap.node == node.band.node]
    return over_columns.merged(gaps + over_columns.holes(columns, over_columns.numbers(node.band.mean)))


def _named(device: str, place: int) -> str:
    """A plain name as it is; Bokeh would read ``@`` and ``$`` in others, so these go by their line."""
    plain = len(device) <= 24 and device.isascii() and device.replace("-", "").replace("_", "").isalnum()
    return device if plain else f"{_DASHES[place]} line"


def _line(
    plot: Plot, x: Axis, columns: Columns, values: over_columns.Floats, color: str, dash: str, name: str
) -> None:
    times, heights = over_columns.points(columns, values)
    source = ColumnDataSource({"time": x.live(times), "value": heights.astype(np.float32)})
    glyph = Line(x="time", y="value", line_color=color, line_dash=dash, line_width=1.5)
    plot.add_glyph(source, glyph, name=name)


def _triangles(plot: Plot, x: Axis, rises: Sequence[MemoryRise]) -> None:
    ink = theme.light()["ink"]
    source = ColumnDataSource(
        {
            "time": x.live([rise.start_us for rise in rises]),
            "before": [rise.from_percent for rise in rises],
            "after": [rise.to_percent for rise in rises],
            "gpu": [escape_name(rise.device, 24) for rise in rises],
        }
    )
    glyph = Scatter(x="time", y="after", marker="triangle", size=9, fill_color=ink, line_color=ink)
    drawn = plot.add_glyph(source, glyph)
    rows = [
        ("Jump on", "@gpu"),
        ("At", x.told("@time")),
        ("From", chart.quantity("before", "%")),
        ("To", chart.quantity("after", "%")),
    ]
    plot.add_tools(chart.hover(rows, [drawn], formatters={"@time": "datetime"}))
