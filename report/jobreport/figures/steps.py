"""Durations of steps: as a histogram, and over time.

Every figure has a static drawing and a live plot, from the same axes and numbers.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from bokeh.models import ColumnDataSource, Line, PlainText, Plot, Quad, Segment
from bokeh.models.annotations.geometry import Span
from bokeh.models.annotations.labels import Label
from msgspec import Struct

from jobreport.figures import chart, theme
from jobreport.figures.chart import Axis, Drawing, Mark, Rule
from jobreport.figures.scales import Tick, ceiling
from jobreport.figures.time_line import boundaries
from jobreport.formats import NBSP, escape_name, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bokeh.models.renderers.renderer import DataRenderer

    from jobrules.analyses.steps import (
        StepBins,
        StepHistogram,
        StepMode,
        StepsOverTime,
        StepTimeline,
        StepTimes,
    )
    from jobrules.model import FloatArray, IntArray
    from jobrules.verdict.phases import JobPhases

#: Fills of modes over time, as class of the drawing and token; the second mode is gray.
_MODES = (("u", "used"), ("n2", "ink2"), ("u2", "used2"), ("f2", "rest2"))
#: Steps over this many medians flatten a linear axis.
_FLAT = 20
#: The gap before the bars beyond the bins, and the room for each of them, as shares of the bins.
_GAP, _ROOM = 0.03, 0.09
#: Half the height of a time column with one duration, and half the width of the mark of an outlier, in percent.
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
        """The unit of the main mode's median: seconds from 0.1 s on, otherwise milliseconds or microseconds."""
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


def mode_fill(place: int) -> str:
    """The class of a mode over time, by its place."""
    return _MODES[place][0]


def upward(most: float) -> Axis:
    """From 0 to the next number whose half divides well, so that the highest bar takes most of the height."""
    return chart.upward(2 * ceiling(most / 2) if most else 1.0)


# --- histogram


class _Limit(Struct, frozen=True, kw_only=True):
    """The place and the label of a limit in the histogram."""

    at: float
    text: str
    #: Whether the label is left of it, and its distance from the top in em.
    left: bool
    down: float


def _edges(histogram: StepHistogram, unit: Unit) -> FloatArray:
    return (histogram.start_us + histogram.width_us * np.arange(histogram.bins + 1)) / unit.us


def _beyond(histogram: StepHistogram, unit: Unit) -> dict[int, tuple[float, float]]:
    """Place of a series → left and right edge of its bar of steps beyond the bins, if there are any."""
    found = [i for i, one in enumerate(histogram.series) if one.beyond]
    edges = _edges(histogram, unit)
    span = float(edges[-1] - edges[0])
    first, room = float(edges[-1]) + _GAP * span, _ROOM * span
    return {i: (first + (n + 0.1) * room, first + (n + 0.9) * room) for n, i in enumerate(found)}


def _histogram_axes(histogram: StepHistogram, unit: Unit) -> tuple[Axis, Axis]:
    edges, slots = _edges(histogram, unit), _beyond(histogram, unit)
    start, last = float(edges[0]), float(edges[-1])
    sides = [side for slot in slots.values() for side in slot]
    end = max(sides) + 0.1 * _ROOM * (last - start) if sides else last
    ticks = [
        Tick(at=tick.at * (last - start) / (end - start), label=tick.label)
        for tick in chart.along(start, last).ticks
    ]
    if slots:
        middle = ((min(sides) + max(sides)) / 2 - start) / (end - start)
        ticks = [tick for tick in ticks if tick.at < middle - _TIGHT]
        # Every second label is hidden on a narrow screen; the last one must stay.
        ticks = ticks[: len(ticks) // 2 * 2]
        ticks.append(Tick(at=middle, label=f"to {unit.short(histogram.longest_us)}"))
    most = max(max(*one.counts, one.beyond) for one in histogram.series)
    return Axis(start=start, end=end, ticks=tuple(ticks)), upward(max(2, most))


def _limits(histogram: StepHistogram, modes: Sequence[StepMode], stddev: float, unit: Unit) -> list[_Limit]:
    """The limits of at most two modes that are within the bins; if ranks differ, the range."""
    edges = _edges(histogram, unit)
    evaluated = [mode for mode in modes if mode.high_limit_s is not None and mode.low_limit_s is not None]
    found: list[_Limit] = []
    for mode in evaluated[:2]:
        low, high = (mode.low_limit_s or 0) * 1e6, (mode.high_limit_s or 0) * 1e6
        inside = [us for us in (low, high) if us / unit.us <= edges[-1]]
        if not inside:
            continue
        whose = f"{escape_name(mode.mode, 16)}: " if len(evaluated) > 1 else ""
        text = f"{whose}mean + {stddev:g}σ = {limit_words(mode, unit)}"
        left = (inside[-1] / unit.us - edges[0]) / (edges[-1] - edges[0]) > 0.45
        found.append(_Limit(at=inside[-1] / unit.us, text=text, left=left, down=1.0 + 1.3 * len(found)))
        if inside[-1] - inside[0] > histogram.width_us:
            found.append(_Limit(at=inside[0] / unit.us, text="", left=left, down=0))
    return found


def limit_words(mode: StepMode, unit: Unit) -> str:
    """``1.19 s``, or ``1.19 to 2.03 s`` if ranks have different limits; empty if none was evaluated."""
    if mode.low_limit_s is None or mode.high_limit_s is None:
        return ""
    return unit.range(mode.low_limit_s * 1e6, mode.high_limit_s * 1e6)


def limit_inside(histogram: StepHistogram, mode: StepMode) -> bool:
    """Whether the limits of a mode are within the bins, so that all steps beyond the bins are outliers."""
    last_us = histogram.start_us + histogram.bins * histogram.width_us
    return mode.high_limit_s is not None and mode.high_limit_s * 1e6 <= last_us


def _over(histogram: StepHistogram, modes: Sequence[StepMode]) -> tuple[str, str]:
    """Fill of the bar beyond the bins: orange if all of its steps are outliers."""
    return ("l", "lost") if limit_inside(histogram, modes[0]) else ("f2", "rest2")


def histogram_drawing(times: StepTimes, unit: Unit) -> Drawing:
    """The histogram without scripts: filled bars for one series, outlines for several."""
    histogram = times.histogram
    x, y = _histogram_axes(histogram, unit)
    edges, slots = _edges(histogram, unit), _beyond(histogram, unit)
    marks: list[Mark] = []
    for i, one in enumerate(histogram.series):
        if len(histogram.series) == 1:
            marks.append(chart.bars("u", x, y, (edges[:-1], edges[1:], 0, one.counts)))
        else:
            marks.append(chart.outline(f"s{i + 1}", x, y, edges, one.counts))
        if i in slots:
            left, right = slots[i]
            if len(histogram.series) == 1:
                marks.append(
                    chart.bars(_over(histogram, times.modes)[0], x, y, ([left], [right], 0, [one.beyond]))
                )
            else:
                marks.append(chart.outline(f"s{i + 1}", x, y, [left, right], [one.beyond]))
            top = 100 - float(y.place(one.beyond))
            middle = float(x.place((left + right) / 2))
            # Long numbers next to each other are hidden on a narrow screen.
            style = "strong w" if len(slots) > 1 and one.beyond > 999 else "strong"
            marks.append(chart.Label(text=number(one.beyond, 0), x=middle, y=top, dy=-0.35, style=style))
    marks += [_slash(x, at) for at in _slashes(histogram, unit)]
    for limit in _limits(histogram, times.modes, times.stddev, unit):
        at = float(x.place(limit.at))
        marks.append(Rule(style="limit", x1=at, x2=at, y1=0, y2=100))
        if limit.text:
            anchor, dx = ("end", -0.4) if limit.left else ("start", 0.4)
            marks.append(
                chart.Label(text=limit.text, x=at, y=0, anchor=anchor, dx=dx, dy=limit.down, style="strong")
            )
    return Drawing(x=x, y=y, marks=tuple(marks))


def _slashes(histogram: StepHistogram, unit: Unit) -> list[float]:
    """Two places in the gap before the bar beyond the bins, where the axis is broken."""
    if not _beyond(histogram, unit):
        return []
    edges = _edges(histogram, unit)
    span = float(edges[-1] - edges[0])
    return [float(edges[-1]) + part * _GAP * span for part in (0.4, 0.75)]


def _slash(x: Axis, at: float) -> Rule:
    place = float(x.place(at))
    return Rule(style="axis", x1=place - 0.4, x2=place + 0.4, y1=100, y2=94)


def histogram_plot(times: StepTimes, unit: Unit, names: Sequence[str]) -> Plot:
    """The histogram with values; ``names`` are those of the series, which the key switches as s1, s2, …."""
    histogram = times.histogram
    colors = theme.light()
    x, y = _histogram_axes(histogram, unit)
    edges, slots = _edges(histogram, unit), _beyond(histogram, unit)
    plot = chart.live_plot(x, y)
    hit: list[DataRenderer] = []
    for i, one in enumerate(histogram.series):
        series = f"s{i + 1}"
        full = len(histogram.series) == 1
        source = ColumnDataSource(_bin_columns(histogram, one, unit, slots.get(i), names[i]))
        token, dash = theme.SERIES[i]
        look: dict[str, Any] = {"fill_color": None, "line_color": None}
        if full:
            over = _over(histogram, times.modes)[1]
            source.data["color"] = [colors["used"]] * histogram.bins + [colors[over]] * bool(one.beyond)
            look = {"fill_color": "color", "line_color": None}
        quad = Quad(left="left", right="right", bottom=0, top="count", **look)
        hit.append(plot.add_glyph(source, quad, name=series))
        if not full:
            outlines = [(edges, one.counts)]
            if i in slots:
                outlines.append((np.array(slots[i]), (one.beyond,)))
            for sides, values in outlines:
                heights = np.concatenate(([0], np.repeat(np.asarray(values, np.float64), 2), [0]))
                drawn = ColumnDataSource({"x": np.repeat(sides, 2), "y": heights})
                line = Line(x="x", y="y", line_color=colors[token], line_dash=dash, line_width=1.5)
                plot.add_glyph(drawn, line, name=series)
        if i in slots:
            middle = (slots[i][0] + slots[i][1]) / 2
            plot.add_layout(_words(number(one.beyond, 0), middle, one.beyond, up=8))
    width, height = 0.4 * (x.end - x.start) / 100, 0.06 * (y.end - y.start)
    for at in _slashes(histogram, unit):
        source = ColumnDataSource({"x0": [at - width], "x1": [at + width], "y0": [0.0], "y1": [height]})
        plot.add_glyph(source, Segment(x0="x0", x1="x1", y0="y0", y1="y1", line_color=colors["ink2"]))
    for limit in _limits(histogram, times.modes, times.stddev, unit):
        plot.add_layout(
            Span(
                location=limit.at,
                dimension="height",
                line_color=colors["ink"],
                line_dash=[5, 3],
                line_width=1.5,
            )
        )
        if limit.text:
            plot.add_layout(
                _words(
                    limit.text,
                    limit.at,
                    y.end,
                    align="right" if limit.left else "left",
                    along=-5 if limit.left else 5,
                    up=4 - round(12 * limit.down),
                )
            )
    rows = [("Steps of", "@name"), ("Duration", "@range"), ("Steps", "@count{0,0}")]
    plot.add_tools(chart.hover(rows, hit))
    return plot


def _bin_columns(
    histogram: StepHistogram, one: StepBins, unit: Unit, beyond: tuple[float, float] | None, name: str
) -> dict[str, Any]:
    edges = _edges(histogram, unit).tolist()
    words = [unit.short(histogram.start_us + i * histogram.width_us) for i in range(histogram.bins + 1)]
    left, right, counts = edges[:-1], edges[1:], list(one.counts)
    ranges = [f"{low} to {high}" for low, high in itertools.pairwise(words)]
    if beyond and one.beyond:
        left, right, counts = [*left, beyond[0]], [*right, beyond[1]], [*counts, one.beyond]
        ranges.append(f"over {words[-1]}")
    return {"left": left, "right": right, "count": counts, "range": ranges, "name": [name] * len(left)}


def _words(
    text: str,
    x: float,
    y: float,
    *,
    align: Literal["left", "right", "center"] = "center",
    along: int = 0,
    up: int = 0,
) -> Label:
    """A label in a live plot; plain text is never rendered as a formula."""
    return Label(
        x=x,
        y=y,
        text=PlainText(text=text),
        text_align=align,
        text_baseline="middle",
        x_offset=along,
        y_offset=up,
        text_color=theme.light()["ink"],
        text_font=theme.font(),
        text_font_size=theme.FONT_SIZE,
    )


# --- over time


class _Durations(Struct, frozen=True, kw_only=True):
    """A vertical axis of durations: linear, or logarithmic if a few long steps would flatten the rest."""

    axis: Axis
    unit: Unit
    log: bool

    @classmethod
    def of(cls, times: StepTimes, unit: Unit) -> _Durations:
        values = [one for course in times.timeline.series for one in course.high_us if one is not None]
        most, median = max(values) / unit.us, times.modes[0].median_s * 1e6 / unit.us
        if not is_log(times):
            return cls(axis=upward(most), unit=unit, log=False)
        lows = [one for course in times.timeline.series for one in course.low_us if one]
        least = max(min(lows) / unit.us, median / 1000)
        low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
        factors = (1, 2, 5) if high - low <= 2 else (1,)
        marks = [
            factor * 10.0**power
            for power in range(low, high + 1)
            for factor in factors
            if factor * 10.0**power <= 10.0**high
        ]
        ticks = tuple(
            Tick(at=(math.log10(mark) - low) / (high - low), label=f"{mark:,.10g}") for mark in marks
        )
        return cls(axis=Axis(start=low, end=high, ticks=ticks), unit=unit, log=True)

    def of_us(self, values: Sequence[float | None]) -> FloatArray:
        """Places of durations in microseconds on the axis; NaN for None."""
        array = np.array([np.nan if v is None else v for v in values], np.float64) / self.unit.us
        return np.log10(np.maximum(array, 10.0**self.axis.start)) if self.log else array

    def thin(
        self, low: Sequence[float | None], high: Sequence[float | None]
    ) -> tuple[FloatArray, FloatArray]:
        """Bottom and top of columns, high enough to be seen if both are equal."""
        bottom, top = self.of_us(low), self.of_us(high)
        least = _THIN / 100 * (self.axis.end - self.axis.start)
        more = np.maximum(0, 2 * least - (top - bottom)) / 2
        return np.maximum(bottom - more, self.axis.start), np.minimum(top + more, self.axis.end)


def is_log(times: StepTimes) -> bool:
    """Whether the time line has a logarithmic axis."""
    median_us = times.modes[0].median_s * 1e6
    return 0 < _FLAT * median_us < times.histogram.longest_us


def _time_axis(timeline: StepTimeline) -> Axis:
    """The steps with a little room on both sides, so that the ends of the training loop can be seen."""
    span = timeline.count * timeline.width_us
    margin = max(1, span // 50)
    return chart.over_time(timeline.start_us - margin, timeline.start_us + span + margin)


def _phase_lines(timeline: StepTimeline, phases: JobPhases) -> list[int]:
    x = _time_axis(timeline)
    return [us for us in boundaries(phases) if x.start < us < x.end]


def has_phase_lines(times: StepTimes, phases: JobPhases) -> bool:
    """Whether a boundary of the job's phases lies within the time line."""
    return bool(_phase_lines(times.timeline, phases))


def _columns(one: StepsOverTime) -> tuple[IntArray, list[int], list[int]]:
    """Numbers of the columns with steps, their shortest and their longest step."""
    pairs = zip(one.low_us, one.high_us, strict=True)
    found = [(i, low, high) for i, (low, high) in enumerate(pairs) if low is not None and high is not None]
    return np.array([i for i, _, _ in found], np.int64), [a for _, a, _ in found], [b for _, _, b in found]


def _marks_of(timeline: StepTimeline, one: StepsOverTime, x: Axis) -> tuple[FloatArray, FloatArray]:
    """Left and right edge of the marks of outliers."""
    middle = timeline.start_us + timeline.width_us * (np.array(one.outlier_columns, np.float64) + 0.5)
    half = max(timeline.width_us / 2, _MARK / 100 * (x.end - x.start))
    return middle - half, middle + half


def timeline_drawing(times: StepTimes, phases: JobPhases, unit: Unit) -> Drawing:
    """One bar per column from its shortest to its longest step, with a mark at the longest outlier."""
    timeline = times.timeline
    scale = _Durations.of(times, unit)
    x, y = _time_axis(timeline), scale.axis
    marks: list[Mark] = []
    for i, one in enumerate(timeline.series):
        column, low, high = _columns(one)
        left = timeline.start_us + timeline.width_us * column
        marks.append(chart.bars(mode_fill(i), x, y, (left, left + timeline.width_us, *scale.thin(low, high))))
    for one in timeline.series:
        if one.outlier_columns:
            sides = (*_marks_of(timeline, one, x), *scale.thin(one.outlier_us, one.outlier_us))
            marks.append(chart.bars("l", x, y, sides))
    for us in _phase_lines(timeline, phases):
        at = float(x.place(us))
        marks.append(Rule(style="dots", x1=at, x2=at, y1=0, y2=100))
    return Drawing(x=x, y=y, marks=tuple(marks))


def timeline_plot(times: StepTimes, phases: JobPhases, unit: Unit, names: Sequence[str]) -> Plot:
    """The same with values, with zoom along time; ``names`` are those of the modes, switched as s1, s2, …."""
    timeline = times.timeline
    colors = theme.light()
    scale = _Durations.of(times, unit)
    x = _time_axis(timeline)
    plot = chart.live_plot(x, scale.axis, zoom=True)
    hit: list[DataRenderer] = []
    for i, one in enumerate(timeline.series):
        column, low, high = _columns(one)
        left = timeline.start_us + timeline.width_us * column
        bottom, top = scale.thin(low, high)
        source = ColumnDataSource(
            {
                "left": x.live(left),
                "right": x.live(left + timeline.width_us),
                "bottom": bottom.astype(np.float32),
                "top": top.astype(np.float32),
                "low": (np.array(low) / unit.us).astype(np.float32),
                "high": (np.array(high) / unit.us).astype(np.float32),
                "name": [names[i]] * len(low),
            }
        )
        color = colors[_MODES[i][1]]
        quad = Quad(left="left", right="right", bottom="bottom", top="top", fill_color=color, line_color=None)
        hit.append(plot.add_glyph(source, quad, name=f"s{i + 1}"))
    for i, one in enumerate(timeline.series):
        if one.outlier_columns:
            sides = _marks_of(timeline, one, x)
            bottom, top = scale.thin(one.outlier_us, one.outlier_us)
            source = ColumnDataSource(
                {"left": x.live(sides[0]), "right": x.live(sides[1]), "bottom": bottom, "top": top}
            )
            quad = Quad(
                left="left",
                right="right",
                bottom="bottom",
                top="top",
                fill_color=colors["lost"],
                line_color=None,
            )
            plot.add_glyph(source, quad, name=f"s{i + 1}")
    for us in _phase_lines(timeline, phases):
        plot.add_layout(
            Span(
                location=us / chart.US_PER_MS,
                dimension="height",
                line_color=colors["ink2"],
                line_dash=[2, 3],
                line_width=1,
            )
        )
    rows = [
        ("Steps of", "@name"),
        ("From", "@left{%H:%M:%S} UTC"),
        ("Shortest", chart.quantity("low", unit.name, unit.digits)),
        ("Longest", chart.quantity("high", unit.name, unit.digits)),
    ]
    plot.add_tools(chart.hover(rows, hit, formatters={"@left": "datetime"}))
    return plot
