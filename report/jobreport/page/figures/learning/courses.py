"""Series over the steps of training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport.formats import compact
from jobreport.page.figures import chart, over_columns
from jobreport.page.figures.canvas import Canvas
from jobreport.page.figures.chart import Axis
from jobreport.page.figures.scales import Tick, ceiling, time_style
from jobrules.text import dated, utc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from jobreport.page.figures.canvas import Figure
    from jobreport.page.figures.over_columns import Floats
    from jobrules.analyses.learning.columns import StepColumns
    from jobrules.analyses.learning.plots import Course, LearningPlots

#: Values that differ by more are drawn on a logarithmic scale.
LOGARITHMIC = 100.0
#: Of larger ones, a linear scale is not drawn.
_LARGEST = 1e300
_DIGITS = 4


def courses(
    plots: LearningPlots,
    lines: Sequence[tuple[str, Course]],
    points: Course | None = None,
    *,
    best: tuple[int, float] | None = None,
    marks: Mapping[str, str] | None = None,
    labels: bool = True,
) -> Figure:
    """Lines through the medians of columns of steps; a line alone has the band of its columns.

    ``lines`` have their classes; ``marks`` are characters by the events that they stand for.
    """
    assert plots.columns is not None  # noqa: S101 - there is a series
    columns, drawn = plots.columns, [*(one for _, one in lines), *([points] if points else [])]
    y = Values.of([*drawn])
    middle = columns.start + columns.width * np.arange(columns.count) + (columns.width - 1) / 2
    canvas = Canvas(steps_axis(columns, plots.times), y.axis, labels=labels)
    canvas.upright("dots", [middle[at] for at in plots.marks.get("resume", ())])
    hovered = []
    for style, one in lines:
        low, median, high = (y.place(over_columns.numbers(part)) for part in (one.low, one.median, one.high))
        half = columns.width / 2
        left, right = np.maximum(middle - half, canvas.x.start), np.minimum(middle + half, canvas.x.end)
        wide = ~np.isnan(low)
        if len(lines) == 1:
            canvas.bars("band", (left[wide], right[wide], low[wide], high[wide]), series="band")
        # Columns without a record break no line, those without a number do.
        broken = np.isin(np.arange(columns.count), one.not_finite) & np.isnan(median)
        shown = ~np.isnan(median) | broken
        texts = {"steps": _of_steps(columns)} | {
            part: [compact(value) for value in getattr(one, part)] for part in ("low", "median", "high")
        }
        kept = {
            name: [text for text, is_shown in zip(column, shown, strict=True) if is_shown]
            for name, column in texts.items()
        }
        hovered.append(canvas.line(style, middle[shown], median[shown], kept))
        known = np.pad(~np.isnan(median[shown]), 1)
        alone = np.flatnonzero(known[1:-1] & ~known[:-2] & ~known[2:])
        canvas.text([(middle[shown][i], median[shown][i], "•") for i in alone], style="", series="alone")
        if one.not_finite:
            stretches = over_columns.runs(np.isin(np.arange(columns.count), one.not_finite))
            first, stop = np.array(stretches).T
            edge = y.axis.start + 0.05 * (y.axis.end - y.axis.start)
            canvas.bars("l", (left[first], right[stop - 1], y.axis.start, edge))
    if points:
        heights = y.place(over_columns.numbers(points.median))
        there = np.flatnonzero(~np.isnan(heights)).tolist()
        canvas.text([(middle[i], heights[i], "•") for i in there], style="", series="points")
    if best:
        at = int(columns.column(np.array(best[0])))
        canvas.text([(middle[at], float(y.place(best[1])), "▼")], dy=-0.35)
    for name, character in (marks or {}).items():
        top = character == "▾"
        height = y.axis.end if top else y.axis.start
        places = [(middle[i], height, character) for i in plots.marks.get(name, ())]
        canvas.text(places, dy=0.8 if top else -0.1)
    rows = [("Steps", "@steps"), ("Median", "@median"), ("Lowest", "@low"), ("Highest", "@high")]
    canvas.tooltip(rows, hovered)
    return canvas.figure


class Values:
    """An upright axis that holds some series, logarithmic where all are positive and differ much."""

    def __init__(self, axis: Axis, *, logarithmic: bool) -> None:
        self.axis, self.logarithmic = axis, logarithmic

    @classmethod
    def of(cls, drawn: Sequence[Course]) -> Values:
        """The axis of the series."""
        found = [value for one in drawn for value in (*one.low, *one.high) if value is not None] or [0.0]
        low, high = (max(-_LARGEST, min(_LARGEST, value)) for value in (min(found), max(found)))
        if low > 0 and high / low > LOGARITHMIC:
            axis = decades(math.floor(math.log10(low)), math.ceil(math.log10(high)))
            return cls(axis, logarithmic=True)
        if low == high:
            low, high = min(low, 0.0), max(high, 0.0 if low else 1.0)
        step = ceiling((high - low) / 4)
        axis = chart.along(step * math.floor(low / step), step * math.ceil(high / step), 4)
        values = (axis.start + tick.at * (axis.end - axis.start) for tick in axis.ticks)
        ticks = (replace(tick, label=compact(value)) for tick, value in zip(axis.ticks, values, strict=True))
        return cls(replace(axis, ticks=tuple(ticks)), logarithmic=False)

    def place(self, values: npt.ArrayLike) -> Floats:
        """Where values lie on the axis."""
        given = np.clip(np.asarray(values, np.float64), -_LARGEST, _LARGEST)
        return np.asarray(np.log10(given) if self.logarithmic else given, np.float64)


def decades(low: int, high: int) -> Axis:
    """Powers of ten, of which at most six have a label."""
    high = max(high, low + 1)
    every = -(-(high - low) // 5)
    ticks = (Tick(at=(at - low) / (high - low), label=power(at)) for at in range(low, high + 1, every))
    return Axis(start=low, end=high, ticks=tuple(ticks))


def power(exponent: int) -> str:
    """``0.01``, ``100``, ``1e−5``."""
    return f"{10.0**exponent:g}" if abs(exponent) < _DIGITS else f"1e{exponent}".replace("-", "−")


def steps_axis(columns: StepColumns, times: Sequence[tuple[int, int]] = ()) -> Axis:
    """Steps, with the times of the labeled ones if these are known."""
    length = max(columns.count * columns.width - 1, 1)
    axis = chart.along(columns.start, columns.start + length, min(5, length))
    if not times or not dated(times[0][1]):
        return axis
    steps, us = np.array(times, np.float64).T
    style = time_style((times[-1][1] - times[0][1]) // len(axis.ticks), times[0][1], times[-1][1])
    known = ((tick, tick.at * (axis.end - axis.start) + axis.start) for tick in axis.ticks)
    labeled = (
        replace(tick, label=f"{tick.label}\n{utc(int(np.interp(at, steps, us))):{style}}")
        for tick, at in known
    )
    return replace(axis, ticks=tuple(labeled))


def _of_steps(columns: StepColumns) -> list[str]:
    """``1,200 to 1,249`` of each column."""
    first = range(columns.start, columns.start + columns.count * columns.width, columns.width)
    return [f"{one:,}" if columns.width == 1 else f"{one:,} to {one + columns.width - 1:,}" for one in first]
