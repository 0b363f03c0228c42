"""Which sensors a node has and what they show of its curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from generator.arrays import FloatArray
    from generator.curves import Curves, Moment


@dataclass(frozen=True, kw_only=True)
class Family:
    """Sensors that are read together and share one timestamp per tick."""

    #: Type, Name and Dimension, in the order of the lines.
    sensors: tuple[tuple[str, str, str], ...]
    #: Read at an instant; the others are rates, which the very first tick cannot have.
    gauge: bool


def families(gpus: int, cores: int) -> tuple[Family, ...]:
    """List the sensors of a node, in the order in which the agent writes them."""
    gpu_sensors = ("GPUUtilization", "GPUMemoryUtilization")
    cpu_sensors = ("CPUUtilization", "I/OWaitPercentage")
    disk_sensors = ("IOPS", "ReadThroughputInBytesPerSecond", "WriteThroughputInBytesPerSecond")
    network_sensors = ("ReceiveBytesPerSecond", "TransmitBytesPerSecond")
    owners = ("Algorithm", "Platform")
    return (
        Family(sensors=tuple(("gpu", f"gpu{k}", s) for s in gpu_sensors for k in range(gpus)), gauge=True),
        Family(sensors=tuple(("cpu", f"cpu{k}", s) for k in range(cores) for s in cpu_sensors), gauge=False),
        Family(sensors=tuple(("i/o", s, "") for s in disk_sensors), gauge=False),
        Family(sensors=(("memory", "MemoryUsedPercent", ""),), gauge=True),
        Family(
            sensors=tuple(("network", s, owner) for owner in owners for s in network_sensors), gauge=False
        ),
    )


def measure(moment: Moment, curves: Curves, interval_us: int) -> tuple[FloatArray, ...]:
    """Return what the sensors show, family by family as ``families`` lists them."""
    # An interval rarely holds exactly its number of kernel clock ticks.
    jiffies = np.round(interval_us / 10_000 + 1.2 * moment.bell("jiffies", moment.cores))
    core = quantize(curves.core, jiffies)
    io_wait = np.minimum(quantize(curves.io_wait, jiffies), core)
    gpu = np.concatenate([curves.gpu, curves.gpu_memory], axis=1)
    return (
        np.round(np.clip(gpu, 0.0, 100.0)),
        np.stack([core, io_wait], axis=2).reshape(len(moment.tick), 2 * moment.cores),
        np.maximum(curves.disk, 0.0),
        np.clip(curves.memory, 0.0, 100.0),
        np.maximum(curves.network, 0.0),
    )


def quantize(percent: FloatArray, jiffies: FloatArray) -> FloatArray:
    """Turn a share of time into what counting the clock ticks of a kernel at 100 Hz gives."""
    return np.round(np.clip(percent, 0.0, 100.0) / 100.0 * jiffies) / jiffies * 100.0
