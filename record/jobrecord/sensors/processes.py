"""CPU, memory, and threads of the job's processes."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from jobrecord.files import Row
from jobrecord.sensors.base import Rates
from jobrecord.settings import PREFIX

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
    #: Of the processes below it that ended and were waited for.
    ended_s: float
    threads: int
    resident_bytes: int


def of_job(machine: Machine) -> list[Process]:
    """The job's process, those with the name of its run in their environment, and all below them, but the sampler.

    By its run a process belongs to the job that left its parents, or that a scheduler started in a step of its own.
    Processes that cannot be read are left out.
    """
    children = defaultdict(list)
    pids = [int(folder.name) for folder in (machine.root / "proc").iterdir() if folder.name.isdecimal()]
    for pid in pids:
        if pid != os.getpid() and (process := _read(machine, pid)):
            in_job = pid == machine.pid or _has_run(machine, pid)
            children[-1 if in_job else process.parent].append(process)
    for pid in machine.seen.keys() - pids:
        del machine.seen[pid]
    found = children[-1]
    for process in found:
        found.extend(children[process.pid])
    return found


def _has_run(machine: Machine, pid: int) -> bool:
    if machine.run and pid not in machine.seen:
        machine.seen[pid] = f"{PREFIX}RUN={machine.run}" in _variables(machine, pid)
    return machine.seen.get(pid, False)


def _variables(machine: Machine, pid: int) -> list[str]:
    """Variables that a process was started with; none if they may not be read."""
    try:
        return machine.text(f"proc/{pid}/environ").split("\0")
    except OSError:
        return []


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
            ended_s=(int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK"),
            threads=int(fields[17]),
            resident_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        )
    except (OSError, ValueError, IndexError):
        return None


class Processes:
    """Rows of each process of the job, by rank or process number; loader processes as one sum for their parent.

    The sum over the job also counts processes that begin and end between two readings: their time goes to their parents.
    """

    every_s = 5.0

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._rates = Rates(machine.clock)
        self._ranks: dict[int, str] = {}

    def rows(self) -> Iterator[Row]:
        """CPU in percent of one core, resident bytes, threads; and the cores that the whole job uses."""
        groups = defaultdict(list)
        every = of_job(self._machine)
        # The number of a process that has ended is some day another's.
        pids = {process.pid for process in every}
        self._rates.keep({"job", *map(str, pids)})
        self._ranks = {pid: rank for pid, rank in self._ranks.items() if pid in pids}
        total_s = sum(process.cpu_s + process.ended_s for process in every)
        if (cores := self._rates.per_second("job", total_s)) is not None:
            yield Row("process", "job", "CPUUsedCores", cores)
        for process in every:
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
            variables = _variables(self._machine, pid)
            rank = next((text[5:] for text in variables if text.startswith("RANK=")), "")
            self._ranks[pid] = rank if rank.isdecimal() else str(pid)
        return self._ranks[pid]
