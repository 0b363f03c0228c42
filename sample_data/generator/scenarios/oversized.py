"""A job on three times the machines that it needs, as published: 12 GPUs that wait most of the time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from generator.curves import Curves, Moment, column
from generator.job import Scenario
from generator.scenarios import healthy
from generator.steps import Steps

#: The loop takes 45% of the job; 25 epochs of 196 steps.
STEPS = Steps(
    start_s=252.0,
    warm_up_s=1.0,
    step_s=0.026,
    gap_s=0.02,
    spread_s=0.002,
    wander_s=0.4,
    epoch_s=1000.0,
    closing_s=25.0,
    loaders_recorded_s=600.0,
)


@dataclass(frozen=True, kw_only=True)
class Level:
    """Mean and standard deviation in the loop, in percent: of the GPUs and of the cores of a node."""

    gpu: float
    gpu_spread: float
    core: float
    core_spread: float
    #: Cores that load data and are saturated.
    saturated: int


def curves_of(moment: Moment, steps: Steps, level: Level) -> Curves:
    """Use the machine by a level in the loop; before and after it, only load and save."""
    delay_s = steps.start_s - healthy.STEPS.start_s
    late = replace(moment, time_s=moment.time_s - delay_s, duration_s=moment.duration_s - delay_s)
    usual = healthy.curves(late)
    looping = (moment.time_s >= steps.start_s) & (moment.left_s >= steps.closing_s)
    together = moment.bell("gpu together")
    gpu = level.gpu + level.gpu_spread * (0.5 * together + moment.bell("gpu", moment.gpus))
    # The cores of a node do the same at the same time.
    together = moment.bell("core together")
    core = level.core + level.core_spread * together + 2.0 * moment.bell("core", moment.cores)
    core = column(looping, core, 4.0 + 2.0 * moment.bell("core at rest", moment.cores))
    # Loading takes whole cores for two thirds of the time.
    full = 97.0 + 0.5 * moment.bell("loading", level.saturated)
    core[:, : level.saturated] = column(np.mod(moment.time_s, 4.8) < 3.4, full, core[:, : level.saturated])
    return replace(
        usual,
        gpu=column(looping, gpu, 0.0),
        gpu_memory=column(looping, 0.5 * gpu, 0.0),
        core=core,
        io_wait=np.clip(usual.io_wait, 0.0, 3.0),
    )


def _curves(moment: Moment) -> Curves:
    level = Level(gpu=9.2, gpu_spread=5.0, core=15.5, core_spread=3.6, saturated=2)
    return curves_of(moment, STEPS, level)


SCENARIO = Scenario(
    summary="12 GPUs on 3 machines for the work of 2",
    curves=_curves,
    steps=STEPS,
    triggers=("CPUBottleneck",),
    also=("LowGPUUtilization", "LowMeanUtilization", "IdleGaps", "BatchSize"),
    nodes=3,
    gpus=4,
    cores=32,
    duration_s=503,
)
