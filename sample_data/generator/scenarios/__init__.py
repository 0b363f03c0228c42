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
    idle_gaps,
    idle_gpu,
    imbalance,
    io_bottleneck,
    leaking,
    lopsided,
    many_loaders,
    memory_errors,
    memory_full,
    memory_jump,
    memory_leak,
    oversized,
    power_capped,
    right_sized,
    slow_clock,
    slow_start,
    small_batch,
    step_outliers,
    throttled,
    two_clocks,
)

if TYPE_CHECKING:
    from generator.job import Scenario

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
    "throttled": throttled.SCENARIO,
    "idle-gpu": idle_gpu.SCENARIO,
    "idle-gaps": idle_gaps.SCENARIO,
    "leaking": leaking.SCENARIO,
    "memory-full": memory_full.SCENARIO,
    "lopsided": lopsided.SCENARIO,
    "slow-clock": slow_clock.SCENARIO,
    "power-capped": power_capped.SCENARIO,
    "memory-errors": memory_errors.SCENARIO,
    "oversized": oversized.SCENARIO,
    "right-sized": right_sized.SCENARIO,
}
