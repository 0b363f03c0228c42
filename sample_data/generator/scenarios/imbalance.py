"""A job that gives one GPU less to do than the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from generator.job import Scenario
from generator.scenarios import healthy

if TYPE_CHECKING:
    from generator.curves import Curves, Moment


def curves(moment: Moment) -> Curves:
    """Keep all GPUs busy, the last one at three quarters of the others' use."""
    usual = healthy.curves(moment)
    share = np.ones((1, moment.gpus))
    share[0, -1] = 0.755
    return replace(usual, gpu=usual.gpu * share)


SCENARIO = Scenario(
    summary="the last GPU works less than the others, though none is little used",
    curves=curves,
    steps=healthy.STEPS,
    triggers=("LoadBalancing",),
    gpus=4,
    cores=8,
    duration_s=15 * 60,
)
