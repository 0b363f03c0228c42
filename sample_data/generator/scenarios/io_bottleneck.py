"""A job whose GPUs wait for storage."""

from __future__ import annotations

from dataclasses import replace

from generator.curves import MIB, Curves, Moment, column, rates
from generator.job import Scenario
from generator.scenarios import healthy
from generator.steps import Steps

STEPS = Steps(step_s=0.7, gap_s=1.6, spread_s=0.12)


def curves(moment: Moment) -> Curves:
    """Read each batch from a slow disk, and only then step."""
    usual = healthy.curves(moment)
    reading = STEPS.waiting(moment.time_s)
    gpu = column(reading, 1.0 + moment.bell("gpu waiting", moment.gpus), usual.gpu)
    # Waiting counts as time not idle; together with the work it stays below what a busy core shows.
    io_wait = column(reading, 67.0 + 2.0 * moment.bell("io waiting", moment.cores), usual.io_wait)
    core = column(reading, io_wait + 11.0 + moment.bell("core reading", moment.cores), usual.core)
    disk = rates(
        moment, "disk", column(reading, 5200.0, 300.0), column(reading, 130.0 * MIB, 20.0 * MIB), 0.2 * MIB
    )
    return replace(usual, gpu=gpu, core=core, io_wait=io_wait, disk=disk)


SCENARIO = Scenario(
    summary="GPUs idle while all cores wait for the disk",
    curves=curves,
    steps=STEPS,
    triggers=("IOBottleneck",),
    also=("LowGPUUtilization", "IdleGaps"),
    gpus=2,
    cores=8,
    duration_s=15 * 60,
)
