"""CPU, memory, and threads of the job's processes."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from jobrecord.files import Row
from jobrecord.sensors.base import Rates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrecord.sensors.base import Machine

#: Thread name of PyTorch's loader processes.
_LOADER = "pt_data_worker"
_MAX_ROWS = 256


class Process(NamedTuple):
    """One process as ``/proc/<pid>/stat`` shows it."""

    pid: int
    parent: int
    name: str
    cpu_s: float
    threads: int
    resident_bytes: int


def tree(machine: Machine) -> list[Process]:
    """The job's process and all below it; processes that cannot be read are left out."""
    children = defaultdict(list)
    for folder in (machine.root / "proc").iterdir():
        if folder.name.isdecimal() and (process := _read(machine, int(folder.name))):
            children[process.parent].append(process)
            if process.pid == machine.pid:
                children[-1].append(process)
    found = children[-1]
    for process in found:
        found.extend(children[process.pid])
    return found


def _read(machine: Machine, pid: int) -> Process | None:
    try:
        text = machine.text(f"proc/{pid}/stat")
        # The name stands in parentheses and may hold any character.
        begin, end = text.index("("), text.rindex(")")
        fields = text[end + 2 :].split()
        return Process(
            pid=pid,
            parent=int(fields[1]),
            name=text[begin + 1 : end],
            cpu_s=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
            threads=int(fields[17]),
            resident_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        )
    except (OSError, ValueError, IndexError):
        return None


class Processes:
    """Rows of each process of the job, by rank or process number; loader processes as one sum for their parent."""

    every_s = 5.0

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._rates = Rates(machine.clock)
        self._ranks: dict[int, str] = {}

    def rows(self) -> Iterator[Row]:
        """CPU in percent of one core, resident bytes, threads."""
        groups = defaultdict(list)
        for process in tree(self._machine):
            if process.name.startswith(_LOADER):
                groups[f"loaders-{self._rank(process.parent)}"].append(process)
            else:
                groups[self._rank(process.pid)].append(process)
        for name, processes in list(groups.items())[:_MAX_ROWS]:
            cpu = self._rates.sum_per_second({f"{process.pid}": process.cpu_s for process in processes})
            if cpu is not None:
                yield Row("process", name, "CPUUtilization", 100 * cpu)
            resident = sum(process.resident_bytes for process in processes)
            yield Row("process", name, "ResidentBytes", resident)
            yield Row("process", name, "Threads", sum(process.threads for process in processes))

    def _rank(self, pid: int) -> str:
        """``RANK`` of the process's environment, else its number."""
        if pid not in self._ranks:
            try:
                variables = self._machine.text(f"proc/{pid}/environ").split("\0")
            except OSError:
                variables = []
            rank = next((text[5:] for text in variables if text.startswith("RANK=")), "")
            self._ranks[pid] = rank if rank.isdecimal() else str(pid)
        return self._ranks[pid]
