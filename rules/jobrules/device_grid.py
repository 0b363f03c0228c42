"""The use of every GPU and core over time, a row a device, for the heat map and for single lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from jobrules.boxplot import shares
from jobrules.job import Metric
from jobrules.result import Columns
from jobrules.timelines import reduce

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.job import FloatArray, IntArray, Job, Panel

#: A heat map with more columns has less than two or three pixels for each.
MOST_COLUMNS = 300
#: Devices of one node and metric that are kept.
MOST_DEVICES = 512
#: In place of a mean where no sample stands for the column.
NOT_MEASURED = 255
#: Added to the mean of a core's column in which it is full.
FULL = 101
#: A core is full in a column where at least this share of the column's samples is at the limit or above.
FULL_SHARE = 0.5

_KEPT = (Metric.GPU_USE, Metric.CPU_USE, Metric.GPU_MEMORY)


@dataclass(frozen=True, kw_only=True)
class DeviceRows:
    """One metric of the devices of one node over time."""

    node: str
    #: ``gpu_utilization``, ``cpu_utilization`` or ``gpu_memory``, all in percent.
    metric: str
    #: In natural order, 512 at most.
    devices: tuple[str, ...]
    #: How many more there are.
    left_out: int
    #: Mean of each column in whole percent, 0 to 100, and 101 more where a core is full: at least half of
    #: the column's samples are at ``DeviceGrid.limit`` or above. 255 where it was not measured. A byte a
    #: column, device after device. A fraction of exactly one half goes to the even neighbour.
    values: bytes

    @classmethod
    def of(
        cls, node: str, metric: str, devices: Sequence[str], left_out: int, table: npt.NDArray[np.uint8]
    ) -> DeviceRows:
        """From a (devices, columns) table."""
        return cls(
            node=node,
            metric=metric,
            devices=tuple(devices),
            left_out=left_out,
            values=table.tobytes(),
        )


@dataclass(frozen=True, kw_only=True)
class CoreUse:
    """The samples of one core over the whole job, in percent rounded to one digit."""

    node: str
    device: str
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


@dataclass(frozen=True, kw_only=True)
class DeviceGrid:
    """Mean use per device and column."""

    #: Each is a whole number of the columns that all time lines share; 300 at most.
    columns: Columns
    rows: tuple[DeviceRows, ...]
    #: As ``Report.boxes`` has them for GPUs.
    cores: tuple[CoreUse, ...]
    #: Percent from which a core is full: that of CPUBottleneck.
    limit: float


def device_grid(job: Job, grid: Columns, limit: float) -> DeviceGrid | None:
    """The use of all devices; none where no use was sampled.

    ``grid`` are the columns of the time lines; from ``limit`` on a core is full, in percent.
    """
    if not (job.panels_of(Metric.GPU_USE) or job.panels_of(Metric.CPU_USE)):
        return None
    bundle = -(-grid.count // MOST_COLUMNS)
    columns = Columns(start_us=grid.start_us, width_us=bundle * grid.width_us, count=-(-grid.count // bundle))
    panels = [panel for node in job.nodes for metric in _KEPT if (panel := job.panel(node, metric))]
    rows = tuple(_rows(panel, columns, limit) for panel in panels)
    cores = tuple(core for panel in panels if panel.metric == Metric.CPU_USE for core in _cores(panel, limit))
    return DeviceGrid(columns=columns, rows=rows, cores=cores, limit=limit)


def _rows(panel: Panel, columns: Columns, limit: float) -> DeviceRows:
    values = panel.values[:, :MOST_DEVICES]
    whole = ~np.isnan(values).any(axis=0)
    means, full = np.empty((2, values.shape[1], columns.count))
    if whole.any():
        own = values if whole.all() else values[:, whole]
        means[whole] = _means(columns, panel.time_us, own)
        full[whole] = _means(columns, panel.time_us, (own >= limit).astype(np.float64))
    for device in np.flatnonzero(~whole):
        time_us, one = panel.series(int(device))
        means[device] = _means(columns, time_us, one[:, None])[0]
        full[device] = _means(columns, time_us, (one[:, None] >= limit).astype(np.float64))[0]
    measured = ~np.isnan(means)
    percent = np.full(means.shape, NOT_MEASURED, np.uint8)
    percent[measured] = np.rint(np.clip(means[measured], 0, 100)).astype(np.uint8)
    if panel.metric == Metric.CPU_USE:
        percent[measured & (full >= FULL_SHARE)] += FULL
    left_out = max(0, len(panel.devices) - MOST_DEVICES)
    return DeviceRows.of(panel.node, panel.metric, panel.devices[:MOST_DEVICES], left_out, percent)


def _means(columns: Columns, time_us: IntArray, values: FloatArray) -> npt.NDArray[np.float64]:
    """(devices, columns) means of (n, devices) samples without a gap; held as ``timelines.reduce`` holds them."""
    number = np.arange(len(time_us), dtype=np.float64)
    # The lowest number of a sample in each column: where the samples that stand for it begin.
    _, first, _ = reduce(columns, time_us, number, number, number)
    held = ~np.isnan(first)
    starts, place = np.unique(first[held].astype(np.intp), return_inverse=True)
    counts = np.diff(starts, append=len(time_us))
    means = np.full((values.shape[1], columns.count), np.nan)
    means[:, held] = (np.add.reduceat(values, starts, axis=0) / counts[:, None]).T[:, place]
    return means


def _cores(panel: Panel, limit: float) -> Iterator[CoreUse]:
    for device, name in enumerate(panel.devices[:MOST_DEVICES]):
        _, values = panel.series(device)
        p50, p95, p99 = np.quantile(values, (0.5, 0.95, 0.99)).tolist()
        yield CoreUse(
            node=panel.node,
            device=name,
            n=len(values),
            mean=round(float(values.mean()), 1),
            p50=round(p50, 1),
            p95=round(p95, 1),
            p99=round(p99, 1),
            max=round(float(values.max()), 1),
            at_limit=round(float((values >= limit).mean()), 3),
            **shares(np.sort(values)),
        )
