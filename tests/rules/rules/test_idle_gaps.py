from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules import IdleGaps
from jobrules.model import SECOND_US, Metric, Status, in_words
from tests.jobs import START_US, make_job, make_panel, make_steps
from tests.verdicts import verdict_of

EAGER = IdleGaps(patience=0, threshold=0)


def with_gaps(every: int, long: int, n: int = 1000, busy: float = 95.0) -> list[float]:
    """So many idle samples at the end of every so many."""
    return [busy if i % every < every - long else 1.0 for i in range(n)]


@given(
    st.lists(
        st.lists(st.sampled_from([0.0, 9.9, 10.0, 95.0]), min_size=2, max_size=2), min_size=2, max_size=60
    ),
    st.integers(1, 4),
)
def test_gaps_are_those_of_a_plain_loop(rows: list[list[float]], least: int) -> None:
    result = IdleGaps(patience=0, threshold=0, min_samples=least).check(make_job(gpu=rows, interval_s=1))

    work = [i for i, row in enumerate(rows) if max(row) >= 10]
    found, run = [], 0
    for i in range(work[0], work[-1] + 1) if work else ():
        if max(rows[i]) < 10:
            run += 1
            continue
        if run >= least:
            found.append(run)
        run = 0
    if found:
        details = result.details["algo-1"]
        assert (details["gaps"], details["idle_s"], details["longest_s"]) == (
            len(found),
            sum(found),
            max(found),
        )
        assert details["work_s"] == work[-1] - work[0]
        assert details["longest_start"] == START_US + SECOND_US * next(
            i
            for i in range(work[0], len(rows))
            if [max(row) < 10 for row in rows[i : i + max(found)]] == [True] * max(found)
        )
    else:
        assert result.status is not Status.TRIGGERED


@pytest.mark.parametrize(("long", "triggers"), [(1, False), (4, False), (6, True)])
def test_it_triggers_above_a_twentieth_of_the_time(long: int, triggers: bool) -> None:
    result = IdleGaps().check(make_job(gpu=with_gaps(100, long), interval_s=1))

    assert (result.status is Status.TRIGGERED) is triggers


def test_a_moment_of_work_before_the_first_step_belongs_to_the_start_up() -> None:
    gpu = [0.0] * 100 + [50.0] + [0.0] * 600 + [95.0] * 900
    steps = make_steps([(701.0 + i, 701.9 + i) for i in range(890)])

    with_steps = verdict_of(make_job(gpu=gpu, interval_s=1, steps=steps), IdleGaps())
    without = verdict_of(make_job(gpu=gpu, interval_s=1), IdleGaps())

    for verdict in (with_steps, without):
        assert [(f.key, f.rules) for f in verdict.findings] == [("start-up", ())]


def test_one_busy_gpu_of_the_node_ends_a_gap_and_other_nodes_do_not() -> None:
    idle, busy = with_gaps(20, 5), [95.0] * 1000
    beside = make_job(gpu=np.column_stack((idle, busy)), interval_s=1)
    apart = make_job(gpu=idle, interval_s=1, extra=make_job(gpu=busy, interval_s=1, node="algo-2").panels)

    assert IdleGaps().check(beside).status is Status.PASSED
    result = IdleGaps().check(apart)
    assert result.findings[0].devices == ("algo-1/gpu0",)
    assert (
        result.findings[0].title
        == "The GPU of algo-1 was idle for 24.6% of the time from first to last GPU work"
    )


def test_gpus_that_are_sampled_in_turn_are_joined_by_time() -> None:
    """Two files: each row holds one of the GPUs only, one of which idles all the time."""
    n = 1200
    values = np.full((n, 2), np.nan)
    values[::2, 0] = 95.0
    values[1::2, 1] = 0.0
    steady = make_panel(Metric.GPU_UTILIZATION, values, interval_s=1)
    assert (
        IdleGaps().check(make_job(extra=[steady])).measure
        == IdleGaps().check(make_job(gpu=[95.0] * n, interval_s=1)).measure
    )

    # The other stops being sampled while it works: from then on nobody knows whether all idle.
    values[200::2, 0] = np.where(np.arange(200, n, 2) % 100 < 20, 95.0, 0.0)
    values[1:600:2, 1] = 95.0
    values[601::2, 1] = np.nan
    rows = ~np.isnan(values).all(axis=1)
    times = START_US + np.arange(n)[rows] * SECOND_US
    result = IdleGaps().check(
        make_job(extra=[make_panel(Metric.GPU_UTILIZATION, values[rows], time_us=times)])
    )
    assert (result.status, result.measure.value if result.measure else None) == (Status.PASSED, 0.0)


def test_a_gpu_whose_use_is_not_known_may_be_at_work() -> None:
    """One GPU comes and goes; the other works for a quarter of the time, then its use is not known any more."""
    n = 2400
    values = np.column_stack([with_gaps(100, 40, n), np.where(np.arange(n) < 700, 95.0, np.nan)])
    partly = make_job(extra=[make_panel(Metric.GPU_UTILIZATION, values, interval_s=1)])
    power = make_panel(Metric.GPU_POWER, np.full((n, 2), 400.0), interval_s=1)
    never = make_job(gpu=values[:, 0], interval_s=1, extra=[power])

    for job in (partly, never):
        verdict = verdict_of(job, IdleGaps())
        assert "idle-gaps" not in {f.key for f in verdict.findings}
        assert verdict.use is not None
        assert "idle-gaps" not in {part.key for part in verdict.use.parts}
    # Known for 700 s, and for as long as the last sample holds.
    assert IdleGaps(patience=700 / 60).check(partly).status is Status.PASSED
    assert IdleGaps(patience=13).check(partly).status is Status.NOT_EVALUATED
    assert str(IdleGaps().check(never).reason) == "GPU utilization not recorded for 1 of 2\u00a0GPUs"


def test_time_that_was_not_measured_is_no_gap() -> None:
    seconds = np.arange(1400) + np.where(np.arange(1400) >= 700, 900, 0)
    gpu = np.full(1400, 95.0)
    gpu[699] = gpu[700] = 0.0  # on both sides of the pause
    panel = make_panel(Metric.GPU_UTILIZATION, gpu, time_us=START_US + seconds * SECOND_US)

    result = EAGER.check(make_job(extra=[panel]))
    assert result.details["algo-1"]["idle_s"] == 2.0
    assert IdleGaps().check(make_job(extra=[panel])).status is Status.PASSED


def test_regular_gaps_are_perhaps_checkpoints_and_the_resolution_is_reported() -> None:
    rng = np.random.default_rng(1)
    irregular = np.full(2000, 95.0)
    for at in rng.choice(np.arange(10, 1900, 30), 12, replace=False):
        irregular[at : at + 12] = 1.0
    regular, odd, often = (
        in_words(IdleGaps().check(make_job(gpu=gpu, interval_s=1)).findings[0].evidence)
        for gpu in (with_gaps(120, 12, 2000), irregular, with_gaps(10, 3))
    )

    assert "A long gap comes every 2\u00a0min, as with checkpoints or evaluation." in regular
    assert "checkpoints" not in odd
    assert "checkpoints" not in often
    assert "Gaps shorter than 2\u00a0s are invisible." in regular
