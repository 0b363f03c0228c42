"""StragglerRank: one rank is late at the collectives, and the others wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jobrules.model import HowMuch, Note
from jobrules.rules.traces.shares import excess, late_rank, step_ns
from jobrules.rules.traces.waiting import Waiting, WaitingRule
from jobrules.text import share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Fact, Job
    from jobrules.rules.traces.shares import ProfiledGPU

#: Why a rank is late, by what it has more of, and what to do.
_WHY = {
    "computing": (
        "it computes longer",
        "Compare the GPU of rank {rank} with the others: clock, temperature, share of the work.",
    ),
    "idle for want of launches": (
        "its host launches work late",
        "Look at the CPU of rank {rank}: other processes, its clock, the cores that it is bound to.",
    ),
    "idle during data loading": (
        "its batches load slowly",
        "Look at the part of the data, the disk, and the loader processes of rank {rank}.",
    ),
    "idle after blocking calls": (
        "it blocks on its GPU",
        "Look for what only rank {rank} does in the loop, such as logging.",
    ),
    "idle during memory allocation": (
        "it allocates GPU memory",
        "Compare the GPU memory in use of rank {rank} with that of the others.",
    ),
    "idle while the profiler is busy": (
        "the profiler holds it up",
        "Record rank {rank} again with the settings of the others: only what was profiled may be late.",
    ),
    "copying": (
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
        more = excess(rank, gpus)
        why = f" because {_WHY[more[0]][0]} ({_more(more[1], gpus)})" if more else ""
        others = "rank waits" if max(len(across.ranks), across.world_size or 0) == 2 else "ranks wait"
        return f"Rank {rank} is late{why}; the other {others} for it", (
            HowMuch("Last to arrive", 100 * waiting.most.last / across.matched, "%"),
            HowMuch("Of all waiting", 100 * waiting.share, "%"),
            *(_compared(*more, gpus) if more else ()),
        )

    def advice(self, waiting: Waiting, gpus: Sequence[ProfiledGPU]) -> tuple[str, ...]:
        """By what the rank has more of; that of the rule if this is not known."""
        more = excess(waiting.most.rank, gpus)
        of_rule = self.documentation().advice
        return (_WHY[more[0]][1].format(rank=waiting.most.rank), of_rule[-1]) if more else of_rule


def _compared(what: str, more_ns: float, gpus: Sequence[ProfiledGPU]) -> tuple[Fact, ...]:
    amount = f"{_more(more_ns, gpus)} ({share(more_ns / step_ns(gpus))})"
    return (Note(f"Compared with the median of the others: {what}, {amount}"),)


def _more(more_ns: float, gpus: Sequence[ProfiledGPU]) -> str:
    """``21.6 ms more in a step``."""
    step = "in a step" if any(gpu.steps for gpu in gpus) else "in the trace"
    return f"{more_ns / 1e6:.1f} ms more {step}"
