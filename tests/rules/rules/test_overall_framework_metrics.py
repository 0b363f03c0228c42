from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.model import SECOND_US, Events, EventSource, RuleResult, Status
from jobrules.rules.overall_framework_metrics import OverallFrameworkMetrics
from tests.jobs import joined_steps, make_events, make_job, make_steps


def checked(steps: object = None, events: Events | None = None) -> RuleResult:
    return OverallFrameworkMetrics().check(make_job(steps=steps, events=events))  # type: ignore[arg-type]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["algo-1", "algo-2"]),
        st.sampled_from(["0", "1"]),
        st.sampled_from(["TRAIN", "EVAL"]),
        st.integers(0, 40),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=20,
)


@given(STEPS)
def test_phases_agree_with_counting_microseconds(rows: list[tuple[str, str, str, int, int]]) -> None:
    tables = [
        make_steps([(a / SECOND_US, (a + n) / SECOND_US)], phase=phase, node=node, rank=rank)
        for node, rank, phase, a, n in rows
    ]
    expected = {"others": 0}
    for _, _, phase, _, n in rows:
        key = f"Step:ModeKeys.{phase}"
        expected[key] = expected.get(key, 0) + n
    for one in {row[:2] for row in rows}:
        spans = [(a, a + n) for *who, _, a, n in rows if tuple(who) == one]
        inside = {t for a, b in spans for t in range(a, b)}
        expected["others"] += max(b for _, b in spans) - min(a for a, _ in spans) - len(inside)

    details = checked(joined_steps(*tables)).details

    assert details["phase_time"] == expected
    whole = sum(expected.values())
    assert details["phase"] == pytest.approx({key: 100 * us / (whole or 1) for key, us in expected.items()})


def test_a_job_without_events_and_steps_is_not_evaluated() -> None:
    result = checked()

    assert (result.status, str(result.reason)) == (Status.NOT_EVALUATED, "steps and events not recorded")
    assert result.details == {"ratio": {}, "phase": {}, "phase_time": {}}


def test_events_without_steps_are_still_broken_down() -> None:
    result = checked(events=make_events([("cpu_functions", "aten::mm", 0, 1)]))

    assert result.status is Status.PASSED
    assert result.headline == "1\u00a0event, steps not recorded"
    assert result.details["CPU"] == {"aten::mm": 100.0}
    assert result.details["phase"] == {}


def test_a_phase_name_from_data_is_shown_as_one_line() -> None:
    assert "A\\nB 100.0" in checked(make_steps([(0, 1)], phase="A\nB")).headline


def test_the_basis_says_which_steps_and_how_many_seconds_were_profiled() -> None:
    operators = make_events(
        [("cpu_functions", "a", 0, 4), ("cpu_functions", "b", 1, 2), ("gpu_functions-dev:0", "a", 3, 4)],
        step=[12, 14, -1],
    )
    fetches = make_events(
        [
            ("DataLoaderIter", "a", 10, 11),
            ("DataLoaderIter", "a", 12, 12.5),
            ("DataLoaderWorker", "w", 0, 99),
        ],
        rank="34",
        step=[9, -1, 2],
    )
    reduce = make_events([("grad.cpu", "ALLREDUCE", 0, 50)], source=EventSource.HOROVOD, step=1)

    result = checked(make_steps([(0, 100)]), Events.joined([operators, fetches, reduce]))

    assert result.details["basis"] == {
        "CPU": {"seconds": 4.0, "first_step": 12, "last_step": 14},
        "GPU": {"seconds": 1.0},
        "general": {"seconds": 1.5, "first_step": 9, "last_step": 9},
    }
    assert result.datapoints == 7


def test_a_basis_without_step_numbers_names_none() -> None:
    events = make_events([("cpu_functions", "a", 0, 4)])
    steps = make_events([("Step:ModeKeys.TRAIN", "Step:ModeKeys.TRAIN", 0, 4)], step=3)

    assert checked(events=Events.joined([events, steps])).details["basis"] == {"CPU": {"seconds": 4.0}}


def test_steps_of_no_length_take_no_time() -> None:
    steps = make_steps([(1, 1)])

    result = checked(steps)

    assert result.details["phase"] == {"Step:ModeKeys.TRAIN": 0.0, "others": 0.0}
    assert json.loads(json.dumps(result.details)) == result.details
