"""A job that leaves next to no GPU memory free."""

from __future__ import annotations

from dataclasses import replace

from generator.curves import Curves, Moment, ramp
from generator.job import Scenario
from generator.scenarios import healthy


def curves(moment: Moment) -> Curves:
    """Take 97 percent of the memory at the start and keep it."""
    t, start_s = moment.time_s, healthy.STEPS.start_s
    level = 97.0 + 0.6 * moment.noise.constant("memory taken", moment.gpus)
    return replace(healthy.curves(moment), gpu_memory_taken=level * ramp(t, start_s - 4.0, start_s + 12.0))


SCENARIO = Scenario(
    summary="97 percent of the GPU memory is taken from the start",
    curves=curves,
    triggers=("GPUMemoryFull",),
    logged=True,
    interval_ms=2000,
    gpus=4,
    cores=8,
    duration_s=60 * 60,
)
