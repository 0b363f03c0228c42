"""How far training was when a job ended: its last step, its last checkpoint, and what was done since."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from jobrules.measures.framework_time import CHECKPOINT
from jobrules.measures.rows import TRAIN, series_of
from jobrules.model import SECOND_US, Job, Metric

#: Name that record-job gives to a checkpoint that an exception ended.
_FAILED = "failed"
#: Memory in use at the end is the most of these last samples.
_END_US = 10 * SECOND_US


class LastWork(Struct, frozen=True, kw_only=True):
    """The end of the training of one process."""

    node: str
    rank: str
    #: Number and end of its last step.
    step: int
    end_us: int
    #: Steps since the last checkpoint of the job, or since the first step; and since when that is.
    lost_steps: int
    since_us: int
    #: Number of the last step before the last checkpoint; None without one.
    saved_step: int | None


def last_work(job: Job) -> list[LastWork]:
    """That of each process that trained."""
    saved_us = max(job.gathered(_saved), default=None)
    return job.gathered(_of_part, saved_us)


def _saved(part: Job) -> list[int]:
    events = part.events
    events = events.where(
        events.in_lanes(lambda lane: lane.event_type in CHECKPOINT)
        & ~events.named(lambda name: name == _FAILED)
    )
    return [int(events.end_us.max())] if len(events) else []


def _of_part(part: Job, saved_us: int | None) -> Iterator[LastWork]:
    for (node, rank, mode), rows in series_of(part.steps).items():
        if mode != TRAIN:
            continue
        start_us, end_us, number = (
            column[rows] for column in (part.steps.start_us, part.steps.end_us, part.steps.number)
        )
        # A step lasts from the end of the one before, so one that holds a checkpoint is no work since then.
        since = start_us >= (saved_us or 0)
        before = np.flatnonzero(~since)
        yield LastWork(
            node=node,
            rank=rank,
            step=int(number[-1]),
            end_us=int(end_us[-1]),
            lost_steps=int(since.sum()),
            since_us=saved_us if saved_us is not None else int(start_us[0]),
            saved_step=int(number[before[-1]]) if len(before) else None,
        )


class MemoryAtEnd(Struct, frozen=True, kw_only=True):
    """Host memory of a node, in bytes: in use at the end of its samples, and all."""

    node: str
    used: int
    total: int


def memory_at_end(part: Job) -> Iterator[MemoryAtEnd]:
    """Of a node whose memory was sampled in bytes."""
    (node,) = part.nodes
    used, total = part.panel(node, Metric.HOST_MEMORY_USED), part.panel(node, Metric.HOST_MEMORY_TOTAL)
    if used and total:
        last = used.values[used.time_us >= used.last_us - _END_US]
        if not np.isnan(last).all() and not np.isnan(total.values[-1, 0]):
            yield MemoryAtEnd(node=node, used=int(np.nanmax(last)), total=int(total.values[-1, 0]))
