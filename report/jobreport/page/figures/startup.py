"""One bar: the start-up in its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.formats import seconds
from jobreport.page.figures.stacked import Part, stacked
from jobrules.model import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.page.figures.canvas import Figure
    from jobrules.measures.start_up import StartUpParts

#: Classes of the parts, one after the other, and of the other time.
FILLS = ("l", "l2", "l5", "l7", "l10", "l3", "l8", "l6")
OTHER_FILL = "n1"


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
