"""Sensors: what each family reads, and how it becomes rows. `all_sensors` lists those of this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jobrecord.sensors.base import LeftOut, Machine, Sensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobrecord.settings import Settings

__all__ = ["LeftOut", "Machine", "Sensor", "all_sensors"]


def all_sensors(settings: Settings, machine: Machine, environment: Mapping[str, str]) -> list[Sensor]:
    """Sensors of this machine for the processes below `machine.pid`."""
    from jobrecord.sensors import drivers, space  # noqa: PLC0415 - each system imports its own

    shared: list[Sensor] = [
        *drivers.sensors(settings, machine, environment),
        space.Space(settings.out, machine),
    ]
    if sys.platform != "linux":
        from jobrecord.sensors import portable  # noqa: PLC0415

        return [*portable.sensors(), *shared]
    from jobrecord.sensors import (  # noqa: PLC0415
        containers,
        cpu,
        disks,
        memory,
        network,
        pressure,
        processes,
    )

    container = containers.Container(machine)
    return [
        cpu.Cores(machine, all_cores=settings.all_cores),
        memory.MemoryUse(machine, container),
        memory.MemoryBytes(machine, container),
        disks.Disks(machine),
        network.Interfaces(machine),
        network.RDMA(machine),
        container,
        pressure.Pressure(machine, container),
        processes.Processes(machine),
        *shared,
    ]
