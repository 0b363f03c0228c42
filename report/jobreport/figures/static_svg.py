"""The static drawing of the ring of phases, and places on a time axis, in percent.

The page shows them without scripts and on paper. Heights run downwards as in SVG.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.figures.summary import COLORS, INNER, OUTER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.verdict.phases import Phase


class Stretch(Struct, frozen=True, kw_only=True):
    """A part of the time axis, in percent."""

    at: float
    width: float


def stretch(start_us: int, end_us: int, axis: tuple[int, int]) -> Stretch:
    """The place of a time span on an axis, which must not be empty."""
    first, last = axis
    at = 100 * (max(start_us, first) - first) / (last - first)
    return Stretch(at=round(at, 2), width=round(100 * (min(end_us, last) - first) / (last - first) - at, 2))


class StaticWedge(Struct, frozen=True, kw_only=True):
    """One wedge of the ring in a box of 100 × 100."""

    key: str
    token: str
    path: str


def static_ring(phases: Sequence[Phase]) -> tuple[StaticWedge, ...]:
    """The static drawing of ``pie``; empty if the phases cover no time."""
    spans = [max(0, p.end_us - p.start_us) for p in phases]
    whole = sum(spans)
    wedges = []
    for i, phase in enumerate(phases):
        if not spans[i]:
            continue
        start, end = sum(spans[:i]) / whole, sum(spans[: i + 1]) / whole
        wedges.append(StaticWedge(key=phase.key, token=COLORS[phase.key], path=_wedge(start, end)))
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
