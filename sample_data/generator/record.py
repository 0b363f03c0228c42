"""Takes the samples of a job, minute by minute, at the times the platform agent would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from generator.curves import Moment
from generator.noise import Noise
from generator.sensors import Family, families, measure

if TYPE_CHECKING:
    from generator.arrays import BoolArray, FloatArray, IntArray
    from generator.curves import Curves
    from generator.job import JobSpec

MINUTE_US = 60_000_000
#: No sample is taken later than this after its tick; readers join samples up to 20 ms apart.
MAX_DELAY_US = 12_000


@dataclass(frozen=True, kw_only=True)
class Samples:
    """What one family measured: rows are ticks, columns are its sensors."""

    family: Family
    values: FloatArray
    timestamp_us: IntArray
    #: Ticks whose samples belong to the minute asked for.
    present: BoolArray


def minutes_us(spec: JobSpec) -> range:
    """Return the starts of the minutes that may hold a sample, by the clock of any node."""
    first = spec.start_us - spec.start_us % MINUTE_US
    # A node may lag behind the first by up to an interval.
    last = spec.clock_us(spec.nodes) + spec.duration_us + spec.interval_us + MAX_DELAY_US
    return range(first, last, MINUTE_US)


@dataclass(frozen=True, kw_only=True)
class Ticks:
    """When one node is sampled and what it does then."""

    curves: Curves
    #: What the sensors show, family by family: rows are ticks.
    values: tuple[FloatArray, ...]
    tick: IntArray
    #: A column per family.
    timestamp_us: IntArray

    @classmethod
    def within(cls, spec: JobSpec, node: int, since_us: int, length_us: int) -> Ticks:
        """Every tick that may have a sample in a stretch, given by the node's clock."""
        noise = Noise(spec.seed, node)
        # Nodes share the interval but are not in step; the first one defines the start of the job.
        phase_us = int(noise.constant("phase", 1)[0, 0] * spec.interval_us) if node > 1 else 0
        clock_us = spec.clock_us(node)
        tick = ticks_near(spec, since_us - clock_us, length_us, phase_us)
        nominal_us = tick * spec.interval_us + phase_us
        moment = Moment(
            time_s=nominal_us / 1e6,
            tick=tick,
            duration_s=spec.duration_us / 1e6,
            nodes=spec.nodes,
            gpus=spec.gpus,
            cores=spec.cores,
            noise=noise,
        )
        curves = spec.scenario.curves(moment)
        timestamp_us = (clock_us + nominal_us)[:, None] + delays_us(noise, tick)
        return cls(
            curves=curves,
            values=measure(moment, curves, spec.interval_us),
            tick=tick,
            timestamp_us=timestamp_us - timestamp_us % spec.resolution_us,
        )


def record(spec: JobSpec, minute_us: int, node: int) -> tuple[Samples, ...]:
    """Sample one node during one minute; all families have the same ticks."""
    found = Ticks.within(spec, node, minute_us, MINUTE_US)
    stamps = found.timestamp_us
    in_minute = (stamps >= minute_us) & (stamps < minute_us + MINUTE_US)
    return tuple(
        Samples(
            family=family,
            values=found.values[k],
            timestamp_us=stamps[:, k],
            present=in_minute[:, k] & (family.gauge | (found.tick > 0)),
        )
        for k, family in enumerate(families(spec.gpus, spec.cores))
    )


def ticks_near(spec: JobSpec, since_us: int, length_us: int, phase_us: int) -> IntArray:
    """Number the ticks whose samples may fall into a stretch that begins so long after the job."""
    first = max(0, (since_us - phase_us - MAX_DELAY_US) // spec.interval_us)
    last = (since_us - phase_us + length_us) // spec.interval_us
    tick = np.arange(first, last + 1, dtype=np.int64)
    time_us = tick * spec.interval_us
    sampled = time_us < spec.duration_us
    time_s = (time_us + phase_us) / 1e6
    for pause_start_s, pause_end_s in spec.scenario.pauses_s:
        sampled &= (time_s < pause_start_s) | (time_s >= pause_end_s)
    return tick[sampled]


def delays_us(noise: Noise, tick: IntArray) -> IntArray:
    """Return how long after its tick each family is read, a column each; below MAX_DELAY_US."""
    late = noise.uniform("delay", tick, 5)
    begin = (2500 * late[:, :1]).astype(np.int64)
    # Network counters are read last and slowest.
    behind = late * np.array([0, 60, 90, 500, 4000]) + np.array([0, 40, 110, 210, 2500])
    delay: IntArray = begin + behind.astype(np.int64)
    return delay
