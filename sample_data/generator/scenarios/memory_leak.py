"""A job whose GPU memory grows slowly and never falls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from generator.curves import Curves, Moment, ramp
from generator.job import Scenario
from generator.scenarios import healthy


def curves(moment: Moment) -> Curves:
    """Fill 30 points of the GPU memory from the first step to the end; no two seconds differ much."""
    usual = healthy.curves(moment)
    grown = 30.0 * ramp(moment.time_s, healthy.STEPS.start_s, moment.duration_s)
    busy = 0.6 * usual.gpu_memory + grown
    return replace(usual, gpu_memory=busy, gpu_memory_taken=np.clip(busy, 0.0, 100.0))


SCENARIO = Scenario(
    summary="GPU memory utilization grows by 30 points in all, too slowly to be a jump",
    curves=curves,
    steps=healthy.STEPS,
    gpus=2,
    cores=8,
    duration_s=15 * 60,
)
