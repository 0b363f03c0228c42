"""A job that gives one GPU of the machine less to do than the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from generator.job import Scenario
from generator.scenarios import healthy

if TYPE_CHECKING:
    from generator.curves import Curves, Moment


def curves(moment: Moment) -> Curves:
    """Keep all GPUs busy, the last one a quarter less than the others."""
    usual = healthy.curves(moment)
    share = np.where(np.arange(moment.gpus) == moment.gpus - 1, 0.75, 1.0)
    return replace(usual, gpu=usual.gpu * share)


SCENARIO = Scenario(
    summary="the last GPU works a quarter less than the others, an hour long",
    curves=curves,
    triggers=("LoadBalancing",),
    logged=True,
    interval_ms=2000,
    gpus=4,
    cores=8,
    duration_s=60 * 60,
)
