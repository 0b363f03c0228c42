from __future__ import annotations

import numpy as np
import pytest

from jobrules.measures.clock_offsets import Clocks, offsets
from tests.copies import replace
from tests.jobs import joined_steps, make_job, make_steps

SPANS = [(10.0 + i, 10.6 + i) for i in range(20)]


def shifted(by_s: float, jitter_s: float = 0.0) -> list[tuple[float, float]]:
    return [(a + by_s + jitter_s * (i % 5), b + by_s + jitter_s * (i % 5)) for i, (a, b) in enumerate(SPANS)]


def test_the_one_clock_that_is_off_is_told_and_not_the_others() -> None:
    tables = [make_steps(SPANS, node=f"algo-{i}") for i in (2, 3, 4)]

    (offset,) = offsets(make_job(steps=joined_steps(make_steps(shifted(600.0), node="algo-1"), *tables)))

    assert (offset.node, offset.offset_us) == ("algo-1", 600_000_000)
    assert offset.reference != "algo-1"


def test_step_numbers_of_any_size_are_compared() -> None:
    one, other = make_steps(SPANS, node="algo-1"), make_steps(shifted(90.0), node="algo-2")
    largest = np.iinfo(np.int64).max - np.arange(len(SPANS))
    steps = joined_steps(replace(one, number=largest), replace(other, number=largest))

    assert [offset.offset_us for offset in offsets(make_job(steps=steps))] == [90_000_000]


def test_a_clock_that_is_ahead_is_told_with_its_spread() -> None:
    steps = joined_steps(
        make_steps(SPANS, node="algo-1"),
        make_steps(shifted(90.0, 0.01), node="algo-2"),
        make_steps(shifted(-2.0), node="algo-3"),
    )

    ahead, behind = offsets(make_job(steps=steps))

    assert (ahead.node, ahead.reference, ahead.offset_us, ahead.spread_us, ahead.steps) == (
        "algo-2",
        "algo-1",
        90_020_000,
        10_000,
        20,
    )
    assert (behind.node, behind.offset_us) == ("algo-3", -2_000_000)


@pytest.mark.parametrize(
    "other",
    [
        make_steps(shifted(0.5), node="algo-2"),
        make_steps(shifted(3.0, 2.0), node="algo-2"),
        make_steps(shifted(90.0)[:9], node="algo-2"),
        make_steps(shifted(90.0), node="algo-2", phase="EVAL"),
        make_steps(shifted(90.0), node="algo-1", rank="34"),
    ],
    ids=["little", "unsteady", "few", "other phase", "same node"],
)
def test_anything_else_is_no_clock(other: object) -> None:
    assert offsets(make_job(steps=joined_steps(make_steps(SPANS), other))) == ()  # type: ignore[arg-type]


def test_workers_of_a_node_count_by_the_one_that_begins_first() -> None:
    late_worker = make_steps(shifted(95.0), node="algo-2", rank="34")
    steps = joined_steps(make_steps(SPANS), late_worker, make_steps(shifted(90.0), node="algo-2"))

    (offset,) = offsets(make_job(steps=steps))

    assert (offset.offset_us, offset.spread_us) == (90_000_000, 0)


def test_without_steps_there_is_nothing_to_tell() -> None:
    assert offsets(make_job(gpu=[1.0, 2.0])) == ()


def test_a_node_by_itself_has_no_clock_to_be_compared_with() -> None:
    steps = joined_steps(make_steps(SPANS), make_steps(shifted(90.0), node="algo-2"))

    for part in make_job(steps=steps).parts:
        for asked in (offsets, Clocks.of):
            with pytest.raises(ValueError, match="whole job"):
                asked(part)
