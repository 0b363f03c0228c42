"""A job in a machine where the memory of one GPU begins to fail."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from generator.job import Scenario
from generator.scenarios import healthy

if TYPE_CHECKING:
    from generator.curves import Curves, Moment


def curves(moment: Moment) -> Curves:
    """Count two errors from before the job, more and more from its middle on, and one that is not corrected."""
    failing = np.arange(moment.gpus) == 0
    since_s = moment.time_s[:, None] - moment.duration_s / 2
    corrected = 2.0 + np.floor(np.maximum(since_s, 0.0) / 60.0)
    uncorrected = 1.0 * (since_s >= moment.duration_s / 4)
    return replace(healthy.curves(moment), corrected=failing * corrected, uncorrected=failing * uncorrected)


SCENARIO = Scenario(
    summary="memory errors of one GPU, at last one that cannot be corrected",
    curves=curves,
    triggers=("ECCErrors",),
    logged=True,
    interval_ms=2000,
    gpus=4,
    cores=8,
    duration_s=60 * 60,
)
