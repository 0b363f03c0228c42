"""A job with fewer loading processes than the cores could feed."""

from __future__ import annotations

from generator.job import Scenario
from generator.scenarios import healthy
from generator.steps import Steps

SCENARIO = Scenario(
    summary="one process loads data for every four cores",
    curves=healthy.curves,
    steps=Steps(loaders_per_core=0.25),
    triggers=("Dataloader",),
    gpus=2,
    cores=8,
    duration_s=15 * 60,
)
