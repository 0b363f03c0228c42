"""What a comparison of runs needs of a job: its step times and its use in blocks of neighboring values.

Steps and samples of one run are correlated, so their spread says little about the spread of their mean. Means of
blocks of neighbors are nearly independent; ``jobreport.comparison.real_difference`` tests with these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from jobrules.analyses.job_steps import JobSteps
from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.data_loading import Loading
from jobrules.measures.framework_time import CHECKPOINT, recorded_phases
from jobrules.measures.intervals import union
from jobrules.measures.rows import TRAIN, rows_by_lane
from jobrules.measures.sample_weights import sample_weights
from jobrules.measures.work import Work
from jobrules.model import SECOND_US, Amount, Count, FloatArray, IntArray, Job, Metric, Positive
from jobrules.model.names import OwnText
from jobrules.model.steps import WARM_UP_STEPS

BLOCKS = 20
#: Steps that blocks of means need, and steps of each block of quantiles; with fewer, half as many blocks.
MIN_STEPS = 100
MIN_STEPS_OF_QUANTILE = 20
#: Bins of a histogram of utilization, 2% each.
BINS = 50

#: A step stalls above the larger of the median plus so many standard deviations, estimated from the median absolute
#: deviation, and so many medians.
STALL_DEVIATIONS, STALL_MEDIANS = 5.0, 1.5
#: Standard deviation of a normal distribution with a median absolute deviation of 1.
DEVIATION_OF_MAD = 1.4826
#: Fetches that were recorded during less of the steps say nothing about all of them.
RECORDED_PART = 0.8

_OF_BLOCKS = Meta(min_length=BLOCKS, max_length=BLOCKS)
_METRICS = (Metric.GPU_UTILIZATION, Metric.CPU_UTILIZATION, Metric.IO_WAIT)


class StepBlocks(Struct, frozen=True, kw_only=True):
    """Times of the job's training steps, from the end of one step to the end of the next, in seconds.

    The first 10 steps are left out, and steps that hold an evaluation or a checkpoint, or whose predecessor was not
    recorded.
    """

    #: ``TRAIN``.
    phase: OwnText
    #: Training steps of the job, with those that are left out; steps that are not.
    steps: Count
    timed: Positive
    #: The 0th to the 100th percentile.
    quantiles_s: Annotated[tuple[Amount, ...], Meta(min_length=101, max_length=101)]
    #: Of 20 blocks of neighboring steps: steps, their time, and the batch fetches in it (of each step, those of the
    #: process that fetched longest); below 100 steps of 1 block.
    n: Annotated[tuple[Positive, ...], Meta(min_length=1)]
    sum_s: tuple[Amount, ...]
    #: Empty if no fetch was recorded.
    fetch_s: tuple[Amount, ...]
    #: Median and 95th percentile of each of 20 blocks, of 10 below 400 steps; empty below 200.
    p50_s: tuple[Amount, ...]
    p95_s: tuple[Amount, ...]
    #: From the first start to the last end, and how much of that is in no step of any process and mode.
    loop_s: Amount
    outside_s: Amount
    #: Steps that stalled, and how much longer than the median they took in all; None in reports of older versions.
    stalls: Count | None = None
    stalled_s: Amount = 0.0


class TimeBlocks(Struct, frozen=True, kw_only=True):
    """A metric in 20 equal stretches of the loop, and its histogram there."""

    metric: Metric
    #: Devices over all nodes.
    devices: Positive
    #: Of each stretch: time that the samples of all devices stand for, and their mean; None without any.
    covered_s: Annotated[tuple[Amount, ...], _OF_BLOCKS]
    mean: Annotated[tuple[Amount | None, ...], _OF_BLOCKS]
    #: Percent of the measured time per 2% of the mean over the devices of a node, the last bin closed.
    histogram: Annotated[tuple[Amount, ...], Meta(min_length=BINS, max_length=BINS)]


def block_edges(n: int, blocks: int = BLOCKS) -> list[int]:
    """Edges of blocks of neighbors: block i holds the values ``i * n // blocks`` to ``(i + 1) * n // blocks``, exclusive."""
    return [i * n // blocks for i in range(blocks + 1)]


def step_blocks(job: Job) -> StepBlocks | None:
    """None if no two neighboring training steps were recorded."""
    clocks = Clocks.of(job)
    steps = JobSteps.of(job)
    start_us, end_us = timed_steps(job)
    if not len(start_us):
        return None
    fetch_us = fetched_us(job, clocks, start_us, end_us)
    loop_us = int(steps.every.end[-1] - steps.every.start[0])
    return blocks_of(
        (end_us - start_us) / SECOND_US,
        fetch_us / SECOND_US if fetch_us is not None else None,
        steps=len(steps),
        loop_s=loop_us / SECOND_US,
        outside_s=(loop_us - steps.every.total) / SECOND_US,
    )


def timed_steps(job: Job) -> tuple[IntArray, IntArray]:
    """Begin and end of the steps whose time is known, each from the end of the step before it."""
    steps = JobSteps.of(job)
    rows = steps.follows
    rows = rows[rows >= WARM_UP_STEPS]
    start_us, end_us = steps.previous_end_us[rows], steps.end_us[rows]
    # A checkpoint outlives the work after it; it is none of it.
    free = recorded_phases(job, Clocks.of(job), CHECKPOINT).overlap(start_us, end_us) == 0
    return start_us[free], end_us[free]


def blocks_of(
    lasted_s: FloatArray, fetch_s: FloatArray | None, *, steps: int, loop_s: float, outside_s: float
) -> StepBlocks:
    """Of the times of steps that are not left out, in their order, and of the batch fetches in them."""
    edges = block_edges(len(lasted_s), BLOCKS if len(lasted_s) >= MIN_STEPS else 1)
    blocks = min(BLOCKS, 10 * (len(lasted_s) // (10 * MIN_STEPS_OF_QUANTILE)))
    cuts = block_edges(len(lasted_s), blocks)[1:-1] if blocks else []
    of_blocks = np.split(lasted_s, cuts) if blocks else []
    quantiles = [np.quantile(one, (0.5, 0.95)) for one in of_blocks]
    median, limit = stall_limit(lasted_s)
    stalled = lasted_s[lasted_s > limit]
    return StepBlocks(
        phase=TRAIN,
        steps=steps,
        timed=len(lasted_s),
        quantiles_s=_rounded(np.quantile(lasted_s, np.linspace(0, 1, 101))),
        n=tuple(np.diff(edges).tolist()),
        sum_s=_sums(lasted_s, edges),
        fetch_s=_sums(fetch_s, edges) if fetch_s is not None else (),
        p50_s=_rounded(np.array([p50 for p50, _ in quantiles])),
        p95_s=_rounded(np.array([p95 for _, p95 in quantiles])),
        loop_s=loop_s,
        outside_s=outside_s,
        stalls=len(stalled),
        stalled_s=round(float((stalled - median).sum()), 6),
    )


def stall_limit(lasted: FloatArray) -> tuple[float, float]:
    """The median, and from where on a step is a stall."""
    median = float(np.median(lasted))
    deviation = DEVIATION_OF_MAD * float(np.median(np.abs(lasted - median)))
    return median, max(median + STALL_DEVIATIONS * deviation, STALL_MEDIANS * median)


def _sums(values: FloatArray, edges: list[int]) -> tuple[float, ...]:
    return _rounded(np.add.reduceat(values, edges[:-1]))


def _rounded(seconds: FloatArray) -> tuple[float, ...]:
    """To the microsecond."""
    return tuple(np.round(seconds, 6).tolist())


def fetched_us(job: Job, clocks: Clocks, start_us: IntArray, end_us: IntArray) -> IntArray | None:
    """(n,) time of batch fetches in each of these ascending times, of the process that fetched longest.

    None without fetches, or if they were recorded during a part of the times only.
    """
    nodes = job.gathered(_fetched, clocks, start_us, end_us)
    if not nodes or not len(start_us):
        return None
    first_us, last_us = min(one.first_us for one in nodes), max(one.last_us for one in nodes)
    recorded_us = min(last_us, int(end_us[-1])) - max(first_us, int(start_us[0]))
    if recorded_us < RECORDED_PART * int(end_us[-1] - start_us[0]):
        return None
    return np.asarray(np.max([one.fetched_us for one in nodes], axis=0))


class _Fetches(Struct, frozen=True, kw_only=True, eq=False):
    first_us: int
    last_us: int
    fetched_us: IntArray


def _fetched(part: Job, clocks: Clocks, start_us: IntArray, end_us: IntArray) -> Iterator[_Fetches]:
    (node,) = part.nodes
    late_us = clocks.late_us(node)
    loading = Loading.of(part.events, node)
    if loading is None or not len(loading.fetches):
        return
    fetches = loading.fetches
    of_ranks = [
        union(fetches.start_us[rows], fetches.end_us[rows]).overlap(start_us + late_us, end_us + late_us)
        for rows in rows_by_lane(fetches, lambda lane: lane.rank).values()
    ]
    yield _Fetches(
        first_us=int(fetches.start_us.min()) - late_us,
        last_us=int(fetches.end_us.max()) - late_us,
        fetched_us=np.max(of_ranks, axis=0),
    )


def time_blocks(job: Job) -> tuple[TimeBlocks, ...]:
    """Each metric that was sampled in the loop; without steps in the time of GPU work, or in the whole job."""
    work = Work.of(job)
    clocks = work.clocks if work else Clocks.of(job)
    begin_us, end_us = (work.begin_us, work.end_us) if work else (clocks.start_us, clocks.end_us)
    if end_us <= begin_us:
        return ()
    edges_us = np.linspace(begin_us, end_us, BLOCKS + 1)
    found = job.gathered(_time_sums, clocks, edges_us)
    return tuple(
        _time_blocks(metric, [one for one in found if one.metric is metric])
        for metric in _METRICS
        if any(one.metric is metric for one in found)
    )


class _TimeSums(Struct, frozen=True, kw_only=True, eq=False):
    """Sums over one node."""

    metric: Metric
    devices: int
    #: (blocks,) microseconds of all devices, and times the values; (bins,) microseconds.
    covered_us: FloatArray
    weighted: FloatArray
    histogram_us: FloatArray


def _time_sums(part: Job, clocks: Clocks, edges_us: FloatArray) -> Iterator[_TimeSums]:
    (node,) = part.nodes
    edges_us = edges_us + clocks.late_us(node)
    for metric in _METRICS:
        panel = part.panel(node, metric)
        if panel is None:
            continue
        weight_us = sample_weights(panel.time_us, *clocks.span_us(node)).weight_us
        block = np.searchsorted(edges_us, panel.time_us, side="right") - 1
        inside = (block >= 0) & (block < BLOCKS)
        if not inside.any():
            continue
        values, weight_us, block = panel.values[inside], weight_us[inside], block[inside]
        known = ~np.isnan(values)
        covered_us = weight_us * known.sum(axis=1)
        weighted = weight_us * np.where(known, values, 0.0).sum(axis=1)
        bins = np.minimum((panel.mean[inside] * BINS / 100).astype(np.int64), BINS - 1)
        yield _TimeSums(
            metric=metric,
            devices=len(panel.devices),
            covered_us=_added(block, covered_us, BLOCKS),
            weighted=_added(block, weighted, BLOCKS),
            histogram_us=_added(np.maximum(bins, 0), weight_us, BINS),
        )


def _added(place: IntArray, values: FloatArray, places: int) -> FloatArray:
    """(places,) sums of the values of each place."""
    return np.bincount(place, values, places).astype(np.float64)


def _time_blocks(metric: Metric, nodes: list[_TimeSums]) -> TimeBlocks:
    covered_us = np.sum([one.covered_us for one in nodes], axis=0)
    weighted = np.sum([one.weighted for one in nodes], axis=0)
    histogram_us = np.sum([one.histogram_us for one in nodes], axis=0)
    whole_us = float(histogram_us.sum()) or 1.0
    return TimeBlocks(
        metric=metric,
        devices=sum(one.devices for one in nodes),
        covered_s=tuple(np.round(covered_us / SECOND_US, 3).tolist()),
        mean=tuple(
            round(total / covered, 4) if covered else None
            for total, covered in zip(weighted.tolist(), covered_us.tolist(), strict=True)
        ),
        histogram=tuple(np.round(100 * histogram_us / whole_us, 3).tolist()),
    )
