"""GPU utilization as the histograms of LoadBalancing hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.measures.work import AHEAD_SAMPLES
from jobrules.verdict.accounting import LOW_PERCENT, UNEXPLAINED

if TYPE_CHECKING:
    from jobreport.readers.debugger_results.details import GPU
    from jobreport.readers.debugger_results.rule_results import RuleResults
    from jobrules.model import FloatArray

#: Percent that a bin of 2% stands for: utilization is a whole number. Samples above the last bin are in none.
LEVELS = np.array([0.0, *(2 * k + 0.5 for k in range(1, 49)), 99.5])
#: The first percentage that no bin holds.
ABOVE_PERCENT = 98.0
#: The first bin of a GPU that is not idle, and of one that is not low.
ACTIVE, BUSY = 5, int(LOW_PERCENT / 2)


class Histogram(Struct, frozen=True, kw_only=True, eq=False):
    """The utilization of one GPU over the job."""

    #: (50,) samples by level.
    samples: FloatArray

    @property
    def count(self) -> int:
        """All samples."""
        return int(self.samples.sum())

    @property
    def above_zero(self) -> int:
        """Samples of 2% and more."""
        return int(self.samples[1:].sum())

    @property
    def worked(self) -> bool:
        """False if nearly all samples are below 2%: the framework looks at every GPU."""
        return self.above_zero >= AHEAD_SAMPLES

    @property
    def used(self) -> float:
        """Mean utilization, from 0 to 1."""
        return float((self.samples * LEVELS).sum()) / max(1, self.count) / 100

    @property
    def lost(self) -> dict[str, float]:
        """Share of the time that is lost while the GPU is idle, low, and busy."""
        of_bin = self.samples * (1 - LEVELS / 100) / max(1, self.count)
        sums = np.add.reduceat(of_bin, [0, ACTIVE, BUSY]).tolist()
        return dict(zip(UNEXPLAINED, sums, strict=True))


def histograms_of(results: RuleResults) -> dict[GPU, Histogram]:
    """By GPU; empty if there are none.

    What a histogram lacks of the datapoints was above its last bin, unless the GPUs of the node never were.
    """
    balancing = results["LoadBalancing"]
    datapoints = (balancing.datapoints if balancing else None) or 0
    highest = {node: use.max for node, use in results.usage.get("GPU", {}).items()}
    found = {}
    for gpu, bins in results.workloads.items():
        missing = max(0, datapoints - sum(bins)) if highest.get(gpu[0], 100.0) >= ABOVE_PERCENT else 0
        found[gpu] = Histogram(samples=np.array([*bins, missing], np.float64))
    return found if any(one.count for one in found.values()) else {}
