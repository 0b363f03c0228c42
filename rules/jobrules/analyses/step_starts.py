"""When the steps of a job started, in a few points: what a time axis needs to count in steps."""

from __future__ import annotations

import heapq
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.analyses.job_steps import JobSteps

if TYPE_CHECKING:
    from jobrules.model import IntArray, Job

MAX_POINTS = 100
#: Of a job that was started again more often, steps are no axis.
MAX_RESTARTS = 20
#: Between two points a step is found to this part of the job.
EXACT_PART = 1 / 2000


class StepStarts(Struct, frozen=True, kw_only=True):
    """Training steps and their starts; those between two steps lie evenly between them.

    A number below that of the step before it: the job was started again.
    """

    number: tuple[int, ...]
    start_us: tuple[int, ...]


def step_starts(job: Job) -> StepStarts | None:
    """At most 100 steps of the job; None with fewer than two, or if it was started again too often."""
    steps = JobSteps.of(job)
    order = np.argsort(steps.start_us, kind="stable")
    number, start_us = steps.number[order], steps.start_us[order]
    again = np.flatnonzero(np.diff(number) <= 0)
    if len(number) < 2 or len(again) > MAX_RESTARTS:
        return None
    first_us, last_us = job.span_us
    kept = _kept(
        number, start_us, {0, *again.tolist(), *(again + 1).tolist(), len(number) - 1}, last_us - first_us
    )
    return StepStarts(number=tuple(number[kept].tolist()), start_us=tuple(start_us[kept].tolist()))


def _kept(number: IntArray, start_us: IntArray, ends: set[int], span_us: int) -> list[int]:
    """Rows between which the others lie evenly: to ``ends`` comes the row that is farthest from where it is taken to be."""
    kept = sorted(ends)
    waiting = [_farthest(number, start_us, *pair) for pair in pairwise(kept)]
    heapq.heapify(waiting)
    while waiting and len(kept) < MAX_POINTS:
        far_us, row, first, last = heapq.heappop(waiting)
        if -far_us <= EXACT_PART * span_us:
            break
        kept.append(row)
        for pair in ((first, row), (row, last)):
            heapq.heappush(waiting, _farthest(number, start_us, *pair))
    return sorted(kept)


def _farthest(number: IntArray, start_us: IntArray, first: int, last: int) -> tuple[float, int, int, int]:
    """Of the rows between two: how far the farthest is off, below 0, and which one; and the two."""
    if last - first < 2:
        return 0.0, first, first, last
    inside = slice(first + 1, last)
    taken = np.interp(number[inside], number[[first, last]], start_us[[first, last]])
    far = np.abs(start_us[inside] - taken)
    row = int(far.argmax())
    return -float(far[row]), first + 1 + row, first, last
