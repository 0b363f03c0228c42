"""Energy against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.model import SECOND_US, Job, Metric, RuleResult, Status
from jobrules.rule import run_rules
from jobrules.rules.energy import Energy
from tests.jobs import START_US, make_job, make_panel


def checked(job: Job) -> RuleResult:
    (found,) = run_rules([Energy()], job, strict=True)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_energy_is_that_of_a_plain_loop(seed: int) -> None:
    """Use is sampled by another tool, half as often; two minutes were not measured."""
    rng = np.random.default_rng(seed)
    seconds = np.arange(200)
    seconds[100:] += 120
    power, use = rng.uniform(60, 700, 200), rng.choice([0.0, 9.9, 10.0, 90.0], 160)
    panels = [
        make_panel(Metric.GPU_UTILIZATION, use, interval_s=2.0),
        make_panel(Metric.GPU_POWER, power, time_us=START_US + seconds * SECOND_US),
    ]

    found = checked(make_job(extra=panels))

    joules = idle = covered = 0.0
    for i in range(199):
        lasted = 1 if i == 99 else int(seconds[i + 1] - seconds[i])
        covered += lasted
        joules += power[i] * lasted
        idle += power[i] * lasted if use[seconds[i] // 2] < 10 else 0
    block = found.details["GPUs"]["algo-1"]["gpu0"]
    assert block["Wh"] == pytest.approx(joules / 3600, abs=1e-3)
    assert block["idle_Wh"] == pytest.approx(idle / 3600, abs=1e-3)
    assert block["mean_W"] == pytest.approx(joules / covered, abs=1e-2)
    assert (block["covered_s"], block["max_W"]) == (covered, round(power.max(), 2))
    assert found.details["covered_percent"] == round(100 * 199 / 319, 2)
    assert "took at least" in found.headline
    assert "62.4% of the GPUs' time was measured" in found.headline


def test_without_use_nothing_is_said_of_idling() -> None:
    found = checked(make_job(extra=[make_panel(Metric.GPU_POWER, [100.0] * 3601, interval_s=1.0)]))

    assert found.headline == "1\u00a0GPU took 100.0\u00a0Wh in 1\u00a0h"
    assert "idle_Wh" not in found.details
    assert "idle_percent" not in found.details["GPUs"]["algo-1"]["gpu0"]


def test_energy_while_idle_is_a_share_of_that_of_gpus_whose_use_is_known() -> None:
    power = np.array([[50.0, 400.0, 400.0, 400.0]] * 3601)
    panels = [
        make_panel(Metric.GPU_POWER, power, interval_s=1.0),
        make_panel(Metric.GPU_UTILIZATION, [0.0] * 3601, interval_s=1.0),
    ]

    found = checked(make_job(extra=panels))

    assert found.headline == (
        "4\u00a0GPUs took 1.25\u00a0kWh in 1\u00a0h, 50.0\u00a0Wh while idle, of 50.0\u00a0Wh with known utilization"
    )
    assert (found.details["idle_percent"], found.details["use_known_Wh"]) == (100.0, 50.0)


def test_where_use_is_known_of_all_it_is_a_share_of_all() -> None:
    use = np.where(np.arange(3601) < 900, 0.0, 95.0)
    panels = [
        make_panel(metric, v, interval_s=1.0)
        for metric, v in ((Metric.GPU_POWER, [100.0] * 3601), (Metric.GPU_UTILIZATION, use))
    ]

    found = checked(make_job(extra=panels))

    assert found.headline == "1\u00a0GPU took 100.0\u00a0Wh in 1\u00a0h, 25.0% of it while idle"
    assert "use_known_Wh" not in found.details


def test_a_gpu_that_was_measured_for_half_of_the_job_counts_for_half() -> None:
    power = np.full((3601, 2), 1000.0)
    power[1801:, 1] = np.nan

    found = checked(make_job(extra=[make_panel(Metric.GPU_POWER, power, interval_s=1.0)]))

    assert found.details["kWh"] == pytest.approx(1.5, abs=1e-3)
    assert found.details["covered_percent"] == pytest.approx(75.0, abs=0.05)
    assert found.status is Status.PASSED
