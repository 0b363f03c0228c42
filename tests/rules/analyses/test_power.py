"""What is told of each GPU besides its use."""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.analyses.power import MAX_ROWS, power
from jobrules.analyses.time_lines import columns, time_lines
from jobrules.model import SECOND_US, Metric
from tests.jobs import START_US, make_job, make_panel, sampled


def test_means_count_each_sample_for_its_time() -> None:
    """100 W for 30 s, then 400 W for 10 s and one interval that holds the last sample."""
    times = START_US + np.array([0, 30, 40]) * SECOND_US

    (state,) = power(make_job(extra=[make_panel(Metric.GPU_POWER, [100, 400, 400], time_us=times)]))

    assert state.power_mean == pytest.approx((100 * 30 + 400 * 10) / 40)
    assert state.energy_wh == pytest.approx((100 * 30 + 400 * 10) / 3600, abs=1e-3)
    assert (state.power_max, state.energy_percent) == (400, 100)


def test_a_pause_is_not_measured() -> None:
    times = START_US + np.array([*range(30), *range(600, 630)]) * SECOND_US

    (state,) = power(make_job(extra=[make_panel(Metric.GPU_POWER, [100.0] * 60, time_us=times)]))

    assert state.energy_percent == pytest.approx(100 * 59 / 629, abs=0.2)
    assert state.energy_wh == pytest.approx(100 * 59 / 3600, rel=0.02)


def test_the_clock_counts_while_the_gpu_is_busy() -> None:
    use, clock = [0.0, 90.0, 90.0, 90.0, 0.0], [300.0, 1500.0, 1400.0, 1500.0, 2.0]

    (state,) = power(sampled(gpu_clock=clock, gpu_utilization=use))

    assert (state.clock_busy, state.clock_max) == (1500, 1500)


def test_memory_is_told_in_bytes_and_as_a_share() -> None:
    (state,) = power(sampled(gpu_memory_total=[8.0, 8.0], gpu_memory_used=[2.0, 6.0]))

    assert (state.memory_max, state.memory_total, state.memory_percent) == (6, 8, 75)


def test_of_many_gpus_those_held_back_are_kept() -> None:
    values = np.full((10, MAX_ROWS + 10), 40.0)
    slow = np.zeros_like(values)
    slow[:, -1] = 100

    found = power(sampled(gpu_temperature=values, gpu_thermal_slowdown=slow))

    assert len(found) == MAX_ROWS
    assert found[-1].device == f"gpu{MAX_ROWS + 9}"


def test_a_slowdown_that_happened_is_not_rounded_to_never() -> None:
    """A second of 11 hours."""
    heat = np.zeros((40_000, 1))
    heat[500] = 100

    (state,) = power(sampled(gpu_thermal_slowdown=heat))

    assert state.thermal_percent == pytest.approx(100 / 39_999)


def test_too_few_samples_are_no_share() -> None:
    flags = [[0.0, 100.0]] + [[0.0, np.nan]] * 20

    states = power(sampled(gpu_thermal_slowdown=flags))

    assert [state.thermal_percent for state in states] == [0.0, None]


def test_heat_is_not_known_where_it_was_not_sampled_while_the_hardware_slowed() -> None:
    heat = [[np.nan, 0.0] if i in (15, 16) else [0.0, 0.0] for i in range(30)]
    hardware = [[100.0 * (i in (15, 16))] * 2 for i in range(30)]

    states = power(sampled(gpu_thermal_slowdown=heat, gpu_hardware_slowdown=hardware))

    assert [state.thermal_percent for state in states] == [None, 0.0]


def test_a_slowdown_over_time_is_the_share_of_each_gpu() -> None:
    flags = [[100.0 * (i % 2), np.nan if i < 4 else 0.0] for i in range(8)]
    job = sampled(gpu_thermal_slowdown=flags)

    (line,) = time_lines(job, columns(job))
    assert line.high == (50.0,) * 4
    assert line.low == (50.0, 50.0, 0.0, 0.0)


def of_gpus(usual: float, late: float, noise: float) -> np.ndarray:
    """Four GPUs for 90 s; the third is at ``late`` from 30 s on."""
    values = usual + noise * np.random.default_rng(1).standard_normal((90, 4))
    values[30:, 2] += late - usual
    return values


def test_a_gpu_that_differs_has_lines_of_its_own_and_is_not_in_those_of_the_others() -> None:
    job = sampled(
        gpu_clock=of_gpus(1410, 900, 5),
        gpu_temperature=of_gpus(70, 72, 0.5),
        gpu_utilization=of_gpus(90, 90, 1),
    )

    lines = {line.key: line for line in time_lines(job, columns(job))}

    clock = lines["gpu_clock"].apart
    assert clock
    assert [one.device for one in clock.devices] == ["gpu2"]
    assert clock.devices[0].mean[:3] == pytest.approx((1410,) * 3, abs=15)
    assert clock.devices[0].mean[-3:] == pytest.approx((900,) * 3, abs=15)
    assert min(filter(None, clock.low)) > 1380
    assert lines["gpu_clock"].lowest == pytest.approx(900, abs=20)
    # It shows what it does in the other metrics, too.
    warm = lines["gpu_temperature"].apart
    assert warm
    assert [one.device for one in warm.devices] == ["gpu2"]
    assert lines["gpu_utilization"].apart is None


@pytest.mark.parametrize("late", [1410, 1350])
def test_gpus_that_hardly_differ_stay_together(late: float) -> None:
    job = sampled(gpu_clock=of_gpus(1410, late, 20))

    (line,) = time_lines(job, columns(job))
    assert line.apart is None


def test_of_two_gpus_none_is_the_odd_one() -> None:
    job = sampled(gpu_clock=of_gpus(1410, 700, 5)[:, 1:3])

    (line,) = time_lines(job, columns(job))
    assert line.apart is None
