"""Which time the samples stand for, and which was not measured.

A sample holds until the next one. Where none follows for more than 60 s and more than ten
sampling intervals, the time is not measured: the sampler paused, or the machine was gone.
The sampling interval may change during a job, so it is taken from the neighbourhood.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jobrules.job import SECOND_US, BoolArray, FloatArray, IntArray, Job
from jobrules.result import Gap

PAUSE_US = 60 * SECOND_US
PAUSE_INTERVALS = 10


def pauses(time_us: IntArray) -> BoolArray:
    """(n - 1,) whether the time between two neighbouring samples was not measured."""
    distance = np.diff(time_us)
    if len(distance) < 2:
        # One distance alone is the sampling interval, whatever its length.
        return np.zeros(len(distance), dtype=np.bool_)
    # Before the first and after the last distance there is no neighbour: 0 leaves the other one.
    padded = np.concatenate(([0], distance, [0]))
    interval = np.maximum(padded[:-2], padded[2:])
    return np.asarray(distance > np.maximum(PAUSE_US, PAUSE_INTERVALS * interval))


@dataclass(frozen=True, kw_only=True, eq=False)
class Held:
    """How long each sample of a series stands for."""

    #: (n,) microseconds.
    weight_us: FloatArray
    #: Time of [start, end] that no sample stands for.
    unmeasured_us: float


def held(time_us: IntArray, start_us: int, end_us: int) -> Held:
    """Share out [start, end] among the ascending samples inside it, at least one.

    The samples' weights and the unmeasured time add up to ``end - start``. The few milliseconds
    before the first and after the last sample go to that sample; where they are a pause by the rule
    above, they are not measured.
    """
    distance = np.diff(time_us)
    interval = float(np.median(distance)) if len(distance) else 0.0
    paused = pauses(time_us)
    weight = np.zeros(len(time_us))
    weight[:-1] = np.where(paused, interval, distance)
    limit = max(float(PAUSE_US), PAUSE_INTERVALS * interval)
    lead, tail = float(time_us[0] - start_us), float(end_us - time_us[-1])
    if lead <= limit:
        weight[0] += lead
    weight[-1] += tail if tail <= limit else interval
    return Held(weight_us=weight, unmeasured_us=max(0.0, float(end_us - start_us) - float(weight.sum())))


def ticks(job: Job, node: str) -> IntArray:
    """Times of all snapshots of a node, ascending, whatever was sampled in them."""
    panels = [p for p in job.panels if p.node == node]
    if not panels:
        return np.empty(0, np.int64)
    _, first = np.unique(np.concatenate([p.snapshot for p in panels]), return_index=True)
    return np.concatenate([p.time_us for p in panels])[first]


def gaps(job: Job) -> tuple[Gap, ...]:
    """The times without any sample of a node, between samples and at both ends of the job."""
    start_us, end_us = job.span_us
    result = []
    for node in job.nodes:
        time_us = ticks(job, node)
        if not len(time_us):
            continue
        distance = np.diff(time_us)
        limit = max(PAUSE_US, PAUSE_INTERVALS * float(np.median(distance)) if len(distance) else 0)
        spans = [(int(time_us[i]), int(time_us[i + 1])) for i in np.flatnonzero(pauses(time_us))]
        if time_us[0] - start_us > limit:
            spans.insert(0, (start_us, int(time_us[0])))
        if end_us - time_us[-1] > limit:
            spans.append((int(time_us[-1]), end_us))
        result += [Gap(node=node, start_us=a, end_us=b) for a, b in spans]
    return tuple(result)
