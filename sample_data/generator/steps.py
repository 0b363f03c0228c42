"""When the training processes step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from generator.noise import Noise

if TYPE_CHECKING:
    from generator.arrays import BoolArray, FloatArray, IntArray

#: What a step does.
TRAIN, EVAL = range(2)
#: How late a step may begin, and how far a process may lag behind the others.
LATE_S, LAG_S = 0.01, 0.005
#: Length of a stretch of faster or slower steps.
WANDER_PERIOD_S = 20.0
#: Pause after a validation step, and the most that one is shorter or longer than planned.
EVAL_GAP_S, EVAL_SPREAD_S = 0.05, 0.02


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A plan of the training loop, the same for all processes, and what is recorded of it.

    Training steps lie on a regular grid; noise moves their ends but never makes two of them overlap.
    An epoch ends with a checkpoint, without steps, and a validation.
    """

    start_s: float = 80.0
    #: The very first step begins this much earlier: it chooses kernels.
    warm_up_s: float = 2.5
    step_s: float = 0.45
    #: Pause after every training step.
    gap_s: float = 0.05
    #: Most that a step is shorter or longer than planned. Its triangular distribution ends 2.45 standard
    #: deviations from the mean, so that no step is an outlier by chance, however long the job.
    spread_s: float = 0.02
    #: How far steps wander off the grid: then they are faster for a while, and slower for another.
    wander_s: float = 0.0
    #: Every so-many-th training step takes the time of ``slow_slots`` steps with their pauses.
    slow_every: int = 1
    slow_slots: int = 1
    epoch_s: float = 300.0
    checkpoint_s: float = 1.2
    eval_s: float = 4.0
    eval_step_s: float = 0.2
    #: No step runs this close to the end of the job: the model is saved.
    closing_s: float = 4.0
    #: Loading processes per core of the machine, and how long from the start of the loop they are recorded.
    loaders_per_core: float = 1.0
    loaders_recorded_s: float = 90.0
    #: Numbers of the training steps whose operators are recorded.
    operators_of: range = range(5, 6)
    #: Numbers of the training steps whose Horovod operations are recorded.
    horovod_of: range = range(0)

    def __post_init__(self) -> None:
        """Refuse a plan whose steps could overlap."""
        # At most twice the way of the wandering in one stretch of it.
        nearer_s = 2.0 * self.wander_s / WANDER_PERIOD_S * self.slot_s
        if LATE_S + LAG_S + self.spread_s + nearer_s > self.gap_s:
            raise ValueError(f"steps may overlap: spread {self.spread_s} s, gap {self.gap_s} s")

    @property
    def round_s(self) -> float:
        """Time that the end of an epoch takes of the next one."""
        return self.checkpoint_s + self.eval_s

    @property
    def slot_s(self) -> float:
        """Time of a training step with its pause."""
        return self.step_s + self.gap_s

    def waiting(self, time_s: FloatArray) -> BoolArray:
        """Tell when the loop is between two training steps, by the plan."""
        slot = self._slot(time_s)
        return (slot >= 0.0) & (np.mod(slot, 1.0) >= self.step_s / self.slot_s)

    def stalling(self, time_s: FloatArray) -> BoolArray:
        """Tell when a slow step runs, by the plan."""
        if self.slow_slots == 1:
            return np.zeros(len(time_s), np.bool_)
        slot = self._slot(time_s)
        return (slot >= 0.0) & (np.floor(np.mod(slot, self._block_slots)) >= self.slow_every - 1)

    @property
    def _block_slots(self) -> int:
        """Slots from one slow step to the next."""
        return self.slow_every - 1 + self.slow_slots

    def _slot(self, time_s: FloatArray) -> FloatArray:
        """Return the place in the grid of an epoch's training steps, below 0 where there is none."""
        since_s = time_s - self.start_s
        within_s = np.mod(since_s, self.epoch_s) - np.where(since_s >= self.epoch_s, self.round_s, 0.0)
        return np.where(since_s < 0.0, -1.0, within_s / self.slot_s)

    def train_s(self, begin_s: float, room_s: float) -> tuple[FloatArray, FloatArray]:
        """Return start and length of the training steps that fit into a stretch."""
        step = np.arange(int(room_s / self.slot_s) + 1, dtype=np.float64)
        in_block = step % self.slow_every
        slot = step // self.slow_every * self._block_slots + in_block
        slots = np.where(in_block == self.slow_every - 1, self.slow_slots, 1)
        fits = (slot + slots) * self.slot_s <= room_s
        return begin_s + slot[fits] * self.slot_s, slots[fits] * self.slot_s - self.gap_s

    def validation_s(self, begin_s: float) -> tuple[FloatArray, FloatArray]:
        """Return start and length of the validation steps of an epoch."""
        slot_s = self.eval_step_s + EVAL_GAP_S
        start_s = begin_s + np.arange(int(self.eval_s / slot_s), dtype=np.float64) * slot_s
        return start_s, np.full(len(start_s), self.eval_step_s)


@dataclass(frozen=True, kw_only=True)
class Timetable:
    """All steps of a process in time order."""

    #: ``TRAIN`` or ``EVAL``.
    mode: IntArray
    #: Counted per mode.
    number: IntArray
    #: Since a moment that all rows share.
    start_us: IntArray
    end_us: IntArray
    #: Number of the epoch that a training step belongs to; a validation step has the next one's.
    epoch: IntArray


def timetable(plan: Steps, since_us: int, duration_s: float, seed: int, rank: int) -> Timetable:
    """Place the steps of a process, with times since a moment ``since_us`` after the start of the job.

    The processes of a job differ by their lag only.
    """
    last_s = duration_s - plan.closing_s
    epochs = max(0, math.ceil((last_s - plan.start_s) / plan.epoch_s))
    parts = []
    for epoch in range(epochs):
        begin_s = plan.start_s + epoch * plan.epoch_s
        closing_s = plan.round_s if epoch else 0.0
        if epoch:
            parts.append((EVAL, epoch, *plan.validation_s(begin_s + plan.checkpoint_s)))
        parts.append((TRAIN, epoch, *plan.train_s(begin_s + closing_s, plan.epoch_s - closing_s)))
    counts = [len(start_s) for _, _, start_s, _ in parts]
    mode = np.repeat(np.array([part[0] for part in parts], np.int64), counts)
    epoch_of = np.repeat(np.array([part[1] for part in parts], np.int64), counts)
    start_s = np.concatenate([np.zeros(0), *(part[2] for part in parts)])
    length_s = np.concatenate([np.zeros(0), *(part[3] for part in parts)])
    runs = start_s + length_s + plan.gap_s <= last_s
    mode, epoch_of, start_s, length_s = mode[runs], epoch_of[runs], start_s[runs], length_s[runs]

    # All processes wait for each other: what a step takes longer, it takes longer on all.
    step, noise = np.arange(len(mode)), Noise(seed, 0)
    late, *longer = noise.uniform("step", step, 3).T
    start_s += LATE_S * late + LAG_S * noise.uniform(f"lag of {rank}", step)[:, 0]
    if plan.wander_s:
        start_s += plan.wander_s * noise.drift("wander", start_s, WANDER_PERIOD_S)[:, 0]
    spread_s = np.where(mode == TRAIN, plan.spread_s, EVAL_SPREAD_S)
    end_s = start_s + length_s + spread_s * (sum(longer) - 1.0)
    start_s[:1] -= plan.warm_up_s
    number = np.zeros(len(mode), np.int64)
    for one in (TRAIN, EVAL):
        number[mode == one] = np.arange(np.count_nonzero(mode == one))
    return Timetable(
        mode=mode,
        number=number,
        start_us=(start_s * 1e6).astype(np.int64) - since_us,
        end_us=(end_s * 1e6).astype(np.int64) - since_us,
        epoch=epoch_of,
    )
