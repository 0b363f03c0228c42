"""GPU memory over time: a line per GPU, the jumps that GPUMemoryIncrease saw, and the trend over the loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobrules.gpu_memory_increase import GPUMemoryIncrease
    from jobrules.job import Job
    from jobrules.result import Columns


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """The memory of every GPU."""

    #: Rise in points from which GPUMemoryIncrease triggers.
    limit: float


def memory_use(job: Job, rule: GPUMemoryIncrease, grid: Columns) -> MemoryUse | None:
    """The memory of all GPUs; none where it was not sampled."""
    return None
