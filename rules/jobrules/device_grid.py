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
    #: Mean of each column in whole percent, 0 to 100, 255 where it was not measured: a byte a column,
    #: device after device. A fraction of exactly one half goes to the even neighbour.
    values: bytes
    #: Mean of each device over its measured columns in whole percents, one digit; none without one.
    means: tuple[float | None, ...]

    @classmethod
    def of(
        cls, node: str, metric: str, devices: Sequence[str], left_out: int, table: npt.NDArray[np.uint8]
    ) -> DeviceRows:
        """From a (devices, columns) table."""
        there = table != NOT_MEASURED
        counts = there.sum(axis=1)
        means = np.where(there, table, 0).sum(axis=1) / np.maximum(counts, 1)
        pairs = zip(np.round(means, 1).tolist(), counts.tolist(), strict=True)
        return cls(
            node=node,
            metric=metric,
            devices=tuple(devices),
            left_out=left_out,
            values=table.tobytes(),
            means=tuple(mean if count else None for mean, count in pairs),
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


@dataclass(frozen=True, kw_only=True)
class DeviceGrid:
    """Mean use per device and column."""

    #: Each is a whole number of the columns that all time lines share; 300 at most.
    columns: Columns
    rows: tuple[DeviceRows, ...]
    #: As ``Report.boxes`` has them for GPUs.
    cores: tuple[CoreUse, ...]
    #: Of the measured columns of all GPUs in ``rows``: those under 10 %, and at 90 % or more, in percent,
    #: one digit; none where no GPU was measured.
    gpus_idle_percent: float | None
    gpus_busy_percent: float | None


def device_grid(job: Job, grid: Columns) -> DeviceGrid | None:
    """The use of all devices; none where no use was sampled.

    ``grid`` are the columns of the time lines.
    """
    if not (job.panels_of(Metric.GPU_USE) or job.panels_of(Metric.CPU_USE)):
        return None
    bundle = -(-grid.count // MOST_COLUMNS)
    columns = Columns(start_us=grid.start_us, width_us=bundle * grid.width_us, count=-(-grid.count // bundle))
    panels = [panel for node in job.nodes for metric in _KEPT if (panel := job.panel(node, metric))]
    rows = tuple(_rows(panel, columns) for panel in panels)
    cores = tuple(core for panel in panels if panel.metric == Metric.CPU_USE for core in _cores(panel))
    idle, busy = idle_and_busy(rows)
    return DeviceGrid(columns=columns, rows=rows, cores=cores, gpus_idle_percent=idle, gpus_busy_percent=busy)


def idle_and_busy(rows: Sequence[DeviceRows]) -> tuple[float | None, float | None]:
    """The measured columns of all GPUs under 10 %, and at 90 % or more, in percent; none without any."""
    values = np.frombuffer(b"".join(one.values for one in rows if one.metric == Metric.GPU_USE), np.uint8)
    values = values[values != NOT_MEASURED]
    if not len(values):
        return None, None
    idle, busy = (round(100 * float(part.mean()), 1) for part in (values < 10, values >= 90))
    return idle, busy


def _rows(panel: Panel, columns: Columns) -> DeviceRows:
    values = panel.values[:, :MOST_DEVICES]
    whole = ~np.isnan(values).any(axis=0)
    means = np.empty((values.shape[1], columns.count))
    if whole.any():
        means[whole] = _means(columns, panel.time_us, values if whole.all() else values[:, whole])
    for device in np.flatnonzero(~whole):
        time_us, own = panel.series(int(device))
        means[device] = _means(columns, time_us, own[:, None])[0]
    measured = ~np.isnan(means)
    percent = np.full(means.shape, NOT_MEASURED, np.uint8)
    percent[measured] = np.rint(np.clip(means[measured], 0, 100)).astype(np.uint8)
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


def _cores(panel: Panel) -> Iterator[CoreUse]:
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
            **shares(np.sort(values)),
        )
