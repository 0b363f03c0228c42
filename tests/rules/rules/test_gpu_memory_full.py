from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jobrules import GPUMemoryFull
from jobrules.model import SECOND_US, Job, Metric, Severity, Status, in_words
from tests.jobs import START_US, make_job, make_panel

GIB = 2**30


def memory_job(percents: Any, total_gib: float = 80.0, **given: Any) -> Job:
    """Memory in use, in percent of the total, one row a second."""
    used = make_panel(Metric.GPU_MEMORY_USED, np.asarray(percents) / 100 * total_gib * GIB, interval_s=1)
    total = make_panel(Metric.GPU_MEMORY_TOTAL, np.full(used.values.shape, total_gib * GIB), interval_s=1)
    return make_job(extra=[used, total], **given)


def longest_runs(values: list[float], limit: float, least: int) -> int:
    """Samples in runs above a limit that are at least so long, counted one by one."""
    found = run = 0
    for value in [*values, 0.0]:
        if value > limit:
            run += 1
        else:
            found += run if run >= least else 0
            run = 0
    return found


@pytest.mark.parametrize("seed", range(8))
def test_full_time_is_that_of_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.repeat(rng.choice([50.0, 91.9, 92.1, 99.5], 30), rng.integers(5, 90, 30))
    values[-1] = 10.0  # the last sample stands for no time of its own

    result = GPUMemoryFull().check(memory_job(values))

    expected = longest_runs(values.tolist(), 92.0, 60)
    assert (result.status is Status.TRIGGERED) is (expected > 0)
    if expected:
        details = result.details["algo-1/gpu0"]
        assert (details["full_s"], details["measured_s"]) == (expected, len(values) - 1)
        brim = longest_runs(values.tolist(), 99.0, 60) > 0
        if details["grown"] < 1:
            assert (result.findings[0].severity is Severity.WARNING) is brim


def test_memory_taken_ahead_is_an_info_that_says_so() -> None:
    result = GPUMemoryFull().check(memory_job([10.0] * 60 + [96.0] * 540))

    (finding,) = result.findings
    assert finding.severity is Severity.INFO
    assert finding.title == "GPU memory was more than 92% in use for 90.0% of its measured time"
    assert "allocated, not necessarily needed." in in_words(finding.evidence)


@pytest.mark.parametrize(
    ("full", "severity"),
    [
        (np.full(600, 98.9), Severity.INFO),
        (np.full(600, 99.1), Severity.WARNING),
        (np.linspace(93.0, 93.9, 600), Severity.INFO),
        (np.linspace(93.0, 95.0, 600), Severity.WARNING),
        (np.linspace(98.0, 93.0, 600), Severity.INFO),
    ],
)
def test_it_is_a_warning_at_the_brim_or_while_it_grows(full: np.ndarray, severity: Severity) -> None:
    assert GPUMemoryFull().check(memory_job(full)).findings[0].severity is severity


def test_a_pause_of_the_sampling_ends_a_run() -> None:
    n = 80
    seconds = np.arange(n) + np.where(np.arange(n) >= n // 2, 900, 0)
    values = np.full(n, 95.0)
    times = START_US + seconds * SECOND_US
    used = make_panel(Metric.GPU_MEMORY_USED, values * GIB, time_us=times)
    total = make_panel(Metric.GPU_MEMORY_TOTAL, np.full(n, 100.0 * GIB), time_us=times)

    assert GPUMemoryFull().check(make_job(extra=[used, total])).status is Status.PASSED


def test_each_gpu_has_its_own_total_whenever_that_was_sampled() -> None:
    used = make_panel(Metric.GPU_MEMORY_USED, [[38.0 * GIB, 38.0 * GIB, 1.0]] * 200, interval_s=1)
    total = make_panel(Metric.GPU_MEMORY_TOTAL, [[40.0 * GIB, 80.0 * GIB]], start_us=START_US + 50)

    result = GPUMemoryFull().check(make_job(extra=[used, total]))

    assert [one.status for one in result.devices] == [Status.TRIGGERED, Status.PASSED, Status.NOT_EVALUATED]
    assert str(result.devices[2].reason) == "GPU memory size not recorded"
