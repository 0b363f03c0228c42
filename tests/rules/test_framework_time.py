from __future__ import annotations

import pytest

from jobrules import OverallFrameworkMetrics
from jobrules.framework_time import framework_time
from jobrules.job import Events, EventSource, Job
from jobrules.result import FrameworkTime
from tests.jobs import joined_steps, make_events, make_job, make_steps


def told(job: Job) -> FrameworkTime | None:
    return framework_time(OverallFrameworkMetrics().check(job).details)


def test_parts_have_seconds_and_shares_that_add_up() -> None:
    steps = joined_steps(make_steps([(0, 1), (2, 3), (4, 5)]), make_steps([(1, 1.3)], phase="EVAL"))

    time = told(make_job(steps=steps))

    assert time
    assert [(part.name, part.seconds, part.percent) for part in time.steps] == [
        ("TRAIN", 3.0, 60.0),
        ("Outside of steps", 1.7, 34.0),
        ("EVAL", 0.3, 6.0),
    ]
    assert (time.general, time.operators, time.horovod, time.forward_only) == ((), (), (), False)


def test_operators_are_ranked_by_their_own_time_and_the_rest_is_summed() -> None:
    rows: list[tuple[str, str, float, float]] = [
        ("cpu_functions", "outer", 0, 10),
        ("cpu_functions", "inner", 1, 8),
        ("cpu_functions", "inner", 8, 9),
    ]
    rows += [("cpu_functions", f"small{i}", 20.0 + i, 20 + i + 0.1) for i in range(30)]

    time = told(make_job(events=make_events(rows, thread=1, step=7)))

    assert time
    (cpu,) = time.operators
    assert [(row.name, row.calls, row.self_s, row.total_s) for row in cpu.rows[:2]] == [
        ("inner", 2, 8.0, 8.0),
        ("outer", 1, 2.0, 10.0),
    ]
    assert (len(cpu.rows), cpu.others, cpu.calls) == (25, 7, 33)
    assert cpu.self_s == pytest.approx(13.0)
    assert cpu.others_s == pytest.approx(0.7)
    assert sum(row.percent for row in cpu.rows) + cpu.others_percent == pytest.approx(100.0)
    assert (time.first_step, time.last_step) == (7, 7)


@pytest.mark.parametrize(
    ("lanes", "forward_only"),
    [
        (("Forward",), True),
        (("Forward", "Backward(post-forward)"), False),
        (("Forward", "Forward-SubModuleInternal", "Backward-SubModuleInternal"), False),
        (("DataLoaderIter",), False),
    ],
)
def test_steps_without_a_backward_pass_are_known(lanes: tuple[str, ...], forward_only: bool) -> None:
    time = told(make_job(events=make_events([(lane, "x", i, i + 1) for i, lane in enumerate(lanes)])))

    assert time
    assert time.forward_only == forward_only


def test_horovod_and_general_phases_stand_apart() -> None:
    horovod = make_events([("gpu_gradient", "ALLREDUCE", 0, 3)], source=EventSource.HOROVOD)
    loading = make_events([("DataLoaderIter", "next", 0, 1), ("DataLoaderWorker", "life", 0, 100)])

    time = told(make_job(events=Events.joined([horovod, loading])))

    assert time
    assert [(part.name, part.seconds) for part in time.horovod] == [("ALLREDUCE", 3.0)]
    assert [(part.name, part.percent) for part in time.general] == [("DataLoaderIter", 100.0)]
    assert time.operators == ()


def test_nothing_recorded_is_none() -> None:
    assert told(make_job(gpu=[1.0, 2.0])) is None
