"""A job whose GPU memory rises at once, long after the start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from generator.curves import Curves, Moment, ramp
from generator.job import Scenario
from generator.scenarios import healthy


def curves(moment: Moment) -> Curves:
    """Use a seventh of the GPU memory more from seven tenths of the job on."""
    usual = healthy.curves(moment)
    at_s = 0.7 * moment.duration_s
    more = 14.0 * ramp(moment.time_s, at_s, at_s + 1.0)
    busy = 0.8 * usual.gpu_memory + more
    return replace(usual, gpu_memory=busy, gpu_memory_taken=np.clip(busy, 0.0, 100.0))


SCENARIO = Scenario(
    summary="GPU memory utilization jumps by 14 points after seven tenths of the job",
    curves=curves,
    steps=healthy.STEPS,
    triggers=("GPUMemoryIncrease",),
    gpus=2,
    cores=8,
    duration_s=15 * 60,
)
