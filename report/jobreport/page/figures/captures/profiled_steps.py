"""Steps that PyTorch's profiler recorded: of one device in parts, and one in full detail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobreport.page.figures import chart
from jobreport.page.figures.canvas import Canvas, Figure
from jobreport.page.figures.captures.lanes import Events, columns, lanes
from jobreport.page.figures.chart import quantity
from jobreport.page.figures.framework import RANKED_PX
from jobreport.page.figures.names import fitted
from jobreport.page.figures.rank_times import step_slots
from jobreport.page.figures.scales import ceiling
from jobrules.model.captures import BAR_KINDS
from jobrules.model.time_parts import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from jobrules.model.captures import StepLines

    Floats = npt.NDArray[np.float64]

#: Class and name of each kind of bar of the slowest step: an event has the color of the part of time that it makes.
KINDS = {
    "data_loading": (named("data-loading").fill, "data loading"),
    "marks": ("n1", "marks"),
    "launch": ("f2", "call of the runtime"),
    "synchronization": (named("synchronization").fill, "blocking call"),
    "allocation": (named("memory-allocation").fill, "memory allocation"),
    "compute": (named("computing").fill, "computing"),
    "communication": (named("communication").fill, "communication"),
    "copy": (named("copies").fill, "copy"),
}


def step_parts(numbers: Sequence[int], parts: Sequence[tuple[str, str]], times_ms: Floats) -> Figure:
    """One column per step; ``times_ms`` (parts, steps) from bottom to top."""
    canvas = Canvas(
        step_slots([str(number) for number in numbers]),
        chart.upward(ceiling(float(times_ms.sum(axis=0).max())), unit=" ms"),
    )
    columns(canvas, [str(number) for number in numbers], parts, times_ms, quantity("time", "ms", 2))
    return canvas.figure


def one_step(lines: StepLines) -> Figure:
    """A lane for what the thread of the steps did, for its launches, and below these for each stream."""
    names = lane_names(lines)
    canvas = Canvas(
        chart.along(0, (lines.end_ns - lines.start_ns) / 1e6, unit=" ms"),
        chart.downward([fitted(name, RANKED_PX) for name in names]),
        left=RANKED_PX,
        zoom=True,
    )
    lane, start, length, kind, name, events = np.frombuffer(lines.bars, "<i4").reshape(-1, 6).T
    tick_ms = lines.tick_ns / 1e6
    found = Events(
        lane=lane,
        start=start * tick_ms,
        length=length * tick_ms,
        kind=np.array(BAR_KINDS)[kind],
        name=name,
        events=events,
    )
    lanes(canvas, found, KINDS, lines.names, quantity("left", "ms", 3))
    return canvas.figure


def lane_names(lines: StepLines) -> list[str]:
    """``data loading``, ``launches``, ``stream 7``; with the device if there are several."""
    devices = {lane.kind for lane in lines.lanes if lane.name}
    words = {"data_loading": "data loading", "marks": "marks", "launches": "launches"}
    return [
        words.get(lane.kind) or (f"{lane.kind}, " if len(devices) > 1 else "") + _stream(lane.name)
        for lane in lines.lanes
    ]


def _stream(name: str) -> str:
    return name if name.startswith("stream") else f"stream {name}"
