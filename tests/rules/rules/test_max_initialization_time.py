from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules import MaxInitializationTime
from jobrules.model import SECOND_US, Metric, Panel, Status
from tests.jobs import START_US, joined_steps, make_job, make_panel, make_steps


def test_a_late_first_step_counts_the_scans_after_the_limit() -> None:
    # Limit 2 min, first step after 8 min: the scans that begin 3 to 7 minutes in are late.
    job = make_job(cpu=[1.0] * 20, interval_s=60, steps=make_steps([(480, 481), (482, 483)]))

    result = MaxInitializationTime(threshold=2).check(job)

    assert (result.status, result.triggered, result.violations) == (Status.TRIGGERED, 5, 5)
    assert result.findings[0].title == "The first step started after 8\u00a0min"
    assert (result.first_us, result.last_us) == (START_US, START_US + 480 * SECOND_US)


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 100)), min_size=1, max_size=10),
    st.integers(1, 60),
    st.floats(0, 40),
    st.integers(0, 59),
)
def test_scans_agree_with_a_walk_over_them(
    spans: list[tuple[int, int]], minutes: int, threshold: float, second: int
) -> None:
    """Steps of two ranks in any order; a scan begins each minute from the first sample on."""
    steps = [make_steps([(a, a + d)], rank=str(i % 2)) for i, (a, d) in enumerate(spans)]
    job = make_job(cpu=[1.0] * minutes, interval_s=60, steps=joined_steps(*steps), start_us=START_US + second)

    result = MaxInitializationTime(threshold=threshold).check(job)

    begin = START_US + second
    first = min(START_US + a * SECOND_US for a, _ in spans)
    late = 0
    scan = begin
    while scan < first:
        late += scan - begin > threshold * 60 * SECOND_US
        scan += 60 * SECOND_US
    assert (result.triggered, result.violating) == (late, late)
    assert result.details["step_num"] == {
        "first": first,
        "last": max(START_US + a * SECOND_US for a, _ in spans),
        "last_end": max(START_US + (a + d) * SECOND_US for a, d in spans),
    }


SAMPLES = make_panel(Metric.CPU_UTILIZATION, [50.0] * 5, interval_s=1, start_us=START_US + SECOND_US)


@pytest.mark.parametrize(("panels", "start_s", "end_s"), [([], 0, 7), ([SAMPLES], 1, 5)])
def test_a_job_starts_and_ends_with_its_samples_or_its_steps_alone(
    panels: list[Panel], start_s: int, end_s: int
) -> None:
    result = MaxInitializationTime().check(make_job(extra=panels, steps=make_steps([(0, 1), (2, 7)])))

    assert result.status is Status.PASSED
    times = result.details["job_start"], result.details["job_end"]
    assert [one - START_US / SECOND_US for one in times] == [start_s, end_s]
