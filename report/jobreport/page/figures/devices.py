"""The utilization of all GPUs and cores over time: a heat map, and below it single devices as lines."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby, zip_longest
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.formats import NBSP, count, escape_name
from jobreport.page.figures import over_columns, theme
from jobreport.page.figures.canvas import UNKNOWN, Canvas
from jobreport.page.figures.chart import Axis, over_time, quantity, upward
from jobreport.page.figures.models import ColumnDataSource, Image, LinearColorMapper, Range1d
from jobreport.page.figures.scales import Tick
from jobrules.analyses.devices import FULL as FULL_BYTE
from jobrules.analyses.devices import NOT_MEASURED
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from jobreport.page.figures.canvas import Figure
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
#: Hatched stretches of a node; more are one.
MAX_HOLES = 40
#: Heights of the whole figure that ``drawing.css`` has, in rem.
HEIGHTS = (8, 12, 16, 20, 24, 28, 32, 40, 48)
_REM_PX = 16
_LABEL_PX = 13

#: Height of a row by its kind, in units; a unit is a few px.
_UNITS = {"gpu": 2.0, "node": 2.0, "core": 1.0}
_HEAD, _BETWEEN, _AFTER = 2.6, 0.7, 0.8
_STEPS = 10
#: The color of a saturated core, beyond the steps.
FULL = _STEPS

#: Side of the pointer at which the values of each line stand, so that they hardly overlap.
_BESIDE = ("left", "right", "above", "below")

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
        y=Axis(start=-units, end=0, ticks=_labels(placed, heads, units, height), names=True),
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


def _mean(table: Bytes) -> Bytes:
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
        values=_mean(np.stack([row.values for row in rows])),
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


def _frame_px(height: int) -> int:
    return height * _REM_PX - theme.TOP_PX - theme.BOTTOM_PX


def _height(units: float) -> int:
    """The lowest figure that leaves room: for a label at each row where they are few, else for thin rows."""
    wanted = units * (13 if units <= 26 else 7)
    return next((height for height in HEIGHTS if _frame_px(height) >= wanted), HEIGHTS[-1])


def _labels(
    rows: Sequence[Row], heads: Sequence[tuple[str, float, float]], units: float, height: int
) -> tuple[Tick, ...]:
    """A label at every row, or where they would overlap at every second, fourth, eighth …"""
    px = _frame_px(height) / units
    ticks = [Tick(at=1 - (top - _HEAD / 2) / units, label=name) for name, top, _ in heads if name]
    for (_, _, kind), found in groupby(rows, key=lambda row: (row.node, row.what, row.kind)):
        every = next(
            step for step in (1, 2, 4, 8, 16, 32, 64) if step * px * _UNITS[kind] >= _LABEL_PX or step == 64
        )
        ticks += [
            Tick(at=1 - row.middle / units, label=row.name) for i, row in enumerate(found) if i % every == 0
        ]
    return tuple(ticks)


def levels(row: Row) -> npt.NDArray[np.int64]:
    """(columns,) step of the color, 0 to 9, 10 for a saturated core; -1 where not measured."""
    values = row.values.astype(np.int64)
    steps = np.minimum(values // (100 // _STEPS), _STEPS - 1)
    if row.full is not None:
        steps[row.full] = FULL
    steps[row.values == NOT_MEASURED] = -1
    return steps


class Cells(Struct, frozen=True, kw_only=True):
    """Rows of one height as paths, each a row's middle with a stroke as thick as the row.

    The box is as wide as there are columns, and ten high per unit.
    """

    thickness: float
    #: Step of the color and path, in the order they are painted.
    paths: tuple[tuple[int, str], ...]


def cells(heat: HeatMap) -> tuple[Cells, ...]:
    """The cells of the static drawing: a row in its most frequent color, and the others upon it."""
    found: dict[float, defaultdict[tuple[bool, int], str]] = {}
    for row in heat.rows:
        steps = np.repeat(levels(_bundled(row, heat.bundle)), heat.bundle)[: heat.columns]
        measured = steps[steps >= 0]
        if not len(measured):
            continue
        most = int(np.bincount(measured).argmax())
        paths = found.setdefault(row.height, defaultdict(str))
        paths[False, most] += _path(row, steps >= 0)
        for step in set(measured.tolist()) - {most}:
            paths[True, step] += _path(row, steps == step)
    return tuple(
        Cells(
            thickness=10 * (height - _gap(heat)),
            paths=tuple((step, path) for (_, step), path in sorted(paths.items())),
        )
        for height, paths in sorted(found.items())
    )


def _bundled(row: Row, size: int) -> Row:
    """Mean of every ``size`` columns; a core is saturated in at least half of them. The last ones may be fewer."""
    table = np.full((-(-len(row.values) // size), size), NOT_MEASURED, np.uint8)
    table.flat[: len(row.values)] = row.values
    full = None
    if row.full is not None:
        at_limit = np.zeros(table.shape, np.bool_)
        at_limit.flat[: len(row.full)] = row.full
        full = 2 * at_limit.sum(axis=1) >= np.maximum((table != NOT_MEASURED).sum(axis=1), 1)
    return replace(row, values=_mean(table.T), full=full)


def _path(row: Row, chosen: npt.NDArray[np.bool_]) -> str:
    """A stroke over each run of chosen columns."""
    path, at = "", 0
    for start, stop in over_columns.runs(chosen):
        begin = f"m{start - at} 0" if path else f"M{start} {10 * row.middle:.3g}"
        path, at = f"{path}{begin}h{stop - start}", stop
    return path


def _gap(heat: HeatMap) -> float:
    """Paper between two rows, in units; none between thin rows."""
    return 0.14 if _frame_px(heat.height) / heat.units >= 6 else 0.0


def _missing(rows: Sequence[Row], *, of_all: bool) -> list[tuple[int, int]]:
    """First and end of each run of columns in which one of the rows, or all of them, were not measured."""
    table = np.stack([row.values for row in rows]) == NOT_MEASURED
    return over_columns.runs(np.asarray(table.all(axis=0) if of_all else table.any(axis=0)))


def _holes(heat: HeatMap) -> list[tuple[float, ...]]:
    """(left, right, bottom, top) of what to hatch below the cells, in columns and heights."""
    holes: list[tuple[float, ...]] = []
    for _, top, bottom in heat.heads:
        rows = [row for row in heat.rows if top <= row.top < bottom]
        runs = _missing(rows, of_all=False) if rows else []
        if len(runs) > MAX_HOLES:
            runs = [(runs[0][0], runs[-1][1])]
        holes += [(start, stop, -bottom, -top) for start, stop in runs]
    return holes


def has_holes(heat: HeatMap) -> bool:
    """Whether something was not measured for as long as a reader can see without zoom."""
    return any(stop - start >= heat.bundle for start, stop, _, _ in _holes(heat))


def shared_range(heat: HeatMap) -> Range1d:
    """The time of both plots: zooming one moves the other. At least four columns are shown."""
    start, end = heat.x.live([heat.x.start, heat.x.end]).tolist()
    shortest = min(end - start, 4 * (end - start) / heat.columns)
    return Range1d(start=start, end=end, bounds=(start, end), min_interval=shortest)


def _canvas(heat: HeatMap, y: Axis, shared: Range1d) -> Canvas:
    canvas = Canvas(heat.x, y, x_range=shared, zoom=True, left=theme.NAMES_PX)
    canvas.upright("dots", heat.phases)
    canvas.upright("axis", heat.profiled)
    return canvas


def _times(heat: HeatMap, columns: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Where columns start, in microseconds since the epoch."""
    width = (heat.x.end - heat.x.start) / heat.columns
    return np.asarray(heat.x.start + width * np.asarray(columns, np.float64))


def map_figure(heat: HeatMap, shared: Range1d) -> tuple[Figure, tuple[ColumnDataSource, ...]]:
    """The heat map over a range of time, and the tables of what can be shown as a line.

    The tables are in the order of ``HeatMap.choices``. The static drawing has no cells: see ``cells``.
    """
    canvas = _canvas(heat, heat.y, shared)
    if holes := _holes(heat):
        left, right, bottom, top = np.array(holes).T
        canvas.bars(UNKNOWN, (_times(heat, left), _times(heat, right), bottom, top)).level = "underlay"
    start, end = heat.x.live([heat.x.start, heat.x.end]).tolist()
    sources = []
    for kind, device in (("gpu", "Device"), ("core", "Core")):
        rows = heat.of(kind)
        source = _source(rows, several=heat.nodes > 1, gap=_gap(heat))
        sources.append(source)
        if not rows:
            continue
        glyph = Image(x=start, dw=end - start, y="y", dh="dh", color_mapper=_mapper(kind))
        drawn = canvas.live.add_glyph(source, glyph)
        tooltip = [(device, "@name"), ("Time", heat.x.told("$x")), ("Utilization (%)", "@image{0}")]
        if "low" in source.data:
            tooltip += [("Lowest sample (%)", "@low{0}"), ("Highest sample (%)", "@high{0}")]
        canvas.tooltip(tooltip, [drawn], formatters={"$x": "datetime"}, name="cells")
    return canvas.figure, (*sources, _others(heat))


def _source(rows: Sequence[Row], *, several: bool, gap: float) -> ColumnDataSource:
    ends = [row.ends for row in rows if row.ends]
    extremes = {name: [one[i][None, :] for one in ends] for i, name in enumerate(("low", "high"))}
    return ColumnDataSource(
        (extremes if ends and len(ends) == len(rows) else {})
        | {
            "image": [_bytes(row)[None, :] for row in rows],
            "name": [full_name(row, several=several) for row in rows],
            "group": [_group(row) for row in rows],
            "y": np.array([-row.top - row.height + gap / 2 for row in rows], np.float32),
            "dh": np.array([row.height - gap for row in rows], np.float32),
        }
    )


def _others(heat: HeatMap) -> ColumnDataSource:
    """Rows that are not drawn: all of one node and kind together, as a table and a list of their names."""
    several = heat.nodes > 1
    groups = [list(rows) for _, rows in groupby(heat.others, key=_group)]
    return ColumnDataSource(
        {
            "image": [np.stack([_bytes(row) for row in rows]) for rows in groups],
            "name": [[full_name(row, several=several) for row in rows] for rows in groups],
            "group": [_group(rows[0]) for rows in groups],
        }
    )


def _bytes(row: Row) -> Bytes:
    """As ``DeviceRows`` has them; the script of the page splits them."""
    return row.values if row.full is None else (row.values + FULL_BYTE * row.full).astype(np.uint8)


def _group(row: Row) -> str:
    """The heading under which a row is chosen."""
    return f"{escape_name(row.node, 40)}, {row.what}"


def full_name(row: Row, *, several: bool) -> str:
    """The name of a row without its node next to it: ``algo-1 gpu0``, ``algo-1 gpu0 memory``."""
    if row.kind == "node":
        return f"{escape_name(row.node, 40)} mean"
    name = f"{row.name} memory" if row.what == MEMORY else row.name
    return f"{escape_name(row.node, 40)} {name}" if several else name


def _mapper(kind: str) -> LinearColorMapper:
    """A color for each of 0 to 100%, one for a saturated core, nothing for what was not measured."""
    colors = theme.light()
    whole = Row(node="", what="", name="", values=np.arange(101, dtype=np.uint8), kind=kind)
    palette = [colors[f"h{step}"] for step in levels(whole).tolist()]
    if kind == "core":
        palette += [colors["lost"]] * FULL_BYTE
    return LinearColorMapper(palette=palette, low=-0.5, high=len(palette) - 0.5, high_color="#00000000")


def defaults(heat: HeatMap) -> tuple[Row, ...]:
    """The two devices whose means differ most: of GPUs, or a single GPU and the busiest core."""
    gpus = [row for row in heat.choices if row.what == GPU and len(row.measured)]
    cores = [row for row in heat.choices if row.what == CORE and len(row.measured)]
    if len(gpus) == 1 and cores:
        return gpus[0], max(cores, key=lambda row: row.mean)
    ranked = sorted(gpus or cores, key=lambda row: row.mean)
    return (ranked[0], ranked[-1]) if len(ranked) > 1 else tuple(ranked)


def lines_figure(
    heat: HeatMap, shared: Range1d, chosen: Sequence[Row], sources: Sequence[ColumnDataSource]
) -> Figure:
    """The chosen rows as lines from 0 to 100%, and hidden lines up to the number of series styles.

    The script of the page fills a line by name and tags: the tags of the plot are the ``sources``, that of a line is
    the place of its row in all of them.
    """
    canvas = _canvas(heat, upward(100), shared)
    canvas.live.name, canvas.live.tags = "single-devices", list(sources)
    middles = _times(heat, np.arange(heat.columns) + 0.5)
    places = {id(row): place for place, row in enumerate(heat.choices)}
    source = ColumnDataSource({"x": heat.x.live(middles)})
    # The script finds the lines in front of all else that is drawn.
    for i, ((style, _), row, side) in enumerate(zip_longest(theme.SERIES, chosen, _BESIDE), start=1):
        values = np.full(heat.columns, np.nan)
        if row is not None:
            values = np.where(row.values == NOT_MEASURED, np.nan, row.values)
        source.data[f"y{i}"] = values.astype(np.float32)
        drawn = canvas.zoomed_line(style, _still(middles, values, heat.bundle), source, f"y{i}")
        drawn.name = full_name(row, several=heat.nodes > 1) if row else ""
        drawn.tags = [places[id(row)]] if row else []
        drawn.visible = row is not None
        tooltip = [("Time", heat.x.told("@x")), ("$name", quantity(f"y{i}", "%", 0))]
        canvas.tooltip(tooltip, [drawn], formatters={"@x": "datetime"}, attachment=side)
    canvas.hatch([tuple(_times(heat, run).tolist()) for run in _missing(heat.rows, of_all=True)])
    return canvas.figure


def _still(
    times: npt.NDArray[np.float64], values: npt.NDArray[np.float64], size: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The lowest and the highest of every ``size`` points, in their order: on paper they look like all of them."""
    if size < 3:
        return times, values
    table = np.full((-(-len(values) // size), size), np.nan)
    table.flat[: len(values)] = values
    known = ~np.isnan(table)
    places = np.stack(
        [np.where(known, table, np.inf).argmin(axis=1), np.where(known, table, -np.inf).argmax(axis=1)],
        axis=1,
    )
    kept = (np.sort(places, axis=1) + size * np.arange(len(table))[:, None]).ravel()
    return times[kept], values[kept]


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
