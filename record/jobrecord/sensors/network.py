"""Traffic of network interfaces, and of RDMA ports, which no interface counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobrecord.files import Row
from jobrecord.sensors.base import Rates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrecord.sensors.base import Machine

_RECEIVE, _TRANSMIT = "ReceiveBytesPerSecond", "TransmitBytesPerSecond"
#: Fields of ``/proc/net/dev`` behind the name.
_FIELDS = {_RECEIVE: 0, _TRANSMIT: 8}
#: Counters of a port, in units of four bytes.
_RDMA = {_RECEIVE: "port_rcv_data", _TRANSMIT: "port_xmit_data"}
_RDMA_BYTES = 4


class Interfaces:
    """Sums over the interfaces of the machine, or of the container that has a network of its own."""

    every_s = 0.0

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._rates = Rates(machine.clock)

    def rows(self) -> Iterator[Row]:
        """Rates since the reading before."""
        lines = [
            line.partition(":") for line in self._machine.text("proc/net/dev").split("\n") if ":" in line
        ]
        counts = {name.strip(): fields.split() for name, _, fields in lines}
        counts.pop("lo", None)
        # Bridges and virtual interfaces repeat the traffic of the real ones; a container has only virtual ones.
        devices = self._machine.root / "sys/class/net"
        real = {name for name in counts if (devices / name / "device").exists()}
        for row, field in _FIELDS.items():
            chosen = {f"{name} {row}": int(counts[name][field]) for name in sorted(real or counts)}
            rate = self._rates.sum_per_second(chosen)
            if rate is not None:
                yield Row("network", row, "Algorithm", rate)


class RDMA:
    """Sums over the RDMA ports; no rows where there are none."""

    every_s = 0.0

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._rates = Rates(machine.clock)
        folder = machine.root / "sys/class/infiniband"
        self._ports = [port.relative_to(machine.root) for port in sorted(folder.glob("*/ports/*/counters"))]

    def rows(self) -> Iterator[Row]:
        """Rates since the reading before."""
        for row, counter in _RDMA.items():
            counts = {
                f"{port} {row}": _RDMA_BYTES * (self._machine.number(f"{port}/{counter}") or 0)
                for port in self._ports
            }
            rate = self._rates.sum_per_second(counts)
            if rate is not None:
                yield Row("network", row, "RDMA", rate)
