"""The phases of a job as a ring."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bokeh.models import AnnularWedge, ColumnDataSource, HoverTool, Plot, Range1d

from jobreport.figures import theme
from jobrules.text import duration, escape_name, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.verdict.phases import Phase

#: Token of each kind of phase.
COLORS = {"before": "line", "loop": "used", "after": "ink2", "whole": "line"}
INNER, OUTER = 0.6, 0.96


def pie(phases: Sequence[Phase]) -> Plot | None:
    """A ring with one wedge per phase, clockwise from the top; None if the phases cover no time."""
    spans = [max(0, p.end_us - p.start_us) for p in phases]
    whole = sum(spans)
    if not whole:
        return None
    edges = [math.pi / 2 - 2 * math.pi * sum(spans[:i]) / whole for i in range(len(spans) + 1)]
    colors = theme.light()
    plot = Plot(
        x_range=Range1d(start=-1, end=1),
        y_range=Range1d(start=-1, end=1),
        sizing_mode="stretch_both",
        toolbar_location=None,
        outline_line_color=None,
        background_fill_color=None,
        border_fill_color=None,
        min_border=0,
    )
    for phase, span, start, end in zip(phases, spans, edges[:-1], edges[1:], strict=True):
        source = ColumnDataSource(
            {
                "phase": [escape_name(phase.label)],
                "time": [duration(span)],
                "share": [percent(phase.percent)],
            }
        )
        wedge = AnnularWedge(
            x=0,
            y=0,
            inner_radius=INNER,
            outer_radius=OUTER,
            start_angle=start,
            end_angle=end,
            direction="clock",
            fill_color=colors[COLORS[phase.key]],
            line_color=colors["paper"],
            line_width=2 if len(phases) > 1 else 0,
        )
        plot.add_glyph(source, wedge)
    plot.add_tools(
        HoverTool(tooltips=theme.tooltip([("Phase", "@phase"), ("Duration", "@time"), ("Share", "@share")]))
    )
    return plot
