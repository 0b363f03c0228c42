"""Bottlenecks: how the samples of GPUs part, and their share over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from bokeh.models import ColumnDataSource, HBar, Range1d, VBar
from bokeh.models.annotations.geometry import Span
from msgspec import Struct

from jobreport.figures import theme
from jobreport.figures.chart import (
    US_PER_MS,
    Area,
    Axis,
    Drawing,
    Rule,
    Shape,
    along,
    bars,
    downward,
    hatched,
    hover,
    live_plot,
    over_time,
    quantity,
    upward,
)
from jobreport.formats import escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bokeh.models import Plot
    from bokeh.models.renderers.renderer import DataRenderer

    from jobrules.analyses.time_lines import Columns

#: Half the thickness of a bar whose slot is 1.
_HALF = 0.31
#: Characters of a name that fit left of a bar.
_NAME = 15
#: The class of what was not measured, which is hatched.
UNKNOWN = "x"
#: Classes of the drawings and the tokens that they stand for.
_TOKENS = {"u": "used", "u3": "used3", "l3": "lost3", "l": "lost"}


class Band(Struct, frozen=True, kw_only=True):
    """One part of every bar."""

    #: Class of its swatch: ``u``, ``u3``, ``l3``, ``l`` or ``x``.
    style: str
    label: str
    #: Of each bar: a count, and percent of the bar.
    counts: tuple[int, ...]
    percents: tuple[float, ...]


def _edges(bands: Sequence[Band]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Left and right of each part of each bar, in percent."""
    ends = np.cumsum([band.percents for band in bands], axis=0)
    starts = ends - np.array([band.percents for band in bands])
    return list(zip(starts, ends, strict=True))


def _axes(names: Sequence[str]) -> tuple[Axis, Axis]:
    return along(0, 100), downward([escape_name(name, _NAME) for name in names])


def parted_drawing(names: Sequence[str], bands: Sequence[Band]) -> Drawing:
    """A bar of 100% for each name, the first on top, its parts in the order given."""
    x, y = _axes(names)
    slots = -0.5 - np.arange(len(names))
    marks: list[Shape | Area] = []
    for band, (left, right) in zip(bands, _edges(bands), strict=True):
        if band.style == UNKNOWN:
            tops = 100 - y.place(slots + _HALF)
            height = 2 * _HALF * 100 / len(names)
            marks += [
                Area(style=UNKNOWN, x=a, y=top, width=b - a, height=height)
                for a, b, top in zip(left.tolist(), right.tolist(), tops.tolist(), strict=True)
                if b > a
            ]
        else:
            sides = (left, right, slots - _HALF, slots + _HALF)
            marks.append(bars(f"{band.style} stroke", x, y, sides))
    return Drawing(x=x, y=y, marks=tuple(marks))


def parted_plot(names: Sequence[str], bands: Sequence[Band], counted: str) -> Plot:
    """The same, with count and share of each part in a tooltip; ``counted`` names what: ``Samples``."""
    x, y = _axes(names)
    plot = live_plot(x, y, left=theme.NAMES_PX)
    colors = theme.light()
    slots = -0.5 - np.arange(len(names))
    drawn: list[DataRenderer] = []
    for band, (left, right) in zip(bands, _edges(bands), strict=True):
        source = ColumnDataSource(
            {
                "y": slots,
                "left": left,
                "right": right,
                "name": [escape_name(name, 40) for name in names],
                "part": [band.label] * len(names),
                "count": np.array(band.counts, np.int32),
                "percent": np.array(band.percents),
            }
        )
        bar = HBar(y="y", left="left", right="right", height=2 * _HALF, line_color=colors["paper"])
        if band.style == UNKNOWN:
            bar.update(fill_color=None, hatch_pattern="right_diagonal_line", hatch_color=colors["void"])
            bar.update(hatch_scale=8, hatch_weight=1)
        else:
            bar.fill_color = colors[_TOKENS[band.style]]
        drawn.append(plot.add_glyph(source, bar))
    rows = [
        ("Node", "@name"),
        ("Part", "@part"),
        (counted, "@count{0,0}"),
        ("Share", quantity("percent", "%")),
    ]
    plot.add_tools(hover(rows, drawn))
    return plot


class Frame(Struct, frozen=True, kw_only=True):
    """What the courses of a section share: the time, where its phases part, and the limit in percent, if any."""

    columns: Columns
    boundaries: tuple[int, ...]
    limit: float | None

    @property
    def end_us(self) -> int:
        """Where the last column ends."""
        return self.columns.start_us + self.columns.count * self.columns.width_us

    @property
    def x(self) -> Axis:
        """The time, of all columns."""
        return over_time(self.columns.start_us, self.end_us)


Percents = tuple[float | None, ...]


def course_drawing(percents: Percents, frame: Frame, *, labels: bool) -> Drawing:
    """A bar for each column in the color of what is lost; hatched where nothing is known."""
    x, y = frame.x, upward(100)
    width = 100 / frame.columns.count
    gaps = [
        Area(style=UNKNOWN, x=a * width, y=0, width=(b - a) * width, height=100) for a, b in _gaps(percents)
    ]
    places = x.place(np.array(frame.boundaries, np.float64)).tolist()
    phases = [Rule(style="dots", x1=at, x2=at, y1=0, y2=100) for at in places]
    limit = []
    if frame.limit is not None:
        at = 100 - float(y.place(frame.limit))
        limit = [Rule(style="limit", x1=0, x2=100, y1=at, y2=at)]
    return Drawing(x=x, y=y, marks=(*gaps, _silhouette(percents), *phases, *limit), labels=labels)


def _silhouette(percents: Percents) -> Shape:
    """Adjacent bars as one outline, which takes a third of the bytes; heights in whole percent."""
    heights = [round(percent or 0) for percent in percents]
    width = 1000 / len(heights) if heights else 0
    parts, last = [], 0
    for i, height in enumerate([*heights, 0]):
        if height != last:
            at = f"{i * width:.1f}".removesuffix(".0")
            parts.append(f"H{at}V{100 - height}" if last else f"M{at} 100V{100 - height}")
            last = height
    return Shape(style="l", path="".join(parts))


def _gaps(percents: Percents) -> list[tuple[int, int]]:
    """First and end of each stretch of columns without a value."""
    void = np.array([percent is None for percent in percents], np.int8)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], void, [0])))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def course_plots(courses: Sequence[Percents], frame: Frame) -> list[Plot]:
    """The same, one below the other on one time; the last one has the labels."""
    start, width = frame.columns.start_us / US_PER_MS, frame.columns.width_us / US_PER_MS
    end = frame.end_us / US_PER_MS
    time = Range1d(start=start, end=end, bounds=(start, end), min_interval=min(end - start, 4 * width))
    source = ColumnDataSource({"time": start + width * (np.arange(frame.columns.count) + 0.5)})
    colors, plots = theme.light(), []
    for i, percents in enumerate(courses):
        name = f"v{i}"
        source.data[name] = np.array([np.nan if v is None else v for v in percents], np.float32)
        plot = live_plot(frame.x, upward(100), x_range=time, labels=i == len(courses) - 1, zoom=True)
        for a, b in _gaps(percents):
            plot.add_layout(hatched(left=start + a * width, right=start + b * width))
        bar = VBar(
            x="time",
            width=width,
            bottom=0,
            top=name,
            fill_color=colors["lost"],
            line_color=colors["lost"],
            line_width=0.5,
        )
        drawn = plot.add_glyph(source, bar)
        for boundary in frame.boundaries:
            plot.add_layout(_span(boundary / US_PER_MS, "height", colors["ink2"], [2, 3]))
        if frame.limit is not None:
            plot.add_layout(_span(frame.limit, "width", colors["ink"], [5, 3]))
        rows = [("Time", frame.x.told("@time")), ("Bottlenecks", f"{quantity(name, '%')} of snapshots")]
        plot.add_tools(
            hover(rows, [drawn], mode="vline", formatters={"@time": "datetime"}, attachment="horizontal")
        )
        plots.append(plot)
    return plots


def _span(at: float, dimension: Literal["width", "height"], color: str, dash: list[int]) -> Span:
    return Span(location=at, dimension=dimension, line_color=color, line_dash=dash, line_width=1.5)
