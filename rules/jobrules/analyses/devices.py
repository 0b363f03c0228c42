"""The use of every GPU and core over time, a row a device, for the heat map and for single lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.analyses.time_lines import Columns, Places
from jobrules.measures.quartiles import shares
from jobrules.model import Metric
from jobrules.model.names import DeviceName, NodeName, OwnText
from jobrules.model.order import quantiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrules.model import FloatArray, Job, Panel

#: A heat map with more columns has less than two or three pixels for each.
MAX_COLUMNS = 300
#: Devices of one node and metric that are kept.
MAX_DEVICES = 512
#: In place of a mean where no sample stands for the column.
NOT_MEASURED = 255
#: Added to the mean of a core's column in which it is full.
FULL = 101
#: A core is full in a column where at least this share of the column's samples is at the limit or above.
FULL_SHARE = 0.5

_KEPT = (Metric.GPU_UTILIZATION, Metric.CPU_UTILIZATION, Metric.GPU_MEMORY_ACTIVITY)


class DeviceRows(Struct, frozen=True, kw_only=True):
    """One metric of the devices of one node over time."""

    node: NodeName
    #: ``gpu_utilization``, ``cpu_utilization`` or ``gpu_memory``, all in percent.
    metric: OwnText
    #: In natural order, 512 at most.
    devices: tuple[DeviceName, ...]
    #: How many more there are.
    left_out: int
    #: Mean of each column in whole percent, 0 to 100, and 101 more where a core is full: at least half of
    #: the column's samples are at ``DeviceGrid.limit`` or above. 255 where it was not measured. A byte a
    #: column, device after device. A fraction of exactly one half goes to the even neighbor.
    values: bytes


class CoreUse(Struct, frozen=True, kw_only=True):
    """The samples of one core over the whole job, in percent rounded to one digit."""

    node: NodeName
    device: DeviceName
    #: Samples.
    n: int
    mean: float
    p50: float
    p95: float
    p99: float
    max: float
    #: Shares of the samples below 10 %, from there to 90 %, and above, rounded so that they add up to 1.000.
    below_10: float
    from_10_to_90: float
    above_90: float
    #: Share of the samples at ``DeviceGrid.limit`` or above, three digits.
    at_limit: float


class DeviceGrid(Struct, frozen=True, kw_only=True):
    """Mean use per device and column."""

    #: Each is a whole number of the columns that all time lines share; 300 at most.
    columns: Columns
    rows: tuple[DeviceRows, ...]
    #: As ``Report.boxes`` has them for GPUs.
    cores: tuple[CoreUse, ...]
    #: Percent from which a core is full: that of CPUBottleneck.
    limit: float


def devices(job: Job, grid: Columns, limit: float) -> DeviceGrid | None:
    """The use of all devices; None where no use was sampled.

    ``grid`` are the columns of the time lines; from ``limit`` on a core is full, in percent.
    """
    if not (job.has(Metric.GPU_UTILIZATION) or job.has(Metric.CPU_UTILIZATION)):
        return None
    columns = grid.bundled(MAX_COLUMNS)
    found = job.gathered(_of_node, columns, limit)
    return DeviceGrid(
        columns=columns,
        rows=tuple(rows for rows, _ in found),
        cores=tuple(core for _, cores in found for core in cores),
        limit=limit,
    )


def _of_node(part: Job, columns: Columns, limit: float) -> Iterator[tuple[DeviceRows, list[CoreUse]]]:
    (node,) = part.nodes
    for metric in _KEPT:
        if panel := part.panel(node, metric):
            yield _of_panel(panel, columns, limit)


def _of_panel(panel: Panel, columns: Columns, limit: float) -> tuple[DeviceRows, list[CoreUse]]:
    devices = panel.devices[:MAX_DEVICES]
    table = np.full((len(devices), columns.count), NOT_MEASURED, np.uint8)
    cores = []
    of_all = Places.of(columns, panel.time_us)
    for column, device in enumerate(devices):
        time_us, values = panel.series(column)
        places = of_all if time_us is panel.time_us else Places.of(columns, time_us)
        means = places.means(values)
        measured = ~np.isnan(means)
        table[column, measured] = np.rint(np.clip(means[measured], 0, 100))
        if panel.metric is Metric.CPU_UTILIZATION:
            table[column, measured & (places.means(values >= limit) >= FULL_SHARE)] += FULL
            cores.append(_core(panel.node, device, values, limit))
    left_out = len(panel.devices) - len(devices)
    rows = DeviceRows(
        node=panel.node, metric=panel.metric, devices=devices, left_out=left_out, values=table.tobytes()
    )
    return rows, cores


def _core(node: str, device: str, values: FloatArray, limit: float) -> CoreUse:
    p50, p95, p99 = quantiles(values, (0.5, 0.95, 0.99)).tolist()
    return CoreUse(
        node=node,
        device=device,
        n=len(values),
        mean=round(float(values.mean()), 1),
        p50=round(p50, 1),
        p95=round(p95, 1),
        p99=round(p99, 1),
        max=round(float(values.max()), 1),
        at_limit=round(float((values >= limit).mean()), 3),
        **shares(values),
    )
