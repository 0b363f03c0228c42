"""A job with nothing to complain about that records what Horovod does."""

from __future__ import annotations

from generator.job import Scenario
from generator.scenarios import healthy
from generator.steps import Steps

SCENARIO = Scenario(
    summary="as healthy, and a Horovod timeline of 150 steps",
    curves=healthy.curves,
    steps=Steps(horovod_of=range(13, 163)),
    gpus=4,
    cores=16,
    duration_s=15 * 60,
)
