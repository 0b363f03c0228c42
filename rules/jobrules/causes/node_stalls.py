"""Times in which all GPUs of a node idle while its CPU is saturated: in training in step, other nodes wait meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.measures.core_use import TELLING_LIFT, CoreUse
from jobrules.measures.intervals import Intervals, joined, union
from jobrules.measures.sample_weights import sample_weights
from jobrules.model import BoolArray, Job, Metric, Panel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrules.measures.work import Work


class NodeStalls(Struct, frozen=True, kw_only=True, eq=False):
    """The stalls of all nodes, on the common clock."""

    nodes: tuple[str, ...]
    times: Intervals

    @classmethod
    def of(
        cls, job: Job, work: Work | None, core_threshold: float, gpu_threshold: float
    ) -> NodeStalls | None:
        """None if no node has one, or if there is no other node."""
        if work is None or len(job.nodes) < 2:
            return None
        found = job.gathered(_stalls, work, core_threshold, gpu_threshold)
        if not found:
            return None
        nodes, times = zip(*found, strict=True)
        return cls(nodes=nodes, times=joined(times))

    def hold_up(self, work: Work, panel: Panel, saturated: BoolArray, gpu_threshold: float) -> BoolArray:
        """(n,) in which snapshots all GPUs of a node idle in a stall of another one.

        Nothing if that is not ``TELLING_LIFT`` times as frequent as at other times: then the nodes do not wait for one
        another.
        """
        idle = _idle(panel, gpu_threshold)
        known = work.holds(panel.time_us, panel.node) & ~saturated
        then = known & self.times.holds(panel.time_us - work.clocks.late_us(panel.node))
        others = known & ~then
        often, usual = (float(idle[rows].sum()) / max(1, len(idle[rows])) for rows in (then, others))
        return idle & then if often >= TELLING_LIFT * usual else np.zeros(len(idle), np.bool_)


def _idle(panel: Panel, gpu_threshold: float) -> BoolArray:
    return np.asarray(~(panel.values >= gpu_threshold).any(axis=1))


def _stalls(
    part: Job, work: Work, core_threshold: float, gpu_threshold: float
) -> Iterator[tuple[str, Intervals]]:
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, core_threshold)
        if use is None:
            continue
        rows = use.crowded & _idle(panel, gpu_threshold) & work.holds(panel.time_us, panel.node)
        if rows.any():
            # A snapshot of another node belongs to the nearest one of this node.
            weight_us = sample_weights(panel.time_us, *work.clocks.span_us(panel.node)).weight_us
            half_us = (weight_us[rows] / 2).astype(np.int64)
            middle_us = panel.time_us[rows] - work.clocks.late_us(panel.node)
            yield panel.node, union(middle_us - half_us, middle_us + half_us + 1)
