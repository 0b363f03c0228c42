"""What a scenario is asked and answers, and the pieces that curves are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from generator.arrays import BoolArray, FloatArray, IntArray
    from generator.noise import Noise

MIB = float(1 << 20)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The ticks a scenario is asked about, on one node."""

    time_s: FloatArray
    #: Number of the tick since the start of the job; the index for sample-to-sample noise.
    tick: IntArray
    duration_s: float
    nodes: int
    gpus: int
    cores: int
    noise: Noise

    @property
    def left_s(self) -> FloatArray:
        """Seconds until the job ends."""
        return self.duration_s - self.time_s

    def bell(self, name: str, columns: int = 1) -> FloatArray:
        """Return sample-to-sample noise, one row per tick."""
        return self.noise.bell(name, self.tick, columns)

    def drift(self, name: str, period_s: float, columns: int = 1) -> FloatArray:
        """Return slow wandering, one row per tick."""
        return self.noise.drift(name, self.time_s, period_s, columns)


@dataclass(frozen=True, kw_only=True)
class Curves:
    """What one node does at each tick: rows are ticks, columns are devices.

    Percentages may leave 0 ... 100 and rates may fall below 0 through noise; the sensors clip them.
    """

    gpu: FloatArray
    gpu_memory: FloatArray
    #: Time not idle, so it includes the time spent waiting for I/O.
    core: FloatArray
    io_wait: FloatArray
    #: One column: memory used, in percent.
    memory: FloatArray
    #: Columns: operations/s, read bytes/s, written bytes/s.
    disk: FloatArray
    #: Columns: received and sent bytes/s of the training container, the same two of the platform.
    network: FloatArray
    #: Memory of the GPU that is taken, in percent; none where it follows from ``gpu_memory``, which is how busy
    #: the memory is.
    gpu_memory_taken: FloatArray | None = None
    #: How much hotter a watt makes the GPU than in a well cooled machine, and shares of the highest clock and of
    #: the usual power limit that it is allowed.
    heat: FloatArray | float = 1.0
    clock: FloatArray | float = 1.0
    power_limit: FloatArray | float = 1.0
    #: Memory errors of the GPU so far that were corrected, and that could not be.
    corrected: FloatArray | float = 0.0
    uncorrected: FloatArray | float = 0.0


def ramp(time_s: FloatArray, start_s: float, end_s: float) -> FloatArray:
    """Rise from 0 to 1 between two moments, as a column."""
    return np.clip((time_s - start_s) / (end_s - start_s), 0.0, 1.0)[:, None]


def column(mask: BoolArray, yes: FloatArray | float, no: FloatArray | float) -> FloatArray:
    """Choose per tick, whatever the number of devices."""
    return np.asarray(np.where(mask[:, None], yes, no), dtype=np.float64)


def rates(moment: Moment, name: str, *means: FloatArray | float) -> FloatArray:
    """Put a column per mean side by side, each with noise of 8 percent."""
    wobble = 1.0 + 0.08 * moment.bell(name, len(means))
    columns = [np.broadcast_to(mean, (len(moment.tick), 1)) for mean in means]
    return np.concatenate(columns, axis=1) * wobble
