"""What is told of each GPU besides its use."""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.analyses.power import MAX_ROWS, power
from jobrules.analyses.time_lines import columns, time_lines
from jobrules.model import JobInMemory, Metric, Panel

SECOND_US = 1_000_000
START_US = 1_763_107_200_000_000


def panel(metric: Metric, values: list[list[float]], seconds: list[float] | None = None) -> Panel:
    table = np.array(values, np.float64)
    at = np.arange(len(table)) if seconds is None else np.array(seconds)
    time_us = (START_US + at * SECOND_US).astype(np.int64)
    return Panel(
        node="n",
        metric=metric,
        devices=tuple(f"gpu{i}" for i in range(table.shape[1])),
        time_us=time_us,
        snapshot=np.arange(len(table)),
        values=table,
        last_us=int(time_us[-1]),
    )


def test_means_count_each_sample_for_its_time() -> None:
    """100 W for 30 s, then 400 W for 10 s and one interval that holds the last sample."""
    job = JobInMemory(name="j", panels=(panel(Metric.GPU_POWER, [[100], [400], [400]], [0, 30, 40]),))

    (state,) = power(job)
    assert state.power_mean == pytest.approx((100 * 30 + 400 * 10) / 40)
    assert state.energy_wh == pytest.approx((100 * 30 + 400 * 10) / 3600, abs=1e-3)
    assert (state.power_max, state.energy_percent) == (400, 100)


def test_a_pause_is_not_measured() -> None:
    seconds = [*range(30), *range(600, 630)]
    job = JobInMemory(name="j", panels=(panel(Metric.GPU_POWER, [[100.0]] * 60, list(seconds)),))

    (state,) = power(job)
    assert state.energy_percent == pytest.approx(100 * 59 / 629, abs=0.2)
    assert state.energy_wh == pytest.approx(100 * 59 / 3600, rel=0.02)


def test_the_clock_counts_while_the_gpu_is_busy() -> None:
    use = panel(Metric.GPU_UTILIZATION, [[0.0], [90.0], [90.0], [90.0], [0.0]])
    clock = panel(Metric.GPU_CLOCK, [[300.0], [1500.0], [1400.0], [1500.0], [2.0]])

    (state,) = power(JobInMemory(name="j", panels=(clock, use)))
    assert (state.clock_busy, state.clock_max) == (1500, 1500)


def test_memory_is_told_in_bytes_and_as_a_share() -> None:
    used, total = (
        panel(Metric.GPU_MEMORY_USED, [[2.0], [6.0]]),
        panel(Metric.GPU_MEMORY_TOTAL, [[8.0], [8.0]]),
    )

    (state,) = power(JobInMemory(name="j", panels=(total, used)))
    assert (state.memory_max, state.memory_total, state.memory_percent) == (6, 8, 75)


def test_a_job_without_any_of_it_has_none() -> None:
    assert power(JobInMemory(name="j", panels=(panel(Metric.GPU_UTILIZATION, [[1.0], [2.0]]),))) == ()


def test_of_many_gpus_those_held_back_are_kept() -> None:
    values = np.full((10, MAX_ROWS + 10), 40.0)
    slow = np.zeros_like(values)
    slow[:, -1] = 100
    warm, held = (
        panel(Metric.GPU_TEMPERATURE, values.tolist()),
        panel(Metric.GPU_THERMAL_SLOWDOWN, slow.tolist()),
    )

    found = power(JobInMemory(name="j", panels=(warm, held)))
    assert len(found) == MAX_ROWS
    assert found[-1].device == f"gpu{MAX_ROWS + 9}"


def test_a_slowdown_that_happened_is_not_rounded_to_never() -> None:
    """A second of 11 hours."""
    heat = np.zeros((40_000, 1))
    heat[500] = 100

    (state,) = power(JobInMemory(name="j", panels=(panel(Metric.GPU_THERMAL_SLOWDOWN, heat.tolist()),)))
    assert state.thermal_percent == pytest.approx(100 / 39_999)


def test_too_few_samples_are_no_share() -> None:
    flags = [[0.0, 100.0]] + [[0.0, np.nan]] * 20

    states = power(JobInMemory(name="j", panels=(panel(Metric.GPU_THERMAL_SLOWDOWN, flags),)))
    assert [state.thermal_percent for state in states] == [0.0, None]


def test_heat_is_not_known_where_it_was_not_sampled_while_the_hardware_slowed() -> None:
    heat = [[np.nan, 0.0] if i in (15, 16) else [0.0, 0.0] for i in range(30)]
    hardware = [[100.0 * (i in (15, 16))] * 2 for i in range(30)]
    panels = (panel(Metric.GPU_THERMAL_SLOWDOWN, heat), panel(Metric.GPU_HARDWARE_SLOWDOWN, hardware))

    states = power(JobInMemory(name="j", panels=panels))
    assert [state.thermal_percent for state in states] == [None, 0.0]


def test_a_slowdown_over_time_is_the_share_of_each_gpu() -> None:
    flags = [[100.0 * (i % 2), np.nan if i < 4 else 0.0] for i in range(8)]
    job = JobInMemory(name="j", panels=(panel(Metric.GPU_THERMAL_SLOWDOWN, flags),))

    (line,) = time_lines(job, columns(job))
    assert line.high == (50.0,) * 4
    assert line.low == (50.0, 50.0, 0.0, 0.0)
