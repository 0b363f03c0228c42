"""Input of odd shapes costs no more per byte than an honest one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fuzz import small_input

if TYPE_CHECKING:
    from pathlib import Path

#: For what else runs on the machine.
SLACK = 1.5


@pytest.mark.slow
def test_odd_shapes_cost_as_much_as_honest_ones(tmp_path: Path) -> None:
    shapes = [
        "a thread per event",
        "a thread per launch",
        "a thread per blocking call",
        "lines of one character",
        "wrong number of fields",
    ]
    found = small_input.multiples(shapes, tmp_path, 2)

    assert all(times < SLACK * small_input.LIMIT for _, times in found.values()), found
