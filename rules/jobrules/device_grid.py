"""The use of every GPU and core over time, a row a device, for the heat map and for single lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobrules.result import Columns

if TYPE_CHECKING:
    from jobrules.job import Job


@dataclass(frozen=True, kw_only=True)
class DeviceGrid:
    """Mean use per device and column."""

    columns: Columns


def device_grid(job: Job, grid: Columns) -> DeviceGrid | None:
    """The use of all devices; none where no use was sampled."""
    return None
