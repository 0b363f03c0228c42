"""Which rank the others wait for: from the phases of their steps, without a trace.

The steps of ranks that train in step end together, so a rank with more work of its own makes the others wait, inside the
phase that holds their exchange: it has the least time there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.measures.data_loading import FETCH
from jobrules.measures.framework_time import CHECKPOINT, EVALUATION, phases_by_rank
from jobrules.measures.intervals import joined, time_of
from jobrules.measures.rows import TRAIN, series_of
from jobrules.measures.work import numbered
from jobrules.model import FloatArray, IntArray, Job, natural_key

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Phases in which no rank waits for another, and the others in the order in which a wait is looked for: the first whose
#: difference is this part of the largest counts, since what a rank does more elsewhere it has less of there.
_OWN = (FETCH, "Forward", *CHECKPOINT, *EVALUATION)
_EXCHANGE = ("Gradient exchange", "Backward(post-forward)", "Optimizer")
_CLEAR_PART = 0.8
#: Time of a step outside of recorded phases.
REST = ""

#: Ranks are compared over so many steps or more, and at most.
MIN_STEPS, MAX_STEPS = 20, 2000
#: Ends of steps stay together: how far they drift apart in a step, and how far they lie apart in all, as parts of a step;
#: or they wander no farther than from one step to the next.
_DRIFT, _APART, _WANDER = 0.001, 0.01, 1.2
#: A rank is late if it has less time in the phase than the others in this part of the steps.
_MOSTLY = 2 / 3
#: A phase is the reason if it takes this part of the delay.
_REASON_PART = 0.8
#: Ranks whose delay is within this part of the largest are late together.
_TOGETHER = 0.75
#: Phases with less of the time are not compared.
_MIN_PART = 0.005


class RankPhases(Struct, frozen=True, kw_only=True, eq=False):
    """The steps of one rank, each from the end of the one before."""

    node: str
    rank: str
    #: Begin of the first step.
    first_us: int
    #: (n,) numbers, ends, and lengths, in microseconds.
    number: IntArray
    end_us: IntArray
    step_us: IntArray
    #: (n,) time in each phase, and outside of all, in microseconds.
    phases: dict[str, IntArray]

    @property
    def key(self) -> tuple[str, str]:
        """Node and rank."""
        return self.node, self.rank


class RankWaits(Struct, frozen=True, kw_only=True, eq=False):
    """The phases of ranks that train in step."""

    ranks: tuple[tuple[str, str], ...]
    #: (ranks,) begin of the first step, on the clock of its node.
    first_us: IntArray
    #: (steps,) numbers of the steps that are compared.
    number: IntArray
    #: (ranks, steps) lengths of steps.
    step_us: FloatArray
    #: By name: (ranks, steps) time in it, in microseconds; ``REST`` is what lies outside of all.
    phases: dict[str, FloatArray]

    def median_us(self, phase: str) -> FloatArray:
        """(ranks,) typical time in a phase."""
        return np.asarray(np.median(self.phases[phase], axis=1))

    @classmethod
    def of(cls, job: Job) -> RankWaits | None:
        """None unless steps of several ranks end together."""
        return job.once(_rank_waits)


class LateRank(Struct, frozen=True, kw_only=True):
    """The rank that the others wait for."""

    node: str
    rank: str
    #: Nodes and ranks that are about as late, this one first, and how many wait.
    ranks: tuple[tuple[str, str], ...]
    waiting: int
    #: The phase in which the others wait, and how long in a step, in microseconds; median.
    phase: str
    late_us: float
    #: Share of the time of steps in which they wait.
    part: float
    #: What the rank takes longer for, and how long it and the others take; None if that explains less than most of it.
    reason: str | None
    own_us: float = 0.0
    others_us: float = 0.0
    #: Typical step.
    step_us: float


def late_rank(waits: RankWaits) -> LateRank | None:
    """None if no rank has clearly less time than the others in a phase in which they may wait."""
    gaps = {phase: _gap(waits.median_us(phase)) for phase in waits.phases if phase not in _OWN}
    largest = max((gap for _, gap in gaps.values()), default=0.0)
    if largest <= 0:
        return None
    phase = min((one for one, (_, gap) in gaps.items() if gap >= _CLEAR_PART * largest), key=_place)
    slow, gap = gaps[phase]
    typical = waits.median_us(phase)
    late = np.median(np.delete(typical, slow)) - typical >= _TOGETHER * gap
    if 2 * late.sum() > len(typical):
        return None
    others = np.median(waits.phases[phase][~late], axis=0)
    delay_us = others - waits.phases[phase][slow]
    if (delay_us >= gap / 2).mean() < _MOSTLY:
        return None
    late_us = float(np.median(delay_us))
    longer = {
        one: (float(times[slow]), float(np.median(times[~late])))
        for one in waits.phases
        if one != phase
        for times in [waits.median_us(one)]
    }
    reason = max(longer, key=lambda one: longer[one][0] - longer[one][1], default=None)
    own_us, others_us = longer[reason] if reason is not None else (0.0, 0.0)
    known = own_us - others_us >= _REASON_PART * late_us
    return LateRank(
        node=waits.ranks[slow][0],
        rank=waits.ranks[slow][1],
        ranks=tuple(waits.ranks[i] for i in sorted(np.flatnonzero(late), key=lambda i: typical[i])),
        waiting=int((~late).sum()),
        phase=phase,
        late_us=late_us,
        part=float(np.maximum(0.0, delay_us).sum() / waits.step_us[~late].mean(axis=0).sum()),
        reason=reason if known else None,
        own_us=own_us if known else 0.0,
        others_us=others_us if known else 0.0,
        step_us=float(np.median(waits.step_us)),
    )


def _gap(typical_us: FloatArray) -> tuple[int, float]:
    """The rank with the least time in a phase, and how much the others have more."""
    slow = int(typical_us.argmin())
    return slow, float(np.median(np.delete(typical_us, slow)) - typical_us[slow])


def _place(phase: str) -> int:
    """Where a wait is looked for first: exchanges by their names, backward passes, anything else, unrecorded time."""
    known = (*_EXCHANGE, None, REST)
    return known.index(phase) if phase in known else known.index(None)


def _rank_waits(job: Job) -> RankWaits | None:
    counts = job.gathered(numbered)
    if len(counts) < 2:
        return None
    found = job.gathered(rank_phases, -(-max(counts) // MAX_STEPS))
    found = sorted((one for one in found if len(one.number)), key=lambda one: natural_key("/".join(one.key)))
    if len(found) < 2:
        return None
    common = found[0].number
    for one in found[1:]:
        common = np.intersect1d(common, one.number, assume_unique=True)
    if len(common) < MIN_STEPS:
        return None
    rows = [np.searchsorted(one.number, common) for one in found]
    step_us = np.array([one.step_us[own] for one, own in zip(found, rows, strict=True)], np.float64)
    if not _ends_together(
        np.array([one.end_us[own] for one, own in zip(found, rows, strict=True)], np.float64),
        float(np.median(step_us)),
    ):
        return None
    nothing = np.zeros(len(common))
    names = sorted({name for one in found for name in one.phases})
    phases = {
        name: np.array(
            [
                one.phases[name][own] if name in one.phases else nothing
                for one, own in zip(found, rows, strict=True)
            ],
            np.float64,
        )
        for name in names
    }
    return RankWaits(
        ranks=tuple(one.key for one in found),
        first_us=np.array([one.first_us for one in found]),
        number=common,
        step_us=step_us,
        phases={name: us for name, us in phases.items() if us.sum() >= _MIN_PART * step_us.sum()},
    )


def _ends_together(end_us: FloatArray, step_us: float) -> bool:
    """True if the ends of steps do not drift apart; clocks of nodes may differ by any constant."""
    apart = end_us - np.median(end_us, axis=0)
    at = np.arange(apart.shape[1])
    slope, start = np.polyfit(at, apart.T, 1)
    if np.abs(slope).max() > _DRIFT * step_us:
        return False
    left = apart - (start[:, None] + slope[:, None] * at)
    spread, step_by_step = left.std(axis=1), np.diff(left, axis=1).std(axis=1)
    return bool((spread <= np.maximum(_APART * step_us, _WANDER * step_by_step)).all())


def rank_phases(part: Job, every: int) -> Iterator[RankPhases]:
    """Of each rank of a node with numbered training steps: each ``every``-th step that follows the one before."""
    steps, events = part.steps, part.events
    phases_of = phases_by_rank(events)
    for (node, rank, mode), unordered in series_of(steps).items():
        if mode != TRAIN:
            continue
        rows = unordered[np.argsort(steps.number[unordered], kind="stable")]
        number, end_us = steps.number[rows], steps.end_us[rows]
        # A number that comes again is of a restart.
        once = np.diff(number, prepend=-2) == 1
        once[:-1] &= np.diff(number) > 0
        follows = once & (number % every == 0) & (steps.mark[rows] == 0)
        begin_us = np.where(follows, np.roll(end_us, 1), end_us)
        own = {kind: time_of(events, of) for kind, of in phases_of.get(rank, {}).items()}
        phases = {kind: times.overlap(begin_us, end_us)[follows] for kind, times in own.items()}
        length_us = (end_us - begin_us)[follows]
        inside = joined(list(own.values())).overlap(begin_us, end_us)[follows] if own else 0
        yield RankPhases(
            node=node,
            rank=rank,
            first_us=int(steps.start_us[rows].min()),
            number=number[follows],
            end_us=end_us[follows],
            step_us=length_us,
            phases=phases | {REST: length_us - inside},
        )
