"""One bar: the job's time in the parts of goodput."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.formats import seconds
from jobreport.page.figures.stacked import Part, stacked

if TYPE_CHECKING:
    from jobreport.page.figures.canvas import Figure
    from jobrules.analyses.goodput import Goodput

#: Class of each part: blue trains, orange is lost, gray is outside of training.
FILLS = {
    "productive": "u",
    "evaluation": "u2",
    "data_wait": "l",
    "stall": "l2",
    "first_step": "l3",
    "lost_work": "l4",
    "interruption": "x",
    "checkpoint": "f2",
    "start_up": "f3",
    "wind_down": "n2",
    "other": "n1",
}


def goodput(found: Goodput) -> Figure:
    """The parts that took time, in their order."""
    parts = [
        Part(
            style=FILLS[part.key],
            label=part.label,
            percents=(part.percent,),
            amounts=(seconds(part.seconds),),
        )
        for part in found.parts
        if part.seconds > 0
    ]
    return stacked([""], parts, bar="Job", amount="Time")
