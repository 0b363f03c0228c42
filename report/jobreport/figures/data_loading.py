"""Batch fetch times, and active loader processes over time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, Line, Plot, Quad, Segment, Text
from bokeh.models.annotations.geometry import Span
from msgspec import Struct

from jobreport.figures import chart, over_columns, theme
from jobreport.figures.chart import Axis, Drawing, Rule
from jobreport.figures.scales import Tick, ceiling
from jobreport.formats import count, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.figures.over_columns import Floats
    from jobrules.analyses.data_loading import FetchTimes, LoadersAtWork
    from jobrules.analyses.time_lines import Columns

#: The bar of what lies beyond the bins, and the gap before it, as parts of the bins' stretch.
_GAP, _BEYOND = 0.05, 0.06
#: Heights at which marks are named, from the top, as parts of the axis.
_ROWS = (0.95, 0.86, 0.77)
#: Room above the bars for these names.
_ROOM = 1.3
#: Room for a name next to its mark, in percent of the width, on a narrow screen; with another line next to it.
_NAME, _BETWEEN = 26, 30


class Unit(Struct, frozen=True, kw_only=True):
    """A unit that keeps times short: print ``seconds / factor`` and then ``name``."""

    factor: float
    name: str

    def text(self, seconds: float) -> str:
        """``46.2``: three digits."""
        value = seconds / self.factor
        return number(value, 0 if value >= 100 else 1 if value >= 10 else 2)


def unit_for(seconds: float) -> Unit:
    """Seconds, milliseconds or microseconds for times of this size."""
    return next(
        (Unit(factor=f, name=n) for f, n in ((1.0, "s"), (1e-3, "ms")) if seconds >= f),
        Unit(factor=1e-6, name="µs"),
    )


class Named(Struct, frozen=True, kw_only=True):
    """An upright line with its name."""

    #: On the x axis.
    place: float
    name: str
    #: Whether the name stands left of the line, and in which row from the top.
    left: bool
    row: int


class Histogram(Struct, frozen=True, kw_only=True):
    """The axes and bars of the fetch times."""

    x: Axis
    y: Axis
    left: Floats
    right: Floats
    heights: Floats
    #: What each bar counts: "46 to 48 ms".
    ranges: tuple[str, ...]
    marks: tuple[Named, ...]
    #: How many lie beyond the bins; empty for none.
    beyond: str


def histogram(fetches: FetchTimes) -> Histogram:
    """Bars of the bins, and one beyond a gap for all that took longer; a scale by factors is in decades."""
    unit = unit_for(fetches.p50_s)
    edges = np.array(fetches.edges_s)
    places = np.log10(edges) if fetches.log else edges / unit.factor
    start, end = float(places[0]), float(places[-1])
    span = end - start
    left, right = places[:-1], places[1:]
    heights = np.array(fetches.counts, np.float64)
    ranges = [_between(a, b, unit) for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
    ticks = _decades(start, end) if fetches.log else _plain(start, end)
    stop = end
    if fetches.beyond:
        stop = end + span * (_GAP + _BEYOND)
        left = np.append(left, end + span * _GAP)
        right = np.append(right, stop)
        heights = np.append(heights, fetches.beyond)
        least = unit if not fetches.log else unit_for(edges[-1])
        ranges.append(f"{least.text(edges[-1])} {least.name} and more")
        ticks = [(place, label) for place, label in ticks if place < end - 0.04 * span]
        ticks.append(((end + span * _GAP + stop) / 2, f"≥ {least.text(edges[-1])}"))
    at = [math.log10(max(s, edges[0])) if fetches.log else s / unit.factor for s in _marked(fetches)]
    names = [
        f"{name} {unit_for(s).text(s)} {unit_for(s).name}"
        for name, s in zip(_MARKS, _marked(fetches), strict=True)
    ]
    top = ceiling(_ROOM * float(heights.max()))
    x = Axis(
        start=start,
        end=stop,
        ticks=tuple(Tick(at=(p - start) / (stop - start), label=label) for p, label in ticks),
    )
    p25, p50, p95 = x.place(at).tolist()
    sides = _sides(p25, p50, p95)
    return Histogram(
        x=x,
        y=counted(top),
        left=left,
        right=right,
        heights=heights,
        ranges=tuple(ranges),
        marks=tuple(
            Named(place=place, name=name, left=left, row=row)
            for place, name, (left, row) in zip(at, names, sides, strict=True)
        ),
        beyond=number(fetches.beyond, 0) if fetches.beyond else "",
    )


_MARKS = ("p25", "median", "p95")


def _marked(fetches: FetchTimes) -> tuple[float, float, float]:
    return fetches.p25_s, fetches.p50_s, fetches.p95_s


def _sides(p25: float, p50: float, p95: float) -> tuple[tuple[bool, int], ...]:
    """For marks at places in percent: whether their names stand left, and in which row, so that no line crosses one.

    A line begins at the height of its own name, so a name may pass above the lines of the rows below.
    """
    if p95 <= 100 - _NAME:
        if p25 >= _NAME:
            return (True, 0), (False, 0), (False, int(p95 - p50 < _BETWEEN))
        second = int(p50 - p25 < _BETWEEN)
        return (False, 0), (False, second), (False, second + int(p95 - p50 < _BETWEEN))
    if p25 >= _NAME:
        second = int(p95 - p50 < _BETWEEN)
        return (True, second + int(p50 - p25 < _BETWEEN)), (True, second), (True, 0)
    return (False, 0), (p50 - p25 > p95 - p50, 1), (True, 0)


def _between(low: float, high: float, unit: Unit) -> str:
    return f"{unit.text(low)} to {unit.text(high)} {unit.name}"


def _plain(start: float, end: float) -> list[tuple[float, str]]:
    places = [start + tick.at * (end - start) for tick in chart.along(start, end).ticks]
    digits = max((len(f"{place:.6g}".partition(".")[2]) for place in places), default=0)
    return [(place, number(place, digits)) for place in places]


def _decades(start: float, end: float) -> list[tuple[float, str]]:
    def ticks(*steps: int) -> list[tuple[float, str]]:
        found = []
        for power in range(math.floor(start), math.ceil(end) + 1):
            for step in steps:
                place = power + math.log10(step)
                if start - 1e-9 <= place <= end + 1e-9:
                    unit = unit_for(step * 10.0**power * (1 + 1e-9))
                    found.append((place, f"{step * 10.0**power / unit.factor:g} {unit.name}"))
        return found

    wide = ticks(1)
    return wide if len(wide) > 2 else ticks(1, 2, 5)


def counted(top: float) -> Axis:
    """An axis of whole numbers."""
    return chart.upward(top, 2 if top % 2 == 0 else 1)


def fetch_drawing(drawn: Histogram) -> Drawing:
    """The static histogram."""
    marks: list[chart.Mark] = [chart.bars("u", drawn.x, drawn.y, (drawn.left, drawn.right, 0, drawn.heights))]
    for one in drawn.marks:
        row = _ROWS[one.row]
        at = float(drawn.x.place(one.place))
        marks.append(Rule(style="mark", x1=at, x2=at, y1=100 * (1 - row) - 4, y2=100))
        side, anchor = (-1, "end") if one.left else (1, "start")
        marks.append(
            chart.Label(
                text=one.name, x=at, y=100 * (1 - row), anchor=anchor, dx=0.4 * side, dy=0.32, style="strong"
            )
        )
    if drawn.beyond:
        at = float(drawn.x.place((drawn.left[-1] + drawn.right[-1]) / 2))
        top = 100 - float(drawn.y.place(drawn.heights[-1]))
        marks.append(chart.Label(text=drawn.beyond, x=at, y=top, dy=-0.4))
    return Drawing(x=drawn.x, y=drawn.y, marks=tuple(marks))


def fetch_plot(drawn: Histogram) -> Plot:
    """The live histogram."""
    colors = theme.light()
    plot = chart.live_plot(drawn.x, drawn.y)
    source = ColumnDataSource(
        {"left": drawn.left, "right": drawn.right, "fetches": drawn.heights, "range": list(drawn.ranges)}
    )
    bars = plot.add_glyph(
        source,
        Quad(left="left", right="right", bottom=0, top="fetches", fill_color=colors["used"], line_color=None),
    )
    for one in drawn.marks:
        place, height = one.place, _ROWS[one.row] * drawn.y.end
        segment = Segment(
            x0=place, x1=place, y0=0, y1=height + 0.04 * drawn.y.end, line_color=colors["ink"], line_width=2
        )
        plot.add_glyph(ColumnDataSource({"x": [place]}), segment)
        _write(
            plot,
            one.name,
            (place, height),
            colors["ink"],
            "right" if one.left else "left",
            x_offset=-5 if one.left else 5,
        )
    if drawn.beyond:
        middle = float(drawn.left[-1] + drawn.right[-1]) / 2
        top = float(drawn.heights[-1])
        _write(plot, drawn.beyond, (middle, top), colors["ink2"], "center", y_offset=-9)
    plot.add_tools(chart.hover([("Fetch time", "@range"), ("Fetches", "@fetches{0,0}")], [bars]))
    return plot


def _write(
    plot: Plot,
    text: str,
    place: tuple[float, float],
    color: str,
    align: Literal["left", "right", "center"],
    **more: Any,
) -> None:
    glyph = Text(
        x="x",
        y="y",
        text="text",
        text_align=align,
        text_baseline="middle",
        text_color=color,
        text_font=value(theme.font()),
        text_font_size=value(theme.FONT_SIZE),
        **more,
    )
    plot.add_glyph(ColumnDataSource({"x": [place[0]], "y": [place[1]], "text": [text]}), glyph)


class WorkAxes(Struct, frozen=True, kw_only=True):
    """The axes that the lines of active loader processes share."""

    x: Axis
    y: Axis


def work_axes(columns: Columns, lines: Sequence[LoadersAtWork]) -> WorkAxes:
    """One scale for all lines, that holds their cores too."""
    most = max(max(one.cores, *(high for high in one.high if high is not None)) for one in lines)
    top = ceiling(1.15 * most)
    x = chart.over_time(columns.start_us, over_columns.end_us(columns))
    return WorkAxes(x=x, y=counted(top))


def work_drawing(line: LoadersAtWork, columns: Columns, axes: WorkAxes) -> Drawing:
    """Mean as a line over the band from lowest to highest; the cores as a limit."""
    x, y = axes.x, axes.y
    mean, low, high = map(over_columns.numbers, (line.mean, line.low, line.high))
    marks: list[chart.Mark] = [
        *over_columns.hatch(x, over_columns.holes(columns, mean)),
        chart.bars("band", x, y, over_columns.blocks(columns, low, high)),
        chart.line("line", x, y, *over_columns.points(columns, mean)),
    ]
    if line.cores:
        height = 100 - float(y.place(line.cores))
        marks.append(Rule(style="limit", x1=0, x2=100, y1=height, y2=height))
        marks.append(
            chart.Label(
                text=count(line.cores, "core"), x=100, y=height, anchor="end", dy=-0.4, style="strong"
            )
        )
    return Drawing(x=x, y=y, marks=tuple(marks))


def work_plot(line: LoadersAtWork, columns: Columns, axes: WorkAxes) -> Plot:
    """The same, with zoom along the time."""
    colors = theme.light()
    x, y = axes.x, axes.y
    mean, low, high = map(over_columns.numbers, (line.mean, line.low, line.high))
    plot = chart.live_plot(x, y, zoom=True)
    over_columns.live_hatch(plot, x, y.end, over_columns.holes(columns, mean))
    left, right = (x.live(side) for side in over_columns.edges(columns))
    there = ~np.isnan(mean)
    source = ColumnDataSource(
        {
            "left": left[there],
            "right": right[there],
            "low": low[there].astype(np.float32),
            "high": high[there].astype(np.float32),
            "mean": mean[there].astype(np.float32),
        }
    )
    band = Quad(
        left="left",
        right="right",
        bottom="low",
        top="high",
        fill_color=colors["used3"],
        line_color=colors["used3"],
    )
    drawn = plot.add_glyph(source, band)
    times, heights = over_columns.points(columns, mean)
    plot.add_glyph(
        ColumnDataSource({"time": x.live(times), "mean": heights.astype(np.float32)}),
        Line(x="time", y="mean", line_color=colors["used"], line_width=1.5),
    )
    if line.cores:
        plot.add_layout(
            Span(
                location=line.cores,
                dimension="width",
                line_color=colors["ink"],
                line_width=1.5,
                line_dash=[5, 3],
            )
        )
        words = count(line.cores, "core")
        _write(plot, words, (float(x.live(x.end)), line.cores), colors["ink"], "right", y_offset=-9)
    rows = [
        ("From", "@left{%F %T} UTC"),
        ("Mean", "@mean{0.0}"),
        ("Lowest", "@low{0}"),
        ("Highest", "@high{0}"),
    ]
    plot.add_tools(
        chart.hover(rows, [drawn], mode="vline", formatters={"@left": "datetime"}, attachment="horizontal")
    )
    return plot
