"""Figures of a comparison."""

from __future__ import annotations

import itertools

import pytest

from jobreport.page.figures.canvas import Figure
from jobreport.page.figures.comparison import Blocks, Line, blocks, cumulated

#: Of a page that is 400 px wide the plot, and a character, in px.
PLOT, CHARACTER = 240, 6.6


@pytest.mark.parametrize(
    "figure",
    [
        blocks([Blocks(label="A", values=[2293.8, 2298.0, 2310.4], mean=2300.3)], "ms"),
        blocks([Blocks(label="A", values=[9990.0, 9999.0], mean=9994.5)], "ms"),
        cumulated([Line(label="A", values=[2.3 + 3e-5 * i for i in range(101)])], 1000, "ms"),
    ],
)
def test_labels_of_durations_do_not_touch_on_a_phone(figure: Figure) -> None:
    ticks = figure.drawing.x.ticks

    assert len(ticks) >= 2
    for one, other in itertools.pairwise(ticks):
        room = (other.at - one.at) * PLOT - (len(one.label) + len(other.label)) / 2 * CHARACTER
        assert room > 4, (one, other)
