"""The static drawings say the same as the live ones."""

from __future__ import annotations

from jobreport.figures.static_svg import static_boxes
from tests.report.sections import examples


def test_boxes_lie_inside_the_drawing() -> None:
    drawn = static_boxes(examples.many_nodes().boxes)

    assert len(drawn.boxes) == 128
    assert all(b.left >= 0 and b.left + b.width <= 100 for b in drawn.boxes)
    assert all(0 <= v <= 100 for b in drawn.boxes for v in (b.top, b.median, b.p95, b.upper, b.lower))
    assert len(drawn.borders) == 15
