"""A job in a machine whose GPUs may draw less than they could."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from generator.job import Scenario
from generator.scenarios import healthy

if TYPE_CHECKING:
    from generator.curves import Curves, Moment


def curves(moment: Moment) -> Curves:
    """Limit all GPUs to 200 W, which holds their clocks well below the highest."""
    return replace(healthy.curves(moment), power_limit=0.5)


SCENARIO = Scenario(
    summary="a low power limit holds the clocks of all GPUs down",
    curves=curves,
    triggers=("PowerCap",),
    logged=True,
    interval_ms=2000,
    gpus=4,
    cores=8,
    duration_s=60 * 60,
)
