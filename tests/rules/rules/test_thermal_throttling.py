"""ThermalThrottling against a plain loop over its definition, and what it says."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import pytest

from jobrules.model import SECOND_US, Job, Metric, RuleResult, Severity, Status, in_words
from jobrules.rule import run_rules
from jobrules.rules.thermal_throttling import ThermalThrottling
from tests.jobs import START_US, Values, make_job, make_panel, sampled

HEAT, HARDWARE = Metric.GPU_THERMAL_SLOWDOWN, Metric.GPU_HARDWARE_SLOWDOWN


def checked(job: Job, rule: ThermalThrottling | None = None) -> RuleResult:
    (found,) = run_rules([rule or ThermalThrottling()], job, strict=True)
    return found


def logged(heat: Values, hardware: Values | None = None, **more: Values) -> Job:
    given: dict[str, Any] = {HEAT.value: heat, **more}
    return sampled(**given if hardware is None else given | {HARDWARE.value: hardware})


@pytest.mark.parametrize("seed", range(6))
def test_shares_and_answers_are_those_of_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, limit = 60, float(rng.choice([1, 10, 30]))
    times = START_US + np.cumsum(rng.integers(1, 5, n)) * SECOND_US
    heat, hardware = (rng.choice([0.0, 100.0], (n, 3), p=(0.9, 0.1)) for _ in range(2))
    hardware[:, 0] = 0.0
    heat[:, 1] = 0.0
    heat[5:9, 2] = np.nan
    panels = [
        make_panel(metric, values, time_us=times) for metric, values in ((HEAT, heat), (HARDWARE, hardware))
    ]

    found = checked(make_job(extra=panels), ThermalThrottling(threshold=limit))

    hits = set()
    for g in range(3):
        rows = [i for i in range(n) if not np.isnan(heat[i, g])]
        steps = [int(times[j]) - int(times[i]) for i, j in pairwise(rows)]
        whole = sum(steps)
        hot = sum(lasted for i, lasted in zip(rows, steps, strict=False) if heat[i, g])
        brake = 0
        for i in range(n - 1):
            last = max(j for j in rows if j <= i)
            in_force = times[i] - times[last] <= 5 * median(steps)
            if hardware[i, g] and not (in_force and heat[last, g]):
                brake += int(times[i + 1]) - int(times[i])
        block = found.details["algo-1"][f"gpu{g}"]
        assert block["heat_percent"] == round(100 * hot / whole, 2)
        assert block["hardware_not_heat_s"] == round(brake / 1e6, 1)
        if 100 * hot / whole > limit or 100 * brake / whole > limit:
            hits.add(f"algo-1/gpu{g}")
    assert {one.name for one in found.devices if one.status is Status.TRIGGERED} == hits
    assert (found.status is Status.TRIGGERED) == bool(hits)
    assert {name for finding in found.findings for name in finding.devices} == hits


def test_one_hot_gpu_is_reported_with_its_time_temperature_and_clock() -> None:
    hot = (np.arange(1000) >= 600) & (np.arange(1000) < 800)
    table = np.zeros((1000, 2))
    table[hot, 1] = 100
    warm = np.full((1000, 2), 70.0)
    warm[hot, 1] = 91.0
    clock = np.full((1000, 2), 1980.0)
    clock[hot, 1] = 1200.0

    found = checked(logged(table, gpu_temperature=warm, gpu_clock=clock))

    (finding,) = found.findings
    assert (
        finding.title
        == "Heat slowed algo-1 gpu1 to 1,200\u00a0MHz instead of 1,980\u00a0MHz for 20.0% of its time"
    )
    assert finding.devices == ("algo-1/gpu1",)
    assert finding.severity is Severity.WARNING
    assert (finding.start_us, finding.end_us) == (START_US + 600 * SECOND_US, START_US + 800 * SECOND_US)
    for words in ("20.0%", "91\u00a0°C", "1,200\u00a0MHz", "1,980\u00a0MHz"):
        assert words in in_words(finding.evidence)
    assert finding.share == pytest.approx(0.2, abs=1e-3)
    assert (found.evaluated, found.violating) == (2, 1)


def test_clocks_of_several_hot_gpus_are_those_of_the_worst() -> None:
    table, clock = np.zeros((1000, 3)), np.full((1000, 3), 1980.0)
    for gpu, (end, mhz) in enumerate([(300, 1700.0), (500, 1200.0)]):
        table[:end, gpu], clock[:end, gpu] = 100.0, mhz

    (finding,) = checked(logged(table, gpu_clock=clock)).findings

    title = "Heat slowed 2 GPUs, the worst to 1,200 MHz instead of 1,980 MHz for 50.1% of its time"
    assert finding.title.replace("\u00a0", " ") == title


def test_a_gpu_with_one_sample_is_not_judged_by_it() -> None:
    table = np.zeros((3600, 2))
    table[1:, 1] = np.nan
    table[0, 1] = 100.0

    found = checked(logged(table, table))

    assert found.status is Status.PASSED
    assert found.headline.startswith("Neither heat nor hardware slowed any GPU, recorded for 1 of 2")
    assert [str(one.reason or "") for one in found.devices] == ["", "10 samples needed, 1 recorded"]
    assert (found.evaluated, found.measure and found.measure.value) == (1, 0.0)


@pytest.mark.parametrize("every", [1, 10])
def test_heat_that_was_not_sampled_while_the_hardware_slowed_is_not_known(every: int) -> None:
    """Though the value in force may be one of a second before."""
    slowed = (np.arange(1000) >= 500) & (np.arange(1000) % every == 0)
    (finding,) = checked(logged(np.where(slowed, np.nan, 0.0), 100.0 * slowed)).findings

    assert finding.key == "hardware-slowdown"
    assert finding.title.endswith("% of its time")
    assert "Heat as a reason was not recorded all the time" in in_words(finding.evidence)
    assert "clocks_event_reasons.active" in " ".join(finding.advice)


def test_what_the_hardware_does_beside_heat_is_not_taken_for_heat() -> None:
    """A slowdown by the hardware may be the power brake's, also while the driver names heat."""
    moment = [100.0] + [0.0] * 1000

    assert checked(logged(moment, moment)).status is Status.PASSED
    (finding,) = checked(logged([100.0] * 50 + [0.0] * 950, [100.0] * 50 + [0.0] * 950)).findings
    assert finding.key == "thermal-throttling"
    assert "hardware" not in in_words(finding.evidence)


def test_reasons_that_were_sampled_at_different_times_are_each_judged() -> None:
    """A log that was started again with another query: 20 minutes of one reason, 40 of the other."""
    first = make_panel(HEAT, [100.0] * 30 + [0.0] * 1170, interval_s=1.0)
    second = make_panel(
        HARDWARE, [100.0] * 600 + [0.0] * 1800, interval_s=1.0, start_us=START_US + 1200 * SECOND_US
    )

    found = checked(make_job(extra=[first, second]))

    assert [finding.title for finding in found.findings] == [
        "Heat slowed algo-1 gpu0 for 2.5% of its time",
        "The hardware slowed 1\u00a0GPU for 25.0% of its time",
    ]
    assert "Heat as a reason was not recorded all the time" in in_words(found.findings[1].evidence)
    assert checked(make_job(extra=[second])).findings[0].key == "hardware-slowdown"


def test_a_power_brake_is_no_heat() -> None:
    braked = [100.0] * 50 + [0.0] * 950

    (finding,) = checked(logged([0.0] * 1000, braked)).findings

    assert finding.key == "hardware-slowdown"
    assert finding.title == "The hardware slowed 1\u00a0GPU for 5.0% of its time without naming heat"
    assert "power supply" in " ".join(finding.advice)
    assert "not recorded" not in in_words(finding.evidence)


def test_heat_and_brake_are_two_findings_and_count_a_gpu_once() -> None:
    heat = [100.0] * 100 + [0.0] * 900

    found = checked(logged(heat, heat[::-1]))

    assert [finding.key for finding in found.findings] == ["thermal-throttling", "hardware-slowdown"]
    assert (found.violations, found.violating, found.evaluated) == (1, 1, 1)


def test_heat_in_half_of_the_time_is_critical() -> None:
    assert checked(logged([100.0, 0.0] * 50)).findings[0].severity is Severity.CRITICAL


def test_the_limit_lies_above_what_changing_clocks_report_and_below_what_heat_does() -> None:
    """The check of the threshold, which is ours.

    A change of the clock reports a slowdown by the hardware for some 10 ms. With a change every ten seconds,
    samples a second apart meet 0.1% of them on average; that a healthy hour is finding is then rare. A GPU
    that is too hot is slowed for minutes: even one minute of an hour is 1.7%.
    """
    rng = np.random.default_rng(7)
    none, hour = np.zeros((3600, 64)), 3600
    blips = 100.0 * (rng.random((hour, 64)) < 0.1 * 0.01)
    minute = np.zeros(hour)
    minute[1000:1060] = 100.0

    assert checked(logged(none, blips)).status is Status.PASSED
    assert checked(logged(minute)).status is Status.TRIGGERED
