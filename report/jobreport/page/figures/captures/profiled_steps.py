"""Steps that PyTorch's profiler recorded: of one device in parts, of all ranks as a heat map, and one in full detail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.formats import escape_name
from jobreport.page.figures import chart, theme
from jobreport.page.figures.canvas import UNKNOWN, Canvas, Figure
from jobreport.page.figures.captures.lanes import Events, columns, lanes
from jobreport.page.figures.chart import quantity
from jobreport.page.figures.framework import RANKED_PX
from jobreport.page.figures.names import cut_apart, fitted
from jobreport.page.figures.scales import ceiling
from jobrules.model.captures import BAR_KINDS
from jobrules.model.time_parts import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from jobrules.model.captures import StepLines

    Floats = npt.NDArray[np.float64]

#: Steps whose numbers stand below a figure.
MAX_LABELS = 12
LEVELS = 10
#: Range of the shades at least, so that noise is not drawn as if ranks differed.
LEAST_RANGE = 0.1
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
    canvas = Canvas(_steps(numbers), chart.upward(ceiling(float(times_ms.sum(axis=0).max())), unit=" ms"))
    columns(canvas, [str(number) for number in numbers], parts, times_ms, quantity("time", "ms", 2))
    return canvas.figure


def over_ranks(
    numbers: Sequence[int], shortest: Sequence[float], median: Sequence[float], longest: Sequence[float]
) -> Figure:
    """Milliseconds of each step: a line of the median, and bars from the shortest to the longest of all ranks."""
    top = ceiling(max(longest))
    canvas = Canvas(_steps(numbers), chart.upward(top, unit=" ms"), left=theme.NAMES_PX)
    place = np.arange(len(numbers), dtype=np.float64)
    columns = {"step": [str(number) for number in numbers], "median": np.array(median)}
    band = canvas.bars("u3", (place, place + 1, np.array(shortest), np.array(longest)), columns)
    canvas.line("s1", np.repeat(np.append(place, len(numbers)), 2)[1:-1], np.repeat(median, 2))
    rows = [
        ("Step", "@step"),
        ("Shortest", quantity("bottom", "ms", 2)),
        ("Median", quantity("median", "ms", 2)),
        ("Longest", quantity("top", "ms", 2)),
    ]
    canvas.tooltip(rows, [band], mode="vline")
    return canvas.figure


class Shades(Struct, frozen=True, kw_only=True):
    """Ten shades of how much longer than the median of all ranks a rank took in a step, the longest farthest from the paper."""

    #: Parts of that median: of the rank that is fastest in most steps, and of the slowest.
    low: float
    high: float

    @classmethod
    def of(cls, deviations: Floats) -> Shades:
        """From the (ranks, steps) deviations, NaN where none was recorded; ranks that hardly differ stay near the paper."""
        of_ranks = np.nanmedian(deviations[~np.isnan(deviations).all(axis=1)], axis=1)
        low = min(0.0, float(of_ranks.min()))
        return cls(low=low, high=max(low + LEAST_RANGE, float(of_ranks.max())))

    @property
    def width(self) -> float:
        """Of one shade."""
        return (self.high - self.low) / LEVELS

    @property
    def ends(self) -> tuple[str, str]:
        """What the first and the last shade mean."""
        first, last = self.low + self.width, self.high - self.width
        return f"below {_signed(first)}", f"{_signed(last)} or more"

    def levels(self, deviations: Floats) -> Floats:
        """Number of the shade, NaN where none was recorded."""
        return np.clip(np.floor((deviations - self.low) / self.width), 0, LEVELS - 1)


def _signed(part: float) -> str:
    return f"{100 * part:+.0f}%".replace("-", "\N{MINUS SIGN}")


def heat_map(
    names: Sequence[str], numbers: Sequence[int], times_ms: Floats, deviations: Floats, shades: Shades
) -> Figure:
    """A row per rank and a column per step, in the shade of its deviation from the median of the step.

    Both tables are (ranks, steps), NaN where a rank did not record a step.
    """
    canvas = Canvas(_steps(numbers), chart.downward(cut_apart(names)), left=theme.NAMES_PX)
    levels = shades.levels(deviations)
    drawn = []
    for shade in range(LEVELS):
        rows, columns = np.nonzero(levels == shade)
        if not len(rows):
            continue
        values = {
            "rank": [escape_name(names[row], 40) for row in rows.tolist()],
            "step": [str(numbers[column]) for column in columns.tolist()],
            "ms": times_ms[rows, columns].astype(np.float32),
            "percent": (100 * deviations[rows, columns]).astype(np.float32),
        }
        sides = (columns, columns + 1, -rows - 1 + 0.04, -rows - 0.04)
        drawn.append(canvas.bars(f"h{shade}", sides, values))
    rows, columns = np.nonzero(np.isnan(times_ms))
    if len(rows):
        canvas.bars(UNKNOWN, (columns, columns + 1, -rows - 1 + 0.04, -rows - 0.04))
    tooltip = [
        ("Rank", "@rank"),
        ("Step", "@step"),
        ("Own time", quantity("ms", "ms", 2)),
        ("Against the median", "@percent{+0.0}%"),
    ]
    canvas.tooltip(tooltip, drawn)
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


def _steps(numbers: Sequence[int]) -> chart.Axis:
    every = -(-len(numbers) // MAX_LABELS)
    return chart.slots([str(number) if i % every == 0 else "" for i, number in enumerate(numbers)])
