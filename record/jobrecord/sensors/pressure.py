"""Share of time in which some process waited for CPU, I/O, or memory: the kernel's pressure stall information."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jobrecord.files import Row
from jobrecord.sensors.base import Rates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrecord.sensors.base import Machine
    from jobrecord.sensors.containers import Container

_NAMES = {"CPU": "cpu", "IO": "io", "Memory": "memory"}
_SECOND_US = 1_000_000


class Pressure:
    """Of the job's cgroup where it has such files, else of the machine; no rows on a kernel without."""

    every_s = 1.0

    def __init__(self, machine: Machine, container: Container) -> None:
        self._machine = machine
        self._rates = Rates(machine.clock)
        of_cgroup = {name: f"{container.folder}/{file}.pressure" for name, file in _NAMES.items()}
        of_machine = {name: f"proc/pressure/{file}" for name, file in _NAMES.items()}
        is_cgroup = container.version == 2 and (machine.root / of_cgroup["CPU"]).exists()
        self._files = of_cgroup if is_cgroup else of_machine
        machine.facts["pressure"] = "cgroup" if is_cgroup else "host"

    def rows(self) -> Iterator[Row]:
        """Shares since the reading before, in percent."""
        for name, file in self._files.items():
            try:
                match = re.search(r"^some .*total=([0-9]+)", self._machine.text(file), re.MULTILINE)
            except OSError as error:
                self._machine.left_out.add(f"pressure {name}", error.strerror or str(error))
                continue
            rate = self._rates.per_second(name, int(match[1])) if match else None
            if rate is not None:
                yield Row("pressure", name, "SomePercentage", min(100.0, 100 * rate / _SECOND_US))
