from __future__ import annotations

import numpy as np
import pytest

from jobrules import LowMeanUtilization
from jobrules.model import SECOND_US, Metric, Severity, Status
from jobrules.verdict.time_use import time_use
from tests.jobs import START_US, make_job, make_panel
from tests.verdicts import verdict_of


@pytest.mark.parametrize("seed", range(5))
def test_the_mean_is_what_the_bar_counts_as_used(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.choice([0.0, 5.0, 20.0, 60.0], (800, 3))
    values[rng.random(values.shape) < 0.1] = np.nan
    seconds = np.cumsum(rng.choice([1, 1, 1, 7], 800))
    panel = make_panel(Metric.GPU_UTILIZATION, values, time_us=START_US + seconds * SECOND_US)
    job = make_job(extra=[panel])

    result = LowMeanUtilization().check(job)

    # Hold every sample until the next one of its GPU, the last for the usual second.
    used = covered = 0.0
    for column in values.T:
        known = [(int(s), v) for s, v in zip(seconds, column, strict=True) if v == v]
        ends = [s for s, _ in known[1:]] + [min(known[-1][0] + 1, int(seconds[-1]))]
        first = min(1, known[0][0] - int(seconds[0]))
        used += first * known[0][1] / 100
        covered += first
        for (begin, value), end in zip(known, ends, strict=True):
            used += (end - begin) * value / 100
            covered += end - begin
    assert result.measure is not None
    assert result.measure.value == pytest.approx(100 * used / covered, abs=0.06)
    use = time_use(job)
    assert use is not None
    if not use.of("unknown")[0]:
        assert result.measure.value == pytest.approx(use.of("used")[1], abs=0.11)


@pytest.mark.parametrize(
    ("mean", "severity"),
    [
        (26.0, None),
        (25.0, None),
        (24.0, Severity.WARNING),
        (15.0, Severity.WARNING),
        (14.0, Severity.CRITICAL),
    ],
)
def test_limits_are_those_of_clusters(mean: float, severity: Severity | None) -> None:
    result = LowMeanUtilization().check(make_job(gpu=[[mean - 1, mean + 1]] * 700, interval_s=1))

    assert [f.severity for f in result.findings] == ([severity] if severity else [])
    assert result.headline.startswith(f"Mean GPU utilization was {mean:.1f}%")


def test_a_low_mean_that_the_start_makes_is_no_finding_before_the_start() -> None:
    job = make_job(gpu=[0.0] * 2400 + [40.0] * 700, interval_s=1)
    start, low = verdict_of(job, LowMeanUtilization()).findings

    assert LowMeanUtilization().check(job).status is Status.TRIGGERED
    assert (start.key, start.rules, start.severity) == ("start-up", (), Severity.CRITICAL)
    assert (low.key, low.severity) == ("unexplained", Severity.WARNING)
