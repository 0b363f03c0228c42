"""GPUMemoryLeak on series that leak and, with many seeds, on series that do not.

False alarms, counted once over 2000 seeds of each shape of HEALTHY, jobs of 35 minutes to 8 hours: see docs/thresholds.md.
"""

from __future__ import annotations

import itertools
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from jobrules import GPUMemoryLeak
from jobrules.model import SECOND_US, FloatArray, Metric, RuleResult, Severity, Status, in_words
from tests.jobs import START_US, make_job, make_panel, make_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobrules.model import Steps

#: Seconds between samples.
APART = 5
MIB, TOTAL_MIB = 2**20, 81_920


def judged(percents: FloatArray, steps: Steps | None = None, gpu: FloatArray | None = None) -> RuleResult:
    """A GPU's memory in percent, in whole MiB as nvidia-smi gives it."""
    used = np.rint(np.clip(percents, 0, 100) / 100 * TOTAL_MIB) * MIB
    panels = [
        make_panel(Metric.GPU_MEMORY_USED, used, interval_s=APART),
        make_panel(Metric.GPU_MEMORY_TOTAL, np.full(used.shape, TOTAL_MIB * MIB), interval_s=APART),
    ]
    if gpu is not None:
        panels.insert(0, make_panel(Metric.GPU_UTILIZATION, gpu, interval_s=APART))
    return GPUMemoryLeak().check(make_job(extra=panels, steps=steps))


def hours(n: int) -> FloatArray:
    return np.arange(n) * APART / 3600


def plateau(rng: np.random.Generator, n: int) -> FloatArray:
    return 60.0 + rng.normal(0, 0.5, n)


def sawtooth(rng: np.random.Generator, n: int) -> FloatArray:
    """Allocated over an epoch, then freed."""
    period = int(rng.integers(20, n // 3))
    return 40.0 + 30.0 * (np.arange(n) % period) / period + rng.normal(0, 0.3, n)


def levels_off(rng: np.random.Generator, n: int) -> FloatArray:
    """A cache that fills over a fifth of the job at most."""
    filled = rng.uniform(0.01, 0.07) * n
    return 70.0 - 30.0 * np.exp(-np.arange(n) / filled) + rng.normal(0, 0.2, n)


def one_jump(rng: np.random.Generator, n: int) -> FloatArray:
    return 50.0 + 14.0 * (np.arange(n) > rng.uniform(0, n)) + rng.normal(0, 0.3, n)


def evaluations(rng: np.random.Generator, n: int) -> FloatArray:
    """Every so often for a while with more memory, of an amount that differs."""
    period = int(rng.integers(50, n // 2))
    return 55.0 + np.where(np.arange(n) % period < period // 4, rng.uniform(0, 20, n), 0.0)


def drifting(rng: np.random.Generator, n: int) -> FloatArray:
    """Noise with a memory of 10 minutes: an allocator that keeps and frees."""
    keep = np.exp(-APART / 600)
    steps = rng.normal(0, np.sqrt(1 - keep**2), n)
    level = np.empty(n)
    level[0] = rng.normal()
    for i in range(1, n):
        level[i] = keep * level[i - 1] + steps[i]
    return 60.0 + 1.0 * level


HEALTHY = (plateau, sawtooth, levels_off, one_jump, evaluations, drifting)


def length_of(rng: np.random.Generator) -> int:
    return int(rng.uniform(35 * 60, 8 * 3600) / APART)


@pytest.mark.parametrize("shape", HEALTHY, ids=lambda shape: shape.__name__)
def test_it_is_silent_on_a_healthy_job(shape: Callable[[np.random.Generator, int], FloatArray]) -> None:
    for seed in range(25):
        rng = np.random.default_rng(seed)
        result = judged(shape(rng, length_of(rng)))
        assert result.status is Status.PASSED, (seed, result.details)


def test_a_cache_that_fills_for_half_of_the_job_does_not_leak() -> None:
    n = 2880
    assert judged(70.0 - 30.0 * np.exp(-np.arange(n) / (0.2 * n))).status is Status.PASSED


@pytest.mark.parametrize("pace", [2.0, 5.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_leak_under_a_sawtooth_is_found_with_its_pace(seed: int, pace: float) -> None:
    rng = np.random.default_rng(seed)
    n = int(4 * 3600 / APART)
    period = int(rng.integers(20, 100))
    values = 30.0 + pace * hours(n) + 20.0 * (np.arange(n) % period) / period + rng.normal(0, 0.3, n)

    result = judged(values)

    (finding,) = result.findings
    details = result.details["algo-1/gpu0"]
    assert details["points_per_hour"] == pytest.approx(pace, rel=0.1)
    left = (70.0 - 4 * pace) / pace
    assert details["full_after_h"] == pytest.approx(left, rel=0.15)
    assert finding.severity is (Severity.WARNING if left < 24 else Severity.INFO)


@pytest.mark.parametrize(("pace", "triggers"), [(0.9, False), (1.1, True)])
def test_the_limit_is_a_hundredth_of_the_memory_an_hour(pace: float, triggers: bool) -> None:
    assert (judged(30.0 + pace * hours(2880)).status is Status.TRIGGERED) is triggers


def test_slope_and_agreement_are_those_of_a_plain_loop() -> None:
    rng = np.random.default_rng(3)
    values = 30.0 + 4.0 * hours(2880) + rng.uniform(0, 5, 2880)
    details = judged(values).details["algo-1/gpu0"]

    percents = np.rint(values / 100 * TOTAL_MIB) / TOTAL_MIB * 100
    begin, last = 0.1 * 2879 * APART, 2879 * APART
    kept = [(i * APART, v) for i, v in enumerate(percents.tolist()) if i * APART >= begin]
    width = (last - kept[0][0] + 1e-6) / 20
    floor = [min(v for t, v in kept if k == int((t - kept[0][0]) / width)) for k in range(20)]
    pairs = list(itertools.combinations(range(20), 2))
    slope = statistics.median((floor[j] - floor[i]) / ((j - i) * width / 3600) for i, j in pairs)
    assert details["points_per_hour"] == pytest.approx(slope, rel=1e-6)
    rises = sum((floor[j] > floor[i]) - (floor[j] < floor[i]) for i, j in pairs)
    assert details["agreement"] == pytest.approx(rises / len(pairs))


def test_start_up_and_what_comes_after_the_work_are_left_out() -> None:
    n = 1000
    values = np.concatenate((np.linspace(0, 60, n), np.full(n, 60.0), np.linspace(60, 90, n)))
    busy = np.concatenate((np.zeros(n), np.full(n, 90.0), np.zeros(n)))
    steps = make_steps([(n * APART + 5.0 * i, n * APART + 5.0 * i + 4.0) for i in range(n)])

    assert judged(values).status is Status.TRIGGERED
    rising = np.concatenate((values[:n], 60.0 + 5.0 * hours(n), np.zeros(n)))
    for given in ({"gpu": busy}, {"steps": steps}):
        assert judged(values, **given).status is Status.PASSED
        assert judged(rising, **given).details["algo-1/gpu0"]["points_per_hour"] == pytest.approx(5, rel=0.05)


def test_the_highest_slope_and_the_gpu_that_is_full_first_may_be_two() -> None:
    n = 2 * 720
    percents = np.column_stack([90.0 + 2.0 * hours(n), 10.0 + 6.0 * hours(n)])
    (finding,) = judged(percents).findings

    assert finding.title == "GPU memory in use kept growing on both GPUs, by 6.0% of the memory per hour"
    assert "Lowest memory in use at the end: algo-1 gpu0 9" in in_words(finding.evidence)


def test_few_stretches_with_samples_give_no_answer() -> None:
    seconds = np.array([0, 1, 2, 3000, 3001])
    used = make_panel(
        Metric.GPU_MEMORY_USED, np.arange(5.0) * 10 * MIB, time_us=START_US + seconds * SECOND_US
    )
    total = make_panel(Metric.GPU_MEMORY_TOTAL, [100.0 * MIB] * 5, time_us=used.time_us)

    assert GPUMemoryLeak().check(make_job(extra=[used, total])).status is Status.NOT_EVALUATED


def test_a_month_of_samples_takes_no_longer_than_reading_them() -> None:
    n = 500_000
    begun = time.process_time()
    assert judged(30.0 + 0.01 * hours(n)).status is Status.PASSED
    assert time.process_time() - begun < 1
