"""What the machine does: a module per scenario, listed here under the name the command knows it by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from generator.scenarios import (
    cpu,
    cpu_bottleneck,
    few_loaders,
    fluctuating,
    healthy,
    horovod,
    imbalance,
    io_bottleneck,
    many_loaders,
    memory_jump,
    memory_leak,
    slow_start,
    small_batch,
    step_outliers,
    two_clocks,
)

if TYPE_CHECKING:
    from generator.job import Scenario

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {
    "healthy": healthy.SCENARIO,
    "fluctuating": fluctuating.SCENARIO,
    "cpu": cpu.SCENARIO,
    "cpu-bottleneck": cpu_bottleneck.SCENARIO,
    "io-bottleneck": io_bottleneck.SCENARIO,
    "imbalance": imbalance.SCENARIO,
    "memory-jump": memory_jump.SCENARIO,
    "memory-leak": memory_leak.SCENARIO,
    "step-outliers": step_outliers.SCENARIO,
    "slow-start": slow_start.SCENARIO,
    "small-batch": small_batch.SCENARIO,
    "few-loaders": few_loaders.SCENARIO,
    "many-loaders": many_loaders.SCENARIO,
    "horovod": horovod.SCENARIO,
    "two-clocks": two_clocks.SCENARIO,
}
