"""Host memory from ``/proc/meminfo``, or the container's where it has a limit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jobrecord.files import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrecord.sensors.base import Machine
    from jobrecord.sensors.containers import Container

_KIB = 1024


def meminfo(machine: Machine) -> dict[str, int]:
    """Values of ``/proc/meminfo`` in bytes. Raises OSError."""
    found = re.findall(r"^(\w+): +([0-9]+) kB", machine.text("proc/meminfo"), re.MULTILINE)
    return {name: _KIB * int(value) for name, value in found}


class _Memory:
    def __init__(self, machine: Machine, container: Container) -> None:
        self._machine = machine
        self._container = container

    def _used_and_total(self, host: dict[str, int]) -> tuple[int, int]:
        total = host["MemTotal"]
        limited = self._container.memory(total)
        self._machine.facts["memory"] = {"host_bytes": total, "limit_bytes": limited[1] if limited else None}
        return limited or (total - host["MemAvailable"], total)


class MemoryUse(_Memory):
    """Memory in use, in percent of what the job may use."""

    every_s = 0.0

    def rows(self) -> Iterator[Row]:
        """One row."""
        used, total = self._used_and_total(meminfo(self._machine))
        yield Row("memory", "MemoryUsedPercent", "", 100 * used / total)


class MemoryBytes(_Memory):
    """Memory and swap in bytes."""

    every_s = 1.0

    def rows(self) -> Iterator[Row]:
        """Used, total, and swap of the machine."""
        host = meminfo(self._machine)
        used, total = self._used_and_total(host)
        yield Row("memory", "MemoryUsedInBytes", "", used)
        yield Row("memory", "MemoryTotalInBytes", "", total)
        yield Row("memory", "SwapUsedInBytes", "", host["SwapTotal"] - host["SwapFree"])
