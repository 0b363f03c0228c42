"""The corrected column of the reference scenario D1, for the rules that exist."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobreport.readers import read_job
from jobrules import BatchSize, LowGPUUtilization, MaxInitializationTime, OverallSystemUsage
from jobrules.job import SECOND_US, Job
from jobrules.result import Status
from tests import scenario_d1
from tests.scenario_d1 import BASE_S


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    root = tmp_path_factory.mktemp("d1")
    scenario_d1.write_samples(root)
    read, _ = read_job(root)
    return replace(read, steps=scenario_d1.steps())


def test_job_starts_and_ends_with_its_first_and_last_sample(job: Job) -> None:
    assert job.samples_us == ((BASE_S + 7.25) * SECOND_US, round((BASE_S + 1229.754) * SECOND_US))


def test_low_gpu_utilization_counts_fluctuating_and_low_windows(job: Job) -> None:
    result = LowGPUUtilization().check(job)

    assert (result.triggered, result.violations, result.datapoints) == (26, 26, 2446)
    gpus = result.details["algo-1"]
    assert (gpus["gpu0"]["fluctuating"], gpus["gpu0"]["low"]) == (13, 0)
    assert (gpus["gpu1"]["fluctuating"], gpus["gpu1"]["low"]) == (0, 13)
    assert result.details["last_timestamp"] == (BASE_S + 1200) * SECOND_US
    assert (result.evaluated, result.severity) == (26, 1.0)


def test_batch_size_triggers_for_the_second_gpu_only(job: Job) -> None:
    result = BatchSize().check(job)

    assert (result.triggered, result.violations) == (13, 13)
    assert sorted(result.details["algo-1"]) == ["cpu", "gpu1", "gpu1_memory"]
    assert result.details["last_timestamp"] == (BASE_S + 1200) * SECOND_US
    assert (result.evaluated, result.severity) == (26, 0.5)


def test_max_initialization_time_passes_with_the_steps_it_saw(job: Job) -> None:
    result = MaxInitializationTime().check(job)

    assert (result.status, result.triggered, result.datapoints) == (Status.PASSED, 0, 1650)
    base = BASE_S * SECOND_US
    expected = {"first": base + 300_100_000, "last": base + 1_119_700_000, "last_end": base + 1_119_900_000}
    assert result.details["step_num"] == expected
    assert result.details["job_start"] == BASE_S + 7.25
    assert result.details["job_end"] == pytest.approx(BASE_S + 1229.754, abs=1e-6)


def test_overall_system_usage_states_the_figures(job: Job) -> None:
    result = OverallSystemUsage().check(job)

    expected: dict[str, dict[str, float]] = {
        "Network": {"max": 150, "p99": 150, "p95": 150, "p50": 150, "min": 150, "p90": 150},
        "GPU": {"max": 75, "p99": 75, "p95": 75, "p50": 25, "min": 0, "p90": 75},
        "CPU": {"max": 62.5, "p99": 62.5, "p95": 62.5, "p50": 62.5, "min": 25, "p90": 62.5},
        "CPU memory": {"max": 10, "p99": 10, "p95": 10, "p50": 10, "min": 10, "p90": 10},
        "GPU memory": {"max": 45, "p99": 45, "p95": 45, "p50": 25, "min": 25},
        "I/O": {"max": 30, "p99": 30, "p95": 30, "p50": 0, "min": 0},
    }
    assert result.datapoints == 2446
    for metric, figures in expected.items():
        found = result.details[metric]["algo-1"]
        assert {name: found[name] for name in figures} == figures, metric
        assert found["n"] == 2446
    assert result.details["TrainingLoop"]["GPU"]["algo-1"]["n"] < 2446


def test_without_steps_the_start_is_not_evaluated(job: Job) -> None:
    result = MaxInitializationTime().check(replace(job, steps=type(job.steps)()))

    assert (result.status, result.reason, result.triggered) == (Status.NOT_EVALUATED, "no step events", 0)
    assert result.details["step_num"] == {}
    assert result.details["job_start"] == BASE_S + 7.25
