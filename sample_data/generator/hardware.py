"""What the driver tells of the GPUs besides their use: memory, power, temperature, clock and why it is low."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from generator.noise import Noise
from generator.record import Ticks

if TYPE_CHECKING:
    from generator.arrays import FloatArray, IntArray
    from generator.curves import Curves
    from generator.job import JobSpec

#: The GPU of all jobs: memory, power limit, lowest and highest clock of the processors.
MODEL = "NVIDIA A100-SXM4-80GB"
TOTAL_MIB = 81920
LIMIT_W = 400.0
IDLE_MHZ, TOP_MHZ, STEP_MHZ = 210, 1410, 15
#: What it draws at rest, more with a process on it, and more under full use at the highest clock.
REST_W, READY_W, WORK_W = 55.0, 12.0, 300.0
#: Of the air, and how much a watt of a well cooled GPU adds.
AIR_C, C_PER_W = 27.0, 0.09
#: How slowly it heats up and cools down.
LAG_S = 45.0
#: The driver lowers the clock above the one, and raises it again below the other, by so much a second.
HOT_C, COOL_C = 85.0, 82.0
DOWN_MHZ_S, UP_MHZ_S = 12.0, 6.0
LOWEST_HOT_MHZ = 600
#: Bits of the mask of reasons for a low clock.
IDLE, SETTING, POWER_CAP, THERMAL = 0x1, 0x2, 0x4, 0x20


@dataclass(frozen=True, kw_only=True)
class Gauges:
    """What the driver shows of one node's GPUs: rows are ticks, columns are GPUs; whole numbers but the power."""

    #: By the clock of the node; (ticks,).
    timestamp_us: IntArray
    #: Percent: share of time that something ran, and that memory was read or written.
    use: FloatArray
    memory_use: FloatArray
    memory_mib: FloatArray
    temperature_c: FloatArray
    #: With two decimals, as are the limits.
    power_w: FloatArray
    limit_w: FloatArray
    clock_mhz: FloatArray
    #: Mask of the reasons for a low clock.
    reasons: IntArray
    corrected: IntArray
    uncorrected: IntArray


def gauges(spec: JobSpec, node: int) -> Gauges:
    """Watch the GPUs of a node over the whole job, at the moments of its samples."""
    found = Ticks.within(spec, node, spec.clock_us(node), spec.duration_us)
    curves, noise, shape = found.curves, Noise(spec.seed, node), (len(found.tick), spec.gpus)
    use, memory_use = found.values[0][:, : spec.gpus], found.values[0][:, spec.gpus :]
    taken = _taken(curves)
    limit_w = LIMIT_W * np.broadcast_to(curves.power_limit, shape)
    allowed_mhz = TOP_MHZ * np.broadcast_to(curves.clock, shape)
    heat = C_PER_W * np.broadcast_to(curves.heat, shape) * (0.95 + 0.1 * noise.constant("heat", spec.gpus))
    air_c = AIR_C + 4.0 * noise.constant("air", spec.gpus)[0]
    # Drawing varies with what runs; the limit is kept all the same.
    work_w = WORK_W * use / 100.0 * (1.0 + 0.02 * noise.bell("power", found.tick, spec.gpus))
    ripple_w = 0.5 * noise.bell("rest", found.tick, spec.gpus)
    step_s = np.diff(found.tick, prepend=found.tick[:1]) * spec.interval_us / 1e6

    power_w, temperature_c, clock_mhz = (np.zeros(shape) for _ in range(3))
    reasons = np.zeros(shape, np.int64)
    now_c, hot_mhz = air_c + REST_W * heat[0], np.full(spec.gpus, float(TOP_MHZ))
    for i in range(shape[0]):
        ready = (taken[i] > 0.0) | (use[i] > 0.0)
        base_w = REST_W + READY_W * ready + ripple_w[i]
        hot_mhz += step_s[i] * np.where(now_c >= HOT_C, -DOWN_MHZ_S, (now_c <= COOL_C) * UP_MHZ_S)
        hot_mhz = np.clip(hot_mhz, LOWEST_HOT_MHZ, TOP_MHZ)
        # What power is left for work goes with the square of the clock.
        capped_mhz = TOP_MHZ * np.sqrt((limit_w[i] - base_w) / np.maximum(work_w[i], 1.0))
        mhz = np.minimum(np.minimum(hot_mhz, capped_mhz), allowed_mhz[i])
        mhz = np.where(ready, np.floor(mhz / STEP_MHZ) * STEP_MHZ, IDLE_MHZ)
        reasons[i] = np.where(
            ready,
            THERMAL * (hot_mhz < TOP_MHZ)
            + POWER_CAP * (capped_mhz < np.minimum(hot_mhz, allowed_mhz[i]))
            + SETTING * (allowed_mhz[i] < TOP_MHZ),
            IDLE,
        )
        clock_mhz[i] = mhz
        power_w[i] = base_w + work_w[i] * (mhz / TOP_MHZ) ** 2
        share = step_s[i] / LAG_S
        now_c = (now_c + share * (air_c + heat[i] * power_w[i])) / (1.0 + share)
        temperature_c[i] = now_c

    return Gauges(
        timestamp_us=found.timestamp_us[:, 0],
        use=use,
        memory_use=memory_use,
        # A little is taken by the driver itself.
        memory_mib=np.round(3.0 + (TOTAL_MIB - 700.0) * taken / 100.0),
        temperature_c=np.round(temperature_c),
        power_w=np.round(power_w, 2),
        limit_w=np.round(limit_w, 2),
        clock_mhz=clock_mhz,
        reasons=reasons,
        corrected=np.broadcast_to(curves.corrected, shape).astype(np.int64),
        uncorrected=np.broadcast_to(curves.uncorrected, shape).astype(np.int64),
    )


def _taken(curves: Curves) -> FloatArray:
    """Percent of memory that is taken: what a framework has once taken it keeps, and it seldom takes more."""
    if curves.gpu_memory_taken is not None:
        return curves.gpu_memory_taken
    busy = np.clip(curves.gpu_memory, 0.0, 100.0)
    usual = [np.median(one[one > 0.0]) if (one > 0.0).any() else 0.0 for one in busy.T]
    return np.asarray(np.minimum(np.maximum.accumulate(busy, axis=0), usual), np.float64)
