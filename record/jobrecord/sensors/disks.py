"""Operations and traffic of whole disks, from ``/sys/block``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobrecord.files import Row
from jobrecord.sensors.base import Rates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrecord.sensors.base import Machine

_SECTOR = 512
#: Name of the row, and its fields of ``stat`` (operations read and written, sectors read and written).
_FIELDS = {
    "IOPS": ((0, 4), 1),
    "ReadThroughputInBytesPerSecond": ((2,), _SECTOR),
    "WriteThroughputInBytesPerSecond": ((6,), _SECTOR),
}


class Disks:
    """Sums over the disks of the machine.

    Partitions, dm, md and loop devices have no ``device``; their traffic would count twice.
    """

    every_s = 0.0

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._rates = Rates(machine.clock)

    def rows(self) -> Iterator[Row]:
        """Rates since the reading before."""
        folder = self._machine.root / "sys/block"
        disks = [disk.name for disk in folder.iterdir() if (disk / "device").exists()]
        stats = {disk: self._machine.text(f"sys/block/{disk}/stat").split() for disk in sorted(disks)}
        for name, (fields, factor) in _FIELDS.items():
            counts = {
                f"{disk} {name}": factor * sum(int(stat[field]) for field in fields)
                for disk, stat in stats.items()
            }
            rate = self._rates.sum_per_second(counts)
            if rate is not None:
                yield Row("i/o", name, "", rate)
