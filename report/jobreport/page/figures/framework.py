"""Bars ranked by their length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.formats import escape_name, percent
from jobreport.page.figures.canvas import Canvas, Figure
from jobreport.page.figures.chart import downward, quantity, upward
from jobreport.page.figures.names import fitted
from jobreport.page.figures.scales import ceiling
from jobreport.page.figures.stacked import HALF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.analyses.framework import Slice

#: Room for the names of ranked bars, which are long; ``drawing.css`` has the same.
RANKED_PX = 168
#: A part with less than this many percent is joined with others of its kind.
SMALL = 2.0
#: Ranked bars that are drawn.
MAX_RANKED = 10
#: A bar longer than this part of the axis has its value inside.
_LONG = 0.72


class Rank(Struct, frozen=True, kw_only=True):
    """A bar among others of its kind."""

    name: str
    percent: float
    #: A time and calls, shown on hover.
    detail: str
    #: Whether it stands for all that are not drawn.
    rest: bool = False


def ranked(ranks: Sequence[Rank]) -> Figure:
    """Bars from 0, the longest first and what is left last, each with its value in percent."""
    x = upward(min(100.0, ceiling(max((one.percent for one in ranks), default=0.0))), unit="%")
    canvas = Canvas(x, downward([fitted(one.name, RANKED_PX) for one in ranks]), left=RANKED_PX)
    drawn = []
    for rest, style in ((False, "u"), (True, "n1")):
        rows = [(-i - 0.5, one) for i, one in enumerate(ranks) if one.rest is rest]
        if not rows:
            continue
        middle, percents = np.array([(at, one.percent) for at, one in rows]).T
        columns = {
            "name": [escape_name(one.name, 60) for _, one in rows],
            "detail": [one.detail for _, one in rows],
        }
        drawn.append(canvas.bars(style, (0, percents, middle - HALF, middle + HALF), columns))
        for inside, anchor, gap in ((False, "start", 0.4), (True, "end", -0.4)):
            values = [
                (one.percent, at, percent(one.percent))
                for at, one in rows
                if (one.percent > _LONG * x.end) is inside
            ]
            canvas.text(values, anchor=anchor, dx=gap, style="inside" if inside and not rest else "strong")
    canvas.tooltip([("Name", "@name"), ("Share", quantity("right", "%")), ("Time", "@detail")], drawn)
    return canvas.figure


def of_slices(slices: Sequence[Slice], seconds: Sequence[str]) -> tuple[Rank, ...]:
    """Parts as bars; those below 2% and those after the tenth are one bar, "other (n)"."""
    large = [i for i, one in enumerate(slices) if one.percent >= SMALL and one.count == 1][:MAX_RANKED]
    small = [one for i, one in enumerate(slices) if i not in large]
    # A single small part keeps its name.
    if len(small) == 1 and small[0].count == 1:
        large.append(slices.index(small[0]))
        small = []
    found = [Rank(name=slices[i].name, percent=slices[i].percent, detail=seconds[i]) for i in large]
    if small:
        found.append(other(sum(one.count for one in small), sum(one.percent for one in small)))
    return tuple(found)


def other(count: int, share: float) -> Rank:
    """The bar of what is left."""
    return Rank(
        name=f"other ({count})", percent=round(share, 1), detail="all of them, see the table", rest=True
    )
