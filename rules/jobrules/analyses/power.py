"""Power, temperature, clock, slowdowns, and memory in use of each GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.gpu_memory_full import totals
from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.gpu_conditions import BUSY_PERCENT, MIN_SAMPLES, gpus
from jobrules.measures.sample_weights import sample_weights
from jobrules.model import SECOND_US, Job, Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrules.measures.gpu_conditions import GPU
    from jobrules.model import FloatArray, IntArray

#: GPUs that are kept.
MAX_ROWS = 256

#: What is measured of a GPU besides its use.
STATES = (
    Metric.GPU_POWER,
    Metric.GPU_TEMPERATURE,
    Metric.GPU_CLOCK,
    Metric.GPU_THERMAL_SLOWDOWN,
    Metric.GPU_POWER_CAP,
    Metric.GPU_HARDWARE_SLOWDOWN,
    Metric.GPU_MEMORY_USED,
)


class GPUState(Struct, frozen=True, kw_only=True):
    """A GPU over the job; none for what was not sampled. Means are weighted with the time that a sample stands for."""

    node: str
    device: str
    #: Watts; the limit is the last one in force.
    power_mean: float | None = None
    power_max: float | None = None
    power_limit: float | None = None
    #: Watt-hours of the time that was measured, and that time in percent of the job.
    energy_wh: float | None = None
    energy_percent: float | None = None
    #: Degrees Celsius.
    temperature_mean: float | None = None
    temperature_max: float | None = None
    #: MHz: the median while the GPU was busy, none where it never was; and the highest.
    clock_busy: float | None = None
    clock_max: float | None = None
    #: Percent of the measured time in which heat, the power limit, the hardware held the clock; the hardware also
    #: where it did so for heat. None also with fewer than ten samples, and where the hardware did and nothing tells
    #: whether for heat.
    thermal_percent: float | None = None
    cap_percent: float | None = None
    hardware_percent: float | None = None
    #: Bytes; and the most memory in use as a share of all there is.
    memory_mean: float | None = None
    memory_max: float | None = None
    memory_total: float | None = None
    memory_percent: float | None = None


def power(job: Job) -> tuple[GPUState, ...]:
    """Every GPU of which more than its use was sampled; of more than 256 those held back most, warmest, fullest."""
    if not any(job.has(metric) for metric in STATES):
        return ()
    found = job.gathered(_of_node, Clocks.of(job))
    if len(found) <= MAX_ROWS:
        return tuple(found)
    kept = set(sorted(range(len(found)), key=lambda i: _oddness(found[i]), reverse=True)[:MAX_ROWS])
    return tuple(state for i, state in enumerate(found) if i in kept)


def _oddness(state: GPUState) -> tuple[float, ...]:
    slowed = (state.thermal_percent, state.hardware_percent, state.cap_percent)
    levels = (max(v or 0.0 for v in slowed), state.temperature_max, state.memory_percent, state.power_max)
    return tuple(v or 0.0 for v in levels)


def _of_node(part: Job, clocks: Clocks) -> Iterator[GPUState]:
    (node,) = part.nodes
    memory = totals(part.panel(node, Metric.GPU_MEMORY_TOTAL))
    for gpu in gpus(part, clocks, *STATES):
        yield _state(gpu, memory.get(gpu.device))


class _Series(Struct, frozen=True, kw_only=True, eq=False):
    """The samples of one GPU, and how long each stands for."""

    time_us: IntArray
    values: FloatArray
    weight_us: FloatArray

    @property
    def mean(self) -> float:
        """Weighted with time; plain where the samples stand for none."""
        total = self.weight_us.sum()
        return float(self.values @ self.weight_us / total) if total else float(self.values.mean())


def _state(gpu: GPU, total: float | None) -> GPUState:
    def series(metric: Metric) -> _Series | None:
        found = gpu.series(metric)
        if found is None or not len(found[0]):
            return None
        return _Series(
            time_us=found[0], values=found[1], weight_us=sample_weights(found[0], *gpu.span_us).weight_us
        )

    def percent(metric: Metric) -> float | None:
        found = series(metric)
        if found is None or len(found.values) < MIN_SAMPLES:
            return None
        # Rounded to 0 it would say that it never happened.
        return round(found.mean, 2) or found.mean

    def heat() -> float | None:
        held_us, hardware = gpu.series(Metric.GPU_HARDWARE_SLOWDOWN)
        known = gpu.sampled(Metric.GPU_THERMAL_SLOWDOWN, held_us)[hardware > 0].all()
        part = percent(Metric.GPU_THERMAL_SLOWDOWN)
        return part if part or known else None

    power, limit = series(Metric.GPU_POWER), series(Metric.GPU_POWER_LIMIT)
    warm, clock, used = (
        series(metric) for metric in (Metric.GPU_TEMPERATURE, Metric.GPU_CLOCK, Metric.GPU_MEMORY_USED)
    )
    busy = clock.values[gpu.at(Metric.GPU_UTILIZATION, clock.time_us) >= BUSY_PERCENT] if clock else ()
    whole_us = gpu.span_us[1] - gpu.span_us[0]
    return GPUState(
        node=gpu.node,
        device=gpu.device,
        power_mean=round(power.mean, 2) if power else None,
        power_max=float(power.values.max()) if power else None,
        power_limit=float(limit.values[-1]) if limit else None,
        energy_wh=round(float(power.values @ power.weight_us) / (3600 * SECOND_US), 3) if power else None,
        energy_percent=round(100 * float(power.weight_us.sum()) / whole_us, 1)
        if power and whole_us
        else None,
        temperature_mean=round(warm.mean, 2) if warm else None,
        temperature_max=float(warm.values.max()) if warm else None,
        clock_busy=float(np.median(busy)) if len(busy) else None,
        clock_max=float(clock.values.max()) if clock else None,
        thermal_percent=heat(),
        cap_percent=percent(Metric.GPU_POWER_CAP),
        hardware_percent=percent(Metric.GPU_HARDWARE_SLOWDOWN),
        memory_mean=round(used.mean) if used else None,
        memory_max=float(used.values.max()) if used else None,
        memory_total=total,
        memory_percent=round(100 * float(used.values.max()) / total, 1) if used and total else None,
    )
