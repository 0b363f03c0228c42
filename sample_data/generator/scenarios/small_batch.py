"""A job whose batches are small for the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from generator.job import Scenario
from generator.scenarios import healthy
from generator.steps import Steps

if TYPE_CHECKING:
    from generator.curves import Curves, Moment


def curves(moment: Moment) -> Curves:
    """Use half of the GPUs and a third of their memory."""
    usual = healthy.curves(moment)
    return replace(usual, gpu=0.55 * usual.gpu, gpu_memory=0.4 * usual.gpu_memory)


SCENARIO = Scenario(
    summary="steps use half of the GPUs and a third of their memory",
    curves=curves,
    steps=Steps(step_s=0.96, gap_s=0.04),
    triggers=("BatchSize",),
    also=("LowGPUUtilization",),
    gpus=2,
    cores=8,
    duration_s=15 * 60,
)
