"""Durations of steps: as a histogram, and over time."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.formats import NBSP, escape_name, number
from jobreport.page.figures import chart
from jobreport.page.figures.canvas import Canvas, Figure
from jobreport.page.figures.chart import Axis
from jobreport.page.figures.over_time import boundaries
from jobreport.page.figures.scales import Tick, ceiling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.analyses.steps import (
        StepHistogram,
        StepMode,
        StepTimes,
    )
    from jobrules.analyses.throughput import Throughput
    from jobrules.model import FloatArray
    from jobrules.verdict.phases import JobPhases

#: Classes of modes over time; the second mode is gray.
MODES = ("u", "n2", "u2", "f2")
#: Steps over this many medians flatten a linear axis.
_FLAT = 20
#: The gap before the bars beyond the bins, and the room for each of them, as shares of the bins.
_GAP, _ROOM = 0.03, 0.09
#: Half the height of a column with one duration, and half the width of the mark of an outlier, in percent.
_THIN, _MARK = 0.6, 0.35
_TIGHT = 0.12


class Unit(Struct, frozen=True, kw_only=True):
    """The unit of the durations of a report, so that one table has one unit."""

    name: str
    #: Of the unit in microseconds.
    us: int
    #: After the point.
    digits: int

    @classmethod
    def of(cls, times: StepTimes) -> Unit:
        """The unit of the main mode's median: seconds from 0.1 s, otherwise milliseconds or microseconds."""
        median_us = times.modes[0].median_s * 1e6
        if median_us >= 100_000 or median_us == 0:
            return cls(name="s", us=1_000_000, digits=3 if median_us < 100_000_000 else 1)
        if median_us >= 100:
            return cls(name="ms", us=1000, digits=2 if median_us < 10_000 else 1)
        return cls(name="µs", us=1, digits=0)

    def text(self, us: float) -> str:
        """A duration without its unit."""
        return number(us / self.us, self.digits)

    def short(self, us: float) -> str:
        """A duration with its unit, three digits or more; in seconds if it is long."""
        unit = SECONDS if us >= 10_000 * self.us else self
        value = us / unit.us
        digits = max(0, 2 - math.floor(math.log10(value))) if value else 0
        return f"{number(value, min(digits, unit.digits))}{NBSP}{unit.name}"

    def range(self, low_us: float, high_us: float) -> str:
        """``1.20 to 1.50 s``; one duration if both print equally."""
        low, high = self.short(low_us), self.short(high_us)
        if low == high:
            return high
        ending = NBSP + high.rpartition(NBSP)[2]
        return f"{low.removesuffix(ending)} to {high}"


SECONDS = Unit(name="s", us=1_000_000, digits=3)


def upward(most: float, unit: Unit | None = None) -> Axis:
    """From 0 to the next number whose half divides well, so that the highest bar takes most of the height."""
    return chart.upward(2 * ceiling(most / 2) if most else 1.0, unit=f"{NBSP}{unit.name}" if unit else "")


def limit_words(mode: StepMode, unit: Unit) -> str:
    """``1.19 s``, or ``1.19 to 2.03 s`` if ranks have different limits; empty if none was evaluated."""
    if mode.low_limit_s is None or mode.high_limit_s is None:
        return ""
    return unit.range(mode.low_limit_s * 1e6, mode.high_limit_s * 1e6)


def limit_inside(histogram: StepHistogram, mode: StepMode) -> bool:
    """Whether the limits of a mode are within the bins, so that all steps beyond the bins are outliers."""
    last_us = histogram.start_us + histogram.bins * histogram.width_us
    return mode.high_limit_s is not None and mode.high_limit_s * 1e6 <= last_us


def histogram(times: StepTimes, unit: Unit, names: Sequence[str]) -> Figure:
    """Filled bars of one series, outlines of several; ``names`` of the series, switched as s1, s2, ….

    The steps beyond the bins are one bar per series, right of a break of the axis.
    """
    found = times.histogram
    edges = (found.start_us + found.width_us * np.arange(found.bins + 1)) / unit.us
    beyond = _beyond(found, edges)
    most = max(max(*one.counts, one.beyond) for one in found.series)
    canvas = Canvas(_histogram_axis(found, edges, beyond, unit), upward(max(2, most)))
    words = [unit.short(found.start_us + i * found.width_us) for i in range(found.bins + 1)]
    ranges = [*(f"{low} to {high}" for low, high in itertools.pairwise(words)), f"over {words[-1]}"]
    one_series = len(found.series) == 1
    drawn = []
    for i, one in enumerate(found.series):
        series = f"s{i + 1}"
        parts = [(edges, one.counts, ranges, "u")]
        if i in beyond:
            # Orange if all of its steps are outliers.
            style = "l" if limit_inside(found, times.modes[0]) else "f2"
            parts.append((np.array(beyond[i]), (one.beyond,), ranges[-1:], style))
            # Long numbers next to each other are hidden on a narrow screen.
            crowded = len(beyond) > 1 and one.beyond > 999
            place = (sum(beyond[i]) / 2, one.beyond, number(one.beyond, 0))
            canvas.text([place], dy=-0.35, style="strong w" if crowded else "strong", series=series)
        for sides, counts, spans, style in parts:
            if not one_series:
                canvas.outline(series, sides, counts, series=series)
            columns = {"range": spans[: len(counts)], "name": [names[i]] * len(counts)}
            # Behind outlines, bars without a fill answer to the pointer.
            fill = style if one_series else ""
            drawn.append(canvas.bars(fill, (sides[:-1], sides[1:], 0, counts), columns, series=series))
    if beyond:
        # Two slashes in the gap, where the axis is broken.
        slash = edges[-1] + np.array((0.4, 0.75)) * _GAP * (edges[-1] - edges[0])
        half = 0.004 * (canvas.x.end - canvas.x.start)
        canvas.segments("axis", (slash - half, slash + half, 0, 0.06 * canvas.y.end))
    _draw_limits(canvas, times, edges, unit)
    rows = [("Steps of", "@name"), ("Duration", "@range"), ("Steps", "@top{0,0}")]
    canvas.tooltip(rows, drawn)
    return canvas.figure


def _beyond(found: StepHistogram, edges: FloatArray) -> dict[int, tuple[float, float]]:
    """Place of a series → left and right edge of its bar of steps beyond the bins, if there are any."""
    span = float(edges[-1] - edges[0])
    first, room = float(edges[-1]) + _GAP * span, _ROOM * span
    series = [i for i, one in enumerate(found.series) if one.beyond]
    return {i: (first + (n + 0.1) * room, first + (n + 0.9) * room) for n, i in enumerate(series)}


def _histogram_axis(
    found: StepHistogram, edges: FloatArray, beyond: dict[int, tuple[float, float]], unit: Unit
) -> Axis:
    start, last = float(edges[0]), float(edges[-1])
    if not beyond:
        return chart.along(start, last, unit=f"{NBSP}{unit.name}")
    sides = [side for slot in beyond.values() for side in slot]
    end = max(sides) + 0.1 * _ROOM * (last - start)
    middle = ((min(sides) + max(sides)) / 2 - start) / (end - start)
    places = [
        (tick.at * (last - start) / (end - start), tick.label) for tick in chart.along(start, last).ticks
    ]
    ticks = [Tick(at=at, label=label) for at, label in places if at < middle - _TIGHT]
    # Every second label is hidden on a narrow screen; the last one must stay.
    ticks = ticks[: len(ticks) // 2 * 2]
    ticks.append(Tick(at=middle, label=f"to {unit.short(found.longest_us)}"))
    return Axis(start=start, end=end, ticks=tuple(ticks))


def _draw_limits(canvas: Canvas, times: StepTimes, edges: FloatArray, unit: Unit) -> None:
    """The limits of at most two modes within the bins; if ranks differ, the lowest and the highest."""
    evaluated = [mode for mode in times.modes if limit_words(mode, unit)]
    for row, mode in enumerate(evaluated[:2]):
        limits = ((mode.low_limit_s or 0) * 1e6 / unit.us, (mode.high_limit_s or 0) * 1e6 / unit.us)
        inside = [limit for limit in limits if limit <= edges[-1]]
        if not inside:
            continue
        near = inside[-1] - inside[0] <= times.histogram.width_us / unit.us
        canvas.upright("limit", inside[-1:] if near else inside)
        whose = f"{escape_name(mode.mode, 16)}: " if len(evaluated) > 1 else ""
        # Of two lines the words stand left of both, so that none crosses them; the table has the limits.
        text = f"{whose}mean + {times.stddev:g}σ" + (f" = {limit_words(mode, unit)}" if near else "")
        at = inside[-1] if near else inside[0]
        left = (at - edges[0]) / (edges[-1] - edges[0]) > (0.45 if near else 0.25)
        anchor, gap = ("end", -0.4) if left else ("start", 0.4)
        canvas.text([(at, canvas.y.end, text)], anchor=anchor, dx=gap, dy=1.0 + 1.3 * row)


# --- over time


class _Durations(Struct, frozen=True, kw_only=True):
    """A vertical axis of durations: linear, or logarithmic if a few long steps would flatten the rest."""

    axis: Axis
    unit: Unit
    log: bool

    @classmethod
    def of(cls, times: StepTimes, unit: Unit) -> _Durations:
        most = times.histogram.longest_us / unit.us
        if not is_log(times):
            return cls(axis=upward(most, unit), unit=unit, log=False)
        lows = [one for course in times.timeline.series for one in course.low_us if one]
        least = max(min(lows) / unit.us, times.modes[0].median_s * 1e3 / unit.us)
        low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
        factors = (1, 2, 5) if high - low <= 2 else (1,)
        marks = [factor * 10.0**power for power in range(low, high) for factor in factors] + [10.0**high]
        ticks = [Tick(at=(math.log10(mark) - low) / (high - low), label=f"{mark:,.10g}") for mark in marks]
        ticks[-1] = Tick(at=1, label=f"{ticks[-1].label}{NBSP}{unit.name}")
        return cls(axis=Axis(start=low, end=high, ticks=tuple(ticks)), unit=unit, log=True)

    def bars(self, low_us: Sequence[int], high_us: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Bottom and top of columns, high enough to be seen if both are equal."""
        places = np.array([low_us, high_us], np.float64) / self.unit.us
        bottom, top = np.log10(np.maximum(places, 10.0**self.axis.start)) if self.log else places
        least = _THIN / 100 * (self.axis.end - self.axis.start)
        more = np.maximum(0, 2 * least - (top - bottom)) / 2
        return np.maximum(bottom - more, self.axis.start), np.minimum(top + more, self.axis.end)


def is_log(times: StepTimes) -> bool:
    """Whether the time line has a logarithmic axis."""
    median_us = times.modes[0].median_s * 1e6
    return 0 < _FLAT * median_us < times.histogram.longest_us


def _time_axis(times: StepTimes) -> Axis:
    """The steps with a little room on both sides, so that the ends of the training loop can be seen."""
    timeline = times.timeline
    span = timeline.count * timeline.width_us
    margin = max(1, span // 50)
    return chart.over_time(timeline.start_us - margin, timeline.start_us + span + margin)


def phase_lines(times: StepTimes, phases: JobPhases) -> list[int]:
    """The boundaries of the job's phases within the time line."""
    x = _time_axis(times)
    return [us for us in boundaries(phases) if x.start < us < x.end]


def over_time(times: StepTimes, phases: JobPhases, unit: Unit, names: Sequence[str]) -> Figure:
    """One bar per column from its shortest to its longest step, with a mark at the longest outlier.

    ``names`` are those of the modes, switched as s1, s2, ….
    """
    timeline = times.timeline
    scale = _Durations.of(times, unit)
    canvas = Canvas(_time_axis(times), scale.axis, zoom=True)
    drawn = []
    for i, one in enumerate(timeline.series):
        pairs = enumerate(zip(one.low_us, one.high_us, strict=True))
        found = [(at, low, high) for at, (low, high) in pairs if low is not None and high is not None]
        column, low, high = zip(*found, strict=True)
        left = timeline.start_us + timeline.width_us * np.array(column, np.float64)
        values = {
            "low": (np.array(low) / unit.us).astype(np.float32),
            "high": (np.array(high) / unit.us).astype(np.float32),
            "name": [names[i]] * len(low),
        }
        sides = (left, left + timeline.width_us, *scale.bars(low, high))
        drawn.append(canvas.bars(MODES[i], sides, values, series=f"s{i + 1}"))
    half = max(timeline.width_us / 2, _MARK / 100 * (canvas.x.end - canvas.x.start))
    for i, one in enumerate(timeline.series):
        if one.outlier_columns:
            middle = timeline.start_us + timeline.width_us * (np.array(one.outlier_columns, np.float64) + 0.5)
            sides = (middle - half, middle + half, *scale.bars(one.outlier_us, one.outlier_us))
            canvas.bars("l", sides, series=f"s{i + 1}")
    canvas.upright("dots", phase_lines(times, phases))
    rows = [
        ("Steps of", "@name"),
        ("From", canvas.x.told("@left", "%H:%M:%S")),
        ("Shortest", chart.quantity("low", unit.name, unit.digits)),
        ("Longest", chart.quantity("high", unit.name, unit.digits)),
    ]
    canvas.tooltip(rows, drawn, formatters={"@left": "datetime"})
    return canvas.figure


def throughput(times: StepTimes, found: Throughput, phases: JobPhases, unit: str) -> Figure:
    """A line through the columns with steps."""
    rates = np.array([np.nan if rate is None else rate for rate in found.course])
    canvas = Canvas(_time_axis(times), chart.upward(ceiling(float(np.nanmax(rates))), unit="/s"), zoom=True)
    places = found.start_us + found.width_us * (np.arange(len(rates)) + 0.5)
    drawn = canvas.line("line", places, rates)
    canvas.upright("dots", phase_lines(times, phases))
    digits = max(0, 2 - math.floor(math.log10(np.nanmax(rates))))
    rows = [("At", canvas.x.told("@x", "%H:%M:%S")), ("Throughput", chart.quantity("y", unit, digits))]
    canvas.tooltip_over_time(rows, [drawn], "@x")
    return canvas.figure
