"""Limits and use of the cgroup that the job runs in, versions 1 and 2.

In a container ``/proc/stat`` and ``/proc/meminfo`` show the whole machine; what the job may use stands here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobrecord.files import Row
from jobrecord.sensors.base import Rates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jobrecord.sensors.base import Machine

_ROOT = "sys/fs/cgroup"
_NS, _US = 1e9, 1e6


class Container:
    """The job's cgroup; use is that of the cgroup with the tightest limit, since others in it use up the same limit."""

    every_s = 1.0

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._rates = Rates(machine.clock)
        self._periods: tuple[int, int] | None = None
        self.version = 2 if (machine.root / _ROOT / "cgroup.controllers").exists() else 1
        cpu_levels, memory_levels = self._levels("cpu"), self._levels("memory")
        #: The job's own cgroup.
        self.folder = cpu_levels[0]
        self._cpu = _tightest(cpu_levels, self.cpu_limit)
        self._memory = _tightest(memory_levels, self.memory_limit)
        machine.facts.setdefault("cores", {})["limit"] = self.cpu_limit(self._cpu)

    def rows(self) -> Iterator[Row]:
        """CPU in cores, throttled periods, and kills for lack of memory."""
        for read in (self._cores, self._throttled, self._kills):
            try:
                yield from read()
            except OSError as error:
                self._machine.left_out.add(f"container {error.filename}", error.strerror or str(error))

    def cpu_limit(self, folder: str) -> float | None:
        """Cores that a cgroup may use; None without a limit."""
        if self.version == 2:
            quota, _, period = self._optional(f"{folder}/cpu.max").partition(" ")
        else:
            quota = self._optional(f"{folder}/cpu.cfs_quota_us")
            period = self._optional(f"{folder}/cpu.cfs_period_us")
        limited = quota.isdecimal() and period.isdecimal()
        return int(quota) / int(period) if limited and int(period) else None

    def memory_limit(self, folder: str) -> int | None:
        """Bytes that a cgroup may use; None without a limit. Version 1 has a number near 2^63 for that."""
        name = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        text = self._optional(f"{folder}/{name}")
        return int(text) if text.isdecimal() and int(text) < 1 << 62 else None

    def memory(self, host_bytes: int) -> tuple[int, int] | None:
        """Bytes in use, without file cache that the kernel can drop, and the limit; None without one below the host's.

        Raises OSError.
        """
        limit = self.memory_limit(self._memory)
        if limit is None or limit >= host_bytes:
            return None
        current, cache = ("memory.current", "inactive_file")
        if self.version == 1:
            current, cache = ("memory.usage_in_bytes", "total_inactive_file")
        used = int(self._machine.text(f"{self._memory}/{current}"))
        return used - self._fields(f"{self._memory}/memory.stat")[cache], limit

    def _cores(self) -> Iterator[Row]:
        if self.version == 2:
            used_s = self._fields(f"{self._cpu}/cpu.stat")["usage_usec"] / _US
        else:
            folder = self._cpu.replace(f"{_ROOT}/cpu", f"{_ROOT}/cpuacct", 1)
            used_s = int(self._machine.text(f"{folder}/cpuacct.usage")) / _NS
        cores = self._rates.per_second("cpu", used_s)
        if cores is not None:
            yield Row("container", "CPUUsedCores", "", cores)
        limit = self.cpu_limit(self._cpu)
        if limit is not None:
            yield Row("container", "CPULimitCores", "", limit)

    def _throttled(self) -> Iterator[Row]:
        """Share of the scheduler's periods in which the cgroup had used up its limit."""
        if self.cpu_limit(self._cpu) is None:
            return
        stat = self._fields(f"{self._cpu}/cpu.stat")
        now = stat["nr_periods"], stat["nr_throttled"]
        if self._periods and now[0] > self._periods[0]:
            share = (now[1] - self._periods[1]) / (now[0] - self._periods[0])
            yield Row("container", "CPUThrottledPercentage", "", 100 * share)
        self._periods = now

    def _kills(self) -> Iterator[Row]:
        file = "memory.events" if self.version == 2 else "memory.oom_control"
        if (self._machine.root / self._memory / file).exists():
            fields = self._fields(f"{self._memory}/{file}")
            if "oom_kill" in fields:
                yield Row("container", "OOMKills", "", fields["oom_kill"])

    def _levels(self, controller: str) -> list[str]:
        """Folders of the job's cgroup and of those around it, as far as they can be seen from here."""
        root = _ROOT if self.version == 2 else f"{_ROOT}/{controller}"
        path = self._path("" if self.version == 2 else controller)
        parts = [part for part in path.split("/") if part]
        folders = ["/".join((root, *parts[:length])) for length in range(len(parts), -1, -1)]
        return [folder for folder in folders if (self._machine.root / folder).is_dir()] or [root]

    def _path(self, controller: str) -> str:
        """Path of the job's cgroup for a controller; version 2 has one for all, with an empty name."""
        for line in self._optional(f"proc/{self._machine.pid}/cgroup").split("\n"):
            _, _, rest = line.partition(":")
            names, _, path = rest.partition(":")
            if controller in names.split(","):
                # Of a process in another namespace the path leads up and out of what can be seen.
                return "" if ".." in path else path
        return ""

    def _optional(self, path: str) -> str:
        try:
            return self._machine.text(path).strip()
        except OSError:
            return ""

    def _fields(self, path: str) -> dict[str, int]:
        lines = (line.split() for line in self._machine.text(path).split("\n"))
        return {line[0]: int(line[1]) for line in lines if len(line) == 2}


def _tightest(levels: list[str], limit: Callable[[str], float | None]) -> str:
    """The folder with the lowest limit; the job's own where none has one."""
    limited = [(found, folder) for folder in levels if (found := limit(folder)) is not None]
    return min(limited)[1] if limited else levels[0]
