"""Lost GPU time and the causes that it is given to, where the moments of the time are not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobrules.measures.sample_weights import PAUSE_INTERVALS, PAUSE_US
from jobrules.model import natural_key
from jobrules.verdict.accounting import DeviceTime, Loss, NodeTime
from jobrules.verdict.edges import START_UP, WIND_DOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobreport.debugger_report.histograms import Histogram
    from jobreport.readers.debugger_results.details import GPU
    from jobreport.readers.debugger_results.rule_results import Bottlenecks
    from jobrules.measures.clock_offsets import Clocks
    from jobrules.measures.work import Work
    from jobrules.model import BoolArray, FloatArray
    from jobrules.model.claims import Cause
    from jobrules.rule import Rule

#: Causes outside of the work.
_OUTSIDE = (START_UP, WIND_DOWN)


class Ledger:
    """The lost time of each GPU, from which causes take their amounts in their order."""

    def __init__(self, clocks: Clocks, work: Work | None, gpus: Mapping[GPU, Histogram]) -> None:
        self.clocks, self.work, self.gpus = clocks, work, gpus
        self.used = {gpu: one for gpu, one in gpus.items() if one.worked}
        most = max(one.count for one in gpus.values())
        self.interval_us = clocks.length_us / most
        self.measured_us = {gpu: self._measured_us(most - one.count) for gpu, one in gpus.items()}
        self.left = {gpu: self.measured_us[gpu] * (1 - one.used) for gpu, one in gpus.items()}
        self.lost: dict[GPU, dict[str, float]] = {gpu: {} for gpu in gpus}
        self.losses: dict[str, Loss] = {}
        self.causes: list[Cause] = []
        self.owners: dict[str, str] = {}
        #: Times of the snapshots that a cause has taken.
        self.taken_us = np.empty(0, np.int64)
        self.node_count = len({node for node, _ in gpus})
        #: GPUs of whose lost time causes took all but that of idle samples.
        self.active_taken: set[GPU] = set()

    def _measured_us(self, lacking: int) -> float:
        """The time that the samples of a GPU stand for, if it has so many fewer than another."""
        missing_us = lacking * self.interval_us
        is_pause = lacking > PAUSE_INTERVALS and missing_us > PAUSE_US
        return self.clocks.length_us - (missing_us if is_pause else 0.0)

    def take(
        self,
        cause: Cause,
        amount_us: Mapping[GPU, float],
        owner: Rule | None = None,
        seen: Loss | None = None,
    ) -> None:
        """Give up to this amount of each GPU's lost time to a cause."""
        for gpu, left in self.left.items():
            taken = min(left, max(0.0, amount_us.get(gpu, 0.0)))
            self.lost[gpu][cause.key] = taken
            self.left[gpu] = left - taken
        span_us = (self.work.begin_us, self.work.end_us) if self.work else (0, 0)
        self.losses[cause.key] = seen or Loss(snapshots=1, start_us=span_us[0], end_us=span_us[1])
        self.causes.append(cause)
        if owner:
            self.owners[cause.key] = owner.name

    def take_snapshots(self, cause: Cause, found: Bottlenecks, least: float, owner: Rule) -> None:
        """Give the snapshots of the work in which at least so many cores counted to a cause, as far as none has them."""
        hit, idle = self._free(found)
        hit &= found.cores >= least
        times = found.time_us[hit]
        self.taken_us = np.append(self.taken_us, times)
        each_us = float(idle[hit].sum()) * self.interval_us / max(1, len(self.used))
        seen = Loss()
        if len(times):
            snapshots = max(1, round(len(times) / self.node_count))
            seen = Loss(snapshots=snapshots, start_us=int(times[0]), end_us=int(times[-1]))
        self.take(cause, dict.fromkeys(self.used, each_us), owner, seen)

    def _free(self, found: Bottlenecks) -> tuple[BoolArray, FloatArray]:
        """Which snapshots of the work no cause has taken, and how many used GPUs idle in each."""
        # GPUs that were never used are always among the idle ones.
        unused = (len(self.gpus) - len(self.used)) / self.node_count
        idle = np.asarray(found.gpus - unused, np.float64)
        # Entries do not name their node: all may be of one whose GPUs were never used.
        if self.work is None or {node for node, _ in self.gpus} != {node for node, _ in self.used}:
            return np.zeros(found.count, np.bool_), idle
        in_work = (found.time_us >= self.work.begin_us) & (found.time_us <= self.work.end_us)
        return in_work & (idle > 0) & ~np.isin(found.time_us, self.taken_us), idle

    def snapshots_left(self, found: Bottlenecks) -> float:
        """Share of the snapshots of the work that are listed, and that no cause has taken."""
        if self.work is None:
            return 0.0
        snapshots = self.work.length_us / self.interval_us * self.node_count
        return float(self._free(found)[0].sum()) / max(1.0, snapshots)

    @property
    def of_unused(self) -> dict[GPU, float]:
        """All time of the GPUs that were never used."""
        return {gpu: left for gpu, left in self.left.items() if gpu not in self.used}

    def outside_of_work(self, key: str) -> dict[GPU, float]:
        """The time before or after the work."""
        if self.work is None:
            return {}
        length = {
            START_UP: self.work.begin_us - self.clocks.start_us,
            WIND_DOWN: self.clocks.end_us - self.work.end_us,
        }
        return dict.fromkeys(self.used, length[key])

    def not_yet(self, amount_us: float) -> dict[GPU, float]:
        """An amount of each GPU without what other causes took during the work: they are seen at the same moments."""
        return {
            gpu: amount_us - sum(us for key, us in self.lost[gpu].items() if key not in _OUTSIDE)
            for gpu in self.used
        }

    @property
    def differences(self) -> dict[GPU, float]:
        """What each GPU lost more per time than the one that lost least, without what was taken."""
        lost = {gpu: self.left[gpu] / self.measured_us[gpu] for gpu in self.used}
        least = min(lost.values())
        return {gpu: self.measured_us[gpu] * (part - least) for gpu, part in lost.items()}

    def in_work(self, gpu: GPU) -> Histogram:
        """The utilization of a used GPU in the work, if it was idle before and after it."""
        if self.work is None:
            return self.gpus[gpu]
        outside_us = max(0.0, self.measured_us[gpu] - self.work.length_us)
        return self.gpus[gpu].without(outside_us / self.interval_us)

    def take_active(self, cause: Cause, owner: Rule) -> None:
        """Give to a cause what used GPUs lost while they were not idle."""
        self.active_taken = set(self.used)
        active = {gpu: one.lost["low"] + one.lost["busy"] for gpu, one in self.used.items()}
        self.take(cause, {gpu: self.measured_us[gpu] * part for gpu, part in active.items()}, owner)

    def left_part(self, gpu: GPU) -> float:
        """Share of what a GPU lost in the work that no cause has taken."""
        outside_us = sum(self.lost[gpu].get(key, 0.0) for key in _OUTSIDE)
        return self.left[gpu] / max(1.0, self.measured_us[gpu] * (1 - self.gpus[gpu].used) - outside_us)

    def nodes(self) -> tuple[NodeTime, ...]:
        """The time of each node."""
        by_node: dict[str, list[GPU]] = {}
        for gpu in sorted(self.gpus, key=lambda gpu: tuple(map(natural_key, gpu))):
            by_node.setdefault(gpu[0], []).append(gpu)
        length_us = self.work.length_us if self.work else 0
        return tuple(
            NodeTime(
                node=node,
                devices=tuple(map(self._device, gpus)),
                losses={
                    key: loss if any(self.lost[gpu][key] for gpu in gpus) else Loss()
                    for key, loss in self.losses.items()
                },
                snapshots=round(length_us / self.interval_us),
                failed={},
            )
            for node, gpus in by_node.items()
        )

    def _device(self, gpu: GPU) -> DeviceTime:
        histogram, left, rest = self.gpus[gpu], self.left[gpu], {}
        parts = list(histogram.lost.items())
        # Causes take idle time first, so what they left is the time of the busiest samples.
        for key, share in parts if gpu in self.active_taken else reversed(parts):
            rest[key] = min(left, share * self.measured_us[gpu])
            left -= rest[key]
        return DeviceTime(
            node=gpu[0],
            device=gpu[1],
            worked=histogram.worked,
            used=self.measured_us[gpu] * histogram.used,
            lost=self.lost[gpu] | rest,
            unmeasured=self.clocks.length_us - self.measured_us[gpu],
        )
