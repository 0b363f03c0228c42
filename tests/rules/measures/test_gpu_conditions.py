"""What the rules on power, heat, clocks and memory errors share."""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.gpu_conditions import GPU, ConditionTime, gpus
from jobrules.model import SECOND_US, Job, Metric, Panel, in_words
from jobrules.rules.thermal_throttling import ThermalThrottling
from tests.jobs import START_US, make_job, make_panel


def job_of(*panels: Panel) -> Job:
    return make_job(extra=panels)


def one_gpu(*panels: Panel) -> GPU:
    job = job_of(*panels)
    (found,) = gpus(job.parts[0], Clocks.of(job), panels[0].metric)
    return found


def test_the_value_in_force_is_looked_up_by_time_and_grows_old() -> None:
    gpu = one_gpu(
        make_panel(Metric.GPU_CLOCK, [0.0] * 8, interval_s=1.0),
        make_panel(
            Metric.GPU_UTILIZATION, [10, 20, 30], time_us=START_US + np.array([500_000, 1_500_000, 2_500_000])
        ),
    )
    when = START_US + np.array([0, 490_000, 500_000, 1_499_000, 2_400_000, 7_500_000, 7_500_001])

    found = gpu.at(Metric.GPU_UTILIZATION, when)

    # A sample 10 ms or 1 ms later is of the same moment; the last one holds for five seconds.
    np.testing.assert_array_equal(found, [np.nan, 10, 10, 20, 20, 30, np.nan])
    assert np.isnan(gpu.at(Metric.GPU_POWER, when)).all()


def test_clocks_of_idle_moments_are_not_compared() -> None:
    held_back = np.arange(60) < 20
    clock = np.where(held_back, 1400.0, np.where(np.arange(60) < 40, 1900.0, 210.0))
    use = np.where(np.arange(60) < 40, 99.0, 0.0)
    panels = (make_panel(Metric.GPU_CLOCK, clock), make_panel(Metric.GPU_UTILIZATION, use))
    times = panels[0].time_us

    assert one_gpu(*panels).clocks(times, held_back) == (1400.0, 1900.0)
    assert one_gpu(panels[0]).clocks(times, held_back) == (1400.0, 1055.0)
    assert one_gpu(*panels).clocks(times, np.arange(60) < 9) is None


@pytest.mark.parametrize("seed", range(8))
def test_a_spell_is_that_of_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = START_US + np.cumsum(rng.integers(1, 4, 80)) * SECOND_US
    times[40:] += 600 * SECOND_US  # a pause
    holds = rng.random(80) < 0.4
    gpu = one_gpu(make_panel(Metric.GPU_CLOCK, np.ones(80), time_us=times))

    found = ConditionTime.of(gpu, times, holds)

    distances = [b - a for a, b in zip(times.tolist(), times[1:].tolist(), strict=False)]
    usual = sorted(distances[:39] + distances[40:])[38:40]
    weights = [usual[0] if i == 39 else d for i, d in enumerate(distances)] + [0]
    stretches: list[list[int]] = []
    for time, weight, held in zip(times.tolist(), weights, holds.tolist(), strict=True):
        if held and weight:
            if stretches and stretches[-1][1] == time:
                stretches[-1][1] += weight
            else:
                stretches.append([time, time + weight])
    longest = max(stretches, key=lambda one: one[1] - one[0])
    assert usual[0] == usual[1]
    assert found.covered_us == sum(weights)
    assert found.us == sum(end - start for start, end in stretches)
    assert found.span_us == (stretches[0][0], stretches[-1][1])
    assert found.longest_us == tuple(longest)


def test_of_many_gpus_the_worst_four_are_told_and_the_others_counted() -> None:
    shares = np.arange(6) / 10 + 0.2
    table = 100.0 * (np.arange(1001)[:, None] < 1000 * shares)

    result = ThermalThrottling().check(job_of(make_panel(Metric.GPU_THERMAL_SLOWDOWN, table, interval_s=1.0)))

    (told,) = result.findings
    assert told.devices == tuple(f"algo-1/gpu{i}" for i in (5, 4, 3, 2, 1, 0))
    assert "Share of time: algo-1 gpu5 70.0%; " in in_words(told.evidence)
    assert "algo-1 gpu2 40.0%. Longest without a break: algo-1 gpu5 11\u00a0min 40\u00a0s." in in_words(
        told.evidence
    )
    assert told.share == pytest.approx(0.45, abs=1e-3)
