"""Steps while a profiler recorded, and the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.measures.intervals import union
from jobrules.model import BoolArray, IntArray, Job, StepMark
from jobrules.model.steps import WARM_UP_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Steps of each kind that a comparison needs, after the first steps, which are longer for other reasons.
_MIN_STEPS = 3
#: Profiled steps that are longer than the others by more than this part of them are slowed down.
SLOWED_PART = 0.5
#: Event types that SageMaker's detailed profiling records, in a few steps.
_OPERATORS = ("cpu_functions", "gpu_functions")

#: From when to when a profiler recorded.
Spans = tuple[tuple[int, int], ...]


class ProfiledSteps(Struct, frozen=True, kw_only=True, eq=False):
    """The profiled steps of one series."""

    #: Of the part's steps: those that were profiled. And how many others there are after the warm-up.
    rows: IntArray
    others: int
    #: Medians of both after the warm-up, and by how much the profiled ones are longer in all, in microseconds.
    during_us: float
    usual_us: float
    extra_us: float
    #: From the first to the last step of the series.
    loop_us: int

    @property
    def slowed(self) -> bool:
        """True if profiled steps are longer than the others by more than half."""
        return self.during_us > (1 + SLOWED_PART) * self.usual_us

    @property
    def part(self) -> float:
        """What the profiler took of the loop."""
        return self.extra_us / max(1, self.loop_us)


def profiled_in(job: Job) -> tuple[Spans, frozenset[int]]:
    """When traces and profiles of Python code were recorded, and the numbers of the steps of traces without a clock."""
    spans = (*(one.span_us for one in job.captures), *((one.start_us, one.end_us) for one in job.profiles))
    numbers = {step.number for one in job.captures if not one.span_us for step in one.step_times}
    return tuple(span for span in spans if span), frozenset(numbers)


def profiled_steps(part: Job, spans: Spans, numbers: frozenset[int]) -> Iterator[ProfiledSteps]:
    """Of each series with enough steps of both kinds after its warm-up."""
    steps = part.steps
    profiled = _profiled(part, spans, numbers)
    for code in range(len(steps.series)):
        own = np.flatnonzero((steps.code == code) & (steps.mark != StepMark.CUT))
        rows, first = own[profiled[own]], int(profiled[own[:WARM_UP_STEPS]].sum())
        later = own[WARM_UP_STEPS:]
        others = later[~profiled[later]]
        if min(len(rows) - first, len(others)) < _MIN_STEPS:
            continue
        taken_us = steps.duration_us[rows]
        during_us = float(np.median(taken_us[first:]))
        usual_us = max(1.0, float(np.median(steps.duration_us[others])))
        # What warm-up takes is not the profiler's.
        taken_us[:first] = np.minimum(taken_us[:first], during_us)
        yield ProfiledSteps(
            rows=rows,
            others=len(others),
            during_us=during_us,
            usual_us=usual_us,
            extra_us=float(np.maximum(0.0, taken_us - usual_us).sum()),
            loop_us=int(steps.end_us[own].max() - steps.start_us[own].min()),
        )


def _profiled(part: Job, spans: Spans, numbers: frozenset[int]) -> BoolArray:
    """(n,) which steps are profiled: as their source says, else if their middle lies in a span; or by their numbers."""
    steps, events = part.steps, part.events
    marked = steps.mark == StepMark.PROFILED
    if marked.any():
        return np.asarray(marked)
    middle_us = (steps.start_us + steps.end_us) // 2
    profiled = union(*np.array(spans, np.int64).reshape(-1, 2).T).holds(middle_us)
    if numbers:
        profiled |= np.isin(steps.number, list(numbers))
    operators = events.in_lanes(lambda lane: lane.event_type.startswith(_OPERATORS))
    times = union(events.start_us[operators], events.end_us[operators])
    return np.asarray(profiled | (times.overlap(steps.start_us, steps.end_us) > 0))
