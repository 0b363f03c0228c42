"""An icicle: functions on stacks, each above what it called, as wide as its share of the samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.formats import escape_name
from jobrules.causes.code_lines import CodePlace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.analyses.code_lines import StackPart

#: Parts that are narrower are not drawn, in percent; nor is what is deeper.
NARROWEST, DEEPEST = 0.5, 24
#: Heights of ``drawing.css``, and of a row, in rem.
_HEIGHTS, _ROW = (8, 12, 16, 20, 24, 28), 1.125


class Bar(Struct, frozen=True, kw_only=True):
    """A function, with its place in percent and its row."""

    x: float
    width: float
    row: int
    percent: float
    label: str
    style: str


def icicle(parts: Sequence[StackPart], counts: Sequence[int], whole: int, own: str) -> list[Bar]:
    """The parts, each caller before what it called, by the samples of each; the class of own code is ``own``."""
    drawn: list[Bar | None] = []
    #: Where the next part begins that one called; the last is that of no caller.
    free = [0.0] * (len(parts) + 1)
    for at, (part, count) in enumerate(zip(parts, counts, strict=True)):
        percent = 100 * count / max(1, whole)
        above = drawn[part.parent] if part.parent >= 0 else None
        row = above.row + 1 if above else 0
        if percent < NARROWEST or row >= DEEPEST or (part.parent >= 0 and above is None):
            drawn.append(None)
            continue
        x = free[part.parent]
        free[part.parent], free[at] = x + percent, x
        frame = part.frame
        place = CodePlace(file=frame.file, line=frame.line, function=frame.function)
        name, style = (place.name, own) if frame.place == "own" else (frame.dotted, "f3")
        drawn.append(
            Bar(x=x, width=percent, row=row, percent=percent, label=escape_name(name, 100), style=style)
        )
    return [one for one in drawn if one]


def height(bars: Sequence[Bar]) -> int:
    """The least height for all rows, in rem."""
    rows = 1 + max(one.row for one in bars)
    return next(rem for rem in _HEIGHTS if rem >= rows * _ROW)
