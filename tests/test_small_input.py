"""Input of odd shapes costs no more per byte than an honest one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fuzz import small_input

if TYPE_CHECKING:
    from pathlib import Path

#: The least of a few times still holds some of what else ran on the machine, and so does an honest input's.
SLACK = 1.5
#: What a node costs, whatever its bytes: each rule and each section asks each node.
OF_NODES = {"samples: many nodes", "log: many hosts"}


@pytest.mark.slow
def test_odd_shapes_cost_as_much_as_honest_ones(tmp_path: Path) -> None:
    shapes = [name for name in small_input.SHAPES if name not in OF_NODES]
    found = small_input.multiples(shapes, tmp_path)
    above = {name: times for name, _, times in found if times > SLACK * small_input.LIMIT}

    assert not above
