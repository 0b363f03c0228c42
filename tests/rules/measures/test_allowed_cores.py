"""CPU utilization in a container with a CPU limit."""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.measures.allowed_cores import with_allowed_cores
from jobrules.model import Metric
from tests.jobs import make_panel


def allowed(cores: list[float], used: float, limit: float) -> tuple[list[float], bool]:
    """Utilization of the cores that the rules see, and whether that of the machine is kept."""
    panels = [
        make_panel(Metric.CPU_UTILIZATION, np.tile(cores, (10, 1))),
        make_panel(Metric.CONTAINER_CPU, [used] * 5, interval_s=1.0),
        make_panel(Metric.CONTAINER_CPU_LIMIT, [limit] * 5, interval_s=1.0),
    ]
    found = {panel.metric: panel for panel in with_allowed_cores(panels)}
    assert list(found) == [metric for metric in Metric if metric in found]
    (row,) = {tuple(row) for row in found[Metric.CPU_UTILIZATION].values.tolist()}
    return list(row), Metric.MACHINE_CPU in found


@pytest.mark.parametrize(
    ("cores", "used", "limit", "expected"),
    [
        pytest.param([25.0] * 16, 4.0, 4.0, [100.0] * 4, id="all of the limit, spread"),
        pytest.param([12.5] * 16, 2.0, 4.0, [50.0] * 4, id="half of it"),
        pytest.param([0.0] * 8 + [100.0, 5.0], 1.0, 4.0, [100.0, 25.0, 25.0, 25.0], id="one process"),
        pytest.param([100.0] * 8, 0.2, 4.0, [5.0] * 4, id="only others use the machine"),
        pytest.param([60.0] * 4, 0.5, 0.5, [100.0], id="less than a core"),
        pytest.param([30.0] * 8, 3.0, 2.5, [100.0] * 3, id="more than the limit for a moment"),
    ],
)
def test_cores_of_a_limit(cores: list[float], used: float, limit: float, expected: list[float]) -> None:
    values, kept = allowed(cores, used, limit)

    assert values == pytest.approx(expected)
    assert kept


@pytest.mark.parametrize("limit", [2.0, 3.0, 0.0])
def test_a_limit_that_leaves_all_cores_changes_nothing(limit: float) -> None:
    assert allowed([50.0, 60.0], 1.0, limit) == ([50.0, 60.0], False)
