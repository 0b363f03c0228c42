"""A step of the job in its phases, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from jobrules.causes.rank_waits import MIN_STEPS, RankPhases, RankWaits, late_rank, rank_phases
from jobrules.measures.data_loading import FETCH
from jobrules.measures.framework_time import phases_by_rank
from jobrules.measures.intervals import joined, time_of
from jobrules.model import Count, Job
from jobrules.model.names import EventName, NodeName, OwnText, RankName

#: Phases that are listed; the time of others is that outside of phases.
MAX_PHASES = 8
#: What can be measured of any step, by key.
EXPECTED = ("data-loading", "forward", "backward")


class PhaseOfStep(Struct, frozen=True, kw_only=True):
    """A phase of steps, and its time in one."""

    #: Of ``TIME_PARTS``.
    key: OwnText
    #: Empty for the time outside of recorded phases.
    event_type: EventName
    us: float


class TypicalStep(Struct, frozen=True, kw_only=True):
    """The mean of the steps of one rank; the phases add up to it."""

    node: NodeName
    rank: RankName
    ranks: Count
    steps: Count
    us: float
    phases: tuple[PhaseOfStep, ...]


def phase_key(event_type: str) -> str:
    """Key of a phase in ``TIME_PARTS``."""
    if event_type == FETCH:
        return "data-loading"
    passes = (key for key in ("forward", "backward") if event_type.lower().startswith(key))
    return next(passes, "event-type" if event_type else "no-event")


def typical_step(job: Job) -> TypicalStep | None:
    """Of the rank that the others wait for, otherwise of the one with the longest fetches; None without whole steps."""
    found = [one for one in job.gathered(_whole) if len(one.number) >= MIN_STEPS]
    if not found:
        return None
    waits = RankWaits.of(job)
    late = waits and late_rank(waits)
    slow = late.ranks[0] if late else None
    fetched = [float(one.phases[FETCH].sum()) if FETCH in one.phases else 0.0 for one in found]
    one = next((one for one in found if one.key == slow), found[int(np.argmax(fetched))])
    (phases,) = job.gathered(_phases, one.node, one.rank)
    return TypicalStep(
        node=one.node,
        rank=one.rank,
        ranks=len(found),
        steps=len(one.number),
        us=float(one.step_us.mean()),
        phases=phases,
    )


def _whole(part: Job) -> Iterator[RankPhases]:
    if part.steps.whole:
        yield from rank_phases(part, 1)


def _phases(part: Job, node: str, rank: str) -> Iterator[tuple[PhaseOfStep, ...]]:
    """Of one rank; what happens in two phases at once counts for the first, those of any step before others."""
    if part.nodes != (node,):
        return
    (steps,) = (one for one in rank_phases(part, 1) if one.rank == rank)
    start_us, end_us = steps.end_us - steps.step_us, steps.end_us
    own = phases_by_rank(part.events).get(rank, {})
    times = {kind: time_of(part.events, rows) for kind, rows in own.items()}
    known = sorted(times, key=lambda kind: (phase_key(kind) == "event-type", -times[kind].total))[:MAX_PHASES]
    covered, before, phases = None, 0.0, []
    for kind in known:
        covered = times[kind] if covered is None else joined([covered, times[kind]])
        by_now = float(covered.overlap(start_us, end_us).mean())
        phases.append(PhaseOfStep(key=phase_key(kind), event_type=kind, us=by_now - before))
        before = by_now
    rest = PhaseOfStep(key="no-event", event_type="", us=float(steps.step_us.mean()) - before)
    order = (*EXPECTED, "event-type")
    yield (*sorted((one for one in phases if one.us > 0), key=lambda one: order.index(one.key)), rest)
