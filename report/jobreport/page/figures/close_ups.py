"""A close-up: its samples as lines, and below them a row of bars for each rank and event type."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobreport.page.figures import over_columns
from jobreport.page.figures.canvas import Canvas, Figure
from jobreport.page.figures.captures.lanes import Events, lanes
from jobreport.page.figures.chart import US_PER_MS, downward, over_time, quantity, upward
from jobreport.page.figures.framework import RANKED_PX
from jobreport.page.figures.models import Range1d
from jobreport.page.figures.names import fitted, width_px
from jobrules.model.time_parts import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.analyses.close_ups import CloseUp, CloseUpLane, Curve

#: Metric → class of its line: dashes differ too.
SERIES = {"gpu_utilization": "s1", "cpu_utilization": "s2", "io_wait": "s3"}
#: Kind of lane → class of its bars.
KINDS = {
    "steps": "f2",
    "waiting": named("data-loading").fill,
    "communication": named("communication").fill,
    "work": "u",
}
KIND_NAMES = {
    "steps": "step",
    "waiting": "waiting for data",
    "communication": "communication and waiting for ranks",
    "work": "other work",
}
#: Numbers of steps stand at least so far apart, in percent of the stretch.
_APART = 12.0
#: And so far from both ends.
_INSIDE = 4.0
MAX_TICKS = 5
_COMMA_PX = 10
_CLOCK = "%H:%M:%S.%3N"


class Panels(Struct, frozen=True, kw_only=True):
    """The two figures of a close-up on one time axis; either may be None."""

    samples: Figure | None
    lanes: Figure | None


def panels(close_up: CloseUp) -> Panels:
    """Draw a close-up: samples only where some were taken, rows only where something ran."""
    x = over_time(close_up.start_us, close_up.end_us, MAX_TICKS)
    sampled = [curve for curve in close_up.curves if curve.samples]
    start, end = x.live((x.start, x.end)).tolist()
    shared = Range1d(start=start, end=end, bounds=(start, end), name="close-up")
    options: dict[str, Any] = {"x_range": shared, "zoom": True, "left": RANKED_PX}
    below = bool(close_up.lanes)
    return Panels(
        samples=_samples(close_up, sampled, Canvas(x, upward(100, unit="%"), labels=not below, **options))
        if sampled
        else None,
        lanes=_lanes(close_up, Canvas(x, downward(lane_names(close_up.lanes)), **options)) if below else None,
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
    """``GPU operators`` for ``gpu_functions-dev:0``, ``Backward`` for ``Backward(post-forward)``."""
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


def _samples(close_up: CloseUp, curves: Sequence[Curve], canvas: Canvas) -> Figure:
    canvas.hatch(over_columns.merged(close_up.unmeasured_us))
    for curve in curves:
        drawn = canvas.line(SERIES[curve.key], *curve.points(close_up), series=curve.key)
        rows = [(curve.label, quantity("y", "%")), ("Time", canvas.x.told("@x", _CLOCK))]
        canvas.tooltip_over_time(rows, [drawn], "@x")
    return canvas.figure


def _lanes(close_up: CloseUp, canvas: Canvas) -> Figure:
    lane, start, length, name, events = close_up.table.T
    kinds = np.array([one.kind for one in close_up.lanes])
    found = Events(lane=lane, start=start, length=length, kind=kinds[lane], name=name, events=events)
    lanes(
        canvas,
        found,
        {kind: (style, KIND_NAMES[kind]) for kind, style in KINDS.items()},
        close_up.names,
        canvas.x.told("@left", _CLOCK),
        per_ms=US_PER_MS,
    )
    canvas.text([(at, -0.5, number) for at, number in step_labels(close_up)], dy=0.35, series="steps")
    return canvas.figure
