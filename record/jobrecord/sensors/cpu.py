"""CPU utilization and I/O wait of each core, from ``/proc/stat``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jobrecord.files import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jobrecord.sensors.base import Machine

_IDLE, _IO_WAIT = 3, 4
#: user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user.
_FIELDS = 8


def shares(before: Sequence[int], now: Sequence[int]) -> tuple[float, float] | None:
    """Utilization and I/O wait in percent between two readings of a core; None if no time passed.

    Waiting for I/O is no use of a core. A counter that falls, which kernels show for idle and I/O wait, counts as
    unchanged.
    """
    grown = [b - a for a, b in zip(before[:_FIELDS], now[:_FIELDS], strict=True)]
    if min(grown) < 0:
        grown = [max(0, one) for one in grown]
    total = sum(grown)
    if not total:
        return None
    return 100 * (1 - (grown[_IDLE] + grown[_IO_WAIT]) / total), 100 * grown[_IO_WAIT] / total


class Cores:
    """Rows of each core that the job may use; of all cores with `all_cores`."""

    every_s = 0.0

    def __init__(self, machine: Machine, *, all_cores: bool = False) -> None:
        self._machine = machine
        self._all = all_cores
        self._before: dict[str, list[int]] = {}
        self._names: dict[str, bool] = {}

    def rows(self) -> Iterable[Row]:
        """Utilization and I/O wait since the reading before."""
        now = dict(_cores(self._machine.text("proc/stat")))
        if now.keys() != self._names.keys():
            self._choose(now)
        for name, times in now.items():
            before = self._before.get(name)
            if self._names[name] and before and (found := shares(before, times)):
                yield Row("cpu", name, "CPUUtilization", found[0])
                yield Row("cpu", name, "I/OWaitPercentage", found[1])
        self._before = now

    def _choose(self, cores: Iterable[str]) -> None:
        """Cores to write: those of the affinity of the job's process, if they are fewer than all."""
        names = list(cores)
        try:
            allowed = {f"cpu{number}" for number in os.sched_getaffinity(self._machine.pid)} & {*names}
        except OSError as error:
            allowed = set()
            self._machine.left_out.add("affinity", error.strerror or str(error))
        self._machine.facts.setdefault("cores", {}).update(host=len(names), affinity=len(allowed or names))
        chosen = set(names) if self._all or not allowed else allowed
        self._names = {name: name in chosen for name in names}


def _cores(text: str) -> Iterator[tuple[str, list[int]]]:
    for line in text.split("\n"):
        if not line.startswith("cpu"):
            # Lines of cores come first; the ones after them are long.
            return
        name, *times = line.split()
        if name != "cpu" and len(times) >= _FIELDS:
            yield name, [int(time) for time in times[:_FIELDS]]
