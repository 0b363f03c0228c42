"""Goodput: a job whose times are known by construction, and jobs made at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jobrules.analyses.goodput import Goodput, goodput
from jobrules.model import SECOND_US, Events, Job, Metric, Steps
from tests.jobs import START_US, joined_steps, make_events, make_job, make_panel, make_steps


def numbered(steps: Steps, first: int) -> Steps:
    return replace(steps, number=steps.number + first)


def in_turn(start_s: float, lasts_s: Sequence[float]) -> list[tuple[float, float]]:
    """Steps one after the other."""
    ends = start_s + np.cumsum(lasts_s)
    return list(zip([start_s, *ends.tolist()], ends.tolist(), strict=False))


def interrupted_job(*, fetches: bool = True, resumes_at: int = 50) -> Job:
    """Killed after step 59, gone for 88 s, then resumed."""
    first = [*in_turn(100, [30] + [8] * 49), *in_turn(532, [8] * 10)]
    second = in_turn(760, [20] + [8] * 29)
    steps = joined_steps(make_steps(first), numbered(make_steps(second), resumes_at))
    rows = [("Checkpoint", "Checkpoint", 522.0, 532.0)]
    if fetches:
        rows += [
            ("DataLoaderIter", "_SingleProcess::next", start, start + 1) for start, _ in [*first, *second]
        ]
    sampled_s = [*np.arange(0, 612.5, 0.5), *np.arange(700, 1020.5, 0.5)]
    time_us = START_US + np.round(np.array(sampled_s) * SECOND_US).astype(np.int64)
    panel = make_panel(Metric.GPU_UTILIZATION, np.full(len(time_us), 50.0), time_us=time_us)
    return make_job(extra=[panel], steps=steps, events=make_events(rows))


def job_of(samples: int, *steps: Steps, interval_s: float = 0.5) -> Job:
    """Steps, and so many samples of a GPU."""
    gpu = np.full(samples, 50.0) if samples else None
    return make_job(gpu=gpu, interval_s=interval_s, steps=joined_steps(*steps))


def parts(found: Goodput | None) -> dict[str, float]:
    assert found
    return {part.key: part.amount for part in found.parts if part.amount}


def test_an_interrupted_job_is_split_as_it_was_made() -> None:
    found = goodput(interrupted_job())

    assert parts(found) == {
        "interruption": 88,
        "checkpoint": 10,
        "lost-work": 80,
        "before-first-step": 160,
        "first-step": 34,
        "data-loading": 80,
        "productive": 560,
        "after-last-step": 8,
    }
    assert found
    assert f"{found.percent:.1f}" == "54.9"
    assert found.lost_steps == 10
    assert not found.at_most


def test_without_fetches_waiting_is_within_productive_time() -> None:
    found = goodput(interrupted_job(fetches=False))

    assert parts(found)["productive"] == 640
    assert found
    assert found.at_most
    assert not found.of("data-loading").measured


def test_steps_that_are_counted_anew_without_a_restart_are_kept() -> None:
    """Some sources number the steps of each epoch from 0."""
    epochs = [numbered(make_steps(in_turn(100 * i, [1.0] * 90)), 0) for i in range(3)]

    found = parts(goodput(job_of(601, *epochs)))

    assert "lost-work" not in found
    assert found["productive"] == 270


def test_a_restart_whose_samples_go_on_loses_the_steps_that_run_again() -> None:
    """The sampler outlives the training process: only the step numbers show the restart."""
    first, again = make_steps(in_turn(10, [2.0] * 30)), make_steps(in_turn(100, [2.0] * 20))

    found = parts(goodput(job_of(301, first, numbered(again, 20))))

    assert found == {"lost-work": 20, "before-first-step": 40, "productive": 80, "after-last-step": 10}


@pytest.mark.parametrize("late_s", [0.0, 7.0, 90.0, 250.0])
@pytest.mark.parametrize("ranks", [("34", "35"), ("0", "0")])
def test_copies_at_one_time_lose_no_work(late_s: float, ranks: tuple[str, str]) -> None:
    """Two processes on a node, each counting its steps from 0, at times under one name."""
    one = make_steps(in_turn(10, [2.0] * 200), rank=ranks[0])
    other = make_steps(in_turn(10.7 + late_s, [2.3] * 150), rank=ranks[1])

    found = goodput(job_of(801, one, other))

    assert "lost-work" not in parts(found)
    assert parts(found)["productive"] > 0.95 * (400 if late_s < 60 else late_s + 345)


@pytest.mark.parametrize(("resumes_at", "lost"), [(0, False), (30, True), (50, False)])
def test_a_process_that_begins_after_another_repeats_only_what_it_resumes(
    resumes_at: int, lost: bool
) -> None:
    """Under another name, as a process id, with a time without samples between them."""
    first = make_steps(in_turn(10, [2.0] * 50), rank="34")
    second = numbered(make_steps(in_turn(300, [2.0] * 40), rank="99"), resumes_at)
    time_us = START_US + np.array([*range(110), *range(290, 400)]) * SECOND_US
    panel = make_panel(Metric.GPU_UTILIZATION, np.full(len(time_us), 50.0), time_us=time_us)

    found = goodput(make_job(extra=[panel], steps=joined_steps(first, second)))

    assert found
    assert found.lost_steps == (20 if lost else 0)
    assert parts(found).get("lost-work", 0) == (40 if lost else 0)


@pytest.mark.parametrize("again_at", [500, 400])
@pytest.mark.parametrize("between", [False, True])
def test_each_process_that_resumes_the_same_checkpoint_repeats_all_before_it(
    again_at: int, between: bool
) -> None:
    """The second one dies before it saves; another command may run, and end, between the last two."""
    spans = {"4711": (10, 1000, 0), "4890": (1100, 301, 500), "5002": (1500, 700, again_at)}
    steps = [
        numbered(make_steps(in_turn(start, [1.0] * n), rank=pid), first)
        for pid, (start, n, first) in spans.items()
    ]
    if between:
        steps.append(make_steps(in_turn(1420, [1.0] * 30), rank="4950"))

    found = goodput(job_of(2250, *steps, interval_s=1))

    assert found
    assert found.lost_steps == 1000 - again_at + 301
    assert parts(found)["lost-work"] == pytest.approx(found.lost_steps, abs=1)


@pytest.mark.parametrize(("second_s", "known"), [(300, False), (30, True)])
def test_whether_a_process_that_counts_from_the_beginning_repeats_another_is_not_known(
    second_s: float, known: bool
) -> None:
    """After the first has ended; one beside it is another one."""
    steps = [
        make_steps(in_turn(start, [2.0] * 50), rank=pid) for pid, start in (("34", 10), ("99", second_s))
    ]

    found = goodput(job_of(400, *steps, interval_s=1))

    assert found
    assert (found.of("lost-work").amount, found.of("lost-work").measured) == (0, known)


def test_a_restart_of_all_ranks_is_one() -> None:
    first = [make_steps(in_turn(10 + i / 10, [2.0] * 30), rank=str(i)) for i in range(4)]
    again = [numbered(make_steps(in_turn(100 + i / 7, [2.0] * 20), rank=str(i)), 20) for i in range(4)]

    found = goodput(job_of(301, *first, *again))

    assert found
    assert found.lost_steps == 10
    assert parts(found)["productive"] == pytest.approx(80, abs=1)
    assert parts(found)["before-first-step"] == pytest.approx(40, abs=1)


def test_the_slowest_process_decides_how_long_a_step_takes() -> None:
    spans = in_turn(0, [2.0] * 50)
    fast = make_steps([(start, end - 1.5) for start, end in spans], rank="34")

    assert parts(goodput(job_of(0, make_steps(spans), fast))) == {"productive": 100}


def test_evaluation_and_a_stall_are_no_productive_time() -> None:
    lasts = [1.0] * 60
    lasts[30] = 21.0
    training = make_steps(in_turn(0, lasts))
    evaluation = make_steps(in_turn(80, [0.5] * 20), phase="EVAL")

    found = parts(goodput(job_of(0, training, evaluation)))

    assert found == {"evaluation": 10, "stall": 19.5, "productive": 60.5}


@pytest.mark.parametrize("node", ["algo-1", "algo-2"])
@given(data=st.data())
def test_the_parts_of_any_job_add_up_to_its_time(node: str, data: st.DataObject) -> None:
    times = st.floats(0, 2000, allow_nan=False)
    spans = data.draw(st.lists(st.tuples(times, st.floats(0.001, 90)), min_size=1, max_size=12))
    numbers = data.draw(st.lists(st.integers(-1, 6), min_size=len(spans), max_size=len(spans)))
    steps = make_steps(sorted((start, start + length) for start, length in spans))
    steps = replace(steps, number=np.array(numbers, np.int64))
    others = data.draw(st.lists(st.tuples(times, st.floats(0, 60)), max_size=4))
    events = make_events([("Checkpoint", "Checkpoint", a, a + b) for a, b in others]) if others else Events()
    sampled = data.draw(st.lists(st.integers(0, 400), min_size=1, max_size=30, unique=True))
    time_us = START_US + 5 * SECOND_US * np.array(sorted(sampled))
    panel = make_panel(Metric.GPU_UTILIZATION, np.full(len(time_us), 50.0), node=node, time_us=time_us)
    job = make_job(extra=[panel], steps=steps, events=events)

    found = goodput(job)

    assert found
    assert sum(part.amount for part in found.parts) == pytest.approx(found.seconds, abs=1e-6)
    assert all(part.amount >= -1e-6 for part in found.parts), found
    assert sum(part.percent for part in found.parts) == pytest.approx(100, abs=1e-6)
    assert all(part.percent >= 0 for part in found.parts), found
    assert found.percent == round(100 * found.of("productive").amount / found.seconds, 1)
