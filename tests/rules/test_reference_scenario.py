"""The corrected column of the reference scenario D1, whole, from files to numbers."""

from __future__ import annotations

import pytest

from jobreport.readers.registry import read_job
from jobrules import (
    BatchSize,
    CPUBottleneck,
    Dataloader,
    GPUMemoryIncrease,
    IOBottleneck,
    LoadBalancing,
    LowGPUUtilization,
    MaxInitializationTime,
    OverallFrameworkMetrics,
    OverallSystemUsage,
    StepOutlier,
)
from jobrules.measures.minutes import Windows
from jobrules.model import SECOND_US, Events, Job, Status, Steps
from jobrules.rule import Rule
from tests import scenario_d1
from tests.copies import replace
from tests.scenario_d1 import BASE_S


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    root = tmp_path_factory.mktemp("d1")
    scenario_d1.write_samples(root)
    scenario_d1.write_events(root)
    read, quality = read_job(root, strict=True)
    assert all(source.remarks == () for source in quality.sources)
    return read


def test_job_starts_and_ends_with_its_first_and_last_sample(job: Job) -> None:
    assert job.samples_us == ((BASE_S + 7.25) * SECOND_US, round((BASE_S + 1229.754) * SECOND_US))


def test_windows_cover_all_data(job: Job) -> None:
    grid = Windows.of(job)

    assert (grid.start_us, grid.count) == (BASE_S * SECOND_US, 21)


@pytest.mark.parametrize(("rule", "bottlenecks"), [(CPUBottleneck(), 786), (IOBottleneck(), 300)])
def test_bottlenecks_are_counted_and_stay_below_the_limit(rule: Rule, bottlenecks: int, job: Job) -> None:
    result = rule.check(job)

    assert (result.status, result.triggered) == (Status.PASSED, 0)
    assert (result.violations, result.datapoints) == (bottlenecks, 2446)
    assert result.details["low_gpu_utilization"] == 1506
    assert len(result.details["bottlenecks"]) == bottlenecks


def test_one_jump_of_memory_is_one_event(job: Job) -> None:
    result = GPUMemoryIncrease().check(job)

    assert (result.triggered, result.violations) == (1, 17)


def test_gpus_that_share_no_bin_are_as_far_apart_as_can_be(job: Job) -> None:
    result, on_all = LoadBalancing().check(job), LoadBalancing().check(replace(job, steps=Steps()))

    assert (result.triggered, result.violations) == (13, 13)
    node = result.details["algo-1"]
    assert node["basis"] == "training loop"
    assert {gpu: sum(bins) for gpu, bins in node["workloads"].items()} == {"gpu0": 1640, "gpu1": 1640}
    assert (node["workloads"]["gpu0"][0], node["workloads"]["gpu0"][48]) == (820, 820)
    assert node["workloads"]["gpu1"][25] == 1640
    assert node["distances"]["gpu0"]["gpu1"] == pytest.approx(0.8326, abs=5e-5)
    assert on_all.details["algo-1"]["distances"]["gpu0"]["gpu1"] == pytest.approx(0.6630, abs=5e-5)


def test_outliers_of_training_are_not_those_of_evaluation(job: Job) -> None:
    result = StepOutlier().check(job)

    assert (result.triggered, result.violations, result.datapoints) == (8, 15, 1650)
    rank = result.details["step_details"]["algo-1-33"]
    train, evaluation = (rank["phases"][f"Step:ModeKeys.{phase}"] for phase in ("TRAIN", "EVAL"))
    assert rank["phase"] == "Step:ModeKeys.TRAIN"
    stats = train["step_stats"]
    deviation = ((15 * 0.45**2 + 1485 * 0.3**2) / 1500 - stats["mean"] ** 2) ** 0.5
    assert stats["mean"] + 3 * deviation == pytest.approx(0.34627, abs=5e-6)
    assert (train["number_of_outliers"], evaluation["number_of_outliers"]) == (15, 0)
    assert train["step_numbers"] == [str(n) for n in range(50, 1500, 100)]
    assert result.details["phase"] == {"Step:ModeKeys.TRAIN": 100.0}


def test_framework_time_adds_up_to_the_loop(job: Job) -> None:
    result = OverallFrameworkMetrics().check(job)

    phase = {name: round(share, 2) for name, share in result.details["phase"].items()}
    assert phase == {"Step:ModeKeys.TRAIN": 55.17, "others": 41.17, "Step:ModeKeys.EVAL": 3.66}
    assert result.details["phase_time"] == {
        "Step:ModeKeys.TRAIN": 452_250_000,
        "others": 337_550_000,
        "Step:ModeKeys.EVAL": 30_000_000,
    }


def test_without_loader_events_loading_is_not_evaluated(job: Job) -> None:
    result = Dataloader().check(job)

    assert (result.status, str(result.reason)) == (Status.NOT_EVALUATED, "loader events not recorded")
    assert (result.triggered, result.violations, result.datapoints, result.details) == (0, 0, 0, {})


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
    assert result.more["TrainingLoop"]["GPU"]["algo-1"]["n"] < 2446


def test_without_steps_the_start_is_not_evaluated(job: Job) -> None:
    result = MaxInitializationTime().check(replace(job, steps=Steps(), events=Events()))

    assert (result.status, str(result.reason), result.triggered) == (
        Status.NOT_EVALUATED,
        "steps not recorded",
        0,
    )
    assert result.details["step_num"] == {}
    assert result.details["job_start"] == BASE_S + 7.25
