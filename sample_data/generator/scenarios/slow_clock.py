"""A job in a machine where somebody has set the clock of one GPU low."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from generator.job import Scenario
from generator.scenarios import healthy

if TYPE_CHECKING:
    from generator.curves import Curves, Moment


def curves(moment: Moment) -> Curves:
    """Hold the second GPU at seven tenths of the highest clock; it is as busy as the others."""
    clock = np.where(np.arange(moment.gpus) == min(1, moment.gpus - 1), 0.7, 1.0)
    return replace(healthy.curves(moment), clock=clock)


SCENARIO = Scenario(
    summary="one GPU runs at seven tenths of the others' clock",
    curves=curves,
    triggers=("SlowClock",),
    logged=True,
    interval_ms=2000,
    gpus=4,
    cores=8,
    duration_s=60 * 60,
)
