"""Input of odd shapes costs no more per byte than an honest one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fuzz import small_input

if TYPE_CHECKING:
    from pathlib import Path

#: Of the honest input's time too a part is that of other work on the machine.
SLACK = 1.5


@pytest.mark.slow
def test_odd_shapes_cost_as_much_as_honest_ones(tmp_path: Path) -> None:
    found = small_input.multiples(small_input.SHAPES, tmp_path)
    above = {name: times for name, _, times in found if times > SLACK * small_input.LIMIT}

    assert not above
