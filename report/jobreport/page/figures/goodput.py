"""One bar: the job's time in the parts of goodput."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.formats import seconds
from jobreport.page.figures.stacked import Part, stacked
from jobrules.model.time_parts import named

if TYPE_CHECKING:
    from jobreport.page.figures.canvas import Figure
    from jobrules.analyses.goodput import Goodput


def goodput(found: Goodput) -> Figure:
    """The parts that took time, in their order."""
    parts = [
        Part(
            style=named(part.key).fill,
            label=part.label,
            percents=(part.percent,),
            amounts=(seconds(part.amount),),
        )
        for part in found.parts
        if part.amount > 0
    ]
    return stacked([""], parts, bar="Job", amount="Time")
