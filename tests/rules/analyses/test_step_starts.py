"""A few points tell when each step started."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.analyses.step_starts import EXACT_PART, MAX_POINTS, MAX_RESTARTS, step_starts
from jobrules.model import Steps
from tests.copies import replace
from tests.jobs import START_US, make_job, make_steps

#: Seconds from one step to the next, and a pause between two of them.
PACES = st.lists(st.tuples(st.integers(1, 200), st.floats(0.01, 2), st.floats(0, 60)), min_size=1, max_size=8)


def steps_of(starts_s: np.ndarray, numbers: np.ndarray | None = None) -> Steps:
    spans = list(zip(starts_s.tolist(), (starts_s + 0.005).tolist(), strict=True))
    steps = make_steps(spans)
    return steps if numbers is None else replace(steps, number=numbers)


@given(PACES)
def test_each_step_lies_where_the_points_take_it_to_be(paces: list[tuple[int, float, float]]) -> None:
    waits = [wait for n, pace, pause in paces for wait in (*[pace] * n, pause + 0.01)]
    starts_s = np.cumsum(waits)
    points = step_starts(make_job(steps=steps_of(starts_s)))

    assert points is not None
    span_us = 1e6 * (starts_s[-1] - starts_s[0])
    taken = np.interp(np.arange(len(starts_s)), points.number, points.start_us)
    assert np.abs(taken - START_US - 1e6 * starts_s).max() <= EXACT_PART * span_us + 2
    assert len(points.number) <= 2 + 6 * len(paces)


def test_points_are_few_however_uneven_steps_are() -> None:
    random = np.random.default_rng(1)
    points = step_starts(make_job(steps=steps_of(np.cumsum(random.exponential(1, 5000)))))

    assert points is not None
    assert len(points.number) == len(points.start_us) <= MAX_POINTS
    assert (points.number[0], points.number[-1]) == (0, 4999)


def test_a_job_that_began_again_has_the_points_around_it() -> None:
    numbers = np.concatenate([np.arange(100), np.arange(50, 150)])
    points = step_starts(make_job(steps=steps_of(np.arange(200.0), numbers)))

    assert points is not None
    assert list(zip(points.number, ((us - START_US) / 1e6 for us in points.start_us), strict=True)) == [
        (0, 0),
        (99, 99),
        (50, 100),
        (149, 199),
    ]


@pytest.mark.parametrize(
    "numbers", [[7], [step for _ in range(MAX_RESTARTS + 2) for step in (0, 1)]], ids=["one step", "restarts"]
)
def test_some_steps_are_no_axis(numbers: list[int]) -> None:
    starts_s = np.arange(float(len(numbers)))

    assert step_starts(make_job(steps=steps_of(starts_s, np.array(numbers)))) is None
