"""What another source than records of the job says about its training loop and its idle moments."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from jobrules.model.types import SECOND_US, FloatArray, IntArray

#: Waiting for a smaller part of the loop is usual.
RELEVANT_PART = 0.05


class Stalls(Struct, frozen=True, kw_only=True, eq=False):
    """Snapshots in which a GPU idled while cores were held up, where the samples themselves were not kept."""

    #: (n,) when, ascending, and how many cores.
    time_us: IntArray
    cores: IntArray
    #: Time that a snapshot stands for, and how many there were with and without a stall.
    interval_us: float
    snapshots: int
    #: True if all are of one node. Of several, none names its own.
    of_one_node: bool = True

    @property
    def share(self) -> float:
        """Share of all snapshots."""
        return len(self.time_us) / max(1, self.snapshots)

    def held(self, time_us: IntArray, weight_us: FloatArray, least: float) -> FloatArray:
        """(m,) which part of the time of each of other samples is such a snapshot with at least so many cores."""
        own_us = self.time_us[self.cores >= least]
        after = np.clip(np.searchsorted(time_us, own_us), 1, max(1, len(time_us) - 1))
        rows = np.where(own_us - time_us[after - 1] <= time_us[after] - own_us, after - 1, after)
        near = np.abs(time_us[rows] - own_us) <= weight_us[rows]
        counts = np.bincount(rows[near], minlength=len(time_us))
        return np.asarray(np.minimum(1.0, counts * self.interval_us / np.maximum(weight_us, 1.0)))


class LoopFacts(Struct, frozen=True, kw_only=True):
    """Steps, fetches, and stalls in a few numbers, where single ones were not kept."""

    #: "SageMaker Debugger's results".
    source: str
    #: Start of the first and of the last step; None if they are not known.
    steps_us: tuple[int, int] | None = None
    #: Share of the recorded time outside of steps; None if it is not known or impossible.
    outside: float | None = None
    #: What is wrong with the share as the source has it, as a sentence without its period; empty if nothing is.
    note: str = ""
    #: How many steps were recorded of each training process; 0 if that is not known.
    steps: int = 0
    #: Median step and median batch fetch, in seconds.
    step_s: float | None = None
    fetch_s: float | None = None
    #: How many fetches were recorded.
    fetches: int = 0
    #: True if of each training process at most one was: the first, which is the slowest.
    of_first_fetches: bool = False
    #: Loader processes that the loader was set up with, of each training process.
    num_workers: int | None = None
    #: Of a node.
    cores: int | None = None
    #: Idle GPUs while a core was saturated (``cpu``) and while one waited for I/O (``io``), as far as that was recorded.
    stalls: dict[str, Stalls] = {}

    @property
    def waited(self) -> float:
        """Share of the loop in which training waited for batches; 0 without evidence, or if it is usual.

        A process that loads batches itself does so outside of its steps. Loader processes fetch during the steps.
        """
        if self.fetch_s is None:
            return 0.0
        step_s = self.step_s or 0.0
        if self.outside is None and self.step_s is None and not self.num_workers:
            return self._fetched
        wait_s = max(0.0, self.fetch_s / self.num_workers - step_s) if self.num_workers else self.fetch_s
        by_times = wait_s / (wait_s + step_s) if wait_s else 0.0
        part = by_times if self.step_s is not None else 1.0
        if self.outside is not None:
            part = self.outside if self.num_workers == 0 else min(self.outside, part)
        elif self.step_s is None:
            return 0.0
        return part if min(part, by_times) >= RELEVANT_PART else 0.0

    @property
    def shows_waits(self) -> bool:
        """True if it is known how much of the loop fetches may take: by the time outside of steps, a step, or their number."""
        in_loop = self.num_workers == 0 and self.steps > 1 and self.steps_us is not None
        return self.fetch_s is not None and (self.outside is not None or self.step_s is not None or in_loop)

    @property
    def _fetched(self) -> float:
        """Share of the time from step to step in which the process fetched itself; 0 if the steps are not known."""
        if self.num_workers != 0 or self.steps < 2 or self.steps_us is None or self.fetch_s is None:
            return 0.0
        each_s = (self.steps_us[1] - self.steps_us[0]) / (self.steps - 1) / SECOND_US
        part = min(1.0, self.fetch_s / each_s)
        return part if part >= RELEVANT_PART else 0.0
