"""The phases of the steps of each rank, where ranks train in step."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from jobrules.analyses.typical_step import phase_key
from jobrules.causes.rank_waits import RankWaits, late_rank
from jobrules.model import Count, Job
from jobrules.model.names import EventName, NodeName, OwnText, RankName

#: Keys of phases in the order of a step.
_ORDER = ("data-loading", "forward", "backward", "event-type", "no-event")
#: Ranks that are listed.
MAX_RANKS = 64


class StepPhase(Struct, frozen=True, kw_only=True):
    """A phase of steps."""

    #: Of ``TIME_PARTS``.
    key: OwnText
    #: Its event type; empty for the time outside of recorded phases.
    event_type: EventName


class RankOfSteps(Struct, frozen=True, kw_only=True):
    """The steps of one rank, in microseconds."""

    node: NodeName
    rank: RankName
    #: Median length of a step.
    step_us: float
    #: Of each phase.
    median_us: tuple[float, ...]
    p90_us: tuple[float, ...]


class WaitsOfRanks(Struct, frozen=True, kw_only=True):
    """Where ranks that train in step spend their steps, and which of them the others wait for."""

    #: Steps that were compared.
    steps: Count
    phases: tuple[StepPhase, ...]
    #: Those that are late first.
    ranks: tuple[RankOfSteps, ...]
    #: Ranks that are not listed.
    left: Count
    #: How many of the first ranks are late, and by how much in a typical step; 0 if none is.
    late: Count
    late_us: float
    #: Share of the time of steps in which the others wait, in percent, and place of the phase in which they do.
    waiting_percent: float
    waiting_phase: int


def rank_waits(job: Job) -> WaitsOfRanks | None:
    """None unless steps of several ranks end together."""
    found = RankWaits.of(job)
    if found is None:
        return None
    late = late_rank(found)
    names = sorted(found.phases, key=lambda name: (_ORDER.index(phase_key(name)), name))
    quartiles = {name: np.quantile(us, (0.5, 0.9), axis=1).round(1) for name, us in found.phases.items()}
    steps_us = np.median(found.step_us, axis=1)
    first = [found.ranks.index(one) for one in late.ranks] if late else []
    order = [*first, *(i for i in range(len(found.ranks)) if i not in first)]
    return WaitsOfRanks(
        steps=found.step_us.shape[1],
        phases=tuple(StepPhase(key=phase_key(name), event_type=name) for name in names),
        ranks=tuple(
            RankOfSteps(
                node=found.ranks[i][0],
                rank=found.ranks[i][1],
                step_us=round(float(steps_us[i]), 1),
                median_us=tuple(float(quartiles[name][0, i]) for name in names),
                p90_us=tuple(float(quartiles[name][1, i]) for name in names),
            )
            for i in order[:MAX_RANKS]
        ),
        left=max(0, len(order) - MAX_RANKS),
        late=len(first),
        late_us=round(late.late_us, 1) if late else 0.0,
        waiting_percent=round(100 * late.part, 1) if late else 0.0,
        waiting_phase=names.index(late.phase) if late else 0,
    )
