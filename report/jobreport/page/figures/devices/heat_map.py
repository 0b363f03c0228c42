"""The utilization of all GPUs and cores over time as a heat map."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.formats import escape_name
from jobreport.page.figures import over_columns, theme
from jobreport.page.figures.canvas import UNKNOWN
from jobreport.page.figures.devices.rows import Row, frame_px, full_name, mean, missing
from jobreport.page.figures.models import ColumnDataSource, Image, LinearColorMapper
from jobrules.analyses.devices import FULL as FULL_BYTE
from jobrules.analyses.devices import NOT_MEASURED

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from jobreport.page.figures.canvas import Figure
    from jobreport.page.figures.devices.rows import Bytes, HeatMap
    from jobreport.page.figures.models import Range1d

#: Hatched stretches of a node; more are one.
MAX_HOLES = 40
_STEPS = 10
#: The color of a saturated core, beyond the steps.
FULL = _STEPS


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
    return replace(row, values=mean(table.T), full=full)


def _path(row: Row, chosen: npt.NDArray[np.bool_]) -> str:
    """A stroke over each run of chosen columns."""
    path, at = "", 0
    for start, stop in over_columns.runs(chosen):
        begin = f"m{start - at} 0" if path else f"M{start} {10 * row.middle:.3g}"
        path, at = f"{path}{begin}h{stop - start}", stop
    return path


def _gap(heat: HeatMap) -> float:
    """Paper between two rows, in units; none between thin rows."""
    return 0.14 if frame_px(heat.height) / heat.units >= 6 else 0.0


def _holes(heat: HeatMap) -> list[tuple[float, ...]]:
    """(left, right, bottom, top) of what to hatch below the cells, in columns and heights."""
    holes: list[tuple[float, ...]] = []
    for _, top, bottom in heat.heads:
        rows = [row for row in heat.rows if top <= row.top < bottom]
        runs = missing(rows, of_all=False) if rows else []
        if len(runs) > MAX_HOLES:
            runs = [(runs[0][0], runs[-1][1])]
        holes += [(start, stop, -bottom, -top) for start, stop in runs]
    return holes


def has_holes(heat: HeatMap) -> bool:
    """Whether something was not measured for as long as a reader can see without zoom."""
    return any(stop - start >= heat.bundle for start, stop, _, _ in _holes(heat))


def map_figure(heat: HeatMap, shared: Range1d) -> tuple[Figure, tuple[ColumnDataSource, ...]]:
    """The heat map over a range of time, and the tables of what can be shown as a line.

    The tables are in the order of ``HeatMap.choices``. The static drawing has no cells: see ``cells``.
    """
    canvas = heat.canvas(heat.y, shared)
    if holes := _holes(heat):
        left, right, bottom, top = np.array(holes).T
        canvas.bars(UNKNOWN, (heat.times(left), heat.times(right), bottom, top)).level = "underlay"
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


def _mapper(kind: str) -> LinearColorMapper:
    """A color for each of 0 to 100%, one for a saturated core, nothing for what was not measured."""
    colors = theme.light()
    whole = Row(node="", what="", name="", values=np.arange(101, dtype=np.uint8), kind=kind)
    palette = [colors[f"h{step}"] for step in levels(whole).tolist()]
    if kind == "core":
        palette += [colors["lost"]] * FULL_BYTE
    return LinearColorMapper(palette=palette, low=-0.5, high=len(palette) - 0.5, high_color="#00000000")
