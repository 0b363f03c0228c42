"""GPU utilization as the histograms of LoadBalancing hold it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.measures.work_span import MAX_GLANCES
from jobrules.verdict.accounting import LOW_PERCENT, UNEXPLAINED

if TYPE_CHECKING:
    from jobreport.readers.debugger_results.details import GPU, Usage
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
        return self.above_zero > MAX_GLANCES

    @property
    def used(self) -> float:
        """Mean utilization, from 0 to 1."""
        return float((self.samples * LEVELS).sum()) / max(1, self.count) / 100

    @property
    def idle(self) -> float:
        """Share of the samples below 10%."""
        return float(self.samples[:ACTIVE].sum()) / max(1, self.count)

    @property
    def p95(self) -> float:
        """95th percentile."""
        return float(LEVELS[np.searchsorted(np.cumsum(self.samples), 0.95 * self.count)])

    def without(self, samples: float) -> Histogram:
        """The others, if so many samples below 2% are left out."""
        left = self.samples.copy()
        left[0] = max(0.0, left[0] - samples)
        return Histogram(samples=left)

    @property
    def lost(self) -> dict[str, float]:
        """Share of the time that is lost while the GPU is idle, low, and busy."""
        of_bin = self.samples * (1 - LEVELS / 100) / max(1, self.count)
        sums = np.add.reduceat(of_bin, [0, ACTIVE, BUSY]).tolist()
        return dict(zip(UNEXPLAINED, sums, strict=True))


def histograms_of(results: RuleResults) -> dict[GPU, Histogram]:
    """By GPU, without those that have no sample.

    What a histogram lacks of the datapoints was above its last bin, as far as the GPUs of the node were used that much.
    """
    balancing = results["LoadBalancing"]
    datapoints = (balancing.datapoints if balancing else None) or 0
    nodes = [node for node, _ in results.workloads]
    found = {}
    for gpu, bins in results.workloads.items():
        highest = _above(results.usage.get("GPU", {}).get(gpu[0]), nodes.count(gpu[0])) * datapoints
        missing = min(max(0, datapoints - sum(bins)), math.ceil(highest))
        found[gpu] = Histogram(samples=np.array([*bins, missing], np.float64))
    return {gpu: one for gpu, one in found.items() if one.count}


def _above(usage: Usage | None, gpus: int) -> float:
    """Upper bound of the share of samples of a GPU above the last bin, by quantiles of the mean over all GPUs of its node.

    While one GPU is above it, the mean is above that part of it.
    """
    if usage is None:
        return 1.0
    bounds = ((usage.p50, 1.0), (usage.p95, 0.5), (usage.p99, 0.05), (usage.max, 0.01))
    return next((share for value, share in bounds if gpus * value >= ABOVE_PERCENT), 0.0)
