"""Host memory that will be full soon is told from noise, jumps, and what levels off."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from jobrules.model import Finding, FloatArray, Job, Metric
from jobrules.verdict.memory_growth import memory_growth
from tests.jobs import make_job, make_panel

GIB = 1 << 30
TOTAL = 32.0
#: 20 minutes, a sample a second.
T = np.arange(1200.0)


def job(used: FloatArray, process: FloatArray | None = None) -> Job:
    panels = {Metric.HOST_MEMORY_USED: used * GIB, Metric.HOST_MEMORY_TOTAL: np.full(len(used), TOTAL * GIB)}
    extra = [make_panel(metric, values, interval_s=1.0) for metric, values in panels.items()]
    if process is not None:
        extra.append(make_panel(Metric.PROCESS_MEMORY, process * GIB, interval_s=5.0, prefix=""))
    return make_job(extra=extra)


def grows(used: FloatArray) -> Finding | None:
    return next(iter(memory_growth(job(used))), None)


def noise(seed: int, gib: float) -> FloatArray:
    return np.random.default_rng(seed).normal(0, gib, len(T))


#: In GiB by seconds; and in how many minutes it is full.
LINES: dict[str, tuple[FloatArray, float]] = {
    "a line": (8 + T / 60, 4.0),
    "a line after a start": (np.where(T < 300, 2 + T / 60, 8 + 0.8 * (T - 300) / 60), 15.0),
    "a line with noise": (8 + T / 60 + noise(0, 0.5), 4.0),
    "a line under peaks": (8 + T / 60 + 3 * (T % 40 < 10), 4.0),
    "saw teeth that grow": (8 + T / 60 + (T % 30) / 30, 4.0),
}
NO_LINES: dict[str, FloatArray] = {
    "flat": np.full(len(T), 30.0),
    "noise": 20 + noise(1, 2.0),
    "saw teeth": 20 + 8 * (T % 300) / 300,
    "levels off": 30 - 22 * np.exp(-T / 300),
    "a jump": np.where(T < 900, 15.0, 25.0),
    "falls": 30 - T / 60,
    "full later than it lasted": 8 + 0.4 * T / 60,
    "not measured": np.full(len(T), np.nan),
    "too short": np.array([8 + i / 6 for i in range(100)]),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_says_when_memory_is_full(name: str) -> None:
    used, minutes = LINES[name]
    found = grows(used)
    assert found is not None
    (said,) = re.findall(r"about (\d+)\smin", found.title)
    assert int(said) == pytest.approx(minutes, rel=0.2, abs=1)


@pytest.mark.parametrize("name", NO_LINES)
def test_nothing_is_foretold_without_a_line(name: str) -> None:
    assert grows(NO_LINES[name]) is None


@pytest.mark.parametrize(
    ("walk", "most"),
    [
        (lambda seed: 24 + noise(seed, 1.0), 0),
        # A walk at random may look like a line for a while.
        (lambda seed: np.clip(24 + np.cumsum(noise(seed, 0.1)), 0, 31), 10),
    ],
)
def test_few_of_200_noises_are_lines(walk: Callable[[int], FloatArray], most: int) -> None:
    assert sum(grows(walk(seed)) is not None for seed in range(200)) <= most


@pytest.mark.parametrize(("part", "named"), [(0.9, True), (0.2, False)])
def test_the_process_that_grows_is_named(part: float, named: bool) -> None:
    grown = T[::5] / 60
    columns = np.stack([np.full(len(grown), 2.0), 1 + part * grown], axis=1)
    (found,) = memory_growth(job(8 + T / 60, columns))
    assert ("process 1" in str(found.evidence)) == named
