"""How many cores of a node are above a threshold in each GPU snapshot."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from jobrules.measures.snapshots import TOLERANCE_US
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
        rows, near = _nearest(gpu, panel)
        # Comparisons with NaN, a core without a sample, are false.
        above = np.where(near, (panel.values > threshold).sum(axis=1)[rows], 0)
        mean = np.where(near, panel.mean[rows], np.nan)
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


def _nearest(gpu: Panel, other: Panel) -> tuple[IntArray, BoolArray]:
    """(n,) the row of another panel that is nearest in time, and whether it is within the longer sampling interval."""
    after = np.searchsorted(other.time_us, gpu.time_us)
    before, after = np.maximum(after - 1, 0), np.minimum(after, len(other.time_us) - 1)
    is_before = gpu.time_us - other.time_us[before] <= other.time_us[after] - gpu.time_us
    rows = np.where(is_before, before, after)
    near = np.abs(other.time_us[rows] - gpu.time_us) <= max(gpu.interval_us, other.interval_us, TOLERANCE_US)
    return rows, near
