"""Batch fetch times, and active loader processes over time."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.formats import count, number
from jobreport.page.figures import chart, over_columns
from jobreport.page.figures.canvas import Canvas, Figure
from jobreport.page.figures.chart import Axis
from jobreport.page.figures.over_time import SharedTime, TimeCanvas
from jobreport.page.figures.scales import Tick, ceiling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jobreport.page.figures.models import GlyphRenderer
    from jobrules.analyses.data_loading import FetchTimes, LoadersAtWork
    from jobrules.analyses.time_lines import Columns

#: The bar of what lies beyond the bins, and the gap before it, as parts of the bins' stretch.
_GAP, _BEYOND = 0.05, 0.06
#: Heights at which marks are named, from the top, as parts of the axis.
_ROWS = (0.95, 0.86, 0.77)
#: Room above the bars for these names.
_ROOM = 1.3
#: Room for a name next to its mark, in percent of the width, on a narrow screen.
_NAME = 26


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


def bin_names(fetches: FetchTimes) -> list[str]:
    """What each bar counts: ``46 to 48 ms``, and ``90 ms or more`` for the one beyond the bins."""
    unit = unit_for(fetches.p50_s)
    edges = [unit.text(edge) for edge in fetches.edges_s]
    names = [f"{low} to {high} {unit.name}" for low, high in pairwise(edges)]
    return [*names, f"{_last(fetches)} or more"] if fetches.beyond else names


def _last(fetches: FetchTimes) -> str:
    unit = unit_for(fetches.edges_s[-1] if fetches.log else fetches.p50_s)
    return f"{unit.text(fetches.edges_s[-1])} {unit.name}"


def fetch_times(fetches: FetchTimes, names: Sequence[str] = ()) -> Figure:
    """A histogram with one bar beyond a gap for all that took longer; a scale by factors is in decades.

    Ranks that differ have an outline each, under these ``names``, and a mark at their median.
    """
    unit = unit_for(fetches.p50_s)

    def places(seconds: Sequence[float]) -> np.ndarray:
        array = np.array(seconds)
        return np.log10(np.maximum(array, fetches.edges_s[0])) if fetches.log else array / unit.factor

    edges = places(fetches.edges_s)
    start, end = float(edges[0]), float(edges[-1])
    left, right, heights = edges[:-1], edges[1:], np.array(fetches.counts)
    ticks = _decades(start, end) if fetches.log else _plain(start, end, unit)
    stop = end
    if fetches.beyond:
        first, stop = end + (end - start) * _GAP, end + (end - start) * (_GAP + _BEYOND)
        left, right = np.append(left, first), np.append(right, stop)
        heights = np.append(heights, fetches.beyond)
        ticks = [(place, label) for place, label in ticks if place < end - 0.04 * (end - start)]
        ticks.append(((first + stop) / 2, f"≥ {_last(fetches)}"))
    most = max((max(*one.counts, one.beyond) for one in fetches.ranks), default=_ROOM * float(heights.max()))
    top = ceiling(most)
    x = Axis(
        start=start,
        end=stop,
        ticks=tuple(Tick(at=(place - start) / (stop - start), label=label) for place, label in ticks),
    )
    canvas = Canvas(x, _counted(top))
    rows = [("Fetch time", "@range"), ("Fetches", "@top{0,0}")]
    if fetches.ranks:
        canvas.tooltip(
            [("Fetches of", "@name"), *rows], _of_ranks(canvas, fetches, names, places, (left, right))
        )
        return canvas.figure
    drawn = canvas.bars("u", (left, right, 0, heights), {"range": bin_names(fetches)})
    marks = {"p25": fetches.p25_s, "median": fetches.p50_s, "p95": fetches.p95_s}
    at = places(list(marks.values())).tolist()
    sides = _sides(*x.place(at).tolist())
    for place, (name, seconds), (on_left, row) in zip(at, marks.items(), sides, strict=True):
        unit = unit_for(seconds)
        canvas.segments("mark", (place, place, 0, (_ROWS[row] + 0.04) * top))
        words = f"{name} {unit.text(seconds)} {unit.name}"
        anchor, gap = ("end", -0.4) if on_left else ("start", 0.4)
        canvas.text([(place, _ROWS[row] * top, words)], anchor=anchor, dx=gap)
    if fetches.beyond:
        canvas.text([((left[-1] + stop) / 2, heights[-1], number(fetches.beyond, 0))], dy=-0.4, style="")
    canvas.tooltip(rows, [drawn])
    return canvas.figure


def _of_ranks(
    canvas: Canvas,
    fetches: FetchTimes,
    names: Sequence[str],
    places: Callable[[Sequence[float]], np.ndarray],
    bars: tuple[np.ndarray, np.ndarray],
) -> list[GlyphRenderer]:
    """Outlines of the ranks; bars without a fill answer to the pointer."""
    left, right = bars
    ranges, drawn = bin_names(fetches), []
    for i, (one, name) in enumerate(zip(fetches.ranks, names, strict=True), start=1):
        series, counts = f"s{i}", np.array(one.counts)
        canvas.outline(series, np.append(left[: len(counts)], right[len(counts) - 1]), counts, series=series)
        if fetches.beyond:
            counts = np.append(counts, one.beyond)
            canvas.outline(series, np.array([left[-1], right[-1]]), counts[-1:], series=series)
        place = float(places([one.p50_s])[0])
        canvas.segments(series, (place, place, 0, canvas.y.end))
        columns = {"range": ranges, "name": [name] * len(ranges)}
        drawn.append(canvas.bars("", (left, right, 0, counts), columns, series=series))
    return drawn


def _sides(p25: float, p50: float, p95: float) -> tuple[tuple[bool, int], ...]:
    """Whether the names of marks stand left, and in which row, so that no line crosses one.

    Places are in percent. A line begins at the height of its own name, so a name may pass above the lines of the
    rows below.
    """
    if p95 <= 100 - _NAME:
        return (False, 0), (False, 1), (False, 2)
    if p25 >= _NAME:
        return (True, 2), (True, 1), (True, 0)
    return (False, 0), (p50 - p25 > p95 - p50, 1), (True, 0)


def _plain(start: float, end: float, unit: Unit) -> list[tuple[float, str]]:
    places = [start + tick.at * (end - start) for tick in chart.along(start, end).ticks]
    digits = max((len(f"{place:.6g}".partition(".")[2]) for place in places), default=0)
    names = [f" {unit.name}" if place == places[-1] else "" for place in places]
    return [(place, number(place, digits) + name) for place, name in zip(places, names, strict=True)]


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


def _counted(top: float) -> Axis:
    """An axis of whole numbers."""
    return chart.upward(top, 2 if top % 2 == 0 else 1)


def at_work(lines: Sequence[LoadersAtWork], columns: Columns) -> list[Figure]:
    """Mean as a line over the band from lowest to highest; the cores as a limit. All have one scale."""
    most = max(max(one.cores, *(high for high in one.high if high is not None)) for one in lines)
    time, y, figures = SharedTime(columns), _counted(ceiling(1.15 * most)), []
    for one in lines:
        mean, low, high = map(over_columns.numbers, (one.mean, one.low, one.high))
        canvas = TimeCanvas(time, y)
        canvas.hatch(over_columns.holes(columns, mean))
        lowest, highest = canvas.band("band", low, high)
        average = canvas.curve("line", mean)
        if one.cores:
            canvas.level("limit", one.cores)
            canvas.text([(canvas.x.end, one.cores, count(one.cores, "core"))], anchor="end", dy=-0.4)
        rows = [
            ("Mean", f"@{average}{{0.0}}"),
            ("Lowest", f"@{lowest}{{0}}"),
            ("Highest", f"@{highest}{{0}}"),
        ]
        canvas.values_at(rows, average)
        figures.append(canvas.figure)
    return figures
