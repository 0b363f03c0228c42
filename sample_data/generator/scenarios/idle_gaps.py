"""A job whose GPUs stand still for a minute and a half every ten minutes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from generator.curves import Curves, Moment, column
from generator.job import Scenario
from generator.scenarios import healthy


def curves(moment: Moment) -> Curves:
    """Save for 90 s every ten minutes, with nothing on the GPUs; in between they are busy."""
    usual = healthy.curves(moment)
    stopped = np.mod(moment.time_s, 600.0) >= 510.0
    return replace(
        usual,
        gpu=column(stopped, 0.0, usual.gpu),
        gpu_memory=column(stopped, 0.0, usual.gpu_memory),
    )


SCENARIO = Scenario(
    summary="all GPUs stand still for a minute and a half every ten minutes",
    curves=curves,
    triggers=("IdleGaps",),
    also=("LowGPUUtilization", "GPUMemoryIncrease"),
    logged=True,
    interval_ms=2000,
    gpus=4,
    cores=8,
    duration_s=60 * 60,
)
