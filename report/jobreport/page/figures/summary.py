"""The phases of a job as a ring, and places on a time axis, in percent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from jobrules.model.time_parts import named
from jobrules.text import duration, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.verdict.phases import Phase

INNER, OUTER = 30, 48


class Stretch(Struct, frozen=True, kw_only=True):
    """A part of the time axis, in percent."""

    at: float
    width: float


def stretch(start_us: int, end_us: int, axis: tuple[int, int]) -> Stretch:
    """The place of a time span on an axis, which must not be empty."""
    first, last = axis
    at = 100 * (max(start_us, first) - first) / (last - first)
    return Stretch(at=round(at, 2), width=round(100 * (min(end_us, last) - first) / (last - first) - at, 2))


class Wedge(Struct, frozen=True, kw_only=True):
    """One wedge of the ring in a box of 100 × 100."""

    fill: str
    path: str
    #: What it stands for, next to the pointer.
    title: str


def ring(phases: Sequence[Phase]) -> tuple[Wedge, ...]:
    """A wedge per phase, clockwise from the top; empty if the phases cover no time."""
    spans = [max(0, phase.end_us - phase.start_us) for phase in phases]
    whole = sum(spans)
    wedges = []
    for i, (phase, span) in enumerate(zip(phases, spans, strict=True)):
        if span:
            path = _wedge(sum(spans[:i]) / whole, sum(spans[: i + 1]) / whole)
            title = f"{phase.label}: {duration(span)}, {percent(phase.percent)}"
            wedges.append(Wedge(fill=named(phase.key).fill, path=path, title=title))
    return tuple(wedges)


def _wedge(start: float, end: float) -> str:
    """A ring segment between two shares of a turn; a whole turn is drawn as two halves."""
    if end - start > 0.999:
        return _wedge(start, start + 0.5) + _wedge(start + 0.5, start + 1 - 1e-9)
    wide = int(end - start > 0.5)

    def point(turn: float, radius: float) -> str:
        angle = 2 * math.pi * turn
        return f"{50 + radius * math.sin(angle):.2f} {50 - radius * math.cos(angle):.2f}"

    return (
        f"M{point(start, OUTER)}A{OUTER} {OUTER} 0 {wide} 1 {point(end, OUTER)}"
        f"L{point(end, INNER)}A{INNER} {INNER} 0 {wide} 0 {point(start, INNER)}z"
    )
