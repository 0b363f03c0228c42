"""How many cores of a node are above a threshold in each GPU snapshot."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from jobrules.model import BoolArray, FloatArray, IntArray, Job, Metric, Panel

#: The CPU is saturated if this part of the cores is, or if their mean is at this many percent,
CROWDED_PART, CROWDED_MEAN = 0.5, 80.0
#: or, while the GPU is below this, at this many.
SLOWED_GPU, SLOWED_MEAN = 70.0, 90.0


class CoreUse(Struct, frozen=True, kw_only=True, eq=False):
    """The cores of a node at the moments of its GPU samples."""

    cores: int
    #: (n,) cores above the threshold, and the mean of all in percent; 0 and NaN where no core was sampled.
    above: IntArray
    mean: FloatArray

    @classmethod
    def of(cls, part: Job, gpu: Panel, metric: Metric, threshold: float) -> CoreUse | None:
        """None if the node has no samples of the metric."""
        panel = part.panel(gpu.node, metric)
        if panel is None:
            return None
        _, at, rows = np.intersect1d(gpu.snapshot, panel.snapshot, assume_unique=True, return_indices=True)
        above, mean = np.zeros(len(gpu.snapshot), np.int64), np.full(len(gpu.snapshot), np.nan)
        # Comparisons with NaN, a core without a sample, are false.
        above[at] = (panel.values > threshold).sum(axis=1)[rows]
        mean[at] = panel.mean[rows]
        return cls(cores=len(panel.devices), above=above, mean=mean)

    @property
    def crowded(self) -> BoolArray:
        """(n,) whether half of the cores or more are above the threshold, or their mean is high.

        A single series of CPU utilization is the mean of an unknown number of cores.
        """
        half = (self.above >= CROWDED_PART * self.cores) if self.cores > 1 else False
        return np.asarray(half | (self.mean >= CROWDED_MEAN))

    @property
    def few(self) -> BoolArray:
        """(n,) whether some core is above the threshold, but the CPU is not saturated."""
        return (
            np.asarray((self.above > 0) & ~self.crowded)
            if self.cores > 1
            else np.zeros(len(self.above), np.bool_)
        )
