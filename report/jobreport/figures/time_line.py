"""Metrics over time, all on one range, so that they zoom and pan together; and their static drawings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from bokeh.models import ColumnDataSource, Line, Plot, Range1d, VBar
from bokeh.models.annotations.geometry import Span
from msgspec import Struct

from jobreport.figures import chart, over_columns, theme
from jobreport.figures.chart import US_PER_MS, Axis, Drawing, Mark, Rule, Shape, hatched
from jobreport.figures.scales import ceiling
from jobrules.analyses.time_lines import Columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from jobreport.formats import Scale
    from jobrules.analyses.time_lines import TimeLine
    from jobrules.verdict.phases import JobPhases

    FloatArray = npt.NDArray[np.float64]

#: Columns of a plot and of its drawing: of one node, and of several, which are drawn narrower.
MAX_COLUMNS = (300, 150)
#: Line, band and dash of a line alone and of two in one plot: tokens of the live ones, classes of the drawn ones.
_ALONE = (("used", "used3", "solid", "line", "band"),)
_PAIR = (("s1", "used3", "solid", "s1", "band"), ("s2", "line", "dashed", "s2", "band2"))


def size_of(columns: Columns, most: int) -> int:
    """How many columns are bundled into one so that at most ``most`` remain."""
    return max(1, -(-columns.count // most))


def bundled(line: TimeLine, size: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean of means, lowest low, highest high of every ``size`` columns; NaN where none was measured."""
    count = len(line.mean)
    tables = np.full((3, -(-count // size) * size), np.nan)
    tables[:, :count] = np.array([line.mean, line.low, line.high], np.float64)
    mean, low, high = tables.reshape(3, -1, size)
    known = ~np.isnan(mean)
    middle = np.divide(
        np.where(known, mean, 0).sum(axis=1),
        known.sum(axis=1),
        out=np.full(len(mean), np.nan),
        where=known.any(axis=1),
    )
    return middle, np.fmin.reduce(low, axis=1), np.fmax.reduce(high, axis=1)


def bundles(columns: Columns, size: int) -> Columns:
    """Every ``size`` columns as one; the last one may reach beyond the end."""
    return Columns(
        start_us=columns.start_us, width_us=size * columns.width_us, count=-(-columns.count // size)
    )


def unmeasured(
    lines: Sequence[TimeLine], columns: Columns, course: JobPhases, size: int
) -> list[tuple[int, int]]:
    """When none of the lines, which are of one node, was measured: its gaps, and columns without a sample."""
    missing = np.logical_and.reduce([np.isnan(bundled(line, size)[0]) for line in lines])
    holes = over_columns.holes(bundles(columns, size), np.where(missing, np.nan, 0.0))
    gaps = [(gap.start_us, gap.end_us) for gap in course.gaps if gap.node == lines[0].node]
    end_us = over_columns.end_us(columns)
    return over_columns.merged((start, min(stop, end_us)) for start, stop in holes + gaps)


def middles(columns: Columns, size: int) -> FloatArray:
    """The middle of every bundle in microseconds; the last one may hold fewer columns."""
    first = np.arange(0, columns.count, size)
    last = np.minimum(first + size, columns.count)
    return columns.start_us + columns.width_us * (first + last) / 2


def axis_of(columns: Columns) -> Axis:
    """The time that the columns cover."""
    end_us = columns.start_us + max(columns.count * columns.width_us, 1)
    return chart.over_time(columns.start_us, end_us, most=5)


class SharedTime(Struct, frozen=True, kw_only=True):
    """What the time lines of a job have in common: one axis, one range and one table of values."""

    axis: Axis
    range: Range1d
    source: ColumnDataSource
    #: Columns in one bundle, and its width.
    size: int
    width_ms: float
    columns: Columns
    course: JobPhases


def shared_time(columns: Columns, course: JobPhases, most: int = MAX_COLUMNS[0]) -> SharedTime:
    """The range and the times of at most ``most`` columns, each at its middle."""
    axis, size = axis_of(columns), size_of(columns, most)
    start, end = float(axis.live(axis.start)), float(axis.live(axis.end))
    width = size * columns.width_us / US_PER_MS
    return SharedTime(
        axis=axis,
        range=Range1d(start=start, end=end, bounds=(start, end), min_interval=min(end - start, 4 * width)),
        source=ColumnDataSource({"time": axis.live(middles(columns, size))}),
        size=size,
        width_ms=width,
        columns=columns,
        course=course,
    )


def time_line(lines: Sequence[TimeLine], time: SharedTime, scale: Scale, top: float, *, labels: bool) -> Plot:
    """Means as lines over bands from the lowest to the highest sample; blank where nothing was measured.

    One or two lines of one node. ``top`` is the upper end of the axis in the unit of ``scale``: 100 for
    percent, else of the largest value. ``labels`` says whether the times are written below.
    """
    colors = theme.light()
    plot = chart.live_plot(time.axis, chart.upward(top), x_range=time.range, labels=labels, zoom=True)
    for start, stop in unmeasured(lines, time.columns, time.course, time.size):
        _hatch(plot, start, stop)
    named = [(line, *_add(time, line, scale)) for line in lines]
    several = len(lines) > 1
    looks = _PAIR if several else _ALONE
    for (line, _, low, high), (_, band, *_) in zip(named, looks, strict=True):
        glyph = VBar(
            x="time",
            width=time.width_ms,
            bottom=low,
            top=high,
            fill_color=colors[band],
            line_color=colors[band],
            line_width=1,
        )
        plot.add_glyph(time.source, glyph, **({"name": line.key} if several else {}))
    drawn = []
    for (line, mean, _, _), (token, _, dash, *_) in zip(named, looks, strict=True):
        stroke = Line(x="time", y=mean, line_color=colors[token], line_width=1.5, line_dash=dash)
        drawn.append(plot.add_glyph(time.source, stroke, **({"name": line.key} if several else {})))
    if several:  # The tooltip shows all lines; it must stay if one of them is switched off.
        drawn = [plot.add_glyph(time.source, Line(x="time", y=named[0][1], line_alpha=0))]
    for boundary in boundaries(time.course):
        dots: Any = {"line_color": colors["ink2"], "line_dash": [2, 3], "line_width": 1}
        plot.add_layout(Span(location=boundary / US_PER_MS, dimension="height", **dots))
    rows = [("Time", time.axis.told("@time"))]
    for line, mean, low, high in named:
        rows += _told(line, scale.unit, (mean, low, high), several=several)
    plot.add_tools(
        chart.hover(rows, drawn[:1], mode="vline", formatters={"@time": "datetime"}, attachment="horizontal")
    )
    return plot


def time_drawing(
    lines: Sequence[TimeLine],
    columns: Columns,
    course: JobPhases,
    scale: Scale,
    top: float,
    *,
    labels: bool,
    most: int,
) -> Drawing:
    """The static twin of ``time_line``, of at most ``most`` columns."""
    x, y, size = axis_of(columns), chart.upward(top), size_of(columns, most)
    marks: list[Mark] = [*over_columns.hatch(x, unmeasured(lines, columns, course, size))]
    strokes = []
    for line, (*_, style, band) in zip(lines, _PAIR if len(lines) > 1 else _ALONE, strict=True):
        mean, low, high = (values / scale.factor for values in bundled(line, size))
        marks.append(over_columns.band(band, x, y, bundles(columns, size), low, high))
        strokes.append(stroke_shape(style, x, y, columns, size, mean))
    dots = [Rule(style="dots", x1=at, x2=at, y1=0, y2=100) for at in x.place(boundaries(course)).tolist()]
    return Drawing(x=x, y=y, marks=(*marks, *strokes, *dots), labels=labels)


def stroke_shape(style: str, x: Axis, y: Axis, columns: Columns, size: int, values: FloatArray) -> Shape:
    """A line through the middles of the columns, from the left edge to the right edge of each stretch."""
    return chart.line(style, x, y, *_bent(y, *_reaching(columns, size, values)))


def _reaching(columns: Columns, size: int, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Places and values with a point more at both edges of each stretch, and NaN between the stretches."""
    at = middles(columns, size)
    half = size * columns.width_us / 2
    places, reached = [np.empty(0)], [np.empty(0)]
    for run in _runs(values):
        xs, ys = at[run], values[run]
        places += [xs[:1] - half, xs, xs[-1:] + half, xs[-1:]]
        reached += [ys[:1], ys, ys[-1:], np.full(1, np.nan)]
    return np.concatenate(places), np.concatenate(reached)


def _bent(y: Axis, places: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Without the points inside a level stretch, which change nothing and cost bytes."""
    level = np.diff(np.rint(10 * y.place(values))) == 0  # as printed; NaN equals nothing
    kept = np.ones(len(values), np.bool_)
    kept[1:-1] = ~(level[:-1] & level[1:])
    return places[kept], values[kept]


def _runs(values: FloatArray) -> list[slice]:
    """The stretches without NaN."""
    there = np.concatenate(([False], np.isfinite(values), [False]))
    edges = np.flatnonzero(np.diff(there.astype(np.int8))).tolist()
    return [slice(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def top_of(lines: Sequence[TimeLine], scale: Scale) -> float:
    """The upper end of the axis for lines that are compared: 100 for percent, else a round number."""
    if scale.unit == "%":
        return 100.0
    values = [v for line in lines for v in line.high if v is not None]
    return ceiling(max(values, default=0.0) / scale.factor)


def boundaries(course: JobPhases) -> tuple[int, ...]:
    """Where one phase ends and the next begins."""
    return tuple(phase.start_us for phase in course.phases[1:])


def _add(time: SharedTime, line: TimeLine, scale: Scale) -> tuple[str, str, str]:
    """The columns with mean, lowest and highest values; bands of percent are kept in whole percent, outwards."""
    mean, low, high = (values / scale.factor for values in bundled(line, time.size))
    return (
        _column(time.source, mean.astype(np.float32)),
        _column(time.source, _end(np.floor(low) if scale.unit == "%" else low, scale)),
        _column(time.source, _end(np.ceil(high) if scale.unit == "%" else high, scale)),
    )


def _end(values: FloatArray, scale: Scale) -> npt.NDArray[Any]:
    """One end of a band: a byte a column where it is percent and all are measured."""
    return values.astype(np.float32 if scale.unit != "%" or np.isnan(values).any() else np.uint8)


def _column(source: ColumnDataSource, column: npt.NDArray[Any]) -> str:
    """The name of the column with these values; equal columns are kept once."""
    kept: Any
    for name, kept in source.data.items():
        whole = column.dtype == np.uint8
        if kept.dtype == column.dtype and np.array_equal(kept, column, equal_nan=not whole):
            return str(name)
    name = f"v{len(source.data)}"
    source.data[name] = column
    return name


def _hatch(plot: Plot, start_us: int, stop_us: int) -> None:
    plot.add_layout(hatched(left=start_us / US_PER_MS, right=stop_us / US_PER_MS))


def _told(line: TimeLine, unit: str, names: tuple[str, str, str], *, several: bool) -> list[tuple[str, str]]:
    """The rows of the tooltip for one line."""
    mean, low, high = names
    digits = 0 if unit == "%" else 1
    first = line.label if several else "Mean of the devices" if line.devices > 1 else "Mean"
    rows = [(first, chart.quantity(mean, unit))]
    if low != high:
        rows += [
            ("lowest" if several else "Lowest sample", chart.quantity(low, unit, digits)),
            ("highest" if several else "Highest sample", chart.quantity(high, unit, digits)),
        ]
    return rows
