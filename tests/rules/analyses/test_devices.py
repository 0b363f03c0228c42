"""The use of each device over time against a slow reference, and the use of each core."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.analyses.devices import FULL, MAX_COLUMNS, MAX_DEVICES, NOT_MEASURED, devices
from jobrules.analyses.time_lines import Columns, columns
from jobrules.model import SECOND_US, Job, JobInMemory, Metric
from tests.jobs import START_US, make_job, make_panel

NAN = float("nan")


def table(job: Job, grid: Columns, metric: Metric) -> np.ndarray:
    """Values per device and column, in these columns, as if there were too many samples for a column each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobrules.analyses.devices.MAX_VALUES", 0)
        found = devices(job, grid, 90)
    assert found is not None
    rows = next(one for one in found.rows if one.metric == metric)
    return np.frombuffer(rows.values, np.uint8).reshape(len(rows.devices), found.columns.count)


def slow(samples: list[tuple[int, float]], start_us: int, width_us: int, count: int) -> list[int]:
    """Mean of the samples inside each column; without any, of the column of the last sample before.

    Only for samples that are never more than a minute apart: then no time is a pause.
    """
    answer = []
    for column in range(count):
        end = start_us + (column + 1) * width_us
        before = [us for us, _ in samples if us < end]
        if not before or (before[-1] < end - width_us and before[-1] == samples[-1][0]):
            answer.append(NOT_MEASURED)
            continue
        held = (before[-1] - start_us) // width_us
        inside = [value for us, value in samples if (us - start_us) // width_us == held]
        answer.append(round(sum(inside) / len(inside)))
    return answer


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Job, Columns]:
    """Whole percentages, so that means of few are exact; some missing; a column holds none to many."""
    devices = draw(st.integers(1, 4))
    steps = draw(st.lists(st.integers(1, 12), min_size=0, max_size=30))
    times = START_US + np.concatenate(([0], np.cumsum(steps, dtype=np.int64))).astype(np.int64) * SECOND_US
    cell = st.one_of(st.none(), st.integers(0, 100))
    values = np.array(
        [
            [NAN if v is None else v for v in draw(st.lists(cell, min_size=devices, max_size=devices))]
            for _ in times
        ]
    )
    values[0] = np.where(np.isnan(values[0]), 50, values[0])
    values[np.isnan(values).all(axis=1), 0] = 7
    panel = make_panel(Metric.GPU_UTILIZATION, values, time_us=times)
    width = draw(st.integers(1, 20)) * SECOND_US
    count = int(times[-1] - START_US) // width + 1
    return JobInMemory(name="job", panels=(panel,)), Columns(start_us=START_US, width_us=width, count=count)


@given(jobs())
def test_each_column_is_the_mean_of_its_samples_or_what_is_held(given_job: tuple[Job, Columns]) -> None:
    job, grid = given_job
    panel = job.panels[0]

    found = table(job, grid, Metric.GPU_UTILIZATION)

    for device in range(len(panel.devices)):
        times, values = panel.series(device)
        samples = list(zip(times.tolist(), values.tolist(), strict=True))
        gaps = np.diff(times).max(initial=0)
        if gaps > 60 * SECOND_US:
            continue
        expected = slow(samples, grid.start_us, grid.width_us, grid.count)
        assert np.abs(found[device].astype(int) - expected).max() <= 1  # A half may go either way.
        assert (found[device] == NOT_MEASURED).tolist() == [v == NOT_MEASURED for v in expected]


def test_a_device_that_stops_is_not_measured_while_the_others_are() -> None:
    values = np.full((600, 2), 50.0)
    values[100:, 1] = NAN
    job = make_job(gpu=values, interval_s=1)

    found = table(job, Columns(start_us=START_US, width_us=10 * SECOND_US, count=60), Metric.GPU_UTILIZATION)

    assert found[0].tolist() == [50] * 60
    assert found[1].tolist() == [50] * 10 + [255] * 50


def test_columns_are_whole_numbers_of_those_of_the_time_lines() -> None:
    job = make_job(gpu=np.arange(12_000) % 100, interval_s=1)
    grid = columns(job)

    found = devices(job, grid, 90)

    assert found is not None
    assert not found.samples
    assert grid.count > MAX_COLUMNS
    assert found.columns.count <= MAX_COLUMNS
    assert found.columns.start_us == grid.start_us
    assert found.columns.width_us % grid.width_us == 0
    assert found.columns.count * found.columns.width_us >= grid.count * grid.width_us
    assert len(found.rows[0].values) == found.columns.count
    # A column is 60 s: 0 to 59, 60 to 99 and 0 to 19, 20 to 79.
    (rows,) = found.rows
    assert (*rows.low[:3],) == (0, 0, 20)
    assert (*rows.high[:3],) == (59, 99, 79)


@pytest.mark.parametrize("late_us", [-7000, 0, 7000])
def test_every_sample_has_a_column_whenever_it_was_taken(late_us: int) -> None:
    """Samplers are late by some milliseconds, now and then."""
    values = np.arange(0, 100, dtype=np.float64)
    times = START_US + SECOND_US // 2 * np.arange(100)
    times[1::3] += late_us
    panel = make_panel(Metric.GPU_UTILIZATION, values[:, None], time_us=times)
    job = JobInMemory(name="job", panels=(panel,))

    found = devices(job, columns(job), 90)

    assert found is not None
    assert found.samples
    assert (found.columns.start_us, found.columns.width_us) == (START_US, SECOND_US // 2)
    assert (*found.rows[0].values,) == (*range(100),)


def test_a_pause_of_the_sampler_stays_one_in_columns_of_samples() -> None:
    times = START_US + SECOND_US * np.append(np.arange(50), 200 + np.arange(50))
    panel = make_panel(Metric.GPU_UTILIZATION, np.full((100, 1), 60.0), time_us=times)
    job = JobInMemory(name="job", panels=(panel,))

    found = devices(job, columns(job), 90)

    assert found is not None
    assert (*found.rows[0].values,) == (60,) * 50 + (NOT_MEASURED,) * 150 + (60,) * 50


def test_metrics_come_in_one_order() -> None:
    values = np.full((10, 2), 40.0)
    job = make_job(gpu=values, cpu=values, memory=values)
    grid = columns(job)

    found = devices(job, grid, 90)

    assert found is not None
    assert [rows.metric for rows in found.rows] == [
        "gpu_utilization",
        "cpu_utilization",
        "gpu_memory_activity",
    ]


def test_devices_are_bounded_and_those_left_out_are_counted() -> None:
    job = make_job(cpu=np.full((3, MAX_DEVICES + 5), 10.0))

    found = devices(job, columns(job), 90)

    assert found is not None
    assert found.rows[0].left_out == 5
    assert len(found.rows[0].devices) == len(found.cores) == MAX_DEVICES


def test_the_use_of_a_core_is_that_of_its_own_samples() -> None:
    values = np.array([[0, 50], [5, NAN], [95, 60], [100, NAN]], np.float64)

    found = devices(make_job(cpu=values), Columns(start_us=START_US, width_us=SECOND_US, count=2), 95)

    assert found is not None
    first, second = found.cores
    assert (first.device, first.n, first.mean, first.p50, first.max) == ("cpu0", 4, 50.0, 50.0, 100.0)
    assert [first.p95, first.p99] == pytest.approx([99.25, 99.85], abs=0.051)
    assert (first.below_10, first.above_90, first.at_limit, second.at_limit) == (0.5, 0.5, 0.5, 0.0)
    assert (second.n, second.mean, second.below_10) == (2, 55.0, 0.0)
    assert (second.from_10_to_90, second.above_90) == (1.0, 0.0)


def test_a_core_is_full_by_its_samples_and_not_by_its_mean() -> None:
    """Means of 4 s average a rhythm of 2 s away; half of the samples at the limit are enough."""
    rhythm = np.tile([100.0, 100.0, 0.0, 0.0], 10)
    seldom, never = np.tile([100.0, 0.0, 0.0, 0.0], 10), np.full(40, 89.9)
    values = np.stack([rhythm, seldom, never, np.full(40, 90.0)], axis=1)
    values[36:, 3] = NAN
    grid = Columns(start_us=START_US, width_us=4 * SECOND_US, count=10)
    job = make_job(cpu=values, gpu=rhythm, interval_s=1)

    found = table(job, grid, Metric.CPU_UTILIZATION)

    assert found.tolist() == [[FULL + 50] * 10, [25] * 10, [90] * 10, [FULL + 90] * 9 + [NOT_MEASURED]]
    assert table(job, grid, Metric.GPU_UTILIZATION).tolist() == [[50] * 10]


def test_values_outside_of_percent_are_cut() -> None:
    found = table(
        make_job(gpu=[-5.0, 180.0], interval_s=1),
        Columns(start_us=START_US, width_us=SECOND_US, count=2),
        Metric.GPU_UTILIZATION,
    )

    assert found.tolist() == [[0, 100]]
