"""A job that takes a little more GPU memory with every step."""

from __future__ import annotations

from dataclasses import replace

from generator.curves import Curves, Moment, ramp
from generator.job import Scenario
from generator.scenarios import healthy


def curves(moment: Moment) -> Curves:
    """Take half of the memory at the start and three tenths more until the end."""
    t, start_s = moment.time_s, healthy.STEPS.start_s
    level = 50.0 + 3.0 * moment.noise.constant("memory taken", moment.gpus)
    taken = level * ramp(t, start_s - 4.0, start_s + 12.0) + 30.0 * ramp(t, start_s, moment.duration_s)
    return replace(healthy.curves(moment), gpu_memory_taken=taken)


SCENARIO = Scenario(
    summary="the memory that is taken grows from a half to four fifths in an hour and never falls",
    curves=curves,
    triggers=("GPUMemoryLeak",),
    logged=True,
    interval_ms=2000,
    gpus=4,
    cores=8,
    duration_s=60 * 60,
)
