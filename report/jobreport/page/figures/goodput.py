"""Bars of time: that of the job in the parts of goodput, and its start-up in its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.formats import seconds
from jobreport.page.figures.stacked import Part, stacked
from jobrules.model import SECOND_US
from jobrules.model.time_parts import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.page.figures.canvas import Figure
    from jobrules.analyses.goodput import Goodput
    from jobrules.verdict.starting import StartUpParts

#: Classes of the parts of the start-up, one after the other, and of its other time.
FILLS = ("l", "l2", "l5", "l7", "l10", "l3", "l8", "l6")
OTHER_FILL = "n1"


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


def start_up_bar(found: StartUpParts, fills: Sequence[str]) -> Figure:
    """The parts in their order."""
    length_us = found.end_us - found.begin_us
    parts = [
        Part(
            style=fill,
            label=part.name,
            percents=(100 * part.us / length_us,),
            amounts=(seconds(part.us / SECOND_US),),
        )
        for part, fill in zip(found.parts, fills, strict=True)
    ]
    return stacked([""], parts, bar="Start-up", amount="Time")
