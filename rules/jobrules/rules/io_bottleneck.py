"""IOBottleneck: a GPU is idle while a CPU core waits for I/O."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from jobrules.measures.bottleneck_snapshots import BottleneckCriteria
from jobrules.measures.core_use import SLOWED_GPU, CoreUse
from jobrules.measures.waiting import means_during
from jobrules.model import Metric
from jobrules.model.claims import Cause, Precedence, moments
from jobrules.rule import Amount, percent, samples
from jobrules.rules.bottleneck_rule import BottleneckRule, with_stalls
from jobrules.text import share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Finding, FloatArray, Job, Panel, RuleResult
    from jobrules.model.claims import Claim, Claimed, Samples

#: If some core waits in this part of the work or more, the waits may be shorter than a sample, and a GPU that is low is one
#: that waits.
ALWAYS_PART = 0.9


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
        """Evidence is a GPU that is idle in the same snapshot in which a core of its node waits for I/O.

        Where a core waits in nearly all snapshots, a GPU that is low is one that waits.
        """
        return (
            Cause(
                key="io-bottleneck",
                precedence=Precedence.IO_BOUND,
                when="while the CPU waited for I/O",
                claim=with_stalls(self, partial(_waiting, self), self.placed_stalls(job), 1),
                finding=partial(self._found, job, result),
                widened=True,
            ),
        )

    def _found(self, job: Job, result: RuleResult, claimed: Claimed) -> Finding:
        seen = share(claimed.snapshots / claimed.of_snapshots)
        return self.finding(
            f"A GPU was held up while a CPU core waited for I/O in {seen} of snapshots",
            *moments(claimed, result),
            *means_during(job, claimed, Metric.IO_PRESSURE),
            self.evidence(job),
            devices=claimed.devices,
        )

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


def _waiting(rule: IOBottleneck, part: Job, panel: Panel, weight_us: FloatArray) -> Claim | None:
    """Claim the moments in which a GPU is idle while a core waits for I/O; or low, if some core always waits."""
    del weight_us
    use = CoreUse.of(part, panel, Metric.IO_WAIT, rule.io_threshold)
    if use is None:
        return None

    def of_gpu(gpu: Samples) -> FloatArray:
        waiting = use.above[gpu.rows] > 0
        always = np.count_nonzero(waiting & gpu.in_work) >= ALWAYS_PART * np.count_nonzero(gpu.in_work)
        below = SLOWED_GPU if always else rule.gpu_threshold
        return np.where(waiting & (gpu.values < below), gpu.left_us, 0.0)

    return lambda gpus: [of_gpu(gpu) for gpu in gpus]
