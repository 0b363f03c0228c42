"""GPU memory activity over time: a line per GPU, the jumps of GPUMemoryIncrease, and the trend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.analyses.time_lines import Columns, Places, known, reduce
from jobrules.measures.quartiles import ALIKE_POINTS
from jobrules.measures.work_span import work_span_us
from jobrules.model import SECOND_US, FloatArray, IntArray, Job, Metric
from jobrules.model.names import DeviceName, NodeName, OwnText
from jobrules.model.order import median, quantiles
from jobrules.rule import written
from jobrules.rules.gpu_memory_increase import compare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobrules.rules.gpu_memory_increase import Compared, GPUMemoryIncrease, Rise

#: Drawn are so many nodes, of each so many GPUs; both by what is odd about them.
MAX_NODES = MAX_LINES = 4
#: Columns of what is drawn: of one node, and of several.
MAX_COLUMNS = (300, 150)
MAX_ROWS = 64
MAX_RISES = 50
#: A trend needs a loop of this length with so many columns of samples.
MIN_TREND_US = 600 * SECOND_US
MIN_COLUMNS = 20
#: Columns that a trend is taken over; all pairs of them are compared.
MAX_TREND_COLUMNS = 200
#: So many more pairs rise than fall, as a share of all pairs, where growth is called steady.
STEADY = 0.7
#: From the middle third of the loop to the last, it rises by at least this part of the rise before.
_LASTING = 0.5
#: Steady growth by less is within what samples of whole percents show by chance, in points.
MIN_POINTS = 2.0

LOOP, WORK, WHOLE = "training loop", "time of GPU work", "whole job"


class Trend(Struct, frozen=True, kw_only=True):
    """How the GPU memory activity of a GPU grew over the training loop."""

    #: Theil-Sen slope: the median slope of all pairs of columns.
    points_per_hour: float
    #: Kendall's tau: pairs that rise less pairs that fall, as a share of all; 1 rises throughout.
    agreement: float
    #: Whether it grew throughout, and not in one jump or at the beginning only.
    steady: bool


class GPUMemory(Struct, frozen=True, kw_only=True):
    """GPU memory activity of a GPU, in percent, over all its samples."""

    node: NodeName
    device: DeviceName
    samples: int
    mean: float
    p50: float
    p95: float
    max: float
    #: Of the samples in the loop (see ``MemoryUse.loop``), or of all where none lies in it.
    loop_p5: float
    loop_p95: float
    #: Largest rise from one window to the next and when it was over, among the samples that
    #: GPUMemoryIncrease checks; None where it checks none.
    rise: float | None
    rise_us: int | None
    #: Events of GPUMemoryIncrease.
    events: int
    #: None where the loop is too short.
    trend: Trend | None


class MemoryLine(Struct, frozen=True, kw_only=True):
    """Mean GPU memory activity of a GPU in each of ``MemoryUse.columns``; None if not sampled."""

    node: NodeName
    device: DeviceName
    mean: tuple[float | None, ...]


class MemoryBand(Struct, frozen=True, kw_only=True):
    """All GPUs of a node in each of ``MemoryUse.columns``; None where none was sampled."""

    node: NodeName
    #: GPUs sampled.
    devices: int
    mean: tuple[float | None, ...]
    #: Lowest and highest sample of any GPU.
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]


class MemoryRise(Struct, frozen=True, kw_only=True):
    """An event of GPUMemoryIncrease: first and last sample in violation, and the means it rose between."""

    node: NodeName
    device: DeviceName
    start_us: int
    end_us: int
    from_percent: float
    to_percent: float
    #: The distance of these, as they are printed with one digit.
    points: float


class MemoryUse(Struct, frozen=True, kw_only=True):
    """GPU memory activity of every GPU: the share of time in which its memory was read or written."""

    #: Rise in points from which GPUMemoryIncrease triggers, its window in samples or as ``10s``.
    limit: float
    window: OwnText
    #: What trends and quantiles of the loop are of: ``LOOP``, ``WORK`` or ``WHOLE``.
    loop: OwnText
    #: In the job's order; with more than 256, the odd ones first, and how many are left out.
    gpus: tuple[GPUMemory, ...]
    gpus_left_out: int
    #: Whether all GPUs have nearly the same mean and p95, and none rises at once or grows steadily: then
    #: the node of the highest p95 is drawn alone, and of more than four GPUs that with the highest.
    alike: bool
    #: Those of what is drawn: each is a whole number of the report's; at most 300, of several nodes 150.
    columns: Columns
    #: The nodes that are drawn, at most four, in the job's order; their lines, at most four GPUs of each.
    bands: tuple[MemoryBand, ...]
    lines: tuple[MemoryLine, ...]
    #: The largest 50 events in the order of time, and how many are left out.
    rises: tuple[MemoryRise, ...]
    rises_left_out: int


def gpu_memory(job: Job, rule: GPUMemoryIncrease, grid: Columns) -> MemoryUse | None:
    """GPU memory activity of all GPUs; None where it was not sampled."""
    if not job.has(Metric.GPU_MEMORY_ACTIVITY):
        return None
    work = work_span_us(job)
    nodes = job.each(_node, rule, work, grid)
    gpus = [gpu for node in nodes for gpu in node.gpus]
    rises = [one for node in nodes for one in node.rises]
    ranked = sorted(gpus, key=_oddness)
    alike = len(gpus) > 1 and _alike(gpus)
    drawn: dict[str, list[str]] = {}
    for gpu in ranked:
        drawn.setdefault(gpu.node, []).append(gpu.device)
    drawn = dict(list(drawn.items())[: 1 if alike else MAX_NODES])
    columns = grid.bundled(MAX_COLUMNS[len(drawn) > 1])
    pictures = job.gathered(_pictures, drawn, columns, alike)
    return MemoryUse(
        limit=rule.increase,
        window=str(written(rule.window)),
        loop=LOOP if job.step_count else WORK if work else WHOLE,
        gpus=tuple(gpus if len(gpus) <= MAX_ROWS else ranked[:MAX_ROWS]),
        gpus_left_out=max(0, len(gpus) - MAX_ROWS),
        alike=alike,
        columns=columns,
        bands=tuple(band for band, _ in pictures),
        lines=tuple(line for _, lines in pictures for line in lines),
        rises=tuple(sorted(_largest(rises), key=lambda one: (one.start_us, one.node, one.device))),
        rises_left_out=max(0, sum(gpu.events for gpu in gpus) - MAX_RISES),
    )


class _Node(Struct, frozen=True, kw_only=True):
    gpus: list[GPUMemory]
    #: The largest 50 of it, the largest first.
    rises: list[MemoryRise]


def _node(part: Job, rule: GPUMemoryIncrease, work: tuple[int, int] | None, grid: Columns) -> _Node:
    gpus: list[GPUMemory] = []
    rises: list[MemoryRise] = []
    for panel in part.panels_of(Metric.GPU_MEMORY_ACTIVITY):
        loop_us = part.loop_us(panel.node) or work or part.span_us
        of_all = Places.of(grid, panel.time_us)
        for column, device in enumerate(panel.devices):
            time_us, values = panel.series(column)
            places = of_all if time_us is panel.time_us else Places.of(grid, time_us)
            compared = compare(time_us, values, rule)
            found = None if isinstance(compared, int) else compared
            rises += [_rise(panel.node, device, one) for one in found.events] if found else []
            trend = _trend(places.means(values), loop_us, grid)
            gpus.append(_gpu(panel.node, device, time_us, values, found, loop_us, trend))
    return _Node(gpus=gpus, rises=_largest(rises))


def _largest(rises: Sequence[MemoryRise]) -> list[MemoryRise]:
    return sorted(rises, key=lambda one: one.from_percent - one.to_percent)[:MAX_RISES]


def _rise(node: str, device: str, found: Rise) -> MemoryRise:
    low, high = round(found.from_percent, 2), round(found.to_percent, 2)
    return MemoryRise(
        node=node,
        device=device,
        start_us=found.start_us,
        end_us=found.end_us,
        from_percent=low,
        to_percent=high,
        points=round(round(high, 1) - round(low, 1), 1),
    )


def _gpu(
    node: str,
    device: str,
    time_us: IntArray,
    values: FloatArray,
    found: Compared | None,
    loop_us: tuple[int, int],
    trend: Trend | None,
) -> GPUMemory:
    p50, p95 = quantiles(values, (0.5, 0.95)).tolist()
    first, last = np.searchsorted(time_us, loop_us)
    loop_p5, loop_p95 = quantiles(values[first:last] if last > first else values, (0.05, 0.95)).tolist()
    most = int(found.rise.argmax()) if found else 0
    rise = float(found.rise[most]) / found.unit if found else None
    return GPUMemory(
        node=node,
        device=device,
        samples=len(values),
        mean=round(float(values.mean()), 2),
        p50=round(p50, 2),
        p95=round(p95, 2),
        max=round(float(values.max()), 2),
        loop_p5=round(loop_p5, 2),
        loop_p95=round(loop_p95, 2),
        rise=None if rise is None else round(max(0.0, rise), 2),
        rise_us=int(time_us[found.first + most - 1]) if found and found.rise[most] > 0 else None,
        events=len(found.events) if found else 0,
        trend=trend,
    )


def _trend(means: FloatArray, loop_us: tuple[int, int], grid: Columns) -> Trend | None:
    """Theil-Sen slope and Kendall's tau of the columns that lie in the loop; None for a short loop.

    P. K. Sen, Estimates of the regression coefficient based on Kendall's tau, J. Am. Stat. Assoc. 63,
    1968. Unlike least squares it is not tilted by one jump, nor by an end that differs.
    """
    if loop_us[1] - loop_us[0] < MIN_TREND_US:
        return None
    first = -(-(loop_us[0] - grid.start_us) // grid.width_us)
    stop = (loop_us[1] - grid.start_us) // grid.width_us
    columns = np.arange(max(0, first), min(grid.count, stop))
    columns = columns[~np.isnan(means[columns])]
    if len(columns) < MIN_COLUMNS:
        return None
    hours = _bundles(columns) * grid.width_us / (3600 * SECOND_US)
    level = _bundles(means[columns])
    early, late = np.triu_indices(len(level), 1)
    # Equal means differ in their last digits by the order in which their samples were added: that is no change.
    change = np.round(level[late] - level[early], 9)
    slope = median(change / (hours[late] - hours[early]))
    agreement = float(np.sign(change).mean())
    thirds = [float(part.mean()) for part in np.array_split(level, 3)]
    lasting = thirds[2] - thirds[1] >= _LASTING * (thirds[1] - thirds[0])
    grown = slope * (hours[-1] - hours[0])
    steady = agreement >= STEADY and lasting and grown >= MIN_POINTS
    return Trend(
        points_per_hour=round(slope, 2),
        agreement=round(agreement, 2) + 0.0,  # of -0.0, too
        steady=bool(steady),
    )


def _bundles(values: FloatArray | IntArray) -> FloatArray:
    """Means of 200 neighboring parts of nearly equal length, the longer ones first; or the few values."""
    lengths = np.array([len(part) for part in np.array_split(values, min(len(values), MAX_TREND_COLUMNS))])
    return np.asarray(np.add.reduceat(values, np.cumsum(lengths) - lengths) / lengths)


def _alike(gpus: Sequence[GPUMemory]) -> bool:
    if any(gpu.events or (gpu.trend and gpu.trend.steady) for gpu in gpus):
        return False
    levels = [gpu.mean for gpu in gpus], [gpu.p95 for gpu in gpus]
    return all(max(values) - min(values) < ALIKE_POINTS for values in levels)


def _oddness(gpu: GPUMemory) -> tuple[float, bool, float]:
    """Sorts what rises most first, then what grows steadily, then what is highest."""
    return -(gpu.rise or 0.0) if gpu.events else 0.0, not (gpu.trend and gpu.trend.steady), -gpu.p95


def _pictures(
    part: Job, drawn: Mapping[str, Sequence[str]], grid: Columns, alike: bool
) -> Iterator[tuple[MemoryBand, list[MemoryLine]]]:
    """Of a node that is drawn, whose GPUs are given with the oddest first: the band, and the lines."""
    for panel in part.panels_of(Metric.GPU_MEMORY_ACTIVITY) if part.nodes[0] in drawn else ():
        low, high = np.fmin.reduce(panel.values, axis=1), np.fmax.reduce(panel.values, axis=1)
        bands = reduce(grid, panel.time_us, panel.mean, low, high)
        mean, low_drawn, high_drawn = (known(values, 1) for values in bands)
        node, count = panel.node, len(panel.devices)
        chosen = drawn[node][: 1 if alike and count > MAX_LINES else MAX_LINES]
        lines = []
        for column, device in enumerate(panel.devices):
            if device in chosen:
                time_us, values = panel.series(column)
                means = Places.of(grid, time_us).means(values)
                lines.append(MemoryLine(node=node, device=device, mean=known(means, 1)))
        yield MemoryBand(node=node, devices=count, mean=mean, low=low_drawn, high=high_drawn), lines
