"""Sensors of systems without ``/proc``, by psutil: no I/O wait, cgroups, or pressure there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil

from jobrecord.files import Row
from jobrecord.sensors.base import Rates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrecord.sensors.base import Sensor


def sensors() -> list[Sensor]:
    """CPU, memory, disks, and network."""
    return [Cores(), Memory(), Traffic()]


class Cores:
    """CPU utilization of each core."""

    every_s = 0.0

    def __init__(self) -> None:
        psutil.cpu_percent(percpu=True)

    def rows(self) -> Iterator[Row]:
        """Utilization since the reading before."""
        for number, percent in enumerate(psutil.cpu_percent(percpu=True)):
            yield Row("cpu", f"cpu{number}", "CPUUtilization", percent)


class Memory:
    """Memory of the machine."""

    every_s = 0.0

    def rows(self) -> Iterator[Row]:
        """Memory in use, in percent and bytes."""
        memory = psutil.virtual_memory()
        yield Row("memory", "MemoryUsedPercent", "", 100 * (1 - memory.available / memory.total))
        yield Row("memory", "MemoryUsedInBytes", "", memory.total - memory.available)
        yield Row("memory", "MemoryTotalInBytes", "", memory.total)


class Traffic:
    """Disks and network interfaces."""

    every_s = 0.0

    def __init__(self) -> None:
        self._rates = Rates(time.monotonic)

    def rows(self) -> Iterator[Row]:
        """Rates since the reading before."""
        counts = {}
        if disks := psutil.disk_io_counters():
            counts["i/o", "IOPS", ""] = disks.read_count + disks.write_count
            counts["i/o", "ReadThroughputInBytesPerSecond", ""] = disks.read_bytes
            counts["i/o", "WriteThroughputInBytesPerSecond", ""] = disks.write_bytes
        interfaces = psutil.net_io_counters(pernic=True)
        others = [count for name, count in interfaces.items() if not name.startswith("lo")]
        received, sent = sum(c.bytes_recv for c in others), sum(c.bytes_sent for c in others)
        counts["network", "ReceiveBytesPerSecond", "Algorithm"] = received
        counts["network", "TransmitBytesPerSecond", "Algorithm"] = sent
        for row, count in counts.items():
            rate = self._rates.per_second(" ".join(row), count)
            if rate is not None:
                yield Row(*row, rate)
