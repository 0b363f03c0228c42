"""The ring of phases."""

from __future__ import annotations

import math
import re

import pytest

from jobreport.page.figures.summary import ring
from tests.report.page.sections import examples


def test_wedges_follow_one_another_clockwise_from_the_top() -> None:
    phases = examples.gpu_job().phases.phases
    wedges = ring(phases)

    begins = [re.match(r"M([\d.]+) ([\d.]+)A", wedge.path) for wedge in wedges]
    turns = [
        math.atan2(float(at[1]) - 50, 50 - float(at[2])) / (2 * math.pi) % 1
        for at in begins
        if at is not None
    ]
    shares = [phase.percent / 100 for phase in phases]
    assert turns == pytest.approx([sum(shares[:i]) for i in range(len(phases))], abs=2e-3)
    assert "50.00 2.00L" in wedges[-1].path


def test_a_whole_is_closed_and_no_time_has_no_ring() -> None:
    (whole,) = ring(examples.cpu_job().phases.phases)

    assert whole.path.count("A") == 4
    assert ring(examples.single_sample().phases.phases) == ()
