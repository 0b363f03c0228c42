"""Input of odd shapes costs no more per byte than an honest one; ``python -m fuzz.small_input`` tries all shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fuzz import small_input

if TYPE_CHECKING:
    from pathlib import Path

#: The least of a few times still holds some of what else ran on the machine, and so does an honest input's.
SLACK = 1.5
#: Shapes that cost three times as much before, or up to forty times.
SHAPES = (
    "trace: a thread per blocking call",
    "trace: a device per kernel",
    "trace: a name per kernel",
    "trace: a name per operator",
    "trace: a step per event",
    "log: bad values",
    "log: varied headers with rows",
    "log: hosts and UUIDs",
    "log: one character",
    "log: quotes",
    "log: few short fields, each another",
    "log: messages",
    "log: lines of a box",
    "log: binary after rows",
    "log: many prefixes",
    "log: hosts in front",
)


@pytest.mark.slow
@pytest.mark.alone
def test_odd_shapes_cost_as_much_as_honest_ones(tmp_path: Path) -> None:
    found = small_input.multiples(SHAPES, tmp_path)
    above = {name: times for name, _, times in found if times > SLACK * small_input.LIMIT}

    assert not above
