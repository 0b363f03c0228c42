"""Ranks against steps: a late rank has the longest own time, however many ranks and steps there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jobrules.analyses.rank_steps import MAX_CELLS, MAX_COLUMNS, RankSteps, rank_steps
from jobrules.causes.rank_waits import RankWaits
from tests.rules.rank_jobs import BACKWARD, FETCH, FORWARD, Time, in_step, slow


def found(ranks: int, longer: dict[str, Time], **options: Any) -> RankSteps:
    steps = rank_steps(in_step(ranks, longer, **options))
    assert steps is not None
    return steps


@pytest.mark.parametrize(("ranks", "rows"), [(4, 4), (16, 16), (64, 64), (1024, 32)])
def test_a_late_rank_stands_out_among_many(ranks: int, rows: int) -> None:
    late = ranks * 2 // 3
    steps = found(ranks, {FETCH: slow(9, late)}, steps=130, per_node=8)

    slowest = max(steps.rows, key=lambda row: row.median_us)
    others = [us for row in steps.rows if row is not slowest for us in row.columns_us]
    assert (slowest.node, slowest.rank) == (f"node-{late // 8}", str(late))
    assert (steps.ranks, len(steps.rows), steps.phase) == (ranks, rows, BACKWARD)
    assert min(slowest.columns_us) > 1.2 * max(others)
    assert len(steps.first) <= MAX_COLUMNS
    assert len(steps.first) * rows <= MAX_CELLS


@pytest.mark.parametrize("steps", [60, 201, 450])
def test_a_column_is_the_median_of_neighbors(steps: int) -> None:
    job = in_step(2, {FORWARD: slow(9, 1)}, steps=steps)
    shown, waits = rank_steps(job), RankWaits.of(job)

    assert shown is not None
    assert waits is not None
    own_us = waits.step_us - waits.phases[BACKWARD]
    numbers = waits.number.tolist()
    columns = [
        [i for i, number in enumerate(numbers) if first <= number <= last]
        for first, last in zip(shown.first, shown.last, strict=True)
    ]
    assert [i for one in columns for i in one] == [*range(len(numbers))]
    assert len({len(one) for one in columns[:-1]}) <= 1
    medians = np.array([[np.median(own[one]) for one in columns] for own in own_us])
    assert np.array([row.columns_us for row in shown.rows]) == pytest.approx(medians, abs=0.5)
    for ends, function in (
        (shown.shortest_us, np.min),
        (shown.median_us, np.median),
        (shown.longest_us, np.max),
    ):
        assert ends == pytest.approx(function(medians, axis=0), abs=0.5)


def test_ranks_that_wait_for_none_are_not_compared() -> None:
    assert rank_steps(in_step(4)) is None
    assert rank_steps(in_step(1)) is None
    assert rank_steps(in_step(4, {FETCH: slow(9, 1)}, together=False)) is None
