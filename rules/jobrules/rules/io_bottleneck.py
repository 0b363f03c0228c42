"""IOBottleneck: a GPU is idle while a CPU core waits for I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jobrules.causes.io_wait import waiting_for_io
from jobrules.measures.bottleneck_snapshots import BottleneckCriteria
from jobrules.model import Metric
from jobrules.rule import Amount, percent, samples
from jobrules.rules.bottleneck_rule import BottleneckRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Job, RuleResult
    from jobrules.model.claims import Cause


@dataclass(frozen=True, kw_only=True)
class IOBottleneck(BottleneckRule):
    """A GPU is idle while a CPU core waits for I/O.

    What it checks
        The share of snapshots so far with a GPU below ``gpu_threshold`` and a core waiting for I/O above
        ``io_threshold``. Triggers above ``threshold``.

    Why it matters
        A GPU that waits for storage costs as much as a busy one. Network waits mostly do not count.

    What to do
        * Pack small files, cache data locally, and prefetch.
        * If the disk is saturated, use a faster one.

    Details
        Checked once per minute, over the snapshots of all nodes with more than ``patience`` GPU snapshots, start-up
        included. A minute without a GPU sample has no check. I/O wait counts local disks and mounted file systems.
    """

    title: ClassVar[str] = "GPU is idle while a CPU core waits for I/O"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION, Metric.IO_WAIT)
    section: ClassVar[str] = "io-bottlenecks"
    core_did: ClassVar[str] = "waited for I/O"

    threshold: float = percent(50.0, "share of bottleneck snapshots")
    io_threshold: float = percent(50.0, "a core that waits more than this waits for I/O")
    gpu_threshold: float = percent(10.0, "a GPU below this is idle")
    patience: Amount = samples(1000, "samples before the first check")

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """Waiting for I/O."""
        return (waiting_for_io(self, job, result),)

    @property
    def criteria(self) -> BottleneckCriteria:
        """What makes a snapshot a bottleneck."""
        return BottleneckCriteria(
            key="io",
            metric=Metric.IO_WAIT,
            core_threshold=self.io_threshold,
            gpu_threshold=self.gpu_threshold,
            threshold=self.threshold,
            patience=self.patience,
        )
