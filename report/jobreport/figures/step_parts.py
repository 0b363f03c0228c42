"""What steps spent their time on: outliers and normal steps, and the last steps one by one.

Every figure has a static drawing and a live plot, from the same axes and numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from bokeh.models import ColumnDataSource, HBar, Plot, Quad

from jobreport.figures import chart, theme
from jobreport.figures.chart import Area, Axis, Drawing, Mark
from jobreport.figures.scales import ceiling
from jobreport.figures.steps import upward
from jobreport.formats import escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bokeh.models.renderers.renderer import DataRenderer

    from jobreport.figures.steps import Unit
    from jobrules.analyses.step_parts import LastSteps, StepContrast, StepPart
    from jobrules.model import FloatArray

#: Fills by role, from the first class of the role on.
_ROLES = {
    "work": (("u", "used"), ("u2", "used2"), ("u3", "used3"), ("f2", "rest2")),
    "other": (("n2", "ink2"), ("n1", "line"), ("f3", "rest3")),
    "wait": (("l", "lost"),),
}
NORMAL, OUTLIER = ("u", "used"), ("l", "lost")


def fill(part: StepPart, parts: Sequence[StepPart]) -> tuple[str, str]:
    """Class and token of a class of time: the first of its role is the strongest."""
    if part.role == "unknown":
        return "x", "void"
    place = [one for one in parts if one.role == part.role].index(part)
    fills = _ROLES[part.role]
    return fills[place % len(fills)]


# --- normal steps and outliers


def _contrast_axes(contrast: StepContrast) -> tuple[Axis, Axis]:
    names = [
        escape_name(one.name + (f", {one.device}" if one.device else ""), 16) for one in contrast.classes
    ]
    most = max(max(one.normal_percent, one.outlier_percent) for one in contrast.classes)
    return chart.along(0, ceiling(most)), chart.downward(names)


def contrast_drawing(contrast: StepContrast) -> Drawing:
    """Two bars per class: normal steps above, outliers below."""
    x, y = _contrast_axes(contrast)
    slot = -np.arange(len(contrast.classes), dtype=np.float64)
    marks = (
        chart.bars(
            NORMAL[0], x, y, (0, [one.normal_percent for one in contrast.classes], slot - 0.48, slot - 0.16)
        ),
        chart.bars(
            OUTLIER[0], x, y, (0, [one.outlier_percent for one in contrast.classes], slot - 0.84, slot - 0.52)
        ),
    )
    return Drawing(x=x, y=y, marks=marks)


def contrast_plot(contrast: StepContrast) -> Plot:
    """The same with values."""
    x, y = _contrast_axes(contrast)
    colors = theme.light()
    plot = chart.live_plot(x, y, left=theme.NAMES_PX)
    slot = -np.arange(len(contrast.classes), dtype=np.float64)
    source = ColumnDataSource(
        {
            "normal": [one.normal_percent for one in contrast.classes],
            "outlier": [one.outlier_percent for one in contrast.classes],
            "above": slot - 0.32,
            "below": slot - 0.68,
            "name": [escape_name(one.name, 60) for one in contrast.classes],
        }
    )
    hit: list[DataRenderer] = [
        plot.add_glyph(
            source,
            HBar(y=place, right=column, left=0, height=0.32, fill_color=colors[token], line_color=None),
            name=series,
        )
        for place, column, token, series in (
            ("above", "normal", NORMAL[1], "normal"),
            ("below", "outlier", OUTLIER[1], "outlier"),
        )
    ]
    rows = [
        ("Event type", "@name"),
        ("Normal steps", chart.quantity("normal", "%")),
        ("Outliers", chart.quantity("outlier", "%")),
    ]
    plot.add_tools(chart.hover(rows, hit))
    return plot


# --- the last steps


def step_names(last: LastSteps) -> list[str]:
    """Labels of the bars: the number of the step if known, otherwise its place from the end."""
    n = len(last.numbers)
    return [str(number) if number >= 0 else f"−{n - i}" for i, number in enumerate(last.numbers)]


def _last_axes(last: LastSteps, unit: Unit) -> tuple[Axis, Axis]:
    names = step_names(last)
    n = len(names)
    every = 1 if n <= 6 else 5
    # Counted from the last one; an odd number of labels, so that the last one stays on a narrow screen.
    kept = [i for i in range(n) if (n - 1 - i) % every == 0]
    kept = kept if len(kept) % 2 or len(kept) < 4 else kept[1:]
    most = max(map(sum, zip(*(part.time_us for part in last.parts), strict=True))) / unit.us
    x = chart.slots([name if i in kept else "" for i, name in enumerate(names)])
    return x, upward(most)


def _stack(last: LastSteps, unit: Unit) -> list[tuple[StepPart, FloatArray, FloatArray]]:
    """Each part with the bottom and the top of its bars."""
    edges = np.cumsum([np.zeros(len(last.numbers)), *(part.time_us for part in last.parts)], axis=0) / unit.us
    return [(part, edges[i], edges[i + 1]) for i, part in enumerate(last.parts)]


def last_drawing(last: LastSteps, unit: Unit) -> Drawing:
    """One bar per step: work at the bottom, waiting above it, time without events on top, hatched."""
    x, y = _last_axes(last, unit)
    left = np.arange(len(last.numbers)) + 0.07
    marks: list[Mark] = []
    for part, bottom, top in _stack(last, unit):
        style, _ = fill(part, last.parts)
        if style != "x":
            marks.append(chart.bars(style, x, y, (left, left + 0.86, bottom, top)))
            continue
        places = zip(x.place(left).tolist(), y.place(bottom).tolist(), y.place(top).tolist(), strict=True)
        width = 86 / len(last.numbers)
        marks += [
            Area(style=style, x=at, y=100 - high, width=width, height=high - low)
            for at, low, high in places
            if high > low
        ]
    return Drawing(x=x, y=y, marks=tuple(marks))


def last_plot(last: LastSteps, unit: Unit) -> Plot:
    """The same with values."""
    x, y = _last_axes(last, unit)
    colors = theme.light()
    plot = chart.live_plot(x, y)
    left = np.arange(len(last.numbers)) + 0.07
    names = step_names(last)
    hit: list[DataRenderer] = []
    for i, (part, bottom, top) in enumerate(_stack(last, unit)):
        source = ColumnDataSource(
            {
                "left": left,
                "right": left + 0.86,
                "bottom": bottom,
                "top": top,
                "step": names,
                "time": top - bottom,
                "name": [escape_name(part.name, 60)] * len(names),
            }
        )
        style, token = fill(part, last.parts)
        look: dict[str, Any] = (
            {
                "fill_color": None,
                "hatch_pattern": "right_diagonal_line",
                "hatch_color": colors[token],
                "hatch_scale": 7,
                "hatch_weight": 1,
            }
            if style == "x"
            else {"fill_color": colors[token]}
        )
        quad = Quad(left="left", right="right", bottom="bottom", top="top", line_color=None, **look)
        hit.append(plot.add_glyph(source, quad, name=f"s{i + 1}"))
    rows = [
        ("Step", "@step"),
        ("Part", "@name"),
        ("Time", chart.quantity("time", unit.name, unit.digits)),
    ]
    plot.add_tools(chart.hover(rows, hit))
    return plot
