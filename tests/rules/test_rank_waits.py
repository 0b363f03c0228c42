"""Which rank the others wait for."""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.causes.rank_waits import REST, RankWaits, late_rank
from jobrules.model import SECOND_US, Steps
from tests.copies import replace
from tests.rules.rank_jobs import BACKWARD, FETCH, FORWARD, OPTIMIZER, Time, in_step, slow


@pytest.mark.parametrize("n", [2, 8, 64])
@pytest.mark.parametrize(
    ("kind", "phases", "waits_in"),
    [
        (FETCH, (FETCH, FORWARD, BACKWARD, OPTIMIZER), BACKWARD),
        (FORWARD, (FETCH, FORWARD, BACKWARD, OPTIMIZER), BACKWARD),
        (OPTIMIZER, (FETCH, FORWARD, BACKWARD, OPTIMIZER), BACKWARD),
        # Steps and fetches alone, as of a script that was not changed.
        (FETCH, (FETCH,), REST),
    ],
)
def test_the_rank_that_takes_longer_is_late_and_the_phase_is_the_reason(
    n: int, kind: str, phases: tuple[str, ...], waits_in: str
) -> None:
    waits = RankWaits.of(in_step(n, {kind: slow(60, n // 2)}, phases=phases, per_node=16))
    assert waits
    late = late_rank(waits)

    assert late
    assert (late.rank, late.reason, late.phase) == (str(n // 2), kind, waits_in)
    assert late.late_us == pytest.approx(60_000, rel=0.05)
    assert (len(late.ranks), late.waiting) == (1, n - 1)
    assert late.part == pytest.approx(60 / 78, abs=0.03)


@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize(
    "longer",
    [
        # All alike; the ranks take turns; a few long stalls. Work in the phase with the exchange looks the same on all.
        {},
        {FETCH: lambda rank, step: 60.0 if rank == step % 2 else 0.0},
        {FETCH: slow(900, 1, steps=lambda step: step % 25 == 7)},
        {BACKWARD: slow(60, 1)},
    ],
)
def test_no_rank_is_late_that_is_not_so_in_most_steps(n: int, longer: dict[str, Time]) -> None:
    waits = RankWaits.of(in_step(n, longer))

    assert waits
    late = late_rank(waits)
    assert late is None or late.part < 0.03


@pytest.mark.parametrize("seed", range(6))
def test_ranks_that_run_alone_wait_for_nobody(seed: int) -> None:
    """Two copies whose steps take as long, with their time in different phases."""
    copies = in_step(2, {FETCH: slow(60, 1), FORWARD: slow(60, 0)}, together=False, seed=seed)

    assert RankWaits.of(copies) is None


def test_clocks_of_nodes_may_differ() -> None:
    job = in_step(4, {FETCH: slow(60, 3)}, per_node=2)
    late_us = np.where(job.steps.node == "node-1", 7 * SECOND_US, 0)
    steps = replace(job.steps, start_us=job.steps.start_us + late_us, end_us=job.steps.end_us + late_us)
    events = replace(
        job.events,
        start_us=job.events.start_us
        + np.where(
            np.array([lane.node == "node-1" for lane in job.events.lanes])[job.events.lane], late_us.max(), 0
        ),
        end_us=job.events.end_us
        + np.where(
            np.array([lane.node == "node-1" for lane in job.events.lanes])[job.events.lane], late_us.max(), 0
        ),
    )
    waits = RankWaits.of(replace(job, steps=steps, events=events))

    assert waits
    late = late_rank(waits)
    assert late
    assert (late.node, late.rank, late.reason) == ("node-1", "3", FETCH)


def test_a_long_job_is_compared_by_some_of_its_steps() -> None:
    job = in_step(2, {FETCH: slow(60, 1)}, steps=4500)
    waits = RankWaits.of(job)

    assert waits
    assert 1000 <= waits.step_us.shape[1] <= 2000
    late = late_rank(waits)
    assert late
    assert late.rank == "1"


def test_without_numbers_or_with_one_rank_nothing_is_compared() -> None:
    job = in_step(2, {FETCH: slow(60, 1)})
    unnumbered = replace(job.steps, number=np.full(len(job.steps), -1))

    assert RankWaits.of(replace(job, steps=unnumbered)) is None
    assert RankWaits.of(in_step(1)) is None
    assert RankWaits.of(replace(job, steps=Steps())) is None
