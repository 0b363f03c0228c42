"""First and last GPU work of a job."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jobrules.measures.clock_offsets import Clocks
from jobrules.model import SECOND_US, BoolArray, FloatArray, IntArray, Job, Metric, span_of

HOUR_US = 3600 * SECOND_US

#: A device is idle below this, as in SageMaker Debugger's split of GPU samples (under 10, 10 to 90, over 90).
IDLE_PERCENT = 10.0

#: Up to this, as in the first bin of LoadBalancing, a sample shows no use.
GLANCE_PERCENT = 1.0

#: The framework looks at every GPU: so few samples above that show none either, if all are idle ones.
MAX_GLANCES = 4


def glances(values: FloatArray) -> IntArray:
    """How many samples of each column of (n, devices), or of one series of (n,), are above ``GLANCE_PERCENT``."""
    return np.asarray((values > GLANCE_PERCENT).sum(axis=0))  # NaN > 1 is false


def worked(values: FloatArray) -> BoolArray:
    """Which columns of (n, devices) samples, or whether one series of (n,), did any work; others were never used."""
    return np.asarray((values >= IDLE_PERCENT).any(axis=0) | (glances(values) > MAX_GLANCES))


def work_span_us(
    job: Job, metric: Metric = Metric.GPU_UTILIZATION, clocks: Clocks | None = None
) -> tuple[int, int] | None:
    """Times of the first and the last sample above 0% of any device that worked; None if there is none.

    As written, or with the clocks that differ set right.
    """
    late_us = clocks.clock_offset_us if clocks else {}
    return span_of(
        (first - late_us.get(node, 0), last - late_us.get(node, 0))
        for node, first, last in job.gathered(_worked_us, metric)
    )


def _worked_us(part: Job, metric: Metric) -> Iterator[tuple[str, int, int]]:
    for panel in part.panels_of(metric):
        rows = np.flatnonzero((panel.values[:, worked(panel.values)] > 0).any(axis=1))
        if len(rows):
            yield panel.node, int(panel.time_us[rows[0]]), int(panel.time_us[rows[-1]])
