"""A chosen moment: its samples as lines, and below them a row of bars for each process and kind of work."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, HBar, Line, Plot, Range1d, Text
from msgspec import Struct

from jobreport.figures import over_columns, theme
from jobreport.figures.chart import (
    Area,
    Axis,
    Drawing,
    Label,
    Mark,
    bars,
    downward,
    hatched,
    hover,
    line,
    live_plot,
    over_time,
    quantity,
    upward,
)
from jobreport.figures.framework import RANKED_PX
from jobreport.figures.names import fitted, width_px
from jobreport.formats import escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.analyses.close_ups import CloseUp, CloseUpLane, Curve
    from jobrules.model import FloatArray, IntArray

#: Metric → class of its line: told apart by dashes too.
SERIES = {"gpu_utilization": "s1", "cpu_utilization": "s2", "io_wait": "s3"}
#: Kind of lane → class of its bars and their token.
FILLS = {"steps": ("f2", "rest2"), "waiting": ("l", "lost"), "work": ("u", "used")}
#: Half the height of a bar, in rows.
_HALF = 0.36
#: The narrowest bar, of the stretch.
_NARROWEST = 1 / 1000
#: Numbers of steps stand at least so far apart, in percent of the stretch.
_APART = 12.0
#: And so far from both ends.
_INSIDE = 4.0
_MOST_TICKS = 5
_COMMA_PX = 10
_CLOCK = "%H:%M:%S.%3N"
_US_PER_MS = 1000


class Panels(Struct, frozen=True, kw_only=True):
    """The two drawings of a moment and their live twins, on one time axis; either pair may lack."""

    samples: Drawing | None
    live_samples: Plot | None
    lanes: Drawing | None
    live_lanes: Plot | None


def panels(moment: CloseUp) -> Panels:
    """Draw a moment: samples only where some were taken, rows only where something ran."""
    x = over_time(moment.start_us, moment.end_us, _MOST_TICKS)
    sampled = [curve for curve in moment.curves if curve.samples]
    ends = float(x.live(x.start)), float(x.live(x.end))
    shared = Range1d(start=ends[0], end=ends[1], bounds=ends)
    below = bool(moment.lanes)
    return Panels(
        samples=_samples(moment, sampled, x, labels=not below) if sampled else None,
        live_samples=_live_samples(moment, sampled, x, shared, labels=not below) if sampled else None,
        lanes=_lanes(moment, x) if below else None,
        live_lanes=_live_lanes(moment, x, shared) if below else None,
    )


#: What a reader knows lanes by; GPU lanes end with a device.
_KNOWN = {
    "cpu_functions": "CPU operators",
    "DataLoaderIter": "data loading",
    "DataLoaderIterInitialize": "loader set-up",
    "DataIterator": "data iterators",
}
_GPU_LANE = re.compile(r"gpu_functions(?:-\w+:(\d+))?(.*)", re.IGNORECASE)


def readable(phase: str) -> str:
    """``GPU operators`` for ``gpu_functions-dev:0``, ``Backward`` for ``Backward(post-forward)``; else as recorded."""
    if phase in _KNOWN:
        return _KNOWN[phase]
    if (found := _GPU_LANE.fullmatch(phase)) and not found[2]:
        return "GPU operators"
    return phase.partition("(")[0].strip() or phase


def lane_names(lanes: Sequence[CloseUpLane]) -> tuple[str, ...]:
    """What stands beside the rows: the worker, where there are several, and what it did.

    A row that would read like another one keeps its recorded name.
    """
    several = len({lane.rank for lane in lanes}) > 1
    names = [readable(lane.event_type) for lane in lanes]
    alike = Counter((lane.rank, name) for lane, name in zip(lanes, names, strict=True))
    found = []
    for lane, name in zip(lanes, names, strict=True):
        told = name if alike[lane.rank, name] == 1 else lane.event_type
        if several:
            room = RANKED_PX - round(width_px(told)) - _COMMA_PX
            worker = f"worker {lane.rank}"
            # A name that is cut had better be cut without the word before it.
            told = f"{worker if fitted(worker, room) == worker else fitted(lane.rank, room)}, {told}"
        found.append(fitted(told, RANKED_PX))
    return tuple(found)


def _samples(moment: CloseUp, curves: Sequence[Curve], x: Axis, *, labels: bool) -> Drawing:
    y = upward(100)
    gaps = [x.place(span).tolist() for span in over_columns.merged(moment.unmeasured_us)]
    marks: list[Mark] = [Area(style="x", x=a, y=0, width=b - a, height=100) for a, b in gaps]
    marks += [line(SERIES[one.key], x, y, *one.points(moment), series=one.key) for one in curves]
    return Drawing(x=x, y=y, marks=tuple(marks), labels=labels)


def _live_samples(
    moment: CloseUp, curves: Sequence[Curve], x: Axis, shared: Range1d, *, labels: bool
) -> Plot:
    plot = live_plot(x, upward(100), x_range=shared, labels=labels, zoom=True, left=RANKED_PX)
    dashes = dict(theme.SERIES)
    for start, end in over_columns.merged(moment.unmeasured_us):
        plot.add_layout(hatched(left=start / _US_PER_MS, right=end / _US_PER_MS))
    for curve in curves:
        time_us, percents = curve.points(moment)
        source = ColumnDataSource({"time": x.live(time_us), "value": percents.astype(np.float32)})
        token = SERIES[curve.key]
        glyph = Line(
            x="time", y="value", line_color=theme.light()[token], line_dash=dashes[token], line_width=1.5
        )
        drawn = plot.add_glyph(source, glyph, name=curve.key)
        rows = [(curve.label, quantity("value", "%")), ("Time", x.told("@time", _CLOCK))]
        plot.add_tools(hover(rows, [drawn], mode="vline", formatters={"@time": "datetime"}))
    return plot


class _Rows(Struct, frozen=True, kw_only=True, eq=False):
    """The bars of one kind: sides in microseconds and rows, and what the pointer tells."""

    kind: str
    left: IntArray
    right: IntArray
    middle: FloatArray
    table: IntArray


def _rows(moment: CloseUp) -> list[_Rows]:
    table = moment.table
    kinds = np.array([lane.kind for lane in moment.lanes])
    widest = int((moment.end_us - moment.start_us) * _NARROWEST)
    found = []
    for kind in FILLS:
        part = table[kinds[table[:, 0]] == kind]
        if len(part):
            left = part[:, 1]
            right = left + np.maximum(part[:, 2], widest)
            found.append(_Rows(kind=kind, left=left, right=right, middle=-part[:, 0] - 0.5, table=part))
    return found


def step_labels(moment: CloseUp) -> list[tuple[float, str]]:
    """Numbers of steps and where they stand, in microseconds; few enough to be read."""
    if not moment.lanes or moment.lanes[0].kind != "steps":
        return []
    percent_us = (moment.end_us - moment.start_us) / 100
    first, last = moment.start_us + _INSIDE * percent_us, moment.end_us - _INSIDE * percent_us
    found: list[tuple[float, str]] = []
    for lane, start, length, name, _ in moment.table.tolist():
        at = start + length / 2
        number = moment.names[name].rpartition(" ")[2] if name >= 0 else ""
        if lane or not number.isdigit() or not first <= at <= last:
            continue
        if not found or at - found[-1][0] >= _APART * percent_us:
            found.append((at, number))
    return found


def _lanes(moment: CloseUp, x: Axis) -> Drawing:
    y = downward(lane_names(moment.lanes))
    marks: list[Mark] = []
    for rows in _rows(moment):
        # Steps follow one another closely; a line of paper parts them.
        style = FILLS[rows.kind][0] + (" stroke" if rows.kind == "steps" else "")
        sides = rows.left, rows.right, rows.middle - _HALF, rows.middle + _HALF
        marks.append(bars(style, x, y, sides, series=rows.kind))
    for at, number in step_labels(moment):
        place = float(x.place(at))
        marks.append(Label(text=number, x=place, y=50 / len(moment.lanes), dy=0.35, style="strong"))
    return Drawing(x=x, y=y, marks=tuple(marks))


def _live_lanes(moment: CloseUp, x: Axis, shared: Range1d) -> Plot:
    plot = live_plot(x, downward(lane_names(moment.lanes)), x_range=shared, zoom=True, left=RANKED_PX)
    colors = theme.light()
    names = [escape_name(name, 60) for name in moment.names]
    drawn = []
    for rows in _rows(moment):
        _, start, length, name, events = rows.table.T
        source = ColumnDataSource(
            {
                "y": rows.middle,
                "left": x.live(rows.left),
                "right": x.live(rows.right),
                "start": x.live(start),
                "ms": length / _US_PER_MS,
                "events": events,
                "name": [names[i] if i >= 0 else "several" for i in name.tolist()],
            }
        )
        glyph = HBar(
            y="y",
            left="left",
            right="right",
            height=2 * _HALF,
            fill_color=colors[FILLS[rows.kind][1]],
            line_color=colors["paper"] if rows.kind == "steps" else None,
        )
        drawn.append(plot.add_glyph(source, glyph, name=rows.kind))
    if labels := step_labels(moment):
        places, numbers = zip(*labels, strict=True)
        source = ColumnDataSource({"x": x.live(places), "text": list(numbers)})
        text = Text(
            x="x",
            y=-0.5,
            text="text",
            text_align="center",
            text_baseline="middle",
            text_color=colors["ink"],
            text_font=value(theme.font()),
            text_font_size=theme.FONT_SIZE,
        )
        plot.add_glyph(source, text, name="steps")
    told = [
        ("Name", "@name"),
        ("Start", x.told("@start", _CLOCK)),
        ("Duration", quantity("ms", "ms", 3)),
        ("Events", "@events{0,0}"),
    ]
    plot.add_tools(hover(told, drawn, formatters={"@start": "datetime"}))
    return plot
