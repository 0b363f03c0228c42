"""A close-up: its samples as lines, and below them a row of bars for each rank and event type."""

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

#: Metric → class of its line: dashes differ too.
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
MAX_TICKS = 5
_COMMA_PX = 10
_CLOCK = "%H:%M:%S.%3N"
_US_PER_MS = 1000


class Panels(Struct, frozen=True, kw_only=True):
    """The two drawings of a close-up and their live twins, on one time axis; either pair may lack."""

    samples: Drawing | None
    live_samples: Plot | None
    lanes: Drawing | None
    live_lanes: Plot | None


def panels(close_up: CloseUp) -> Panels:
    """Draw a close-up: samples only where some were taken, rows only where something ran."""
    x = over_time(close_up.start_us, close_up.end_us, MAX_TICKS)
    sampled = [curve for curve in close_up.curves if curve.samples]
    ends = float(x.live(x.start)), float(x.live(x.end))
    shared = Range1d(start=ends[0], end=ends[1], bounds=ends)
    below = bool(close_up.lanes)
    return Panels(
        samples=_samples(close_up, sampled, x, labels=not below) if sampled else None,
        live_samples=_live_samples(close_up, sampled, x, shared, labels=not below) if sampled else None,
        lanes=_lanes(close_up, x) if below else None,
        live_lanes=_live_lanes(close_up, x, shared) if below else None,
    )


#: What a reader knows lanes by; GPU lanes end with a device.
_KNOWN = {
    "cpu_functions": "CPU operators",
    "DataLoaderIter": "data loading",
    "DataLoaderIterInitialize": "loader set-up",
    "DataIterator": "data iterators",
}
_GPU_LANE = re.compile(r"gpu_functions(?:-\w+:(\d+))?(.*)", re.IGNORECASE)


def readable(event_type: str) -> str:
    """``GPU operators`` for ``gpu_functions-dev:0``, ``Backward`` for ``Backward(post-forward)``; else as recorded."""
    if event_type in _KNOWN:
        return _KNOWN[event_type]
    if (found := _GPU_LANE.fullmatch(event_type)) and not found[2]:
        return "GPU operators"
    return event_type.partition("(")[0].strip() or event_type


def lane_names(lanes: Sequence[CloseUpLane]) -> tuple[str, ...]:
    """Labels of the rows: the rank, if there are several, and the event type in words.

    A row that would read like another one keeps its recorded event type.
    """
    several = len({lane.rank for lane in lanes}) > 1
    names = [readable(lane.event_type) for lane in lanes]
    times = Counter((lane.rank, name) for lane, name in zip(lanes, names, strict=True))
    found = []
    for lane, name in zip(lanes, names, strict=True):
        label = name if times[lane.rank, name] == 1 else lane.event_type
        if several:
            room = RANKED_PX - round(width_px(label)) - _COMMA_PX
            rank = f"rank {lane.rank}"
            # A name that is cut had better be cut without the word before it.
            label = f"{rank if fitted(rank, room) == rank else fitted(lane.rank, room)}, {label}"
        found.append(fitted(label, RANKED_PX))
    return tuple(found)


def _samples(close_up: CloseUp, curves: Sequence[Curve], x: Axis, *, labels: bool) -> Drawing:
    y = upward(100)
    gaps = [x.place(span).tolist() for span in over_columns.merged(close_up.unmeasured_us)]
    marks: list[Mark] = [Area(style="x", x=a, y=0, width=b - a, height=100) for a, b in gaps]
    marks += [line(SERIES[one.key], x, y, *one.points(close_up), series=one.key) for one in curves]
    return Drawing(x=x, y=y, marks=tuple(marks), labels=labels)


def _live_samples(
    close_up: CloseUp, curves: Sequence[Curve], x: Axis, shared: Range1d, *, labels: bool
) -> Plot:
    plot = live_plot(x, upward(100), x_range=shared, labels=labels, zoom=True, left=RANKED_PX)
    dashes = dict(theme.SERIES)
    for start, end in over_columns.merged(close_up.unmeasured_us):
        plot.add_layout(hatched(left=start / _US_PER_MS, right=end / _US_PER_MS))
    for curve in curves:
        time_us, percents = curve.points(close_up)
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
    """The bars of one kind: sides in microseconds and rows, and what a tooltip shows."""

    kind: str
    left: IntArray
    right: IntArray
    middle: FloatArray
    table: IntArray


def _rows(close_up: CloseUp) -> list[_Rows]:
    table = close_up.table
    kinds = np.array([lane.kind for lane in close_up.lanes])
    widest = int((close_up.end_us - close_up.start_us) * _NARROWEST)
    found = []
    for kind in FILLS:
        part = table[kinds[table[:, 0]] == kind]
        if len(part):
            left = part[:, 1]
            right = left + np.maximum(part[:, 2], widest)
            found.append(_Rows(kind=kind, left=left, right=right, middle=-part[:, 0] - 0.5, table=part))
    return found


def step_labels(close_up: CloseUp) -> list[tuple[float, str]]:
    """Numbers of steps and where they stand, in microseconds; few enough to be read."""
    if not close_up.lanes or close_up.lanes[0].kind != "steps":
        return []
    percent_us = (close_up.end_us - close_up.start_us) / 100
    first, last = close_up.start_us + _INSIDE * percent_us, close_up.end_us - _INSIDE * percent_us
    found: list[tuple[float, str]] = []
    for lane, start, length, name, _ in close_up.table.tolist():
        at = start + length / 2
        number = close_up.names[name].rpartition(" ")[2] if name >= 0 else ""
        if lane or not number.isdigit() or not first <= at <= last:
            continue
        if not found or at - found[-1][0] >= _APART * percent_us:
            found.append((at, number))
    return found


def _lanes(close_up: CloseUp, x: Axis) -> Drawing:
    y = downward(lane_names(close_up.lanes))
    marks: list[Mark] = []
    for rows in _rows(close_up):
        # Steps follow one another closely; a line of paper parts them.
        style = FILLS[rows.kind][0] + (" stroke" if rows.kind == "steps" else "")
        sides = rows.left, rows.right, rows.middle - _HALF, rows.middle + _HALF
        marks.append(bars(style, x, y, sides, series=rows.kind))
    for at, number in step_labels(close_up):
        place = float(x.place(at))
        marks.append(Label(text=number, x=place, y=50 / len(close_up.lanes), dy=0.35, style="strong"))
    return Drawing(x=x, y=y, marks=tuple(marks))


def _live_lanes(close_up: CloseUp, x: Axis, shared: Range1d) -> Plot:
    plot = live_plot(x, downward(lane_names(close_up.lanes)), x_range=shared, zoom=True, left=RANKED_PX)
    colors = theme.light()
    names = [escape_name(name, 60) for name in close_up.names]
    drawn = []
    for rows in _rows(close_up):
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
    if labels := step_labels(close_up):
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
    tooltip = [
        ("Name", "@name"),
        ("Start", x.told("@start", _CLOCK)),
        ("Duration", quantity("ms", "ms", 3)),
        ("Events", "@events{0,0}"),
    ]
    plot.add_tools(hover(tooltip, drawn, formatters={"@start": "datetime"}))
    return plot
