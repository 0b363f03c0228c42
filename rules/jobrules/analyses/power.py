"""Power, temperature, clock, slowdowns, and memory in use of each GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.gpu_conditions import BUSY_PERCENT, MIN_SAMPLES, gpus
from jobrules.measures.sample_weights import sample_weights
from jobrules.measures.work_span import HOUR_US
from jobrules.model import Amount, Job, Metric
from jobrules.model.names import DeviceName, NodeName

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrules.measures.gpu_conditions import GPU
    from jobrules.model import FloatArray, IntArray

#: GPUs that are kept.
MAX_ROWS = 256

_HOUR_S = 3600

#: What is measured of a GPU besides its use.
STATES = (
    Metric.GPU_POWER,
    Metric.GPU_ENERGY,
    Metric.GPU_TEMPERATURE,
    Metric.GPU_CLOCK,
    Metric.GPU_THERMAL_SLOWDOWN,
    Metric.GPU_POWER_CAP,
    Metric.GPU_HARDWARE_SLOWDOWN,
    Metric.GPU_MEMORY_USED,
)


class GPUState(Struct, frozen=True, kw_only=True):
    """A GPU over the job; None for what was not sampled. Means are weighted with time."""

    node: NodeName
    device: DeviceName
    #: Watts; the limit is the last one in force.
    power_mean: float | None = None
    power_max: float | None = None
    power_limit: float | None = None
    #: Watt-hours of the time that was measured, and that time in percent of the job.
    energy_wh: Amount | None = None
    energy_percent: float | None = None
    #: Watt-hours by the driver's counter, from its first to its last sample.
    counted_wh: float | None = None
    #: Degrees Celsius.
    temperature_mean: float | None = None
    temperature_max: float | None = None
    #: MHz: the median while the GPU was busy, None where it never was; and the highest.
    clock_busy: float | None = None
    clock_max: float | None = None
    #: Percent of the measured time in which heat, the power limit, or the hardware (for heat or another reason)
    #: held the clock. None also with fewer than ten samples; for heat also if only the hardware's is recorded.
    thermal_percent: float | None = None
    cap_percent: float | None = None
    hardware_percent: float | None = None
    #: Bytes; and the most memory in use as a share of all there is.
    memory_mean: float | None = None
    memory_max: float | None = None
    memory_total: float | None = None
    memory_percent: float | None = None


def power(job: Job) -> tuple[GPUState, ...]:
    """Every GPU with samples of ``STATES``; of more than 256 those slowed most, warmest, fullest."""
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
    for gpu in gpus(part, clocks, *STATES):
        yield GPUState(
            node=node,
            device=gpu.device,
            **_power(gpu),
            **_counted(gpu),
            **_temperature(gpu),
            **_clock(gpu),
            **_slowdowns(gpu),
            **_memory(gpu),
        )


class _Series(Struct, frozen=True, kw_only=True, eq=False):
    """The samples of one GPU, and how long each stands for."""

    time_us: IntArray
    values: FloatArray
    weight_us: FloatArray

    @classmethod
    def of(cls, gpu: GPU, metric: Metric) -> _Series | None:
        """None if the metric was not sampled."""
        time_us, values = gpu.series(metric)
        if not len(values):
            return None
        weight_us = sample_weights(time_us, *gpu.span_us).weight_us
        return cls(time_us=time_us, values=values, weight_us=weight_us)

    @property
    def mean(self) -> float:
        """Weighted with time; plain where the samples stand for none."""
        total = self.weight_us.sum()
        return float(self.values @ self.weight_us / total) if total else float(self.values.mean())

    @property
    def max(self) -> float:
        return float(self.values.max())


def _power(gpu: GPU) -> dict[str, float | None]:
    _, limits = gpu.series(Metric.GPU_POWER_LIMIT)
    limit = {"power_limit": float(limits[-1]) if len(limits) else None}
    power = _Series.of(gpu, Metric.GPU_POWER)
    if power is None:
        return limit
    start_us, end_us = gpu.span_us
    measured_us = float(power.weight_us.sum())
    return limit | {
        "power_mean": round(power.mean, 2),
        "power_max": power.max,
        "energy_wh": round(float(power.values @ power.weight_us) / HOUR_US, 3),
        "energy_percent": round(100 * measured_us / (end_us - start_us), 1) if end_us > start_us else None,
    }


def _counted(gpu: GPU) -> dict[str, float]:
    """Growth of the driver's counter of energy; one that falls was reset, and counts from 0."""
    _, joules = gpu.series(Metric.GPU_ENERGY)
    if len(joules) < 2:
        return {}
    step = np.diff(joules)
    return {"counted_wh": round(float(np.where(step < 0, joules[1:], step).sum()) / _HOUR_S, 3)}


def _temperature(gpu: GPU) -> dict[str, float]:
    warm = _Series.of(gpu, Metric.GPU_TEMPERATURE)
    return {"temperature_mean": round(warm.mean, 2), "temperature_max": warm.max} if warm else {}


def _clock(gpu: GPU) -> dict[str, float | None]:
    time_us, clock = gpu.series(Metric.GPU_CLOCK)
    if not len(clock):
        return {}
    busy = clock[gpu.at(Metric.GPU_UTILIZATION, time_us) >= BUSY_PERCENT]
    return {"clock_busy": float(np.median(busy)) if len(busy) else None, "clock_max": float(clock.max())}


def _slowdowns(gpu: GPU) -> dict[str, float | None]:
    """Percent of the measured time of each reason, as in ``GPUState``."""

    def percent(metric: Metric) -> float | None:
        found = _Series.of(gpu, metric)
        if found is None or len(found.values) < MIN_SAMPLES:
            return None
        # Rounded to 0 it would say that it never happened.
        return round(found.mean, 2) or found.mean

    time_us, hardware = gpu.series(Metric.GPU_HARDWARE_SLOWDOWN)
    heat_known = gpu.sampled(Metric.GPU_THERMAL_SLOWDOWN, time_us)[hardware > 0].all()
    heat = percent(Metric.GPU_THERMAL_SLOWDOWN)
    return {
        "thermal_percent": heat if heat or heat_known else None,
        "cap_percent": percent(Metric.GPU_POWER_CAP),
        "hardware_percent": percent(Metric.GPU_HARDWARE_SLOWDOWN),
    }


def _memory(gpu: GPU) -> dict[str, float | None]:
    total, used = gpu.memory_size, _Series.of(gpu, Metric.GPU_MEMORY_USED)
    if used is None:
        return {"memory_total": total}
    return {
        "memory_mean": round(used.mean),
        "memory_max": used.max,
        "memory_total": total,
        "memory_percent": round(100 * used.max / total, 1) if total else None,
    }
