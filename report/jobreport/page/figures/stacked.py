"""Bars of at most 100%, one below the other, each in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.formats import escape_name
from jobreport.page.figures import theme
from jobreport.page.figures.canvas import Canvas, Figure
from jobreport.page.figures.chart import downward, quantity, upward
from jobreport.page.figures.names import cut_apart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.page.figures.chart import Axis

#: Half the height of a bar, in rows.
HALF = 0.36


class Part(Struct, frozen=True, kw_only=True):
    """One part of every bar."""

    #: Class of its fill.
    style: str
    label: str
    #: Of each bar: percent, and a quantity in words.
    percents: tuple[float, ...]
    amounts: tuple[str, ...]
    #: In the unit of the axis, if that is not percent.
    lengths: tuple[float, ...] = ()


def stacked(
    names: Sequence[str], parts: Sequence[Part], *, bar: str, amount: str, x: Axis | None = None
) -> Figure:
    """The first bar on top; ``bar`` and ``amount`` name both in a tooltip. One bar alone has no name.

    ``x`` is the axis of parts with lengths; without it, all bars are 100% long.
    """
    several = len(names) > 1
    x = x or upward(100, 4, unit="%")
    y = downward(cut_apart(names) if several else [""])
    canvas = Canvas(x, y, left=theme.NAMES_PX if several else 0)
    ends = np.cumsum([np.zeros(len(names)), *(part.lengths or part.percents for part in parts)], axis=0)
    middle = -0.5 - np.arange(len(names))
    escaped = [escape_name(name, 60) for name in names]
    drawn = [
        canvas.bars(
            part.style,
            (left, right, middle - HALF, middle + HALF),
            {
                "percent": np.array(part.percents),
                "name": escaped,
                "part": [escape_name(part.label, 60)] * len(names),
                "amount": list(part.amounts),
            },
            series=f"kind-{i}",
            apart=True,
        )
        for i, (part, left, right) in enumerate(zip(parts, ends[:-1], ends[1:], strict=True))
    ]
    rows = [("Part", "@part"), ("Share", quantity("percent", "%")), (amount, "@amount")]
    canvas.tooltip([*([(bar, "@name")] if several else []), *rows], drawn)
    return canvas.figure
