"""Steps in parts: outliers against normal steps, the last steps one by one, and a typical step of each rank."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from jobreport.formats import NBSP, escape_name
from jobreport.page.figures import chart, theme
from jobreport.page.figures.canvas import Canvas, Figure
from jobreport.page.figures.captures.lanes import columns
from jobreport.page.figures.scales import ceiling
from jobreport.page.figures.steps import upward
from jobrules.analyses.step_parts import EVENT_TYPE
from jobrules.model.time_parts import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.page.figures.steps import Unit
    from jobrules.analyses.rank_waits import RankOfSteps, StepPhase
    from jobrules.analyses.step_parts import LastSteps, StepContrast, StepPart

#: Fills of event types that have no part of time of their own, in turn.
_EVENT_TYPES = (named(EVENT_TYPE).fill, "f3")
#: Ranks that are drawn.
MAX_RANKS = 12
#: Classes of both kinds of steps.
NORMAL, OUTLIER = "u", "l"


def fill(part: StepPart, parts: Sequence[StepPart]) -> str:
    """Class of a part."""
    if part.key != EVENT_TYPE:
        return named(part.key).fill
    return _EVENT_TYPES[[one for one in parts if one.key == EVENT_TYPE].index(part) % len(_EVENT_TYPES)]


def contrast(found: StepContrast) -> Figure:
    """Two bars per event type: normal steps above, outliers below."""
    names = [escape_name(one.name + (f", {one.device}" if one.device else ""), 16) for one in found.classes]
    percents = np.array([(one.normal_percent, one.outlier_percent) for one in found.classes]).T
    canvas = Canvas(
        chart.along(0, ceiling(float(percents.max())), unit="%"), chart.downward(names), left=theme.NAMES_PX
    )
    slot = -np.arange(len(names), dtype=np.float64)
    columns = {
        "normal": percents[0],
        "outlier": percents[1],
        "name": [escape_name(one.name, 60) for one in found.classes],
    }
    drawn = [
        canvas.bars(style, (0, values, slot - low, slot - high), columns, series=series)
        for style, values, low, high, series in (
            (NORMAL, percents[0], 0.48, 0.16, "normal"),
            (OUTLIER, percents[1], 0.84, 0.52, "outlier"),
        )
    ]
    rows = [
        ("Event type", "@name"),
        ("Normal steps", chart.quantity("normal", "%")),
        ("Outliers", chart.quantity("outlier", "%")),
    ]
    canvas.tooltip(rows, drawn)
    return canvas.figure


def step_names(last: LastSteps) -> list[str]:
    """Labels of the bars: the number of the step if known, otherwise its place from the end."""
    n = len(last.numbers)
    return [str(number) if number >= 0 else f"−{n - i}" for i, number in enumerate(last.numbers)]


def last_steps(last: LastSteps, unit: Unit) -> Figure:
    """One bar per step: work at the bottom, waiting above it, time without events on top, hatched."""
    names = step_names(last)
    every = math.ceil(len(names) / 5)
    # Counted from the last one; an odd number of labels, so that the last one stays on a narrow screen.
    labeled = range(len(names) - 1, -1, -every)
    labeled = labeled if len(labeled) % 2 or len(labeled) < 4 else labeled[:-1]
    times = np.array([part.time_us for part in last.parts], np.float64) / unit.us
    slots = chart.slots([name if i in labeled else "" for i, name in enumerate(names)])
    canvas = Canvas(slots, upward(float(times.sum(axis=0).max()), unit))
    parts = [(fill(part, last.parts), part.label) for part in last.parts]
    columns(canvas, names, parts, times, chart.quantity("time", unit.name, unit.digits))
    return canvas.figure


def phase_fills(phases: Sequence[StepPhase]) -> list[str]:
    """Class of each phase."""
    others = [phase for phase in phases if phase.key == "event-type"]
    return [
        _EVENT_TYPES[others.index(phase) % len(_EVENT_TYPES)] if phase in others else named(phase.key).fill
        for phase in phases
    ]


def rank_phases(
    ranks: Sequence[RankOfSteps], phases: Sequence[str], styles: Sequence[str], unit: Unit
) -> Figure:
    """Bars of medians that stand on one another, from the left."""
    names = [f"rank {escape_name(one.rank, 10)}" for one in ranks]
    times = np.array([one.median_us for one in ranks]).T / unit.us
    ends = np.vstack([np.zeros(len(ranks)), np.cumsum(times, axis=0)])
    canvas = Canvas(
        chart.along(0, ceiling(float(ends[-1].max())), unit=f"{NBSP}{unit.name}"),
        chart.downward(names),
        left=theme.NAMES_PX,
    )
    slot = -np.arange(len(ranks), dtype=np.float64)
    drawn = [
        canvas.bars(
            style,
            (ends[i], ends[i + 1], slot - 0.85, slot - 0.15),
            {"rank": names, "phase": [phase] * len(ranks), "time": times[i]},
            series=f"kind-{i}",
        )
        for i, (phase, style) in enumerate(zip(phases, styles, strict=True))
    ]
    rows = [
        ("Rank", "@rank"),
        ("Phase", "@phase"),
        ("Median", chart.quantity("time", unit.name, unit.digits)),
    ]
    canvas.tooltip(rows, drawn)
    return canvas.figure
