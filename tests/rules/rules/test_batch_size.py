from __future__ import annotations

from datetime import timedelta

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobrules import BatchSize
from jobrules.model import SECOND_US, Metric, Status
from jobrules.rule import run_rules
from tests.jobs import START_US, make_job, make_panel
from tests.rules.rules.test_low_gpu_utilization import judged

SMALL = BatchSize(window=4, patience=6)
LEVELS = st.sampled_from([0.0, 69.0, 70.0, 100.0])


def reference(
    rows: list[tuple[float, float, float]], times_us: list[int], rule: BatchSize
) -> tuple[int, int]:
    """(judged, low) for one core, one GPU and its memory, by the definition."""
    assert isinstance(rule.window, int)
    assert isinstance(rule.patience, int)
    limits = rule.cpu_threshold_p95, rule.gpu_threshold_p95, rule.gpu_memory_threshold_p95
    low = [
        bool((np.quantile(rows[:n][-rule.window :], 0.95, axis=0) < limits).all())
        for n in judged(times_us, max(rule.window, rule.patience))
    ]
    return len(low), sum(low)


@given(
    st.lists(st.tuples(LEVELS, LEVELS, LEVELS, st.integers(1, 100)), min_size=2, max_size=60),
    st.integers(1, 9),
    st.integers(1, 12),
)
def test_counts_agree_with_the_definition(
    samples: list[tuple[float, float, float, int]], window: int, patience: int
) -> None:
    rule = BatchSize(window=window, patience=patience)
    rows = [(cpu, gpu, memory) for cpu, gpu, memory, _ in samples]
    times = (START_US + np.cumsum([s[3] for s in samples]) * SECOND_US).tolist()
    panels = [
        make_panel(metric, [row[i] for row in rows], time_us=times)
        for i, metric in enumerate(
            (Metric.CPU_UTILIZATION, Metric.GPU_UTILIZATION, Metric.GPU_MEMORY_ACTIVITY)
        )
    ]

    result = rule.check(make_job(extra=panels))

    assert (result.evaluated, result.triggered) == reference(rows, times, rule)


def test_all_low_triggers_with_whiskers_of_each_own_series() -> None:
    result = SMALL.check(make_job(cpu=[20.0] * 20, gpu=[40.0] * 20, memory=[30.0, 20.0] * 10, interval_s=30))

    assert result.status is Status.TRIGGERED
    memory = result.details["algo-1"]["gpu0_memory"]
    assert (memory["upper"], memory["lower"], memory["p50"]) == (30.0, 20.0, 25.0)


def test_a_gpu_without_memory_samples_is_judged_by_the_rest() -> None:
    result = SMALL.check(make_job(cpu=[20.0] * 20, gpu=[40.0] * 20, interval_s=30))

    assert result.status is Status.TRIGGERED
    assert "gpu0_memory" not in result.details["algo-1"]


def test_last_timestamp_is_the_last_window_in_violation() -> None:
    gpu = [20.0] * 12 + [95.0] * 8

    result = SMALL.check(make_job(cpu=[20.0] * 20, gpu=gpu, interval_s=30))

    assert result.details["last_timestamp"] == START_US + 5 * 60 * SECOND_US


def test_memory_samples_that_come_later_do_not_judge_earlier_windows() -> None:
    late = make_panel(
        Metric.GPU_MEMORY_ACTIVITY, [95.0] * 2, time_us=[START_US + s * SECOND_US for s in (540, 570)]
    )

    result = SMALL.check(make_job(cpu=[20.0] * 20, gpu=[40.0] * 20, interval_s=30, extra=[late]))

    assert (result.evaluated, result.triggered) == (7, 6)


def test_times_become_samples_of_each_series() -> None:
    """The CPU is sampled every 10 s, the GPU every 30 s: 60 s are 6 samples of one and 2 of the other."""
    rng = np.random.default_rng(5)
    cpu = make_panel(
        Metric.CPU_UTILIZATION, rng.choice([20.0, 80.0], 120, p=[0.95, 0.05]), interval_s=10, prefix="cpu"
    )
    gpu = make_panel(Metric.GPU_UTILIZATION, rng.choice([20.0, 80.0], 40, p=[0.8, 0.2]), interval_s=30)
    times = cpu.time_us.tolist()
    rule = BatchSize(window=timedelta(seconds=60), patience=timedelta(seconds=200))

    result = rule.check(make_job(extra=[gpu, cpu]))

    low = 0
    for k in range(20):
        end = START_US + (k + 1) * 60 * SECOND_US
        cores = [v for v, t in zip(cpu.mean.tolist(), times, strict=True) if t < end]
        gpus = [v for v, t in zip(gpu.mean.tolist(), gpu.time_us.tolist(), strict=True) if t < end]
        if len(cores) > 20 and len(gpus) > 2:
            low += np.quantile(cores[-6:], 0.95) < 70 and np.quantile(gpus[-2:], 0.95) < 70
    assert (result.evaluated, result.triggered) == (17, low)
    assert 0 < low < 17


def test_each_gpu_says_what_it_lacked() -> None:
    other = make_panel(Metric.GPU_UTILIZATION, [20.0] * 20, node="algo-2", interval_s=30)

    result = SMALL.check(make_job(cpu=[20.0] * 20, gpu=[20.0] * 20, interval_s=30, extra=[other]))

    assert [(one.name, str(one.reason or "")) for one in result.devices] == [
        ("algo-1/gpu0", ""),
        ("algo-2/gpu0", "CPU utilization not recorded"),
    ]


def test_without_a_gpu_the_samples_of_the_cpu_are_counted() -> None:
    other = make_panel(Metric.CPU_UTILIZATION, [20.0] * 7, node="algo-2", prefix="cpu")

    (result,) = run_rules([SMALL], make_job(cpu=[20.0] * 20, extra=[other]))

    assert (result.status, str(result.reason)) == (Status.NOT_EVALUATED, "no GPU was sampled")
    assert (result.datapoints, result.datapoints_per_series) == (20, {"algo-1": 20, "algo-2": 7})
