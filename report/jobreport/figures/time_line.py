"""Metrics over time, all on one range, so that they zoom and pan together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    DatetimeAxis,
    DatetimeTickFormatter,
    FixedTicker,
    Grid,
    HoverTool,
    Line,
    LinearAxis,
    NoOverlap,
    PanTool,
    Plot,
    Range1d,
    ResetTool,
    VBar,
)
from bokeh.models.annotations.geometry import BoxAnnotation, Span

from jobreport.figures import theme
from jobreport.figures.scales import ceiling
from jobreport.formats import NBSP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bokeh.models.renderers.glyph_renderer import GlyphRenderer

    from jobreport.formats import Scale
    from jobrules.result import Columns, Course, TimeLine

_US_PER_MS = 1000


@dataclass(frozen=True, kw_only=True)
class SharedTime:
    """What the time lines of a job have in common: one range and one table of values."""

    range: Range1d
    source: ColumnDataSource
    width_ms: float
    course: Course
    formatter: DatetimeTickFormatter


def shared_time(columns: Columns, course: Course) -> SharedTime:
    """The range and the times of the columns, each at its middle."""
    start = columns.start_us / _US_PER_MS
    width = columns.width_us / _US_PER_MS
    end = max(start + columns.count * width, start + 1)
    middles = start + width * (np.arange(columns.count) + 0.5)
    return SharedTime(
        range=Range1d(start=start, end=end, bounds=(start, end), min_interval=min(end - start, 4 * width)),
        source=ColumnDataSource({"time": middles}),
        width_ms=width,
        course=course,
        formatter=_formatter(),
    )


def time_line(line: TimeLine, time: SharedTime, scale: Scale, top: float, *, labels: bool) -> Plot:
    """Mean as a line over the band from the lowest to the highest sample; blank where nothing was measured.

    ``top`` is the upper end of the axis in the unit of ``scale``: 100 for percent, else of the
    largest value. ``labels`` says whether the times are written below.
    """
    colours = theme.light()
    mean, low, high = (_add(time.source, values, scale) for values in (line.mean, line.low, line.high))
    plot = Plot(
        x_range=time.range,
        y_range=Range1d(start=0, end=top),
        **theme.plot_look(),
        min_border_bottom=theme.BOTTOM_PX if labels else theme.TOP_PX,
    )
    ticks = FixedTicker(ticks=[0, top / 2, top])
    _hatch_gaps(plot, line.node, time)
    plot.add_layout(Grid(dimension=1, ticker=ticks, grid_line_color=colours["grid"], level="underlay"))
    band = VBar(
        x="time",
        width=time.width_ms,
        bottom=low,
        top=high,
        fill_color=colours["used3"],
        line_color=colours["used3"],
        line_width=1,
    )
    plot.add_glyph(time.source, band)
    drawn = plot.add_glyph(time.source, Line(x="time", y=mean, line_color=colours["used"], line_width=1.5))
    for boundary in boundaries(time.course):
        plot.add_layout(
            Span(
                location=boundary / _US_PER_MS,
                dimension="height",
                line_color=colours["ink2"],
                line_dash=[2, 3],
                line_width=1,
            )
        )
    plot.add_layout(LinearAxis(**theme.axis_look(ticker=ticks)), "left")
    plot.add_layout(_time_axis(time, labels=labels), "below")
    zoom = _zoom()
    plot.add_tools(
        zoom, PanTool(dimensions="width"), ResetTool(), _hover(line, scale, (mean, low, high), drawn)
    )
    plot.toolbar.active_drag = zoom
    plot.toolbar.logo = None
    return plot


def top_of(lines: Sequence[TimeLine], scale: Scale) -> float:
    """The upper end of the axis for lines that are compared: 100 for percent, else a round number."""
    if scale.unit == "%":
        return 100.0
    values = [v for line in lines for v in line.high if v is not None]
    return ceiling(max(values, default=0.0) / scale.factor)


def boundaries(course: Course) -> tuple[int, ...]:
    """Where one phase ends and the next begins."""
    return tuple(phase.start_us for phase in course.phases[1:])


def _add(source: ColumnDataSource, values: Sequence[float | None], scale: Scale) -> str:
    """The name of the column with these values; equal columns are kept once."""
    column = np.array([np.nan if v is None else v / scale.factor for v in values], dtype=np.float32)
    kept: Any
    for name, kept in source.data.items():
        if kept.dtype == column.dtype and np.array_equal(kept, column, equal_nan=True):
            return str(name)
    name = f"v{len(source.data)}"
    source.data[name] = column
    return name


def _hatch_gaps(plot: Plot, node: str, time: SharedTime) -> None:
    for gap in time.course.gaps:
        if gap.node == node:
            plot.add_layout(
                BoxAnnotation(
                    left=gap.start_us / _US_PER_MS,
                    right=gap.end_us / _US_PER_MS,
                    fill_color=None,
                    line_color=None,
                    hatch_pattern="right_diagonal_line",
                    hatch_color=theme.light()["void"],
                    hatch_scale=8,
                    hatch_weight=1,
                    level="underlay",
                )
            )


def _time_axis(time: SharedTime, *, labels: bool) -> LinearAxis:
    """Times of day, UTC; the caption says so. Without labels a line is enough."""
    if not labels:
        return LinearAxis(**theme.axis_look(ticker=FixedTicker(ticks=[])))
    return DatetimeAxis(
        formatter=time.formatter,
        major_label_policy=NoOverlap(min_distance=12),
        **theme.axis_look(),
    )


def _formatter() -> DatetimeTickFormatter:
    exact, minute = "%H:%M:%S", "%H:%M"
    return DatetimeTickFormatter(
        microseconds="%H:%M:%S.%f",
        milliseconds="%H:%M:%S.%3N",
        seconds=exact,
        minsec=exact,
        minutes=minute,
        hourmin=minute,
        hours=minute,
        days="%m-%d",
        months="%Y-%m",
        years="%Y",
    )


def _zoom() -> BoxZoomTool:
    """Drag along the time; what was chosen is tinted, in units of the canvas as Bokeh wants them."""
    colours = theme.light()
    nowhere: dict[str, Any] = dict.fromkeys(("left", "right", "top", "bottom"), math.nan)
    units: dict[str, Any] = dict.fromkeys(
        ("left_units", "right_units", "top_units", "bottom_units"), "canvas"
    )
    chosen = BoxAnnotation(
        fill_color=colours["used3"],
        fill_alpha=0.4,
        line_color=colours["used"],
        level="overlay",
        visible=False,
        syncable=False,
        **nowhere,
        **units,
    )
    return BoxZoomTool(dimensions="width", overlay=chosen)


def _hover(
    line: TimeLine, scale: Scale, names: tuple[str, str, str], drawn: GlyphRenderer[Line]
) -> HoverTool:
    mean, low, high = names
    unit = NBSP + scale.unit
    several = line.devices > 1
    values = [("Mean of the devices" if several else "Mean", f"@{mean}{{0.0}}{unit}")]
    if low != high:
        values += [("Lowest sample", f"@{low}{{0.0}}{unit}"), ("Highest sample", f"@{high}{{0.0}}{unit}")]
    return HoverTool(
        tooltips=theme.tooltip([("Time", "@time{%F %T} UTC"), *values]),
        formatters={"@time": "datetime"},
        renderers=[drawn],
        mode="vline",
        attachment="horizontal",
    )
