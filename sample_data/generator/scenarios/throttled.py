"""A job in a machine where the cooling of one GPU fails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from generator.curves import Curves, Moment, ramp
from generator.job import Scenario
from generator.scenarios import healthy


def curves(moment: Moment) -> Curves:
    """Let the third GPU grow hot from a third of the job on; the driver lowers its clock to keep it from harm."""
    fails_s = moment.duration_s / 3
    failing = np.arange(moment.gpus) == min(2, moment.gpus - 1)
    heat = 1.0 + 2.2 * failing * ramp(moment.time_s, fails_s, fails_s + 240.0)
    return replace(healthy.curves(moment), heat=heat)


SCENARIO = Scenario(
    summary="one GPU grows hot and is slowed down by a third",
    curves=curves,
    triggers=("ThermalThrottling",),
    also=("SlowClock",),
    logged=True,
    interval_ms=2000,
    gpus=4,
    cores=8,
    duration_s=60 * 60,
)
