"""UnevenRanks: ranks wait for one another, and the last one changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jobrules.model import HowMuch
from jobrules.rules.traces.shares import PROFILED_TIME
from jobrules.rules.traces.waiting import Waiting, WaitingRule
from jobrules.text import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Fact
    from jobrules.rules.traces.shares import ProfiledGPU


@dataclass(frozen=True, kw_only=True)
class UnevenRanks(WaitingRule):
    """Ranks wait for one another, and the last one changes.

    What it checks
        Waiting for other ranks in collectives, if no single rank causes most of it.

    Why it matters
        Each step is as long as that of the rank with most work in it.

    What to do
        * Give ranks equal work: batches of samples of similar length, balanced experts or pipeline stages.
        * Look at jitter of the hosts: data loading, other processes.

    Details
        Info from ``threshold`` on, warning from ``warning_threshold`` on, critical from twice that.
    """

    title: ClassVar[str] = "Ranks wait for one another"
    other: ClassVar[str] = "StragglerRank"

    def counts(self, waiting: Waiting) -> bool:
        """No rank alone is late."""
        return not waiting.is_one

    def described(self, waiting: Waiting, gpus: Sequence[ProfiledGPU]) -> tuple[str, tuple[Fact, ...]]:
        """How long, and for whom most."""
        del gpus
        title = f"Ranks wait for one another in {percent(waiting.percent)} {PROFILED_TIME}, and the last one changes"
        most = waiting.most.rank
        return title, (HowMuch("Most waiting is for", 100 * waiting.share, "%", of=f"rank {most}"),)
