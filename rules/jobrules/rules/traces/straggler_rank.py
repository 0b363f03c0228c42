"""StragglerRank: one rank is late at the collectives, and the others wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from jobrules.model import HowMuch, Note
from jobrules.rules.traces.shares import ProfiledGPU, idle_ns, late_rank, launch_bound_ns
from jobrules.rules.traces.waiting import Waiting, WaitingRule
from jobrules.text import share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jobrules.model import Fact, Job
    from jobrules.model.captures import Partition

#: What a late rank has more of explains no wait if it is less of a step, in percent.
MIN_EXCESS = 1.0
#: What a late rank may have more of, why it is late then, and what to do.
_CLASSES: dict[str, tuple[Callable[[Partition], int], str, str]] = {
    "computing": (
        lambda time: time.compute_ns,
        "it computes longer",
        "Compare the GPU of rank {rank} with the others: clock, temperature, share of the work.",
    ),
    "idle for want of launches": (
        launch_bound_ns,
        "its host launches work late",
        "Look at the CPU of rank {rank}: other processes, its clock, the cores that it is bound to.",
    ),
    "idle during data loading": (
        lambda time: idle_ns(time, "data_loading"),
        "its batches load slowly",
        "Look at the part of the data, the disk, and the loader processes of rank {rank}.",
    ),
    "idle after blocking calls": (
        lambda time: idle_ns(time, "synchronisation"),
        "it blocks on its GPU",
        "Look for what only rank {rank} does in the loop, such as logging.",
    ),
    "idle during memory allocation": (
        lambda time: idle_ns(time, "memory_allocation"),
        "it allocates GPU memory",
        "Compare the GPU memory in use of rank {rank} with that of the others.",
    ),
    "copying": (
        lambda time: time.exposed_copies_ns,
        "it copies more",
        "Look for what only rank {rank} copies, such as checkpoints.",
    ),
}


@dataclass(frozen=True, kw_only=True)
class StragglerRank(WaitingRule):
    """One rank is late at the collectives, and the others wait for it.

    What it checks
        Waiting for other ranks in collectives, if one rank causes most of it.

    Why it matters
        In synchronous training all ranks are as slow as the slowest one.

    What to do
        * Look at what the rank has more of. Computing: a slow GPU, or more work.
        * Data loading: its part of the data, its disk. Launching: its CPU.
        * Replace a machine that is always late.

    Details
        Info from ``threshold`` on, warning from ``warning_threshold`` on, critical from twice that. Most of it is
        75% of all waiting with 2 ranks, 50% with 3 to 7, 35% with 8 or more. A collective ends on all ranks together, so the rank with the shortest kernel was the last one, and what the kernel lasts longer
        elsewhere is waiting. Clocks are not compared. Needs traces of two ranks and ``min_collectives`` collectives
        that make ranks wait: all-reduce, reduce-scatter, all-gather, all-to-all, barrier.
    """

    title: ClassVar[str] = "One rank is late at the collectives"
    other: ClassVar[str] = "UnevenRanks"
    because_of: ClassVar[tuple[str, ...]] = ("slow-clock", "load-balancing")

    def rank(self, job: Job) -> int | None:
        """The rank for which others wait most."""
        return late_rank(job)

    def counts(self, waiting: Waiting) -> bool:
        """One rank is late."""
        return waiting.is_one

    def described(self, waiting: Waiting, gpus: Sequence[ProfiledGPU]) -> tuple[str, tuple[Fact, ...]]:
        """Who is late, how often, and in what it differs."""
        rank, across = waiting.most.rank, waiting.across
        excess = _excess(rank, gpus)
        why = f" because {_CLASSES[excess[0]][1]} ({_more(excess, gpus)})" if excess else ""
        return f"Rank {rank} is late{why}; the other ranks wait for it", (
            HowMuch("Last to arrive", 100 * waiting.most.last / across.matched, "%"),
            HowMuch("Of all waiting", 100 * waiting.share, "%"),
            *(_compared(excess, gpus) if excess else ()),
        )

    def advice(self, waiting: Waiting, gpus: Sequence[ProfiledGPU]) -> tuple[str, ...]:
        """By what the rank has more of; that of the rule if this is not known."""
        excess = _excess(waiting.most.rank, gpus)
        of_rule = self.documentation().advice
        return (_CLASSES[excess[0]][2].format(rank=waiting.most.rank), of_rule[-1]) if excess else of_rule


def _excess(rank: int, gpus: Sequence[ProfiledGPU]) -> tuple[str, float] | None:
    """What a rank has most more of than the median of the others, with the nanoseconds in a step; None for nothing."""
    own = [gpu for gpu in gpus if gpu.rank == rank]
    others = [gpu for gpu in gpus if gpu.rank not in (rank, None)]
    if not own or not others:
        return None
    more = {
        what: float(np.mean([_mean(gpu, of) for gpu in own]) - np.median([_mean(gpu, of) for gpu in others]))
        for what, (of, _, _) in _CLASSES.items()
    }
    most = max(more, key=more.__getitem__)
    is_relevant = 100 * more[most] >= MIN_EXCESS * _step_ns(gpus)
    return (most, more[most]) if is_relevant else None


def _step_ns(gpus: Sequence[ProfiledGPU]) -> float:
    return float(np.median([gpu.window_ns / max(1, gpu.steps) for gpu in gpus]))


def _compared(excess: tuple[str, float], gpus: Sequence[ProfiledGPU]) -> tuple[Fact, ...]:
    what, more_ns = excess
    amount = f"{_more(excess, gpus)} ({share(more_ns / _step_ns(gpus))})"
    return (Note(f"Compared with the median of the others: {what}, {amount}"),)


def _more(excess: tuple[str, float], gpus: Sequence[ProfiledGPU]) -> str:
    """``21.6 ms more in a step``."""
    step = "in a step" if any(gpu.steps for gpu in gpus) else "in the trace"
    return f"{excess[1] / 1e6:.1f} ms more {step}"


def _mean(gpu: ProfiledGPU, of: Callable[[Partition], int]) -> float:
    return gpu.sum(of) / max(1, gpu.steps)
