"""A job whose GPUs wait for data."""

from __future__ import annotations

import numpy as np

from generator.curves import MIB, Curves, Moment, column, ramp, rates
from generator.job import Scenario


def curves(moment: Moment) -> Curves:
    """Let small batches wait for remote data: short bursts, long idle stretches, little used."""
    startup_s, cycle_s = 70.0, 11.0
    t, gpus, cores = moment.time_s, moment.gpus, moment.cores
    working = (t >= startup_s) & (moment.left_s >= 3.0)
    # For 75 seconds in every 15 minutes the data is close by and the bursts go higher.
    near_data = np.mod(t + 70.0, 900.0) < 75.0

    cycle = np.floor(t / cycle_s).astype(np.int64)
    length_s = cycle_s * (0.28 + 0.25 * moment.noise.uniform("burst length", cycle))
    since_s = np.mod(t, cycle_s)[:, None]
    burst = (since_s < length_s) & working[:, None]
    height = moment.noise.uniform("burst height", cycle)
    peak = column(near_data, 84.0 + 12.0 * height, 36.0 + 20.0 * height)
    falling = peak * (1.0 - 0.3 * since_s / length_s) + 2.0 * moment.bell("gpu", gpus)
    idle = column(working, 1.0 + moment.bell("gpu idle", gpus), 0.0)
    gpu = np.where(burst, falling, idle)
    gpu_memory = 24.0 * ramp(t, startup_s - 3.0, startup_s + 1.0) + np.where(burst, 3.0, 0.0)
    gpu_memory = gpu_memory + column(working, 0.5 * moment.bell("gpu memory", gpus), 0.0)

    share = np.full((1, cores), 9.0)
    # One process loads all data; it mostly waits for the network, so its core stays far from full.
    share[0, 0] = 52.0
    io_wait = column(working, 1.2, 2.5) * (1.0 + 0.5 * moment.bell("io wait", cores))
    core = column(working, share, 0.8 * share) + 3.0 * moment.bell("core", cores) + io_wait

    fetched = np.where(burst, 6.0 * MIB, 38.0 * MIB)
    return Curves(
        gpu=gpu,
        gpu_memory=gpu_memory,
        core=core,
        io_wait=io_wait,
        memory=6.0 + 8.0 * ramp(t, 0.0, startup_s + 20.0) + 0.05 * moment.bell("memory"),
        disk=rates(moment, "disk", 45.0, 0.3 * MIB, 0.6 * MIB),
        network=rates(
            moment,
            "network",
            column(working, fetched, 0.02 * MIB),
            column(working, 0.5 * MIB, 0.02 * MIB),
            column(t < startup_s, 60.0 * MIB, 0.01 * MIB),
            column(t < startup_s, 0.4 * MIB, 0.05 * MIB),
        ),
    )


SCENARIO = Scenario(
    summary="GPUs see-saw between short bursts and waiting for data; sampling pauses once",
    curves=curves,
    triggers=("LowGPUUtilization", "BatchSize", "LowMeanUtilization"),
    also=("IdleGaps",),
    gpus=1,
    cores=8,
    duration_s=20 * 60,
    pauses_s=((571.0, 754.0),),
)
