"""The steps of a job: one for each execution of a step number, over all training processes.

Processes that train together wait for each other, so a step of the job ends when its slowest process ends it. The time
from one end to the next is the time that a step takes, wherever a source sets the beginning of its steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.intervals import Intervals, joined, union
from jobrules.measures.rows import TRAIN, series_of
from jobrules.measures.step_use import BRIDGED_US
from jobrules.model import StepMark
from jobrules.model.types import _no_ints

if TYPE_CHECKING:
    from jobrules.model import IntArray, Job


class JobSteps(Struct, frozen=True, kw_only=True, eq=False):
    """Training steps of a job or of a node by their end, and what other steps it took; on the common clock."""

    #: (n,) step numbers; of a source without numbers, counted.
    number: IntArray = field(default_factory=_no_ints)
    #: (n,) earliest start and latest end over the processes.
    start_us: IntArray = field(default_factory=_no_ints)
    end_us: IntArray = field(default_factory=_no_ints)
    #: Times of steps of any process: in other modes, and in any mode.
    others: Intervals
    every: Intervals

    def __len__(self) -> int:
        return len(self.number)

    @classmethod
    def of(cls, job: Job) -> JobSteps:
        """The steps of the whole job; empty if none were recorded."""
        return job.once(_of_job)

    @property
    def previous_end_us(self) -> IntArray:
        """(n,) end of the step before; for the first its own start."""
        return np.concatenate((self.start_us[:1], self.end_us[:-1]))

    @property
    def follows(self) -> IntArray:
        """Rows of the steps whose number follows that of the step before, the whole time between both ends being training."""
        next_one = np.flatnonzero(np.diff(self.number) == 1) + 1
        other_us = self.others.overlap(self.previous_end_us[next_one], self.end_us[next_one])
        return np.asarray(next_one[other_us == 0])


def _of_job(job: Job) -> JobSteps:
    nodes = job.each(_of_node, Clocks.of(job))
    if not nodes:
        nothing = union(_no_ints(), _no_ints())
        return JobSteps(others=nothing, every=nothing)
    columns = [
        np.concatenate([getattr(one, name) for one in nodes]) for name in ("number", "start_us", "end_us")
    ]
    series = np.repeat(np.arange(len(nodes)), [len(one) for one in nodes])
    return _executions(
        series,
        *columns,
        others=joined([one.others for one in nodes]),
        every=joined([one.every for one in nodes]),
    )


def _of_node(part: Job, clocks: Clocks) -> JobSteps:
    (node,) = part.nodes
    late_us = clocks.late_us(node)
    steps = part.steps
    number = steps.number.copy()
    for rows in series_of(steps).values():
        if (number[rows] < 0).any():
            number[rows] = np.arange(len(rows))
    training = np.array([mode == TRAIN for _, _, mode in steps.series], np.bool_)[steps.code]
    start_us, end_us = steps.start_us - late_us, steps.end_us - late_us
    # A step under a profiler lasts longer; its number is missing between those before and after it.
    compared = training & (steps.mark == StepMark.NONE)
    return _executions(
        steps.code[compared].astype(np.int64),
        number[compared],
        start_us[compared],
        end_us[compared],
        others=union(start_us[~training], end_us[~training]),
        every=union(start_us, end_us),
    )


def _executions(
    series: IntArray,
    number: IntArray,
    start_us: IntArray,
    end_us: IntArray,
    *,
    others: Intervals,
    every: Intervals,
) -> JobSteps:
    """Join rows of several series into steps: equal numbers are one execution if they are the same one of their series, at one time."""
    order = np.lexsort((start_us, number, series))
    again = (np.diff(series[order]) == 0) & (np.diff(number[order]) == 0)
    # Position within its run of equal rows: 0 for the first time that a series takes a step of this number.
    place = np.arange(len(order))
    first = np.maximum.accumulate(np.where(np.append(True, ~again)[: len(order)], place, 0))
    repeat = np.empty(len(order), np.int64)
    repeat[order] = place - first
    order = np.lexsort((start_us, repeat, number))
    changes = (np.diff(number[order]) != 0) | (np.diff(repeat[order]) != 0)
    changes |= np.diff(start_us[order]) > BRIDGED_US
    heads = np.flatnonzero(np.append(True, changes)[: len(order)])
    if not len(heads):
        return JobSteps(others=others, every=every)
    starts, ends = start_us[order[heads]], np.maximum.reduceat(end_us[order], heads)
    by_end = np.argsort(ends, kind="stable")
    return JobSteps(
        number=number[order[heads]][by_end],
        start_us=starts[by_end],
        end_us=ends[by_end],
        others=others,
        every=every,
    )
