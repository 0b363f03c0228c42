"""A job that prepares for long before its first step."""

from __future__ import annotations

from dataclasses import replace

from generator.curves import Curves, Moment, column
from generator.job import Scenario
from generator.scenarios import healthy
from generator.steps import Steps

STEPS = Steps(start_s=21.5 * 60)


def curves(moment: Moment) -> Curves:
    """Put the model on the GPUs at once, then prepare the data on all cores, and only then train."""
    model = healthy.curves(moment).gpu_memory
    delay_s = STEPS.start_s - healthy.STEPS.start_s
    late = replace(moment, time_s=moment.time_s - delay_s, duration_s=moment.duration_s - delay_s)
    usual = healthy.curves(late)
    preparing = moment.time_s < STEPS.start_s
    busy = 74.0 + 3.0 * moment.bell("core preparing", moment.cores)
    return replace(usual, gpu_memory=model, core=column(preparing, busy, usual.core))


SCENARIO = Scenario(
    summary="the first step comes after 21 minutes of preparing data",
    curves=curves,
    steps=STEPS,
    triggers=("MaxInitializationTime",),
    also=("LowGPUUtilization",),
    gpus=2,
    cores=8,
    duration_s=32 * 60,
)
