from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules import OverallFrameworkMetrics
from jobrules.analyses.framework import FrameworkTime, Slice, framework
from jobrules.model import Events, EventSource, Job
from tests.copies import replace
from tests.jobs import joined_steps, make_events, make_job, make_steps


def told(job: Job) -> FrameworkTime | None:
    return framework(OverallFrameworkMetrics().check(job).details, job)


def test_parts_have_seconds_and_shares_that_add_up() -> None:
    steps = joined_steps(make_steps([(0, 1), (2, 3), (4, 5)]), make_steps([(1, 1.3)], phase="EVAL"))

    time = told(make_job(steps=steps))

    assert time
    assert [(part.name, part.seconds, part.percent) for part in time.steps] == [
        ("TRAIN", 3.0, 60.0),
        ("Outside steps", 1.7, 34.0),
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
    assert cpu.self_percent == 100.0
    assert cpu.others_calls + sum(row.calls for row in cpu.rows) == cpu.calls
    assert [row.call_s for row in cpu.rows] == pytest.approx([row.self_s / row.calls for row in cpu.rows])
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


def test_whole_steps_never_end_with_the_forward_pass() -> None:
    events = make_events([("Forward", "x", 0, 1)])
    time = told(make_job(events=events, steps=replace(make_steps([(0, 2)]), whole=True)))

    assert time
    assert (time.forward_only, time.whole_steps) == (False, True)


def test_steps_of_the_gpu_are_no_event_type() -> None:
    time = told(make_job(events=make_events([("Forward", "x", 0, 1), ("Device step", "Device step", 0, 9)])))

    assert time
    assert [one.name for one in time.event_types] == ["Forward"]


@pytest.mark.parametrize(("moments", "others"), [(1, 0), (40, 15)])
def test_event_types_that_take_no_time_have_their_names(moments: int, others: int) -> None:
    marks = [(f"Saved {i:02}", "x", 1 + i, 1 + i) for i in range(moments) for _ in range(3)]
    time = told(make_job(events=make_events([("Forward", "x", 0, 1), *marks])))

    assert time
    first, *found = time.event_types
    assert first.name == "Forward"
    assert [one.name for one in found if one.name] == [f"Saved {i:02}" for i in range(moments - others)]
    assert [(one.count, one.events) for one in found if not one.name] == [(others, 3 * others)] * (others > 0)


def test_horovod_and_general_phases_stand_apart() -> None:
    horovod = make_events([("gpu_gradient", "ALLREDUCE", 0, 3)], source=EventSource.HOROVOD)
    loading = make_events([("DataLoaderIter", "next", 0, 1), ("DataLoaderWorker", "life", 0, 100)])

    time = told(make_job(events=Events.joined([horovod, loading])))

    assert time
    assert [(part.name, part.seconds, part.percent) for part in time.horovod] == [("ALLREDUCE", 3.0, 100.0)]
    assert [(part.name, part.percent) for part in time.general] == [("DataLoaderIter", 100.0)]
    assert time.operators == ()


def test_nothing_recorded_is_none() -> None:
    assert told(make_job(gpu=[1.0, 2.0])) is None


def test_shares_of_horovod_are_of_all_its_time_and_many_parts_are_joined() -> None:
    rows = [("t", "ALLREDUCE", 0.0, 90.0)] + [("t", f"A{i}", 0.0, 0.25) for i in range(40)]

    time = told(make_job(events=make_events(rows, source=EventSource.HOROVOD)))

    assert time
    assert time.horovod[0].percent == 90.0
    assert len(time.horovod) == 26
    assert sum(part.percent for part in time.horovod) == pytest.approx(100.0)
    assert time.horovod[-1] == Slice(name="", seconds=4.0, percent=4.0, count=16)


def test_forward_and_backward_are_of_modules_where_these_were_recorded() -> None:
    outer = [("Forward", "x", 0.0, 3.0), ("Backward(post-forward)", "x", 3.0, 10.0)]
    modules = [("Forward-SubModuleInternal", "x", 0.0, 3.0), ("Backward-SubModuleInternal", "x", 0.0, 1.0)]

    plain, detailed, lone = (
        told(make_job(events=make_events(rows))) for rows in (outer, outer + modules, outer[:1])
    )

    assert plain
    assert detailed
    assert lone
    assert [(one.name, one.percent) for one in plain.passes] == [
        ("Backward pass", 70.0),
        ("Forward pass", 30.0),
    ]
    assert [(one.name, one.percent) for one in detailed.passes] == [
        ("Forward pass", 75.0),
        ("Backward pass", 25.0),
    ]
    assert lone.passes == ()


def test_what_was_profiled_is_told_in_seconds_and_steps() -> None:
    rows = [("cpu_functions", "a", 0.0, 2.0), ("cpu_functions", "b", 1.0, 3.0), ("Forward", "f", 0.0, 4.0)]

    time = told(make_job(events=make_events(rows, step=[5, 5, 7])))

    assert time
    assert (time.operators[0].ran_s, time.general_s) == (3.0, 4.0)


@given(
    st.lists(
        st.tuples(st.sampled_from("pq"), st.sampled_from("01"), st.integers(0, 60), st.integers(0, 20)),
        min_size=1,
        max_size=30,
    ),
    st.lists(st.tuples(st.sampled_from("01"), st.integers(0, 60), st.integers(0, 20)), max_size=10),
)
def test_shares_of_phases_are_those_of_a_plain_count(
    rows: list[tuple[str, str, int, int]], of_steps: list[tuple[str, int, int]]
) -> None:
    events = [make_events([(phase, "x", a, a + n)], rank=worker) for phase, worker, a, n in rows]
    steps = [make_steps([(a, a + n)], rank=worker) for worker, a, n in of_steps]

    time = told(make_job(events=Events.joined(events), steps=joined_steps(*steps) if steps else None))

    found = {one.name: one for one in time.event_types} if time else {}
    for phase in {row[0] for row in rows if row[3]} if time else ():
        ran = stretch = outside = ran_outside = 0
        for worker in "01":
            own = [(a, a + n) for p, w, a, n in rows if (p, w) == (phase, worker)]
            if len(own) < 3:
                continue
            seconds = {s for a, b in own for s in range(a, b)}
            within = set(range(min(a for a, _ in own), max(b for _, b in own)))
            mine = [(a, a + n) for w, a, n in of_steps if w == worker]
            covered = {s for a, b in mine for s in range(a, b)}
            span = set(range(min(a for a, _ in mine), max(b for _, b in mine))) if mine else set()
            ran, stretch = ran + len(seconds), stretch + len(within)
            outside += len(within & span - covered)
            ran_outside += len(seconds & span - covered)
        assert found[phase].percent == (round(100 * ran / stretch, 1) if stretch else None)
        assert found[phase].outside_percent == (round(100 * ran_outside / outside, 1) if outside else None)


def test_many_phases_end_with_the_rest() -> None:
    rows = [(f"phase{i}", "x", 10.0 * j, 10.0 * j + 1 + i / 100) for i in range(30) for j in range(3)]

    time = told(make_job(events=make_events(rows)))

    assert time
    assert len(time.event_types) == 26
    rest = time.event_types[-1]
    assert (rest.name, rest.count, rest.events, rest.percent) == ("", 5, 15, None)
    assert sum(one.seconds for one in time.event_types) == pytest.approx(sum(b - a for *_, a, b in rows))


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from("01"),
            st.sampled_from(["TRAIN", "EVAL", "x", "y", "z", "w"]),
            st.integers(0, 60),
            st.integers(0, 20),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_each_workers_time_is_that_of_a_plain_count(rows: list[tuple[str, str, str, int, int]]) -> None:
    tables = [
        make_steps([(a, a + n)], node=node, rank=worker, phase=phase) for node, worker, phase, a, n in rows
    ]

    time = told(make_job(steps=joined_steps(*tables)))

    seconds: dict[tuple[str, str], dict[str, int]] = {}
    for node, worker in {row[:2] for row in rows}:
        own = [row for row in rows if row[:2] == (node, worker)]
        covered = {s for *_, a, n in own for s in range(a, a + n)}
        span = max(a + n for *_, a, n in own) - min(a for *_, a, _ in own)
        found = {"Outside steps": span - len(covered)}
        for _, _, phase, _, n in own:
            found[phase] = found.get(phase, 0) + n
        if sum(found.values()):
            seconds[node, worker] = found
    assert {(one.node, one.rank) for one in (time.ranks if time else ())} == set(seconds)
    if not time:
        return
    assert time.kinds[0] == "Outside steps"
    assert len(time.kinds) <= 6
    assert ("Other modes" in time.kinds) == (len({row[2] for row in rows}) > 5)
    for one in time.ranks:
        found = seconds[one.node, one.rank]
        whole = sum(found.values())
        joined = sum(s for phase, s in found.items() if phase not in time.kinds)
        expected = [joined if kind == "Other modes" else found.get(kind, 0) for kind in time.kinds]
        assert one.percents == pytest.approx([100 * s / whole for s in expected], abs=0.1001)
        assert sum(one.percents) == pytest.approx(100.0)


def test_of_many_workers_the_odd_ones_come_first_and_the_others_have_a_mean() -> None:
    usual = [make_steps([(0, 8), (9, 10)], rank=str(i)) for i in range(30)]
    odd = [make_steps([(0, 1), (9, 10)], rank="odd"), make_steps([(0, 5), (9, 10)], rank="even")]

    time = told(make_job(steps=joined_steps(*usual, *odd)))

    assert time
    assert [one.rank for one in time.ranks[:2]] == ["odd", "even"]
    assert (len(time.ranks), time.other_ranks) == (15, 17)
    assert time.other_percents == (10.0, 90.0)
    assert told(make_job(steps=joined_steps(*usual[:16]))).ranks[3].rank == "3"  # type: ignore[union-attr]
