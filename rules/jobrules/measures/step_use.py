"""How much GPUs lost in recorded steps and between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from jobrules.measures.intervals import Intervals, union
from jobrules.measures.sample_weights import around_us, sample_weights
from jobrules.measures.work import Work
from jobrules.model import SECOND_US, FloatArray, IntArray, Job, Metric

#: Between steps farther apart than this, nothing was recorded.
BRIDGED_US = 60 * SECOND_US


class StepUse(Struct, frozen=True, kw_only=True):
    """Time of GPUs while steps of their node were recorded, and what they lost of it, in microseconds."""

    inside_us: float
    inside_lost_us: float
    between_us: float
    between_lost_us: float

    @classmethod
    def sum(cls, nodes: Iterable[StepUse]) -> StepUse:
        """Of all nodes together."""
        sums = np.array([astuple(node) for node in nodes], np.float64).reshape(-1, 4).sum(axis=0).tolist()
        return cls(**dict(zip(cls.__struct_fields__, sums, strict=True)))

    @property
    def between(self) -> float:
        """Share of the time that is between steps."""
        return self.between_us / max(1.0, self.inside_us + self.between_us)

    @property
    def used_inside(self) -> float:
        """Mean utilization in steps, from 0 to 1; 1 without any."""
        return 1 - self.inside_lost_us / max(1.0, self.inside_us)

    @property
    def used_between(self) -> float:
        """Mean utilization between steps, from 0 to 1; 1 without any."""
        return 1 - self.between_lost_us / max(1.0, self.between_us)


def step_use(part: Job, work: Work) -> Iterator[StepUse]:
    """Of each node with samples of GPUs and steps; what is in a step of any rank is inside.

    Some samplers stamp a sample at the begin of the time that it describes, others at its end: what tells steps from
    the time between them better is right.
    """
    if not len(part.steps):
        return
    steps = union(part.steps.start_us, part.steps.end_us)
    bridged = union(steps.start, steps.end + BRIDGED_US)
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        weight_us = sample_weights(panel.time_us, *work.clocks.span_us(panel.node)).weight_us
        recorded = work.holds(panel.time_us, panel.node)
        recorded &= bridged.holds(panel.time_us) & (panel.time_us < steps.end[-1])
        before_us, after_us = around_us(panel.time_us, weight_us)
        ways = [
            _split(panel.values[recorded], steps, begin_us[recorded], end_us[recorded])
            for begin_us, end_us in ((panel.time_us, after_us), (before_us, panel.time_us))
        ]
        yield max(ways, key=lambda one: abs(one.used_between - one.used_inside))


def _split(values: FloatArray, steps: Intervals, begin_us: IntArray, end_us: IntArray) -> StepUse:
    """From samples of (n,) times and (n, devices) values."""
    known = ~np.isnan(values)
    gpus, lost = known.sum(axis=1), np.where(known, 1 - values / 100, 0.0).sum(axis=1)
    inside_us = steps.overlap(begin_us, end_us)
    between_us = end_us - begin_us - inside_us
    return StepUse(
        inside_us=float(inside_us @ gpus),
        inside_lost_us=float(inside_us @ lost),
        between_us=float(between_us @ gpus),
        between_lost_us=float(between_us @ lost),
    )
