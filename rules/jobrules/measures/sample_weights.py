"""Which time the samples stand for, and which was not measured.

A sample holds until the next one. Where none follows for more than 60 s and more than ten
sampling intervals, the time is not measured: the sampler paused, or the machine was gone.
The sampling interval may change during a job, so it is taken from the neighborhood.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.snapshots import TOLERANCE_US
from jobrules.model import SECOND_US, BoolArray, FloatArray, IntArray, Job
from jobrules.model.names import NodeName
from jobrules.model.order import median


class Gap(Struct, frozen=True, kw_only=True):
    """A time without samples on one node."""

    node: NodeName
    start_us: int
    end_us: int


PAUSE_US = 60 * SECOND_US

PAUSE_INTERVALS = 10

_NEARBY = 5


def pauses(time_us: IntArray) -> BoolArray:
    """(n - 1,) whether the time between two neighboring samples was not measured.

    The sampling interval at a place is the median of the five distances before and after it, so
    that slower sampling makes no pauses, and two pauses around one sample stay pauses.
    """
    distance = np.diff(time_us)
    paused = np.zeros(len(distance), dtype=np.bool_)
    long = np.flatnonzero(distance > PAUSE_US)
    if len(long):
        nearby = long[:, None] + np.concatenate((np.arange(-_NEARBY, 0), np.arange(1, _NEARBY + 1)))
        outside = (nearby < 0) | (nearby >= len(distance))
        neighbors = np.where(outside, np.nan, distance[np.clip(nearby, 0, len(distance) - 1)])
        # The distance of two samples alone has no neighbors: then a slow sampler's minute counts.
        neighbors[outside.all(axis=1), 0] = PAUSE_US
        paused[long] = distance[long] > PAUSE_INTERVALS * _medians(neighbors)
    return paused


def _medians(rows: FloatArray) -> FloatArray:
    """(n,) that of each row, without NaN: as ``np.nanmedian``, which takes milliseconds for a row of a node."""
    ascending = np.sort(rows, axis=1)  # NaN comes last
    count = np.count_nonzero(~np.isnan(rows), axis=1)
    row = np.arange(len(rows))
    return np.asarray((ascending[row, (count - 1) // 2] + ascending[row, count // 2]) / 2)


class SampleWeights(Struct, frozen=True, kw_only=True, eq=False):
    """How long each sample of a series stands for."""

    #: (n,) microseconds.
    weight_us: FloatArray
    #: Time of [start, end] that no sample stands for.
    unmeasured_us: float
    #: How much of the first sample's time is before it; every other one stands for the time after it.
    before_us: float


def around_us(time_us: IntArray, weight_us: FloatArray) -> tuple[IntArray, IntArray]:
    """(n,) and (n,) begin and end of the time that each of the ascending samples may describe.

    A sampler reports the use since its sample before, but not every one stamps a sample when it is taken. So the time
    reaches from the sample before to the next one. This matters where samples meet steps and fetches, whose times are
    exact.
    """
    before_us = np.append(weight_us[:1], weight_us[:-1])
    return time_us - before_us.astype(np.int64), time_us + weight_us.astype(np.int64)


def sample_weights(time_us: IntArray, start_us: int, end_us: int) -> SampleWeights:
    """Share out [start, end] among the ascending samples inside it, at least one.

    The samples' weights and the unmeasured time add up to ``end - start``. Before the first sample
    and after the last one, one sampling interval belongs to that sample.
    """
    distance, paused = np.diff(time_us), pauses(time_us)
    interval = 0.0 if paused.all() else median(distance[~paused])
    weight = np.zeros(len(time_us))
    weight[:-1] = np.where(paused, np.minimum(interval, distance), distance)
    # Sensors are read in turn: the last record of the job may be another sensor's, milliseconds later.
    most = interval + TOLERANCE_US
    before = min(float(time_us[0] - start_us), most)
    weight[0] += before
    weight[-1] += min(float(end_us - time_us[-1]), most)
    return SampleWeights(
        weight_us=weight,
        unmeasured_us=max(0.0, float(end_us - start_us) - float(weight.sum())),
        before_us=before,
    )


def ticks(part: Job) -> IntArray:
    """Times of all snapshots of a node, ascending, whatever was sampled in them."""
    time_us = np.full(max((int(panel.snapshot[-1]) + 1 for panel in part.panels), default=0), -1)
    # Of several panels the first one says when a snapshot was.
    for panel in reversed(part.panels):
        time_us[panel.snapshot] = panel.time_us
    return time_us[time_us >= 0]


def gaps(job: Job) -> tuple[Gap, ...]:
    """The times without any sample of a node, between samples and at both ends of the job.

    On the clock of each node, which says where the job's ends are too.
    """
    return tuple(job.gathered(_gaps, Clocks.of(job)))


def _gaps(part: Job, clocks: Clocks) -> list[Gap]:
    time_us = ticks(part)
    if not len(time_us):
        return []
    (node,) = part.nodes
    start_us, end_us = clocks.span_us(node)
    distance = np.diff(time_us)
    limit = max(PAUSE_US, PAUSE_INTERVALS * median(distance) if len(distance) else 0)
    spans = [(int(time_us[i]), int(time_us[i + 1])) for i in np.flatnonzero(pauses(time_us))]
    if time_us[0] - start_us > limit:
        spans.insert(0, (start_us, int(time_us[0])))
    if end_us - time_us[-1] > limit:
        spans.append((int(time_us[-1]), end_us))
    return [Gap(node=node, start_us=a, end_us=b) for a, b in spans]
