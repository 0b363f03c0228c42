"""The same figures as static drawings: numbers for inline SVG, placed in percent.

They stand in the page before and without a script, and on paper. Heights run downwards as in SVG.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobreport.figures.box_plot import LOOP, borders, extent, labels, slots
from jobreport.figures.pie import COLOURS, INNER, OUTER
from jobreport.figures.scales import Tick, time_ticks
from jobreport.figures.time_line import boundaries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.formats import Scale
    from jobrules.result import Box, Columns, Course, Phase, TimeLine

#: Columns of a static time line: enough for a small multiple, and a fifth of the bytes.
MOST_COLUMNS = 200


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A part of the time axis, in percent."""

    at: float
    width: float


def stretch(start_us: int, end_us: int, axis: tuple[int, int]) -> Stretch:
    """Where a time lies on an axis; the axis must cover some time."""
    first, last = axis
    at = 100 * (max(start_us, first) - first) / (last - first)
    return Stretch(at=round(at, 2), width=round(100 * (min(end_us, last) - first) / (last - first) - at, 2))


@dataclass(frozen=True, kw_only=True)
class StillLine:
    """A time line as two paths in a box of 1000 × 100."""

    band: str
    line: str
    gaps: tuple[Stretch, ...]
    boundaries: tuple[float, ...]
    ticks: tuple[Tick, ...]


def bundled(columns: Columns) -> int:
    """How many columns a drawing puts into one, so that it stays small: 1 where they are few."""
    return -(-columns.count // MOST_COLUMNS)


def still_line(line: TimeLine, columns: Columns, course: Course, scale: Scale, top: float) -> StillLine:
    """Paths that break wherever a column has no sample."""
    axis = (columns.start_us, columns.start_us + columns.count * columns.width_us)
    bundle = bundled(columns)
    per_column = 1000 * bundle / columns.count

    def height(value: float) -> float:
        return round(100 * (1 - min(value / scale.factor, top) / top), 1)

    line_parts: list[str] = []
    band_parts: list[str] = []
    run: list[tuple[float, float, float, float]] = []

    def close() -> None:
        if not run:
            return
        half = per_column / 2
        xs = [run[0][0] - half, *(x for x, *_ in run), run[-1][0] + half]
        tops, lows = ([r[i] for r in run] for i in (3, 2))
        means = [r[1] for r in run]
        line_parts.append(_path(xs, [means[0], *means, means[-1]]))
        there = _path(xs, [tops[0], *tops, tops[-1]])
        back = _path(xs[::-1], [lows[-1], *lows[::-1], lows[0]])
        band_parts.append(f"{there}L{back[1:]}z")
        run.clear()

    for i in range(0, columns.count, bundle):
        held = [
            (m, a, b)
            for m, a, b in zip(
                line.mean[i : i + bundle], line.low[i : i + bundle], line.high[i : i + bundle], strict=True
            )
            if m is not None and a is not None and b is not None
        ]
        if not held:
            close()
            continue
        x = 1000 * min(i + bundle / 2, columns.count) / columns.count
        mean = sum(m for m, _, _ in held) / len(held)
        run.append((x, height(mean), height(min(a for _, a, _ in held)), height(max(b for *_, b in held))))
    close()
    return StillLine(
        band="".join(band_parts),
        line="".join(line_parts),
        gaps=tuple(stretch(g.start_us, g.end_us, axis) for g in course.gaps if g.node == line.node),
        boundaries=tuple(stretch(us, us, axis).at for us in boundaries(course)),
        ticks=time_ticks(*axis, most=5),
    )


def _path(xs: Sequence[float], ys: Sequence[float]) -> str:
    """Absolute start, then relative steps, which are shorter; rounding does not add up."""
    x, y = round(xs[0] * 10), round(ys[0] * 10)
    parts = [f"M{_tenth(x)} {_tenth(y)}l"]
    for next_x, next_y in zip((round(v * 10) for v in xs[1:]), (round(v * 10) for v in ys[1:]), strict=True):
        parts.append(f"{_tenth(next_x - x)} {_tenth(next_y - y)} ")
        x, y = next_x, next_y
    return "".join(parts).rstrip()


def _tenth(value: int) -> str:
    return f"{value / 10:g}"


@dataclass(frozen=True, kw_only=True)
class StillBox:
    """One box; places and heights in percent."""

    #: ``loop`` or ``whole``.
    kind: str
    left: float
    width: float
    top: float
    height: float
    median: float
    p95: float
    upper: float
    lower: float

    @property
    def middle(self) -> float:
        """Where the whiskers stand."""
        return round(self.left + self.width / 2, 2)


@dataclass(frozen=True, kw_only=True)
class StillBoxes:
    """The boxes of all GPUs with their axis."""

    boxes: tuple[StillBox, ...]
    borders: tuple[float, ...]
    #: Device and, below it, node; either may be empty.
    labels: tuple[tuple[float, str, str], ...]


def still_boxes(boxes: Sequence[Box]) -> StillBoxes:
    """The static drawing of ``box_plot``."""
    places = slots(boxes)
    per = 100 / max(len(places), 1)
    drawn = []
    for i, slot in enumerate(places):
        for j, box in enumerate(slot.boxes):
            left, right = extent(i, j, len(slot.boxes), len(places))
            drawn.append(
                StillBox(
                    kind="loop" if box.basis == LOOP else "whole",
                    left=round(left * per, 2),
                    width=round((right - left) * per, 2),
                    top=round(100 - box.p75, 1),
                    height=round(box.p75 - box.p25, 1),
                    median=round(100 - box.p50, 1),
                    p95=round(100 - box.p95, 1),
                    upper=round(100 - box.upper, 1),
                    lower=round(100 - box.lower, 1),
                )
            )
    named = [(round((i + 0.5) * per, 2), *text.partition("\n")[::2]) for i, text in labels(places).items()]
    return StillBoxes(
        boxes=tuple(drawn),
        borders=tuple(round(b * per, 2) for b in borders(places)),
        labels=tuple(named),
    )


@dataclass(frozen=True, kw_only=True)
class StillWedge:
    """One wedge of the ring in a box of 100 × 100."""

    key: str
    token: str
    path: str


def still_ring(phases: Sequence[Phase]) -> tuple[StillWedge, ...]:
    """The static drawing of ``pie``; nothing where the phases cover no time."""
    spans = [max(0, p.end_us - p.start_us) for p in phases]
    whole = sum(spans)
    wedges = []
    for i, phase in enumerate(phases):
        if not spans[i]:
            continue
        start, end = sum(spans[:i]) / whole, sum(spans[: i + 1]) / whole
        wedges.append(StillWedge(key=phase.key, token=COLOURS[phase.key], path=_wedge(start, end)))
    return tuple(wedges)


def _wedge(start: float, end: float) -> str:
    """A ring segment between two shares of a turn; a whole turn is drawn as two halves."""
    if end - start > 0.999:
        return _wedge(start, start + 0.5) + _wedge(start + 0.5, start + 1 - 1e-9)
    wide = int(end - start > 0.5)

    def point(turn: float, radius: float) -> str:
        angle = 2 * math.pi * turn
        return f"{50 + 50 * radius * math.sin(angle):.2f} {50 - 50 * radius * math.cos(angle):.2f}"

    outer, inner = 50 * OUTER, 50 * INNER
    return (
        f"M{point(start, OUTER)}A{outer:g} {outer:g} 0 {wide} 1 {point(end, OUTER)}"
        f"L{point(end, INNER)}A{inner:g} {inner:g} 0 {wide} 0 {point(start, INNER)}z"
    )
