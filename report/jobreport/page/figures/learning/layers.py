"""Tensors by layer: a color for each step, and how much weights moved."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from jobreport.formats import compact, escape_name
from jobreport.page.figures import chart, over_columns, theme
from jobreport.page.figures.canvas import UNKNOWN, Canvas
from jobreport.page.figures.devices.heat_map import Cells
from jobreport.page.figures.devices.rows import HEIGHTS, frame_px
from jobreport.page.figures.learning.courses import decades
from jobreport.page.figures.models import ColumnDataSource, Image, LinearColorMapper
from jobreport.page.figures.names import cut_apart
from jobrules.analyses.learning.layers import DECADES, FULL, NOT_FINITE, NOT_RECORDED, ZERO

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from jobreport.page.figures.canvas import Figure
    from jobreport.page.figures.chart import Axis
    from jobrules.analyses.learning.layers import LayerMap, Spread

    Levels = npt.NDArray[np.int64]

#: Classes of the cells of a map after the ten of the scale: not finite, and exactly 0.
_NOT_FINITE, _ZERO = 10, 11
#: Updates of weights, by their own size, in powers of ten: what is drawn, and what is usual.
_UPDATES, USUAL = (-12, 3), (-6, -1)
_LABEL_PX = 13


def short_names(names: Sequence[str], counts: Sequence[int]) -> list[str]:
    """Names next to the rows, without what all begin and end with."""
    parts = zip(*(one.split(".")[:-1] for one in names), strict=False)
    begin = len([*itertools.takewhile(lambda some: len({*some}) == 1, parts)]) if len(names) > 1 else 0
    ends = {one.rpartition(".")[2] for one in names if "." in one}
    end = f".{ends.pop()}" if len(ends) == 1 and all("." in one for one in names) else ""
    own = [".".join(one.removesuffix(end).split(".")[begin:]) or one for one in names]
    many = [f"{one} ({n})" if n > 1 else one for one, n in zip(own, counts, strict=True)]
    return cut_apart(many)


def height_of(rows: int) -> int:
    """The lowest height with room for a label at each row, in rem."""
    return next((one for one in HEIGHTS if frame_px(one) >= _LABEL_PX * rows), HEIGHTS[-1])


def _names(names: Sequence[str], counts: Sequence[int]) -> Axis:
    px = frame_px(height_of(len(names))) / len(names)
    every = math.ceil(_LABEL_PX / px) if px < _LABEL_PX - 1 else 1
    labels = short_names(names, counts)
    return chart.downward([one if i % every == 0 else "" for i, one in enumerate(labels)])


def layer_map(found: LayerMap, *, shares: bool) -> Figure:
    """Rows of colors: of shares, or of sizes. The static drawing has no cells: see ``cells``."""
    columns = found.columns
    x = chart.along(columns.start, columns.start + columns.count * columns.width, 5)
    y = _names([one.name for one in found.rows], [one.tensors for one in found.rows])
    canvas = Canvas(x, y, left=theme.NAMES_PX)
    if has_holes(found):
        canvas.bars(UNKNOWN, (x.start, x.end, canvas.y.start, 0)).level = "underlay"
    n = len(found.rows)
    colors = theme.light()
    palette = [*(colors[f"h{i}"] for i in range(10)), colors["lost"], colors["ink"]]
    tables = [_classes_of(one.levels) for one in found.rows]
    source = ColumnDataSource(
        {
            "image": [np.where(one < 0, 255, one).astype(np.uint8)[None, :] for one in tables],
            "value": [_values(one.levels, found.top, shares=shares)[None, :] for one in found.rows],
            "name": [escape_name(one.name, 60) for one in found.rows],
            "y": np.arange(-1, -n - 1, -1, dtype=np.float32) + np.float32(0.05),
            "dh": np.full(n, 0.9, np.float32),
        }
    )
    mapper = LinearColorMapper(palette=palette, low=-0.5, high=len(palette) - 0.5, high_color="#00000000")
    glyph = Image(x=float(x.start), dw=float(x.end - x.start), y="y", dh="dh", color_mapper=mapper)
    drawn = canvas.live.add_glyph(source, glyph)
    value = ("Share (%)", "@value{0}") if shares else ("log10 of the rms", "@value{0.0}")
    canvas.tooltip([("Layer", "@name"), ("Step", "$x{0,0}"), value], [drawn])
    return canvas.figure


def _values(levels: bytes, top: float, *, shares: bool) -> npt.NDArray[np.float32]:
    """(columns,) percent, or the power of ten of each level; −∞ for exactly 0, NaN for cells without a number."""
    found = np.frombuffer(levels, np.uint8).astype(np.float32)
    found[found > FULL] = np.where(found[found > FULL] == ZERO, -np.inf, np.nan)
    return found if shares else (math.log10(top or 1.0) + DECADES * (found / FULL - 1)).astype(np.float32)


def _classes_of(levels: bytes) -> Levels:
    """(columns,) the class of each cell, 0 to 9 of the scale; -1 if it was not recorded."""
    found = np.frombuffer(levels, np.uint8).astype(np.int64)
    steps = np.minimum(found // (FULL // 10), 9)
    for level, step in ((NOT_FINITE, _NOT_FINITE), (ZERO, _ZERO), (NOT_RECORDED, -1)):
        steps[found == level] = step
    return steps


def has_holes(found: LayerMap) -> bool:
    """Whether something was not recorded."""
    return any(NOT_RECORDED in one.levels for one in found.rows)


def cells(found: LayerMap) -> Cells:
    """The cells of the static drawing, in a box as wide as there are columns and ten high per row."""
    paths: dict[int, str] = {}
    for i, row in enumerate(found.rows):
        steps = _classes_of(row.levels)
        for step in sorted({*steps.tolist()} - {-1}):
            strokes = (f"M{a} {10 * i + 5}h{b - a}" for a, b in over_columns.runs(steps == step))
            paths[step] = paths.get(step, "") + "".join(strokes)
    return Cells(thickness=9, paths=tuple(sorted(paths.items())))


def decade_labels(found: LayerMap) -> tuple[str, str]:
    """What the ends of the scale of gradients stand for."""
    top = found.top or 1.0
    return compact(top * 10.0**-DECADES), compact(top)


def spreads(found: Sequence[Spread]) -> Figure:
    """A box for each row: p25 to p75 with the median, and lines to the lowest and the highest, on a scale of powers."""
    table = np.array([(one.low, one.p25, one.median, one.p75, one.high) for one in found], np.float64).T
    positive = table[table > 0]
    least, most = _UPDATES
    low = max(least, min(USUAL[0] - 1, math.floor(math.log10(positive.min())) if len(positive) else 0))
    high = min(most, max(USUAL[1] + 1, math.ceil(math.log10(positive.max())) if len(positive) else 0))
    x = decades(low, high)
    canvas = Canvas(
        x, _names([one.name for one in found], [one.tensors for one in found]), left=theme.NAMES_PX
    )
    with np.errstate(divide="ignore"):
        places = np.clip(np.log10(table), low, high)
    top = -np.arange(len(found), dtype=np.float64)
    canvas.bars("band2", ([USUAL[0]], [USUAL[1]], canvas.y.start, 0)).level = "underlay"
    columns: dict[str, Any] = {"name": [escape_name(one.name, 60) for one in found]}
    columns |= {part: [compact(getattr(one, part)) for one in found] for part in ("low", "median", "high")}
    drawn = canvas.bars("box-loop", (places[1], places[3], top - 0.85, top - 0.15), columns)
    canvas.segments("axis", (places[[0, 3]].ravel(), places[[1, 4]].ravel(), *(np.tile(top - 0.5, 2),) * 2))
    canvas.segments("median", (places[2], places[2], top - 0.85, top - 0.15))
    canvas.tooltip(
        [("Layer", "@name"), ("Lowest", "@low"), ("Median", "@median"), ("Highest", "@high")], [drawn]
    )
    return canvas.figure
