"""Waits for data within evaluation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.data_loading import Loading
from jobrules.measures.framework_time import EVALUATION, recorded_phases
from jobrules.measures.intervals import Intervals, union
from jobrules.model import Job
from jobrules.text import share

#: Evaluation waits for data if it does for so much of its time.
MOST = 0.5

EVALUATION_ADVICE = ("Evaluate less often, or on fewer batches.",)


class EvaluationWaits(Struct, frozen=True, kw_only=True):
    """What evaluation of a node waited for."""

    #: Share of its time in which it waited for batches.
    part: float
    #: Loader processes of most of its fetches; None if not known.
    num_workers: int | None


def evaluation_advice(job: Job) -> tuple[str, tuple[str, ...]]:
    """``waits for data for 62.0% of its time``, empty unless it does for most of it; and what to do about evaluation."""
    clocks = Clocks.of(job)
    phases = recorded_phases(job, clocks, EVALUATION)
    found = max(job.gathered(_waits, clocks, phases), key=lambda one: one.part, default=None)
    if found is None or found.part < MOST:
        return "", EVALUATION_ADVICE
    first = {0: "Set ``num_workers`` of the evaluation loader above 0: it has no loader process."}.get(
        -1 if found.num_workers is None else found.num_workers,
        "Make loading of evaluation batches cheaper, or raise ``num_workers`` of their loader.",
    )
    return f"waits for data for {share(found.part)} of its time", (first, *EVALUATION_ADVICE)


def _waits(part: Job, clocks: Clocks, phases: Intervals) -> Iterator[EvaluationWaits]:
    (node,) = part.nodes
    loading, late_us = Loading.of(part.events, node), clocks.late_us(node)
    if loading is None or not phases.total:
        return
    start_us, end_us = loading.fetches.start_us - late_us, loading.fetches.end_us - late_us
    inside = phases.holds(start_us)
    if not inside.any():
        return
    loaders = loading.loader_of_fetch[inside] if loading.loaders else np.array([-1])
    most = int(np.bincount(loaders + 1).argmax()) - 1
    yield EvaluationWaits(
        part=union(start_us, end_us).shared(phases) / phases.total,
        num_workers=loading.loaders[most].num_workers if most >= 0 else None,
    )
