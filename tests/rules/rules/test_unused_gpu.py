from __future__ import annotations

import numpy as np
import pytest

from jobrules import LowGPUUtilization, LowMeanUtilization, UnusedGPU
from jobrules.model import SECOND_US, Job, Metric, Severity, Status, in_words
from jobrules.verdict.findings import Verdict
from tests import verdicts
from tests.jobs import START_US, make_job, make_panel


def busy_for(part: float, n: int = 1000, use: float = 80.0) -> list[float]:
    """So much of the samples at work, spread evenly, the others at 3%."""
    return [use if int((i + 1) * part) > int(i * part) else 3.0 for i in range(n)]


def verdict_of(job: Job) -> Verdict:
    rules = (UnusedGPU(), LowGPUUtilization(window=50, patience=60), LowMeanUtilization())
    return verdicts.verdict_of(job, *rules)


@pytest.mark.parametrize(("part", "unused"), [(0.04, True), (0.06, False), (1.0, False)])
def test_a_gpu_that_hardly_works_is_one_whose_95th_percentile_is_below_ten(part: float, unused: bool) -> None:
    values = busy_for(part)
    result = UnusedGPU().check(make_job(gpu=values, interval_s=2))

    assert bool(np.quantile(values, 0.95) < 10) is unused
    assert (result.status is Status.TRIGGERED) is unused
    if unused:
        assert result.headline == "The GPU was almost unused (active 3.9% of the time)"


def test_samples_count_for_as_long_as_they_stand_for() -> None:
    """Ten of 28 samples are at work, for 10 s of an hour; then ten of 28, for nearly all of it."""
    quick, slow = np.arange(10), 10 + 200 * np.arange(18)
    for at_work, part in ((quick, 10), (slow, 3600)):
        seconds = np.sort(np.concatenate((quick, slow)))
        values = np.where(np.isin(seconds, at_work), 90.0, 0.0)
        panel = make_panel(Metric.GPU_UTILIZATION, values, time_us=START_US + seconds * SECOND_US)
        status = UnusedGPU().check(make_job(extra=[panel])).status
        assert (status is Status.TRIGGERED) is (part < 180)


def test_a_gpu_whose_use_the_tool_cannot_tell_is_not_unused() -> None:
    values = np.full((700, 3), 95.0)
    values[:, 1] = 0.0
    values[5:, 2] = np.nan
    result = UnusedGPU().check(make_job(gpu=values, interval_s=2))

    assert [one.status for one in result.devices] == [Status.PASSED, Status.TRIGGERED, Status.NOT_EVALUATED]


def test_a_gpu_that_hardly_worked_is_one_finding_with_low_use() -> None:
    gpu = np.column_stack((np.full(1000, 95.0), busy_for(0.04)))
    (finding,) = verdict_of(make_job(gpu=gpu, interval_s=2)).findings

    assert finding.title.startswith("1 of 2\u00a0GPUs was almost unused during the work")
    assert in_words(finding.evidence).startswith("algo-1 gpu1, ")
    assert finding.rules == ("UnusedGPU", "LowGPUUtilization")
    assert finding.severity is Severity.CRITICAL
    assert finding.share_of == "of GPU time"
    assert finding.share == pytest.approx((1 - np.mean(busy_for(0.04)) / 100) / 2, abs=0.001)


def test_gpus_that_never_and_that_hardly_worked_are_two_findings_on_different_gpus() -> None:
    gpu = np.column_stack((np.full(1000, 95.0), busy_for(0.04), np.zeros(1000)))
    findings = verdict_of(make_job(gpu=gpu, interval_s=2)).findings

    assert {f.devices for f in findings} == {("algo-1/gpu1",), ("algo-1/gpu2",)}
    assert all("UnusedGPU" in f.rules for f in findings)


def test_a_job_that_is_start_up_but_for_a_moment_is_one_finding() -> None:
    gpu = [0.0] * 980 + [90.0] * 20
    (finding,) = verdict_of(make_job(gpu=gpu, interval_s=2)).findings

    assert (finding.key, finding.severity) == ("start-up", Severity.CRITICAL)
