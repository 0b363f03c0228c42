"""Metrics over time, reduced to a few hundred columns whatever the job's length."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from jobrules.measures.quartiles import oddness
from jobrules.measures.sample_weights import pauses
from jobrules.model import SECOND_US, FloatArray, IntArray, Job, Metric, Panel
from jobrules.model.names import DeviceName, NodeName, OwnText


class DeviceLine(Struct, frozen=True, kw_only=True):
    """The mean of one device per column."""

    device: DeviceName
    mean: tuple[float | None, ...]


class Apart(Struct, frozen=True, kw_only=True):
    """The devices of a node that differ from most, each by itself, and the others together as in ``TimeLine``."""

    devices: tuple[DeviceLine, ...]
    mean: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]


class TimeLine(Struct, frozen=True, kw_only=True):
    """A metric of one node over time, reduced to columns so that every peak survives.

    The lists hold one entry a column; none means that the column has no sample. The columns of
    all time lines of a job are the same.
    """

    node: NodeName
    #: The metric's key, as ``gpu_utilization`` or ``network_receive``.
    key: OwnText
    label: OwnText
    unit: OwnText
    devices: int
    mean: tuple[float | None, ...]
    #: Lowest and highest sample of any device in the column; of throttle reasons, which hold or not, the
    #: lowest and highest mean of a device.
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    #: Mean of the samples if known, otherwise of the columns; lowest and highest sample; None without any.
    average: float | None
    lowest: float | None
    highest: float | None
    #: Columns without a sample, in percent of all, one digit.
    missing_percent: float
    #: Of power, temperature, clock, and throttle reasons, if a GPU of the node differs in one of them.
    apart: Apart | None = None


class Columns(Struct, frozen=True, kw_only=True):
    """The time columns that all time lines share: column i starts at ``start_us + i * width_us``."""

    start_us: int
    width_us: int
    count: int

    @classmethod
    def of(cls, start_us: int, end_us: int, least_us: float, finest_s: float = 0.1) -> Columns:
        """The narrowest columns of a nameable width of at least ``least_us`` that hold both times."""
        hours_us = math.ceil(least_us / (3600 * SECOND_US)) * 3600 * SECOND_US
        widths_us = [round(width_s * SECOND_US) for width_s in _WIDTHS_S if width_s >= finest_s]
        width_us = next((width_us for width_us in widths_us if width_us >= least_us), hours_us)
        return cls(start_us=start_us, width_us=width_us, count=(end_us - start_us) // width_us + 1)

    def bundled(self, most: int) -> Columns:
        """At most so many columns, each of equally many of these."""
        size = -(-self.count // most)
        return Columns(start_us=self.start_us, width_us=size * self.width_us, count=-(-self.count // size))


#: More columns than a figure has pixels show nothing more.
MAX_COLUMNS = 600

#: Column widths that a reader can name, in seconds; over an hour, whole hours.
_WIDTHS_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600),
)

#: 100 while the reason holds and 0 otherwise: a column shows the share of time, and no single sample.
_REASONS = (Metric.GPU_THERMAL_SLOWDOWN, Metric.GPU_POWER_CAP, Metric.GPU_HARDWARE_SLOWDOWN)

#: Of these, GPUs that differ have a line of their own, two at most.
_STATES = (Metric.GPU_POWER, Metric.GPU_TEMPERATURE, Metric.GPU_CLOCK, *_REASONS)
MAX_APART = 2
#: What GPUs differ by at least: points of a percentage, or else a part of the median.
_LEAST_POINTS, _LEAST_PART = 10.0, 0.1

#: Whole numbers of these are what a figure can show; of the others, tenths.
_WHOLE = ("B", "B/s", "MHz")

_DRAWN = (
    Metric.GPU_UTILIZATION,
    Metric.GPU_SM_ACTIVITY,
    Metric.GPU_TENSOR_ACTIVITY,
    Metric.CPU_UTILIZATION,
    Metric.CONTAINER_CPU_THROTTLED,
    Metric.CPU_PRESSURE,
    Metric.GPU_MEMORY_ACTIVITY,
    Metric.GPU_DRAM_ACTIVITY,
    Metric.IO_WAIT,
    Metric.IO_PRESSURE,
    Metric.HOST_MEMORY,
    Metric.MEMORY_PRESSURE,
    Metric.NETWORK_RECEIVE,
    Metric.NETWORK_TRANSMIT,
    Metric.GPU_MEMORY_USED,
    Metric.GPU_MEMORY_TOTAL,
    Metric.GPU_POWER,
    Metric.GPU_POWER_LIMIT,
    Metric.GPU_TEMPERATURE,
    Metric.GPU_CLOCK,
    *_REASONS,
)


def columns(job: Job) -> Columns:
    """The narrowest nameable width that parts the job into at most 600 and holds two samples.

    Where it divides the job evenly, the last moment opens one column more.
    """
    start_us, end_us = job.span_us
    return Columns.of(start_us, end_us, max((end_us - start_us) / MAX_COLUMNS, 2 * job.interval_us))


def time_lines(job: Job, grid: Columns, nodes: Sequence[str] | None = None) -> tuple[TimeLine, ...]:
    """Mean, lowest and highest sample per column, for the nodes named or for all."""
    wanted = tuple(job.nodes if nodes is None else nodes)
    return tuple(sorted(job.gathered(_lines, grid, wanted), key=lambda line: wanted.index(line.node)))


def _lines(part: Job, grid: Columns, wanted: Collection[str]) -> Iterator[TimeLine]:
    (node,) = part.nodes
    panels = {metric: part.panel(node, metric) for metric in _DRAWN} if node in wanted else {}
    odd = _odd([panel for metric in _STATES if (panel := panels.get(metric))])
    for metric, panel in panels.items():
        if panel is None:
            continue
        digits = 0 if metric.unit in _WHOLE else 1
        mean, low, high = (known(one, digits) for one in _reduced(grid, panel, panel.values))
        yield time_line(
            node=node,
            key=metric,
            label=metric.label,
            unit=metric.unit,
            devices=len(panel.devices),
            mean=mean,
            low=low,
            high=high,
            average=float(panel.mean.mean()),
            apart=_apart(grid, panel, odd, digits) if metric in _STATES else None,
        )


def _reduced(grid: Columns, panel: Panel, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, lowest, and highest per column of the (snapshots, devices) values, some of a panel."""
    time_us, mean = panel.time_us, panel.mean
    if values is not panel.values:
        there = ~np.isnan(values).all(axis=1)
        time_us, values = time_us[there], values[there]
        mean = np.nanmean(values, axis=1)
    low, high = mean, mean
    if values.shape[1] > 1:
        low, high = np.fmin.reduce(values, axis=1), np.fmax.reduce(values, axis=1)
    mean, low, high = reduce(grid, time_us, mean, low, high)
    if panel.metric in _REASONS:
        low, high = _of_devices(grid, time_us, values)
    return mean, low, high


def _odd(panels: Sequence[Panel]) -> tuple[str, ...]:
    """The GPUs of a node whose mean of one of the metrics differs from most, the farthest first."""
    found: dict[str, float] = {}
    for panel in panels:
        means = np.nanmean(panel.values, axis=0)
        least = _LEAST_POINTS if panel.metric.unit == "%" else _LEAST_PART * float(np.median(means))
        for device, far in zip(panel.devices, oddness(means, least).tolist(), strict=True):
            found[device] = max(found.get(device, 0.0), far)
    odd = [device for device, far in found.items() if far > 1]
    return tuple(sorted(odd, key=lambda device: -found[device])[:MAX_APART])


def _apart(grid: Columns, panel: Panel, odd: Collection[str], digits: int) -> Apart | None:
    """None without other devices, or if none of the odd ones was sampled."""
    places = [panel.devices.index(device) for device in odd if device in panel.devices]
    others = [i for i, device in enumerate(panel.devices) if device not in odd]
    if not places or not others:
        return None
    mean, low, high = (known(one, digits) for one in _reduced(grid, panel, panel.values[:, others]))
    lines = [
        DeviceLine(device=panel.devices[i], mean=known(Places.of(grid, times).means(values), digits))
        for i in places
        for times, values in [panel.series(i)]
    ]
    return Apart(devices=tuple(lines), mean=mean, low=low, high=high)


def time_line(
    *,
    mean: tuple[float | None, ...],
    low: tuple[float | None, ...],
    high: tuple[float | None, ...],
    average: float | None = None,
    **facts: Any,
) -> TimeLine:
    """A time line with its summary; ``average`` is of its samples, or if not given of its columns."""
    means = [v for v in mean if v is not None]
    if average is None and means:
        average = sum(means) / len(means)
    return TimeLine(
        mean=mean,
        low=low,
        high=high,
        average=None if average is None else round(average, 3),
        lowest=min((v for v in low if v is not None), default=None),
        highest=max((v for v in high if v is not None), default=None),
        missing_percent=round(100 * mean.count(None) / len(mean), 1) if mean else 0.0,
        **facts,
    )


def reduce(
    grid: Columns, time_us: IntArray, mean: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean of means, lowest low and highest high per column; NaN where no sample stands for the column.

    A column between two samples without a pause shows the earlier one: slow sampling is
    not a gap.
    """
    places = Places.of(grid, time_us)
    return places.means(mean), places.ends(low)[0], places.ends(high)[1]


def _of_devices(grid: Columns, time_us: IntArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(columns,) the lowest and the highest mean that a device has in each column; NaN as in ``reduce``."""
    places = Places.of(grid, time_us)
    there = ~np.isnan(values)
    sums = np.add.reduceat(np.where(there, values, 0.0), places.first, axis=0)
    counts = np.add.reduceat(there, places.first, axis=0, dtype=np.int64)
    means = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return places.held(np.fmin.reduce(means, axis=1)), places.held(np.fmax.reduce(means, axis=1))


class Places(Struct, frozen=True, kw_only=True, eq=False):
    """Which samples of a series stand for which column."""

    #: (filled,) number of the first sample in each column that has some, and how many it has.
    first: IntArray
    count: IntArray
    #: (columns,) which of these stands for a column, -1 for none.
    source: IntArray

    @classmethod
    def of(cls, grid: Columns, time_us: IntArray) -> Places:
        """The places of ascending times, all of which lie in the columns."""
        edges = np.searchsorted(time_us, grid.start_us + grid.width_us * np.arange(grid.count + 1))
        count = np.diff(edges)
        filled = np.flatnonzero(count)
        source = np.full(grid.count, -1)
        source[filled] = np.arange(len(filled))
        source = np.maximum.accumulate(source)
        source[filled[-1] + 1 :] = -1
        for i in np.flatnonzero(pauses(time_us)):
            before, after = (time_us[i : i + 2] - grid.start_us) // grid.width_us
            source[before + 1 : after] = -1
        return cls(first=edges[filled], count=count[filled], source=source)

    def means(self, values: npt.NDArray[Any]) -> FloatArray:
        """(columns,) mean of the (n,) values that stand for each column; NaN where none does."""
        return self.held(np.add.reduceat(values, self.first, dtype=np.float64) / self.count)

    def ends(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(columns,) lowest and highest of these values, likewise."""
        return (
            self.held(np.minimum.reduceat(values, self.first)),
            self.held(np.maximum.reduceat(values, self.first)),
        )

    def held(self, filled: FloatArray) -> FloatArray:
        """(columns,) from what there is of each column that has samples."""
        return np.where(self.source >= 0, filled[self.source], np.nan)


def known(values: FloatArray, digits: int) -> tuple[float | None, ...]:
    """The values with so many digits after the point; None for NaN."""
    return tuple(None if math.isnan(v) else v for v in np.round(values, digits).tolist())
