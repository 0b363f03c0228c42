"""A job with more loading processes than the cores can run."""

from __future__ import annotations

from generator.job import Scenario
from generator.scenarios import healthy
from generator.steps import Steps

SCENARIO = Scenario(
    summary="five processes load data for every two cores",
    curves=healthy.curves,
    steps=Steps(loaders_per_core=2.5),
    triggers=("Dataloader",),
    gpus=2,
    cores=8,
    duration_s=15 * 60,
)
