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

#: Values of a heat map with a column for each sample: each takes about a byte of the page.
MAX_VALUES = 200_000
#: What the lines of single devices take of the page, in rows of the heat map.
_LINES = 16
#: Columns where the samples are more.
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
    #: Sample or mean of each column in whole percent, 0 to 100, and 101 more where a core is full: at least half of
    #: the column's samples are at ``DeviceGrid.limit`` or above. 255 where it was not measured. A byte a
    #: column, device after device. A fraction of exactly one half goes to the even neighbor.
    values: bytes
    #: Lowest and highest sample of each column in whole percent, likewise; empty where a column is a sample, or where
    #: they would be too many.
    low: bytes = b""
    high: bytes = b""


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
    """Use per device and column."""

    #: One for each sample where these fit the page; otherwise 300 at most, each a whole number of the columns that all time
    #: lines share.
    columns: Columns
    #: Whether a column is a sample: the one nearest to its start.
    samples: bool = False
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
    columns = _of_samples(job)
    found = job.gathered(_of_node, columns or grid.bundled(MAX_COLUMNS), limit, columns is not None)
    return DeviceGrid(
        columns=columns or grid.bundled(MAX_COLUMNS),
        samples=columns is not None,
        rows=tuple(rows for rows, _ in found),
        cores=tuple(core for _, cores in found for core in cores),
        limit=limit,
    )


def _of_samples(job: Job) -> Columns | None:
    """A column for each sample of the device that was sampled most often; None if these are too many."""
    panels = [panel for part in job.facts for panel in part.panels if panel.metric in _KEPT]
    width_us = min((panel.interval_us for panel in panels if panel.interval_us), default=0)
    start_us, end_us = job.span_us
    if not width_us:
        return None
    columns = Columns(start_us=start_us, width_us=width_us, count=round((end_us - start_us) / width_us) + 1)
    rows = sum(min(len(panel.devices), MAX_DEVICES) for panel in panels)
    return columns if (rows + _LINES) * columns.count <= MAX_VALUES else None


def _of_node(
    part: Job, columns: Columns, limit: float, samples: bool
) -> Iterator[tuple[DeviceRows, list[CoreUse]]]:
    (node,) = part.nodes
    for metric in _KEPT:
        if panel := part.panel(node, metric):
            yield _of_panel(panel, columns, limit, samples=samples)


def _of_panel(
    panel: Panel, columns: Columns, limit: float, *, samples: bool
) -> tuple[DeviceRows, list[CoreUse]]:
    devices = panel.devices[:MAX_DEVICES]
    table = np.full((3, len(devices), columns.count), NOT_MEASURED, np.uint8)
    with_ends = not samples and table.size <= MAX_VALUES
    cores = []
    # Samples are never exactly an interval apart: a column has those nearer to its start than to the next one's.
    early = columns.width_us // 2 if samples else 0
    grid = Columns(start_us=columns.start_us - early, width_us=columns.width_us, count=columns.count)
    of_all = Places.of(grid, panel.time_us)
    for column, device in enumerate(devices):
        time_us, values = panel.series(column)
        places = of_all if time_us is panel.time_us else Places.of(grid, time_us)
        means = places.means(values)
        measured = ~np.isnan(means)
        wanted = (means, *places.ends(values)) if with_ends else (means,)
        for kept, one in zip(table, wanted, strict=False):
            kept[column, measured] = np.rint(np.clip(one[measured], 0, 100))
        if panel.metric is Metric.CPU_UTILIZATION:
            table[0, column, measured & (places.means(values >= limit) >= FULL_SHARE)] += FULL
            cores.append(_core(panel.node, device, values, limit))
    left_out = len(panel.devices) - len(devices)
    mean, low, high = (one.tobytes() for one in table)
    rows = DeviceRows(
        node=panel.node,
        metric=panel.metric,
        devices=devices,
        left_out=left_out,
        values=mean,
        low=low if with_ends else b"",
        high=high if with_ends else b"",
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
