"""A job with nothing to complain about."""

from __future__ import annotations

import numpy as np

from generator.curves import MIB, Curves, Moment, column, ramp, rates
from generator.job import Scenario
from generator.steps import Steps

STEPS = Steps()


def curves(moment: Moment) -> Curves:
    """Keep all GPUs busy but for the start, a short checkpoint every five minutes and the end."""
    startup_s, round_s = STEPS.start_s, STEPS.epoch_s
    t, gpus, cores = moment.time_s, moment.gpus, moment.cores
    loading = t < startup_s
    saving_model = moment.left_s < STEPS.closing_s
    # Idle stretches stay near one second: a window of 500 samples then has a p5 far above 10 even at
    # 100 ms a sample. Validation takes longer but leaves the GPUs half busy.
    since_round = np.mod(t - startup_s, round_s)
    after_first_round = t >= startup_s + round_s
    checkpoint = after_first_round & (since_round < STEPS.checkpoint_s)
    validation = after_first_round & (since_round < STEPS.round_s) & ~checkpoint
    resting = checkpoint | saving_model

    busy = np.clip(
        96.0 + 0.8 * moment.drift("gpu drift", 40.0, gpus) + 1.3 * moment.bell("gpu", gpus), 90, 99
    )
    light = 46.0 + 5.0 * moment.bell("gpu light", gpus)
    gpu = column(validation, light, busy * ramp(t, startup_s, startup_s + 3.0))
    gpu = column(saving_model, 0.5 * light, gpu)
    gpu = column(checkpoint | (moment.left_s < 1.0), 2.0 + moment.bell("gpu idle", gpus), gpu)
    gpu = column(loading, 0.0, gpu)
    level = 75.0 + 4.0 * (moment.noise.constant("gpu memory", gpus) - 0.5)
    gpu_memory = level * ramp(t, startup_s - 2.0, startup_s + 2.0) + 0.6 * moment.bell("gpu memory", gpus)
    gpu_memory = column(t < startup_s - 2.0, 0.0, gpu_memory)

    share = 38.0 + 12.0 * (moment.noise.constant("core", cores) - 0.5)
    work = column(loading, 0.5 * share, column(resting, 0.3 * share, share))
    wait = column(loading, 7.0, column(checkpoint, 9.0, 1.2))
    io_wait = wait * (1.0 + 0.4 * moment.bell("io wait", cores))
    core = work + 4.0 * moment.drift("core drift", 30.0, cores) + 5.0 * moment.bell("core", cores) + io_wait

    used = 5.0 + 9.0 * ramp(t, 0.0, startup_s) + 22.0 * ramp(t, startup_s, startup_s + 45.0)
    gradients = column(loading | resting, 0.0, 900.0 * MIB if moment.nodes > 1 else 0.0)
    return Curves(
        gpu=gpu,
        gpu_memory=gpu_memory,
        core=core,
        io_wait=io_wait,
        memory=used + 0.05 * moment.bell("memory"),
        disk=rates(
            moment,
            "disk",
            column(loading, 4200.0, column(resting, 1500.0, 340.0)),
            column(loading, 2.0 * MIB, 85.0 * MIB),
            column(loading, 310.0 * MIB, column(resting, 420.0 * MIB, 0.2 * MIB)),
        ),
        network=rates(
            moment,
            "network",
            gradients + 0.02 * MIB,
            gradients + 0.02 * MIB,
            column(loading, 290.0 * MIB, 0.01 * MIB),
            column(loading, 1.5 * MIB, column(validation, 120.0 * MIB, 0.05 * MIB)),
        ),
    )


SCENARIO = Scenario(
    summary="all GPUs at 90-99 % after a short start, checkpoints and validation in between",
    curves=curves,
    steps=STEPS,
    gpus=8,
    cores=32,
    duration_s=18 * 60,
)
