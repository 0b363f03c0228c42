"""A job with nothing to complain about on two machines whose clocks disagree."""

from __future__ import annotations

from generator.job import Scenario
from generator.scenarios import healthy

SCENARIO = Scenario(
    summary="as healthy, with the second node's clock 90 s ahead in all it writes",
    curves=healthy.curves,
    steps=healthy.STEPS,
    nodes=2,
    gpus=2,
    cores=8,
    duration_s=15 * 60,
    clock_ahead_s=90.0,
)
