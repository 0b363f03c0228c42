"""Sums over the devices of a node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jobrules.model import FloatArray, IntArray, Job, Metric

#: Received and transmitted, by the training process and by the platform.
ALGORITHM = (Metric.NETWORK_RECEIVE, Metric.NETWORK_TRANSMIT)

PLATFORM = (Metric.PLATFORM_RECEIVE, Metric.PLATFORM_TRANSMIT)
#: Past the network interfaces.
RDMA = (Metric.RDMA_RECEIVE, Metric.RDMA_TRANSMIT)


def summed(job: Job, node: str, metrics: Sequence[Metric]) -> tuple[IntArray, FloatArray] | None:
    """Times and device means of a metric, or the sum of several over the snapshots that have all of them.

    A metric that was not sampled at all is left out; None where nothing remains.
    """
    panels = [panel for metric in metrics if (panel := job.panel(node, metric))]
    if not panels:
        return None
    common = panels[0].snapshot
    for panel in panels[1:]:
        if not np.array_equal(common, panel.snapshot):
            common = np.intersect1d(common, panel.snapshot, assume_unique=True)
    if not len(common):
        return None
    rows = [
        slice(None) if len(common) == len(panel.snapshot) else np.searchsorted(panel.snapshot, common)
        for panel in panels
    ]
    values = np.sum([panel.mean[r] for panel, r in zip(panels, rows, strict=True)], axis=0)
    return panels[0].time_us[rows[0]], np.asarray(values, dtype=np.float64)
