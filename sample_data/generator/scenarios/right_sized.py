"""The job of ``oversized`` on machines that suit it, with twice the batch size: half the steps, as published."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from generator.job import Scenario
from generator.scenarios import oversized
from generator.scenarios.oversized import Level, curves_of

if TYPE_CHECKING:
    from generator.curves import Curves, Moment

STEPS = replace(oversized.STEPS, step_s=0.06, gap_s=0.032, spread_s=0.005)


def _curves(moment: Moment) -> Curves:
    level = Level(gpu=33.2, gpu_spread=8.8, core=49.0, core_spread=9.6, saturated=0)
    return curves_of(moment, STEPS, level)


SCENARIO = Scenario(
    summary="the same work on 2 machines of 1 GPU",
    curves=_curves,
    steps=STEPS,
    triggers=(),
    also=("LowGPUUtilization", "LowMeanUtilization", "BatchSize"),
    nodes=2,
    gpus=1,
    cores=8,
    duration_s=502,
)
