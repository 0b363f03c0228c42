"""CPUBottleneck: a GPU is idle while a CPU core is saturated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jobrules.causes.cpu import of_cpu
from jobrules.measures.bottleneck_snapshots import BottleneckCriteria
from jobrules.model import Metric
from jobrules.rule import Amount, percent, samples
from jobrules.rules.bottleneck_rule import BottleneckRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Job, RuleResult
    from jobrules.model.claims import Cause


@dataclass(frozen=True, kw_only=True)
class CPUBottleneck(BottleneckRule):
    """A GPU is idle while a CPU core is saturated.

    What it checks
        The share of snapshots so far with a GPU below ``gpu_threshold`` and a core of its node above
        ``cpu_threshold``. Triggers above ``threshold``.

    Why it matters
        A waiting GPU costs as much as a busy one. One saturated core can stall it.

    What to do
        * Raise ``num_workers``, or prepare data before training or on the GPU.
        * If all cores are saturated, use more cores per GPU.

    Details
        Checked once per minute, over the snapshots of all nodes with more than ``patience`` GPU snapshots, start-up
        included. A minute without a GPU sample has no check. That both happen at once does not show that one causes
        the other.
    """

    title: ClassVar[str] = "GPU is idle while a CPU core is saturated"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION, Metric.CPU_UTILIZATION)
    section: ClassVar[str] = "cpu-bottlenecks"
    core_did: ClassVar[str] = "was saturated"

    threshold: float = percent(50.0, "share of bottleneck snapshots")
    cpu_threshold: float = percent(90.0, "a core above this is saturated")
    gpu_threshold: float = percent(10.0, "a GPU below this is idle")
    patience: Amount = samples(1000, "samples before the first check")

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """A saturated CPU, and a single saturated process."""
        return of_cpu(self, job, result)

    @property
    def criteria(self) -> BottleneckCriteria:
        """What makes a snapshot a bottleneck."""
        return BottleneckCriteria(
            key="cpu",
            metric=Metric.CPU_UTILIZATION,
            core_threshold=self.cpu_threshold,
            gpu_threshold=self.gpu_threshold,
            threshold=self.threshold,
            patience=self.patience,
        )
