"""What another source than records of the job says about its training loop."""

from __future__ import annotations

from msgspec import Struct

#: Waiting for a smaller part of the loop is usual.
RELEVANT_PART = 0.05


class LoopFacts(Struct, frozen=True, kw_only=True):
    """Steps and fetches in a few numbers, where single ones were not kept."""

    #: "SageMaker Debugger's results".
    source: str
    #: Start of the first and of the last step; None if they are not known.
    steps_us: tuple[int, int] | None = None
    #: Share of the recorded time outside of steps; None if it is not known or impossible.
    outside: float | None = None
    #: What is wrong with the share as the source has it, as a sentence without its period; empty if nothing is.
    note: str = ""
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

    @property
    def waited(self) -> float:
        """Share of the loop in which training waited for batches; 0 without evidence, or if it is usual.

        A process that loads batches itself does so outside of its steps. Loader processes fetch during the steps.
        """
        if self.fetch_s is None:
            return 0.0
        step_s = self.step_s or 0.0
        wait_s = max(0.0, self.fetch_s / self.num_workers - step_s) if self.num_workers else self.fetch_s
        by_times = wait_s / (wait_s + step_s) if wait_s else 0.0
        part = by_times if self.step_s is not None else 1.0
        if self.outside is not None:
            part = self.outside if self.num_workers == 0 else min(self.outside, part)
        elif self.step_s is None:
            return 0.0
        return part if min(part, by_times) >= RELEVANT_PART else 0.0
