"""Processes of the job, and free space of the file systems that it may fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from msgspec import Struct

from jobrules.model import Job, Metric
from jobrules.model.names import Name, NodeName

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Processes of a node that are kept: those with most CPU time.
MAX_PROCESSES = 16
#: Rows of each table.
MAX_ROWS = 64


class ProcessUse(Struct, frozen=True, kw_only=True):
    """A process of the job, or all loader processes of a rank."""

    node: NodeName
    #: Rank or process number, or ``loaders-<rank>``.
    name: Annotated[str, Name("process")]
    samples: int
    #: Percent of one core; None for a process that ended before its second sample.
    cpu_mean: float | None
    cpu_max: float | None
    #: Bytes.
    memory_max: float | None
    threads_max: float | None


class FileSystem(Struct, frozen=True, kw_only=True):
    """Free bytes of a file system."""

    node: NodeName
    #: Mount point.
    name: Annotated[str, Name("mount")]
    first: float
    lowest: float
    last: float


class HostUse(Struct, frozen=True, kw_only=True):
    """What the job's processes and files used of its nodes."""

    processes: tuple[ProcessUse, ...]
    #: Processes that are left out.
    more_processes: int
    file_systems: tuple[FileSystem, ...]


def host(job: Job) -> HostUse | None:
    """Processes and file systems; None if neither was sampled."""
    if not (job.has(Metric.PROCESS_MEMORY) or job.has(Metric.FREE_SPACE)):
        return None
    found = job.each(_of_node)
    processes = [one for node in found for one in node.processes]
    return HostUse(
        processes=tuple(processes[:MAX_ROWS]),
        more_processes=sum(node.more_processes for node in found) + len(processes[MAX_ROWS:]),
        file_systems=tuple(one for node in found for one in node.file_systems)[:MAX_ROWS],
    )


def _of_node(part: Job) -> HostUse:
    (node,) = part.nodes
    processes = list(_processes(part, node))
    busiest = sorted(processes, key=lambda one: -one.samples * (one.cpu_mean or 0.0))[:MAX_PROCESSES]
    return HostUse(
        processes=tuple(one for one in processes if one in busiest),
        more_processes=len(processes) - len(busiest),
        file_systems=tuple(_file_systems(part)),
    )


def _processes(part: Job, node: str) -> Iterator[ProcessUse]:
    memory = part.panel(node, Metric.PROCESS_MEMORY)
    cpu, threads = (_by_device(part, node, one) for one in (Metric.PROCESS_CPU, Metric.PROCESS_THREADS))
    for column, name in enumerate(memory.devices if memory else ()):
        _, resident = memory.series(column) if memory else (None, np.empty(0))
        used, counted = cpu.get(name), threads.get(name)
        yield ProcessUse(
            node=node,
            name=name,
            samples=len(resident),
            cpu_mean=None if used is None else round(float(np.nanmean(used)), 1),
            cpu_max=None if used is None else float(np.nanmax(used)),
            memory_max=float(resident.max()),
            threads_max=None if counted is None else float(np.nanmax(counted)),
        )


def _by_device(part: Job, node: str, metric: Metric) -> dict[str, np.ndarray]:
    panel = part.panel(node, metric)
    return dict(zip(panel.devices, panel.values.T, strict=True)) if panel else {}


def _file_systems(part: Job) -> Iterator[FileSystem]:
    for panel in part.panels_of(Metric.FREE_SPACE):
        for column, name in enumerate(panel.devices):
            _, free = panel.series(column)
            yield FileSystem(
                node=panel.node,
                name=name,
                first=float(free[0]),
                lowest=float(free.min()),
                last=float(free[-1]),
            )
