from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules import LowGPUUtilization
from jobrules.model import SECOND_US, Metric, Severity, Status, in_words
from tests.jobs import START_US, make_job, make_panel

SMALL = LowGPUUtilization(window=4, patience=6)


def judged(times_us: list[int], few: int) -> list[int]:
    """How many samples were seen by the end of each minute that has any, from more than a few on."""
    minutes = [t // (60 * SECOND_US) for t in times_us]
    seen = [sum(other <= minute for other in minutes) for minute in sorted(set(minutes))]
    return [n for n in seen if n > few]


def reference(values: list[float], times_us: list[int], rule: LowGPUUtilization) -> tuple[int, int, int]:
    """(judged, low, fluctuating) by the definition, sample by sample."""
    assert isinstance(rule.window, int)
    assert isinstance(rule.patience, int)
    windows = [values[:n][-rule.window :] for n in judged(times_us, rule.patience)]
    low = [bool(np.quantile(one, 0.95) < rule.threshold_p95) for one in windows]
    fluctuating = [bool(np.quantile(one, 0.05) < rule.threshold_p5) for one in windows]
    return len(windows), sum(low), sum(b and not a for a, b in zip(low, fluctuating, strict=True))


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 5.0, 10.0, 70.0, 100.0]), st.integers(1, 100)),
        min_size=2,
        max_size=60,
    ),
    st.integers(1, 9),
    st.integers(1, 12),
)
def test_counts_agree_with_the_definition(
    samples: list[tuple[float, int]], window: int, patience: int
) -> None:
    rule = LowGPUUtilization(window=window, patience=patience)
    values = [value for value, _ in samples]
    times = (START_US + np.cumsum([gap for _, gap in samples]) * SECOND_US).tolist()
    panel = make_panel(Metric.GPU_UTILIZATION, values, time_us=times)

    result = rule.check(make_job(extra=[panel]))

    judged, low, fluctuating = reference(values, times, rule)
    assert (result.evaluated, result.violating) == (judged, low + fluctuating)
    if low + fluctuating:
        found = result.details["algo-1"]["gpu0"]
        assert (found["low"], found["fluctuating"]) == (low, fluctuating)
    assert result.status is (
        Status.NOT_EVALUATED if not judged else Status.TRIGGERED if low + fluctuating else Status.PASSED
    )


def test_every_gpu_counts_its_own_windows() -> None:
    one = SMALL.check(make_job(gpu=[[5.0, 95.0]] * 20, interval_s=30))
    both = SMALL.check(make_job(gpu=[[5.0, 5.0]] * 20, interval_s=30))

    assert (one.triggered, both.triggered) == (7, 14)
    assert (one.evaluated, both.evaluated) == (14, 14)
    assert one.datapoints_per_series == {"algo-1/gpu0": 20, "algo-1/gpu1": 20}
    assert in_words(one.findings[0].evidence).startswith("algo-1 gpu0, ")
    assert in_words(both.findings[0].evidence).startswith("Both GPUs, ")


def test_an_unused_gpu_is_marked() -> None:
    result = SMALL.check(make_job(gpu=[[0.0, 5.0]] * 20, interval_s=30))

    gpus = result.details["algo-1"]
    assert (gpus["gpu0"]["unused"], gpus["gpu1"]["unused"]) == (True, False)


def test_box_holds_the_history_at_the_last_trigger_and_the_whole_job_beside_it() -> None:
    result = SMALL.check(make_job(gpu=[10.0] * 10 + [90.0] * 10, interval_s=30))

    gpu = result.details["algo-1"]["gpu0"]
    assert gpu["gpu_max"] == gpu["gpu_95"] == 10.0
    assert gpu["window_end"] == START_US + 300 * SECOND_US
    assert (gpu["job"]["gpu_max"], gpu["job"]["n"], gpu["job"]["p50"]) == (90.0, 20, 50.0)


@pytest.mark.parametrize(
    ("low_windows", "severity"), [(1, Severity.INFO), (3, Severity.WARNING), (20, Severity.CRITICAL)]
)
def test_severity_follows_the_share_of_windows(low_windows: int, severity: Severity) -> None:
    rule = LowGPUUtilization(window=2, patience=2)
    values = [95.0] * (60 - 2 * low_windows) + [5.0] * (2 * low_windows)

    result = rule.check(make_job(gpu=values, interval_s=30))

    assert result.violating == low_windows
    assert result.findings[0].severity is severity


def test_a_finding_ends_with_the_job_and_is_about_the_gpus_in_violation() -> None:
    result = SMALL.check(make_job(gpu=[[95.0, 5.0, 0.0]] * 20, interval_s=30))

    (finding,) = result.findings
    assert finding.devices == ("algo-1/gpu1",)
    assert finding.share == 0.5
    assert finding.end_us == result.last_us == START_US + 570 * SECOND_US
    assert result.triggered == 14


def test_a_finding_begins_with_the_gpus_it_is_about() -> None:
    gpu = np.column_stack([np.zeros(40), [95.0] * 30 + [5.0] * 10])

    result = SMALL.check(make_job(gpu=gpu, interval_s=30))

    (finding,) = result.findings
    assert finding.start_us is not None
    assert finding.start_us > START_US + 800 * SECOND_US
    assert result.first_us == START_US + 180 * SECOND_US
    assert "Not counted: 1\u00a0never-used GPU." in in_words(finding.evidence)


def test_patience_and_window_may_be_times() -> None:
    rng = np.random.default_rng(3)
    job = make_job(gpu=rng.choice([0.0, 50.0, 80.0, 100.0], (900, 2)), interval_s=2.5)
    timed = LowGPUUtilization(patience=timedelta(seconds=498), window=timedelta(minutes=1))

    result, same = timed.check(job), LowGPUUtilization(patience=200, window=24).check(job)

    assert same.evaluated
    assert (result.evaluated, result.triggered, result.details) == (
        same.evaluated,
        same.triggered,
        same.details,
    )


def test_each_gpu_says_what_it_lacked() -> None:
    job = make_job(gpu=[[50.0, np.nan]] * 18 + [[50.0, 50.0]] * 2, interval_s=30)

    result = SMALL.check(job)

    judged, short = result.devices
    assert (judged.name, judged.status, str(judged.reason or "")) == ("algo-1/gpu0", Status.TRIGGERED, "")
    assert (judged.evaluated, judged.violating) == (result.evaluated, result.violating)
    assert (short.status, str(short.reason)) == (Status.NOT_EVALUATED, "7 samples needed, 2 recorded")


def test_a_real_runs_count_of_windows() -> None:
    """38 minutes from 1736889960 s on, 85 samples in the first and 120 in each other: patience ends in the ninth."""
    minute = 60 * SECOND_US
    first = 1_736_889_960 * SECOND_US
    starts = [first + minute - 85 * 500_000, *(first + k * minute for k in range(1, 38))]
    times = [
        start + i * 500_000 for start, n in zip(starts, [85] + [120] * 37, strict=True) for i in range(n)
    ]
    panel = make_panel(Metric.GPU_UTILIZATION, [40.0] * len(times), time_us=times)

    result = LowGPUUtilization().check(make_job(extra=[panel]))

    assert (result.datapoints, result.triggered, result.violations) == (4525, 30, 30)
    assert result.details["last_timestamp"] == 1_736_892_180_000_000
