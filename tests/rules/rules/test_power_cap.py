"""PowerCap: held by the limit, near the limit, and whether the clock fell."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from jobreport.readers.registry import read_job
from jobrules.model import SECOND_US, Job, Metric, RuleResult, Severity, Status, in_words
from jobrules.rule import run_rules
from jobrules.rules.power_cap import PowerCap
from tests.copies import replace
from tests.jobs import START_US, make_job, make_panel, sampled
from tests.paths import CORPUS, needs_corpus

LOG = "8gpu-c35da19.csv"
N = 1000
CAPPED = np.arange(N) < 300


def checked(job: Job, rule: PowerCap | None = None) -> RuleResult:
    (found,) = run_rules([rule or PowerCap()], job, strict=True)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_draws_near_the_limit_are_those_of_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = START_US + np.cumsum(rng.integers(1, 4, 50)) * SECOND_US
    power, limit = rng.uniform(380, 402, 50), rng.choice([390.0, 400.0], 50)
    panels = [
        make_panel(Metric.GPU_POWER, power, time_us=times),
        make_panel(Metric.GPU_POWER_LIMIT, limit, time_us=times),
    ]

    found = checked(make_job(extra=panels), PowerCap(threshold=50))

    near = sum(int(times[i + 1] - times[i]) for i in range(49) if power[i] >= 0.97 * limit[i])
    part = 100 * near / int(times[-1] - times[0])
    assert found.details["algo-1"]["gpu0"]["percent"] == round(part, 2)
    assert (found.status is Status.TRIGGERED) == (part > 50)


@pytest.mark.parametrize(("part", "status"), [(2.0, Status.PASSED), (60.0, Status.TRIGGERED)])
def test_a_share_of_each_sample_counts_as_that_share(part: float, status: Status) -> None:
    """As pviol of dmon, which is no yes or no."""
    found = checked(sampled(gpu_power_cap=np.full(N, part)))

    assert found.status is status
    assert found.details["algo-1"]["gpu0"]["percent"] == part


def test_clocks_differ_where_the_limit_held_for_half_a_sample() -> None:
    part, clocks = np.where(CAPPED, 70.0, 5.0), np.where(CAPPED, 1400.0, 1980.0)

    (finding,) = checked(sampled(gpu_power_cap=part, gpu_clock=clocks)).findings

    assert "Median clock at the limit: 1,400\u00a0MHz. Otherwise: 1,980\u00a0MHz." in in_words(
        finding.evidence
    )


def test_clocks_are_those_of_work_only_where_use_is_known() -> None:
    clocks = np.where(CAPPED, 1200.0, 210.0)
    use = np.where(np.arange(N) < 500, 95.0, np.nan)

    (finding,) = checked(sampled(gpu_power_cap=100.0 * CAPPED, gpu_clock=clocks)).findings
    assert "Median clock at the limit: 1,200\u00a0MHz. Otherwise: 210\u00a0MHz." in in_words(finding.evidence)
    (finding,) = checked(
        sampled(gpu_power_cap=100.0 * CAPPED, gpu_clock=clocks, gpu_utilization=use)
    ).findings
    assert "in other work" not in in_words(finding.evidence)


def test_a_gpu_at_its_limit_is_reported_for_information() -> None:
    found = checked(sampled(gpu_power_cap=100.0 * CAPPED))

    (finding,) = found.findings
    assert finding.severity is Severity.INFO
    assert finding.title == "1\u00a0GPU was at its power limit for 30.0% of its time"
    assert "Whether the clock dropped is not known" in in_words(finding.evidence)


@pytest.mark.parametrize(("clock", "severity"), [(1500.0, Severity.WARNING), (1800.0, Severity.INFO)])
def test_a_clock_that_falls_with_it_is_a_warning(clock: float, severity: Severity) -> None:
    clocks = np.where(CAPPED, clock, np.where(np.arange(N) < 600, 1980.0, 210.0))
    use = np.where(np.arange(N) < 600, 98.0, 0.0)

    (finding,) = checked(
        sampled(gpu_power_cap=100.0 * CAPPED, gpu_clock=clocks, gpu_utilization=use)
    ).findings

    assert finding.severity is severity
    assert f"at the limit: {clock:,.0f}\u00a0MHz. In other work: 1,980\u00a0MHz." in in_words(
        finding.evidence
    )
    dropped = severity is Severity.WARNING
    assert finding.title.endswith("and its clock dropped") == dropped
    assert finding.advice[0].startswith("Check whether someone lowered" if dropped else "Do nothing")
    # There is no other to compare with.
    assert not any("other GPUs" in advice for advice in finding.advice)


def test_a_gpu_that_never_worked_below_its_limit_has_no_clock_to_compare_with() -> None:
    use = 98.0 * CAPPED
    clocks = np.where(CAPPED, 1400.0, 1980.0)

    (finding,) = checked(
        sampled(gpu_power_cap=100.0 * CAPPED, gpu_clock=clocks, gpu_utilization=use)
    ).findings

    assert finding.severity is Severity.INFO


def test_gpus_whose_clock_is_not_known_are_reported_with_one_that_fell() -> None:
    table = 100.0 * np.column_stack([CAPPED, np.ones(N)])
    clocks = np.column_stack([np.where(CAPPED, 1400.0, 1980.0), np.full(N, 1400.0)])

    (finding,) = checked(sampled(gpu_power_cap=table, gpu_clock=clocks)).findings

    assert finding.severity is Severity.WARNING
    assert finding.title.startswith("Both GPUs were at their power limit, the worst for 100.0%")
    assert finding.devices == ("algo-1/gpu1", "algo-1/gpu0")
    assert "at the limit: algo-1 gpu0 1,400\u00a0MHz" in in_words(finding.evidence)


def test_without_reasons_a_draw_near_the_limit_is_called_that() -> None:
    power = np.where(CAPPED, 388.0, 387.9)

    found = checked(sampled(gpu_power=power, gpu_power_limit=np.full(N, 400.0)))

    assert found.findings[0].title == "1\u00a0GPU was near its power limit for 30.0% of its time"
    assert found.details["algo-1"]["gpu0"]["basis"] == "draw near the limit"


def test_a_limit_of_0_is_none() -> None:
    assert (
        checked(sampled(gpu_power=np.full(N, 100.0), gpu_power_limit=np.zeros(N))).status
        is Status.NOT_EVALUATED
    )


def test_the_limits_part_gpus_at_their_limit_from_others() -> None:
    """A check of the thresholds, which are ours.

    A GPU at a limit of 400 W draws 98.5% of it and swings by half a percent; one that works freely at nine
    tenths swings by three. Any threshold from 3 to 90% parts them.
    """
    rng = np.random.default_rng(3)
    held_back, free = (
        400.0 * (mean + swing * rng.standard_normal((3600, 16)))
        for mean, swing in ((0.985, 0.005), (0.9, 0.03))
    )

    for draws, low, high in ((held_back, 90.0, 100.0), (free, 0.0, 3.0)):
        found = checked(sampled(gpu_power=draws, gpu_power_limit=np.full(draws.shape, 400.0)))
        shares = [gpu["percent"] for gpu in found.details["algo-1"].values()]
        assert low <= min(shares)
        assert max(shares) < high


@needs_corpus
def test_all_gpus_of_a_real_log_are_near_their_limit_for_the_same_time(tmp_path: Path) -> None:
    """A check of ``near`` and ``threshold``: the draw is real, the limit of 700 W is that of the model.

    All eight GPUs do the same work, at full draw for 30% of the time. There 98% of the limit lies amid the
    swings of the draw: judged by it they seem to differ.
    """
    shutil.copyfile(CORPUS / "nvidia-smi" / LOG, tmp_path / LOG)
    read, _ = read_job(tmp_path, strict=True)
    (power,) = read.panels_of(Metric.GPU_POWER)
    limit = replace(power, metric=Metric.GPU_POWER_LIMIT, values=np.full(power.values.shape, 700.0))
    job = make_job(extra=[power, limit])

    def shares(near: float) -> list[float]:
        (of_node,) = checked(job, PowerCap(near_limit=near)).details.values()
        return [gpu["percent"] for gpu in of_node.values()]

    assert 30 <= min(shares(97.0)) <= max(shares(97.0)) < 31
    assert max(shares(98.0)) - min(shares(98.0)) > 10
    assert checked(job).violating == 8
