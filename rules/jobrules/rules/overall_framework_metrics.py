"""OverallFrameworkMetrics: framework time summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.framework_time import Kind, added, breakdown_of, largest_first, rows_of, shares, summed
from jobrules.measures.intervals import joined, union
from jobrules.measures.rows import series_of
from jobrules.model import SECOND_US, Reason, ReasonKind, natural_sorted
from jobrules.rule import Rule
from jobrules.text import apportion, count, escape_name, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobrules.measures.framework_time import Sums
    from jobrules.measures.intervals import Intervals
    from jobrules.model import IntArray, Job, RuleResult

#: Start of SageMaker Debugger's name of a step mode; ``others`` is the time of a rank outside its steps.
STEP = "Step:ModeKeys."
OTHERS = "others"


@dataclass(frozen=True, kw_only=True)
class OverallFrameworkMetrics(Rule):
    """Framework time summary.

    What it checks
        Time in steps by mode, outside steps, and, where profiled, per operator and event type.

    Why it matters
        Time outside steps does not train the model.

    What to do
        * If much time is outside steps, look at data loading, evaluation, and checkpoints.
        * Compare operators by self time.
    """

    title: ClassVar[str] = "Framework time summary"
    can_trigger: ClassVar[bool] = False
    of_work: ClassVar[bool] = False

    def check(self, job: Job) -> RuleResult:
        """``datapoints`` are events; steps if there are no events."""
        found = job.each(_of_node)
        details = breakdown_of([one.sums for one in found])
        if not job.event_count and not job.step_count:
            return self.not_evaluated(
                Reason(kind=ReasonKind.NOT_RECORDED, what="steps and events", verb="were"), details=details
            )
        if job.event_count:
            details["basis"] = _basis([one.ran for one in found])
        seen = count(job.event_count, "event") if job.event_count else count(job.step_count, "step")
        if job.step_count:
            times = _times([worker for one in found for worker in one.workers])
            details |= {"phase": shares(times), "phase_time": times}
        times = details["phase_time"]
        headline = f"{_shares(times)} ({seen})" if times else f"{seen}, steps not recorded"
        return self.passed(headline, datapoints=job.event_count or job.step_count, details=details)


class RankSteps(Struct, frozen=True, kw_only=True):
    """The time of one rank from the first start of a step to the last end, in microseconds."""

    node: str
    rank: str
    span_us: int
    #: How much of it lies in any step.
    inside_us: int
    #: Sum of the durations of the steps of each mode.
    modes: dict[str, int]


def rank_steps(part: Job) -> list[RankSteps]:
    """The ranks of a node in natural order, and the modes of each."""
    steps = part.steps
    by_worker: dict[tuple[str, str], dict[str, IntArray]] = {}
    for (node, worker, phase), rows in series_of(steps).items():
        by_worker.setdefault((node, worker), {})[phase] = rows
    found = []
    for (node, worker), phases in by_worker.items():
        every = np.concatenate(list(phases.values()))
        start_us, end_us = steps.start_us[every], steps.end_us[every]
        one = RankSteps(
            node=node,
            rank=worker,
            span_us=int(end_us.max() - start_us.min()),
            inside_us=union(start_us, end_us).total,
            modes={
                phase: int((steps.end_us[rows] - steps.start_us[rows]).sum())
                for phase, rows in phases.items()
            },
        )
        found.append(one)
    return found


class _Ran(Struct, frozen=True, kw_only=True, eq=False):
    """When events of one kind ran, and the steps they name."""

    times: Intervals
    first_step: int | None
    last_step: int | None


class _Node(Struct, frozen=True, kw_only=True, eq=False):
    sums: Sums
    ran: dict[str, _Ran]
    workers: list[RankSteps]


_KINDS = {"CPU": Kind.CPU, "GPU": Kind.GPU, "general": Kind.GENERAL}


def _of_node(part: Job) -> _Node:
    ran = {}
    for name, kind in _KINDS.items():
        rows = np.flatnonzero(rows_of(part.events, kind))
        if len(rows):
            steps = part.events.step[rows]
            steps = steps[steps >= 0]
            ran[name] = _Ran(
                times=union(part.events.start_us[rows], part.events.end_us[rows]),
                first_step=int(steps.min()) if len(steps) else None,
                last_step=int(steps.max()) if len(steps) else None,
            )
    return _Node(sums=summed(part.events), ran=ran, workers=rank_steps(part))


def _times(workers: Sequence[RankSteps]) -> dict[str, int]:
    """Microseconds of the steps of each mode, and of the time outside steps, over all ranks.

    A rank's time outside steps lies between its first start and its last end.
    """
    phases = added(one.modes for one in workers)
    times = {STEP + phase: phases[phase] for phase in natural_sorted(set(phases))}
    times[OTHERS] = sum(one.span_us - one.inside_us for one in workers)
    return largest_first(times)


def _shares(times: dict[str, int]) -> str:
    """``Outside steps 69.1%, TRAIN 30.1%, EVAL 0.8%``."""
    parts = zip(times, apportion(list(times.values()), 100, 1), strict=True)
    clauses = []
    for i, (name, part) in enumerate(parts):
        outside = "outside steps" if i else "Outside steps"
        mode = escape_name(name.removeprefix(STEP))
        clauses.append(f"{outside if name == OTHERS else mode} {percent(part)}")
    return ", ".join(clauses)


def _basis(nodes: Sequence[Mapping[str, _Ran]]) -> dict[str, Any]:
    """Basis of each table: seconds in which its events ran, and the steps they name."""
    basis: dict[str, Any] = {}
    for name in _KINDS:
        found = [one[name] for one in nodes if name in one]
        if found:
            basis[name] = {"seconds": joined([one.times for one in found]).total / SECOND_US}
            first = [one.first_step for one in found if one.first_step is not None]
            last = [one.last_step for one in found if one.last_step is not None]
            if first:
                basis[name] |= {"first_step": min(first), "last_step": max(last)}
    return basis
