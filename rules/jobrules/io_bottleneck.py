"""IOBottleneck: a GPU idles while a CPU core waits for input or output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jobrules.measures.bottleneck_snapshots import BottleneckCriteria
from jobrules.model import Metric
from jobrules.rule import Amount, Rule, percent, samples

if TYPE_CHECKING:
    from jobrules.model import Job, RuleResult


@dataclass(frozen=True, kw_only=True)
class IOBottleneck(Rule):
    """A GPU idles while a CPU core waits for input or output.

    What it checks
        Counts the snapshots of a node in which any GPU is used less than ``gpu_threshold`` while any
        core waits for input or output for more than ``io_threshold`` of its time. Looks at their share
        once a minute, over all snapshots so far that hold a GPU sample: triggers when it is above
        ``threshold``, of all nodes with more than ``patience`` such snapshots together. A minute
        without a GPU sample is not judged again. One idle GPU and one waiting core suffice, and the
        start-up counts too.

    Why it matters
        A GPU that waits for storage costs what a busy one costs. The wait of a core counts local
        disks and mounted file systems; waiting for the network, as in a download, mostly does not show
        there. The rule sees that both happen at once, not that one causes the other.

    What to do
        Read less often and more at a time: pack many small files into large ones, keep what is read
        every epoch in memory or on a local disk, load the next batch while this one trains. See that
        checkpoints and logs do not hold up the loop. If the disk is at its limit, take a faster one.
    """

    title: ClassVar[str] = "A GPU idles while a CPU core waits for I/O"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION, Metric.IO_WAIT)
    section: ClassVar[str] = "io-bottlenecks"

    threshold: float = percent(50.0, "share of GPU snapshots that are bottlenecks")
    io_threshold: float = percent(50.0, "a core that waits more than this is held up")
    gpu_threshold: float = percent(10.0, "a GPU used less than this idles")
    patience: Amount = samples(1000, "GPU snapshots of a node that are seen before it is judged")

    def check(self, job: Job) -> RuleResult:
        """``triggered`` counts minutes, ``violations`` and ``datapoints`` count snapshots of all nodes."""
        return self.question.answer(self, job)

    @property
    def question(self) -> BottleneckCriteria:
        """The rule with its thresholds, as the two bottleneck rules share it."""
        return BottleneckCriteria(
            key="io",
            metric=Metric.IO_WAIT,
            core_threshold=self.io_threshold,
            gpu_threshold=self.gpu_threshold,
            threshold=self.threshold,
            patience=self.patience,
            core_did="waited for I/O",
            cores_did="waited for I/O",
            many_advice=(
                "Read less often and more at a time. Pack small files into large ones, keep what is read every "
                "epoch in memory or on a local disk, or take a faster one; more loading processes will not "
                "help: {cores} wait."
            ),
            few_advice=(
                "Read ahead in processes of their own: ``num_workers`` above 0 and a ``prefetch_factor``. "
                "If it is so already, see that checkpoints and logs do not hold up the loop, and pack many "
                "small files into large ones."
            ),
        )
