"""When and where GPUs idled while cores could not go on: over time, in runs, by core, and during what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobrules.cpu_bottleneck import CPUBottleneck
    from jobrules.io_bottleneck import IOBottleneck
    from jobrules.job import Job
    from jobrules.result import Columns


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """The bottlenecks of one kind."""

    #: ``cpu`` or ``io``.
    key: str


def stalls(job: Job, rule: CPUBottleneck | IOBottleneck, grid: Columns) -> Stalls | None:
    """The bottlenecks that a rule looks for; none where no node has samples of GPU and cores."""
    return None
