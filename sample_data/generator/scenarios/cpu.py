"""A job without a GPU."""

from __future__ import annotations

import numpy as np

from generator.curves import MIB, Curves, Moment, column, ramp, rates
from generator.job import Scenario


def curves(moment: Moment) -> Curves:
    """Train on the processors alone, with a pause for reading every four minutes."""
    startup_s, round_s = 60.0, 240.0
    t, gpus, cores = moment.time_s, moment.gpus, moment.cores
    loading = t < startup_s
    closing = moment.left_s < 6.0
    reading = (np.mod(t - startup_s, round_s) < 6.0) & (t > startup_s + round_s / 2)

    share = 70.0 + 8.0 * (moment.noise.constant("core", cores) - 0.5)
    work = column(loading, 14.0, column(closing, 8.0, column(reading, 20.0, share)))
    wait = column(loading, 9.0, column(reading, 28.0, 3.0))
    io_wait = wait * (1.0 + 0.3 * moment.bell("io wait", cores))
    core = work + 2.5 * moment.drift("core drift", 25.0, cores) + 2.0 * moment.bell("core", cores) + io_wait

    none = np.zeros((len(t), gpus))
    used = 4.0 + 10.0 * ramp(t, 0.0, startup_s) + 34.0 * ramp(t, startup_s, startup_s + 60.0)
    return Curves(
        gpu=none,
        gpu_memory=none,
        core=core,
        io_wait=io_wait,
        memory=used + 0.1 * moment.bell("memory"),
        disk=rates(
            moment,
            "disk",
            column(loading, 2600.0, column(reading, 3800.0, 520.0)),
            column(loading, 1.0 * MIB, column(reading, 240.0 * MIB, 32.0 * MIB)),
            column(loading, 150.0 * MIB, 0.4 * MIB),
        ),
        network=rates(
            moment,
            "network",
            0.02 * MIB,
            0.02 * MIB,
            column(loading, 145.0 * MIB, 0.01 * MIB),
            column(loading, 0.8 * MIB, 0.05 * MIB),
        ),
    )


SCENARIO = Scenario(
    summary="no GPU, all cores 60-85 % busy with some I/O wait",
    curves=curves,
    gpus=0,
    cores=16,
    duration_s=16 * 60,
)
