"""Cores that a job may use, where the CPU limit of its container leaves it fewer than the machine has.

A container with a limit of 4 cores on a machine of 96 may run on all of them: each looks nearly idle while the job has all
that it may have. So the job's CPU utilization is that of 4 cores, made from what the container used.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Panel

#: A job that uses this part of a core more than k cores may saturate k + 1 of them.
_PART_OF_A_CORE = 0.9


def with_allowed_cores(panels: Sequence[Panel]) -> tuple[Panel, ...]:
    """The panels of a node; with a CPU limit below its number of cores, its CPU utilization is that of the allowed ones.

    That of all cores is kept as that of the machine.
    """
    known = {panel.metric: panel for panel in panels}
    cores, used = known.get(Metric.CPU_UTILIZATION), known.get(Metric.CONTAINER_CPU)
    limits = known.get(Metric.CONTAINER_CPU_LIMIT)
    if cores is None or used is None or limits is None:
        return tuple(panels)
    limit = float(np.median(limits.values))
    if not 0 < limit < len(cores.devices):
        return tuple(panels)
    known[Metric.CPU_UTILIZATION] = _allowed(cores, used, limit)
    known[Metric.MACHINE_CPU] = replace(cores, metric=Metric.MACHINE_CPU)
    return tuple(known[metric] for metric in Metric if metric in known)


def _allowed(cores: Panel, used: Panel, limit: float) -> Panel:
    """As many cores as the limit allows, the busiest first.

    Each has the share of the limit that is in use, since time on any core counts; or, if it is higher, the utilization
    of one of the machine's busiest cores, of as many as the job used: one process may keep one core saturated.
    """
    count = math.ceil(limit)
    # A reading is the mean of the time since the one before.
    covering = np.minimum(np.searchsorted(used.time_us, cores.time_us), len(used.time_us) - 1)
    in_use = used.values[covering, 0]
    share = np.clip(100 * in_use / limit, 0.0, 100.0)[:, None]
    busiest = -np.sort(-cores.values, axis=1)[:, :count]
    on_them = in_use[:, None] >= np.arange(count) + _PART_OF_A_CORE
    return replace(
        cores,
        devices=tuple(f"cpu{number}" for number in range(count)),
        values=np.asfortranarray(np.where(on_them, np.fmax(busiest, share), share)),
    )
