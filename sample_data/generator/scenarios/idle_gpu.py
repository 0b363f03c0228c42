"""A job that was given one GPU more than it uses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from generator.job import Scenario
from generator.scenarios import healthy

if TYPE_CHECKING:
    from generator.curves import Curves, Moment


def curves(moment: Moment) -> Curves:
    """Keep all GPUs busy but the last, which has no process at all."""
    usual = healthy.curves(moment)
    used = np.arange(moment.gpus) < moment.gpus - 1
    return replace(usual, gpu=usual.gpu * used, gpu_memory=usual.gpu_memory * used)


SCENARIO = Scenario(
    summary="the last GPU is never used, the others are busy",
    curves=curves,
    triggers=("UnusedGPU",),
    also=("LowGPUUtilization", "LoadBalancing"),
    logged=True,
    interval_ms=2000,
    gpus=4,
    cores=8,
    duration_s=60 * 60,
)
