"""A job whose GPUs wait for the processors."""

from __future__ import annotations

from dataclasses import replace

from generator.curves import Curves, Moment, column
from generator.job import Scenario
from generator.scenarios import healthy
from generator.steps import Steps

STEPS = Steps(step_s=0.7, gap_s=1.6, spread_s=0.12)


def curves(moment: Moment) -> Curves:
    """Prepare each batch on all cores, and only then step."""
    usual = healthy.curves(moment)
    preparing = STEPS.waiting(moment.time_s)
    gpu = column(preparing, 1.0 + moment.bell("gpu waiting", moment.gpus), usual.gpu)
    # Quantized to kernel clock ticks, so far above the limit of 90 % that no sample falls below it.
    full = 97.0 + 0.6 * moment.bell("core full", moment.cores)
    return replace(usual, gpu=gpu, core=column(preparing, full, usual.core))


SCENARIO = Scenario(
    summary="GPUs idle while all cores prepare the next batch",
    curves=curves,
    steps=STEPS,
    triggers=("CPUBottleneck",),
    also=("LowGPUUtilization", "IdleGaps"),
    gpus=2,
    cores=8,
    duration_s=15 * 60,
)
