"""Shares of the framework's time: bars that add up to 100%, and bars ranked by their length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, HBar, Plot, Text
from msgspec import Struct

from jobreport.figures import theme
from jobreport.figures.chart import (
    Axis,
    Drawing,
    Label,
    Mark,
    bars,
    downward,
    hover,
    live_plot,
    quantity,
    upward,
)
from jobreport.figures.names import fitted
from jobreport.figures.scales import ceiling
from jobreport.formats import escape_name, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.analyses.framework import Slice

#: Class of a fill → its token.
FILLS = {
    "u": "used",
    "u2": "used2",
    "u3": "used3",
    "l": "lost",
    "f2": "rest2",
    "f3": "rest3",
    "n1": "line",
}
#: Room for the names of ranked bars, which are long; ``drawing.css`` has the same.
RANKED_PX = 168
#: A part with less than this many percent is joined with others of its kind.
SMALL = 2.0
#: Ranked bars that are drawn.
MAX_RANKED = 10
#: Half the height of a bar, in rows.
_HALF = 0.36
#: A bar longer than this part of the axis has its value inside.
_LONG = 0.72
#: Distance of a value from the end of its bar.
_GAP_EM, _GAP_PX = 0.4, 5


class Stack(Struct, frozen=True, kw_only=True):
    """A bar of 100%: its name, and the percent of each kind."""

    name: str
    percents: tuple[float, ...]
    #: How long 100% is, shown on hover.
    whole: str


class Rank(Struct, frozen=True, kw_only=True):
    """A bar among others of its kind."""

    name: str
    percent: float
    #: A time and calls, shown on hover.
    detail: str
    #: Whether it stands for all that are not drawn.
    rest: bool = False


class Pair(Struct, frozen=True, kw_only=True):
    """A static drawing and its live plot."""

    drawing: Drawing
    live: Plot


def stacked(stacks: Sequence[Stack], kinds: Sequence[str], fills: Sequence[str]) -> Pair:
    """Bars of 100%, the first one on top; ``fills`` are the classes of the kinds. One bar alone has no name."""
    several = len(stacks) > 1
    x = upward(100, 4)
    y = downward([fitted(one.name) if several else "" for one in stacks])
    plot = live_plot(x, y, left=theme.NAMES_PX if several else 0)
    percents = np.array([one.percents for one in stacks], np.float64).reshape(len(stacks), len(kinds))
    right = np.cumsum(percents, axis=1)
    left = right - percents
    middle = -np.arange(len(stacks)) - 0.5
    colors = theme.light()
    marks: list[Mark] = []
    drawn = []
    for i, (kind, fill) in enumerate(zip(kinds, fills, strict=True)):
        series = f"kind-{i}"
        sides = left[:, i], right[:, i], middle - _HALF, middle + _HALF
        marks.append(bars(f"{fill} stroke", x, y, sides, series=series))
        source = ColumnDataSource(
            {
                "y": middle,
                "left": left[:, i],
                "right": right[:, i],
                "percent": percents[:, i],
                "name": [escape_name(one.name, 60) for one in stacks],
                "kind": [escape_name(kind, 60)] * len(stacks),
                "whole": [one.whole for one in stacks],
            }
        )
        glyph = HBar(
            y="y",
            left="left",
            right="right",
            height=2 * _HALF,
            fill_color=colors[FILLS[fill]],
            line_color=colors["paper"],
        )
        drawn.append(plot.add_glyph(source, glyph, name=series))
    shown = [
        *([("Rank", "@name")] if several else []),
        ("Kind", "@kind"),
        ("Share", quantity("percent", "%")),
        ("Of", "@whole"),
    ]
    plot.add_tools(hover(shown, drawn))
    return Pair(drawing=Drawing(x=x, y=y, marks=tuple(marks)), live=plot)


def ranked(ranks: Sequence[Rank]) -> Pair:
    """Bars from 0, the longest first and what is left last, each with its value in percent."""
    top = min(100.0, ceiling(max((one.percent for one in ranks), default=0.0)))
    x = upward(top)
    y = downward([fitted(one.name, RANKED_PX) for one in ranks])
    plot = live_plot(x, y, left=RANKED_PX)
    marks: list[Mark] = []
    drawn = []
    for rest, fill in ((False, "u"), (True, "n1")):
        rows = [(-i - 0.5, one) for i, one in enumerate(ranks) if one.rest is rest]
        if not rows:
            continue
        middle = np.array([at for at, _ in rows])
        ends = np.array([one.percent for _, one in rows])
        marks.append(bars(fill, x, y, (0, ends, middle - _HALF, middle + _HALF)))
        source = ColumnDataSource(
            {
                "y": middle,
                "percent": ends,
                "name": [escape_name(one.name, 60) for _, one in rows],
                "detail": [one.detail for _, one in rows],
            }
        )
        glyph = HBar(
            y="y",
            left=0,
            right="percent",
            height=2 * _HALF,
            fill_color=theme.light()[FILLS[fill]],
            line_color=None,
        )
        drawn.append(plot.add_glyph(source, glyph))
    marks += _values(plot, ranks, x)
    shown = [("Name", "@name"), ("Share", quantity("percent", "%")), ("Time", "@detail")]
    plot.add_tools(hover(shown, drawn))
    return Pair(drawing=Drawing(x=x, y=y, marks=tuple(marks)), live=plot)


def _values(plot: Plot, ranks: Sequence[Rank], x: Axis) -> list[Label]:
    """The value of each bar next to its end, or inside if there is no room, in drawing and live plot."""
    labels = []
    for inside, on_gray in ((False, False), (False, True), (True, False), (True, True)):
        rows = [
            (i, one)
            for i, one in enumerate(ranks)
            if (one.percent > _LONG * x.end) is inside and one.rest is on_gray
        ]
        if not rows:
            continue
        source = ColumnDataSource(
            {
                "x": [one.percent for _, one in rows],
                "y": [-i - 0.5 for i, _ in rows],
                "text": [percent(one.percent) for _, one in rows],
            }
        )
        glyph = Text(
            x="x",
            y="y",
            text="text",
            x_offset=-_GAP_PX if inside else _GAP_PX,
            text_align="right" if inside else "left",
            text_baseline="middle",
            text_color=theme.light()["paper" if inside and not on_gray else "ink"],
            text_font=value(theme.font()),
            text_font_size=theme.FONT_SIZE,
        )
        plot.add_glyph(source, glyph)
        labels += [
            Label(
                text=percent(one.percent),
                x=float(x.place(one.percent)),
                y=100 * (i + 0.5) / len(ranks),
                anchor="end" if inside else "start",
                dx=-_GAP_EM if inside else _GAP_EM,
                dy=0.32,
                style="inside" if inside and not on_gray else "strong",
            )
            for i, one in rows
        ]
    return labels


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
        name=f"other ({count})",
        percent=round(share, 1),
        detail="all of them, see the table",
        rest=True,
    )
