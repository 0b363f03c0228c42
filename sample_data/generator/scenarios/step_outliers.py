"""A job with steps that take far longer than the others."""

from __future__ import annotations

from dataclasses import replace

from generator.curves import Curves, Moment, column
from generator.job import Scenario
from generator.scenarios import healthy
from generator.steps import Steps

STEPS = Steps(slow_every=42, slow_slots=7)


def curves(moment: Moment) -> Curves:
    """Stall every 42nd step, with the GPUs nearly idle meanwhile."""
    usual = healthy.curves(moment)
    stalling = STEPS.stalling(moment.time_s)
    idle = 12.0 + 4.0 * moment.bell("gpu stalling", moment.gpus)
    return replace(usual, gpu=column(stalling, idle, usual.gpu))


SCENARIO = Scenario(
    summary="every 42nd step takes seven times as long as the others",
    curves=curves,
    steps=STEPS,
    triggers=("StepOutlier",),
    also=("LowGPUUtilization",),
    gpus=2,
    cores=8,
    duration_s=15 * 60,
)
