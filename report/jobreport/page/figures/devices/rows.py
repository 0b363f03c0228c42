"""Rows of GPUs and cores over time: which of them are drawn, and where."""

from __future__ import annotations

from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.formats import NBSP, count, escape_name
from jobreport.page.figures import over_columns, theme
from jobreport.page.figures.canvas import Canvas
from jobreport.page.figures.chart import Axis, over_time
from jobreport.page.figures.models import Range1d
from jobreport.page.figures.scales import Tick
from jobrules.analyses.devices import FULL as FULL_BYTE
from jobrules.analyses.devices import NOT_MEASURED
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from jobrules.analyses.devices import DeviceGrid, DeviceRows
    from jobrules.verdict.phases import JobPhases

    Bytes = npt.NDArray[np.uint8]

#: Of more nodes, these are drawn with each GPU, and all with one row.
MAX_NODES = 4
MAX_NODE_ROWS = 64
#: Core rows of one node, and of all nodes together; of more cores, some share a row.
MAX_CORE_ROWS, MAX_CORE_ROWS_IN_ALL = 64, 128
#: Rows that are not drawn and can be chosen as lines.
MAX_OTHERS = 384
#: Columns of the static drawing, which has no zoom: of many rows and of few, and cells in all.
STILL_COLUMNS, STILL_CELLS = (300, 900), 15_000
#: Heights of the whole figure that ``drawing.css`` has, in rem.
HEIGHTS = (8, 12, 16, 20, 24, 28, 32, 40, 48)
_REM_PX = 16
_LABEL_PX = 13

#: Height of a row by its kind, in units; a unit is a few px.
_UNITS = {"gpu": 2.0, "node": 2.0, "core": 1.0}
_HEAD, _BETWEEN, _AFTER = 2.6, 0.7, 0.8

GPU, CORE, NODE = "GPU utilization", "core utilization", "mean GPU utilization"
MEMORY = Metric.GPU_MEMORY_ACTIVITY.label


class Row(Struct, frozen=True, kw_only=True):
    """One device, or the mean of several, over time."""

    node: str
    #: What it is of the node: ``GPU utilization``.
    what: str
    #: Label of the row: ``gpu0``, ``cpu8–cpu9``.
    name: str
    #: (columns,) whole percent, 255 where not measured.
    values: Bytes
    #: (columns,) lowest and highest sample, if a column is more than one.
    ends: tuple[Bytes, Bytes] | None = None
    #: (columns,) whether a core is saturated.
    full: npt.NDArray[np.bool_] | None = None
    #: Mean of its samples; None if it stands for several devices.
    average: float | None = None
    kind: str = ""
    #: Units from the top of the figure.
    top: float = 0.0

    @property
    def height(self) -> float:
        """Height in units."""
        return _UNITS[self.kind]

    @property
    def middle(self) -> float:
        """Units from the top of the figure."""
        return self.top + self.height / 2

    @property
    def measured(self) -> Bytes:
        """The values of the columns with samples."""
        return np.asarray(self.values[self.values != NOT_MEASURED])

    @property
    def mean(self) -> float:
        """Mean of its samples, otherwise of the columns with samples; 0 without one."""
        if self.average is not None:
            return self.average
        return float(self.measured.mean()) if len(self.measured) else 0.0


class HeatMap(Struct, frozen=True, kw_only=True):
    """What is drawn where, live and static."""

    x: Axis
    y: Axis
    columns: int
    #: Drawn from top to bottom.
    rows: tuple[Row, ...]
    #: Can be shown as lines only.
    others: tuple[Row, ...]
    #: Rows that are neither.
    left_out: int
    #: Whether a column is one sample.
    samples: bool
    #: Name of a node, or what the rows below are, and where its rows start and end, in units.
    heads: tuple[tuple[str, float, float], ...]
    #: Nodes with each of their devices, and those of the job.
    drawn: tuple[str, ...]
    nodes: int
    #: Cores that share a row, at most.
    together: int
    #: From this percentage on, a core is saturated.
    limit: float
    #: rem of the figure.
    height: int
    #: Where the phases of the job but the first begin.
    phases: tuple[int, ...]
    #: Where traces of PyTorch's profiler begin and end.
    profiled: tuple[int, ...]

    @property
    def units(self) -> float:
        """The height of all rows."""
        return -self.y.start

    @property
    def bundle(self) -> int:
        """Columns that are one in the static drawing."""
        least, most = STILL_COLUMNS
        return -(-self.columns // min(max(STILL_CELLS // max(len(self.rows), 1), least), most))

    @property
    def choices(self) -> tuple[Row, ...]:
        """All that can be shown as a line, in the order of the lists."""
        return (*self.of("gpu"), *self.of("core"), *self.others)

    def times(self, columns: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Where columns start, in microseconds since the epoch."""
        width = (self.x.end - self.x.start) / self.columns
        return np.asarray(self.x.start + width * np.asarray(columns, np.float64))

    def shared_range(self) -> Range1d:
        """The time of both plots: zooming one moves the other. At least four columns are shown."""
        start, end = self.x.live([self.x.start, self.x.end]).tolist()
        shortest = min(end - start, 4 * (end - start) / self.columns)
        return Range1d(start=start, end=end, bounds=(start, end), min_interval=shortest)

    def canvas(self, y: Axis, shared: Range1d) -> Canvas:
        """One of both plots."""
        canvas = Canvas(self.x, y, x_range=shared, zoom=True, left=theme.NAMES_PX)
        canvas.upright("dots", self.phases)
        canvas.upright("axis", self.profiled)
        return canvas

    def of(self, *kinds: str) -> tuple[Row, ...]:
        """The drawn rows of some kinds; rows of a whole node go with the GPUs."""
        wanted = {*kinds, "node"} if "gpu" in kinds else set(kinds)
        return tuple(row for row in self.rows if row.kind in wanted)


def heat_map(
    grid: DeviceGrid, phases: JobPhases, means: Mapping[tuple[str, str, str], float] | None = None
) -> HeatMap:
    """Lay out the rows: GPUs above cores of each node; of more than four nodes only those that differ most.

    ``means`` are those of the samples of each (node, metric, device).
    """
    tables = {
        (rows.node, rows.metric): list(_single(rows, grid.columns.count, means or {})) for rows in grid.rows
    }
    nodes = tuple(dict.fromkeys(node for node, metric in tables if metric != Metric.GPU_MEMORY_ACTIVITY))
    main = (
        Metric.GPU_UTILIZATION
        if any(metric == Metric.GPU_UTILIZATION for _, metric in tables)
        else Metric.CPU_UTILIZATION
    )
    many = len(nodes) > MAX_NODES
    of_nodes = [
        _mean_row(tables[node, main], node, main) for node in nodes if many and (node, main) in tables
    ]
    drawn = _odd(of_nodes, MAX_NODES) if many else nodes
    of_those = set(_odd(of_nodes, MAX_NODE_ROWS))
    shown_means = [row for row in of_nodes if row.node in of_those]
    blocks, others, together = _device_rows(
        tables, drawn, with_cores=not (many and main == Metric.GPU_UTILIZATION)
    )
    if many:
        blocks.insert(0, ("Mean of nodes", shown_means))
    for node in nodes:
        if node not in drawn:
            others += tables.get((node, main), [])
    placed, heads, units = _placed(blocks, named=len(nodes) > 1)
    height = _height(units)
    start_us = grid.columns.start_us
    end_us = start_us + grid.columns.count * grid.columns.width_us
    return HeatMap(
        x=over_time(start_us, end_us),
        y=Axis(
            start=-units,
            end=0,
            ticks=_labels(placed, heads, units, height),
            names=True,
            rows=tuple(_rows_of_nodes(placed, heads, units)),
        ),
        columns=grid.columns.count,
        samples=grid.samples,
        rows=placed,
        others=tuple(others[:MAX_OTHERS]),
        left_out=max(0, len(others) - MAX_OTHERS) + sum(rows.left_out for rows in grid.rows),
        heads=heads,
        drawn=drawn,
        nodes=len(nodes),
        together=together,
        limit=grid.limit,
        height=height,
        phases=tuple(phase.start_us for phase in phases.phases[1:]),
        profiled=tuple(us for span in phases.profiled for us in span),
    )


def _device_rows(
    tables: Mapping[tuple[str, str], list[Row]], drawn: Sequence[str], *, with_cores: bool
) -> tuple[list[tuple[str, list[Row]]], list[Row], int]:
    """The rows of each drawn node, those that can only be chosen as lines, and the most cores that share a row."""
    max_cores = min(MAX_CORE_ROWS, MAX_CORE_ROWS_IN_ALL // max(len(drawn), 1))
    blocks: list[tuple[str, list[Row]]] = []
    others: list[Row] = []
    together = 1
    for node in drawn:
        gpus = tables.get((node, Metric.GPU_UTILIZATION), [])
        cores = tables.get((node, Metric.CPU_UTILIZATION), [])
        if not with_cores:
            others += cores
            cores = []
        share = -(-len(cores) // max_cores)
        if share > 1:
            others += cores
            cores = [_together(cores[i : i + share]) for i in range(0, len(cores), share)]
        together = max(together, share)
        blocks.append((node, gpus + cores))
        others += tables.get((node, Metric.GPU_MEMORY_ACTIVITY), [])
    return blocks, others, together


def _single(rows: DeviceRows, columns: int, means: Mapping[tuple[str, str, str], float]) -> Iterator[Row]:
    stored, low, high = (
        np.frombuffer(one or rows.values, np.uint8).reshape(-1, columns)
        for one in (rows.values, rows.low, rows.high)
    )
    full = (stored >= FULL_BYTE) & (stored != NOT_MEASURED)
    table = np.where(full, stored - FULL_BYTE, stored).astype(np.uint8)
    kind, what = {
        Metric.GPU_UTILIZATION: ("gpu", GPU),
        Metric.CPU_UTILIZATION: ("core", CORE),
        Metric.GPU_MEMORY_ACTIVITY: ("", MEMORY),
    }[Metric(rows.metric)]
    for device, values, at_limit, *ends in zip(rows.devices, table, full, low, high, strict=True):
        yield Row(
            node=rows.node,
            what=what,
            name=escape_name(device, 14),
            values=values,
            ends=(ends[0], ends[1]) if rows.low else None,
            full=at_limit if kind == "core" else None,
            average=means.get((rows.node, rows.metric, device)),
            kind=kind,
        )


def mean(table: Bytes) -> Bytes:
    """Mean of the rows that were measured in each column."""
    there = table != NOT_MEASURED
    counts = there.sum(axis=0)
    sums = np.where(there, table, 0).sum(axis=0)
    return np.where(counts > 0, np.rint(sums / np.maximum(counts, 1)), NOT_MEASURED).astype(np.uint8)


def _mean_row(rows: Sequence[Row], node: str, main: Metric) -> Row:
    what = NODE if main == Metric.GPU_UTILIZATION else "mean core utilization"
    return Row(
        node=node,
        what=what,
        name=escape_name(node, 14),
        values=mean(np.stack([row.values for row in rows])),
        kind="node",
    )


def _together(cores: Sequence[Row]) -> Row:
    """The busiest core in each column: a mean would hide a saturated one."""
    first, last = cores[0], cores[-1]
    name = first.name if first is last else f"{escape_name(first.name, 7)}–{escape_name(last.name, 7)}"
    table = np.stack([row.values for row in cores])
    highest = np.where(table == NOT_MEASURED, 0, table).max(axis=0)
    values = np.where((table == NOT_MEASURED).all(axis=0), NOT_MEASURED, highest).astype(np.uint8)
    full = np.asarray(np.stack([row.full for row in cores if row.full is not None]).any(axis=0))
    return Row(
        node=first.node, what="busiest of several cores", name=name, values=values, full=full, kind="core"
    )


def _odd(means: Sequence[Row], most: int) -> tuple[str, ...]:
    """The nodes whose mean lies farthest from the median node, in the order of the job."""
    if len(means) <= most:
        return tuple(row.node for row in means)
    middle = median(row.mean for row in means)
    ranked = sorted(means, key=lambda row: -abs(row.mean - middle))
    chosen = {row.node for row in ranked[:most]}
    return tuple(row.node for row in means if row.node in chosen)


def _placed(
    blocks: Sequence[tuple[str, list[Row]]], *, named: bool
) -> tuple[tuple[Row, ...], tuple[tuple[str, float, float], ...], float]:
    placed: list[Row] = []
    heads = []
    at = 0.0
    for name, rows in blocks:
        at += (_AFTER if placed else 0.0) + (_HEAD if named else 0.0)
        start = at
        for kind, found in groupby(rows, key=lambda row: row.kind):
            at += _BETWEEN if kind == "core" and at > start else 0.0
            for row in found:
                placed.append(replace(row, top=at))
                at += _UNITS[kind]
        heads.append((escape_name(name, 16) if named else "", start, at))
    return tuple(placed), tuple(heads), at


def _rows_of_nodes(
    rows: Sequence[Row], heads: Sequence[tuple[str, float, float]], units: float
) -> Iterator[tuple[str, float, float]]:
    """Name, begin, and height in percent of the rows of each node, with its head, and of each mean of a node."""
    for name, start, end in heads:
        inside = [row for row in rows if start <= row.top < end]
        means = [row for row in inside if row.kind == "node"]
        for node, top, bottom in (
            [(row.node, row.top, row.top + row.height) for row in means]
            if means
            else [(inside[0].node, start - _HEAD, end)]
            if inside and name
            else []
        ):
            yield node, round(100 * top / units, 2), round(100 * (bottom - top) / units, 2)


def frame_px(height: int) -> int:
    """Height between the axes of a figure of so many rem."""
    return height * _REM_PX - theme.TOP_PX - theme.BOTTOM_PX


def _height(units: float) -> int:
    """The lowest figure that leaves room: for a label at each row where they are few, else for thin rows."""
    wanted = units * (13 if units <= 26 else 7)
    return next((height for height in HEIGHTS if frame_px(height) >= wanted), HEIGHTS[-1])


def _labels(
    rows: Sequence[Row], heads: Sequence[tuple[str, float, float]], units: float, height: int
) -> tuple[Tick, ...]:
    """A label at every row, or where they would overlap at every second, fourth, eighth …"""
    px = frame_px(height) / units
    ticks = [Tick(at=1 - (top - _HEAD / 2) / units, label=name) for name, top, _ in heads if name]
    for (_, _, kind), found in groupby(rows, key=lambda row: (row.node, row.what, row.kind)):
        every = next(
            step for step in (1, 2, 4, 8, 16, 32, 64) if step * px * _UNITS[kind] >= _LABEL_PX or step == 64
        )
        ticks += [
            Tick(at=1 - row.middle / units, label=row.name) for i, row in enumerate(found) if i % every == 0
        ]
    return tuple(ticks)


def full_name(row: Row, *, several: bool) -> str:
    """The name of a row without its node next to it: ``algo-1 gpu0``, ``algo-1 gpu0 memory``."""
    if row.kind == "node":
        return f"{escape_name(row.node, 40)} mean"
    name = f"{row.name} memory" if row.what == MEMORY else row.name
    return f"{escape_name(row.node, 40)} {name}" if several else name


def not_drawn(heat: HeatMap) -> str:
    """What is not drawn of a large job; empty if everything is."""
    sentences = []
    if heat.nodes > len(heat.drawn):
        means = len(heat.of("node"))
        of = "" if means == heat.nodes else f" of {heat.nodes}"
        sentences.append(
            f"Rows: the mean of {means}{of}{NBSP}nodes, and every device of the {len(heat.drawn)} nodes farthest "
            "from the median node."
        )
    if heat.together > 1:
        sentences.append(f"Up to {count(heat.together, 'core')} share a row, which shows the busiest.")
    if heat.left_out:
        sentences.append(f"Not shown: {count(heat.left_out, 'more row')}.")
    return " ".join(sentences)


def missing(rows: Sequence[Row], *, of_all: bool) -> list[tuple[int, int]]:
    """First and end of each run of columns in which one of the rows, or all of them, were not measured."""
    table = np.stack([row.values for row in rows]) == NOT_MEASURED
    return over_columns.runs(np.asarray(table.all(axis=0) if of_all else table.any(axis=0)))
