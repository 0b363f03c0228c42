"""Simulated jobs: StragglerRank names the slow rank, and nobody where there is none."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from jobrules import StragglerRank, UnevenRanks
from jobrules.captures.across import joined
from jobrules.captures.collectives import Collective, Communication
from jobrules.measures.intervals import Intervals, union
from jobrules.model import JobInMemory, Status
from jobrules.model.captures import Capture, DeviceCapture, Operators
from tests.once import slow_but

#: Nanoseconds of work between two collectives, and of a transfer.
WORK_NS, TRANSFER_NS = 10_000_000, 500_000


def simulated(
    chance: np.random.Generator, scatter: float, slow: float, ranks: int
) -> tuple[list[Capture], list[Communication]]:
    """A job whose rank 1 is slower by a share; ranks have clocks of their own."""
    count = int(chance.integers(50, 61))
    work = WORK_NS * (1 + scatter * chance.standard_normal((count, ranks)))
    work[:, 1] *= 1 + slow
    clock = chance.integers(0, 10**12, ranks)
    arrived, end, at = np.zeros((count, ranks)), np.zeros(count), 0.0
    for number in range(count):
        arrived[number] = at + np.maximum(work[number], 1)
        at = end[number] = arrived[number].max() + TRANSFER_NS
    return zip(  # type: ignore[return-value]
        *(
            recorded(rank, arrived[:, rank] + clock[rank], end + clock[rank], int(clock[rank]), ranks)
            for rank in range(ranks)
        ),
        strict=True,
    )


def recorded(
    rank: int, start: np.ndarray, end: np.ndarray, begin: int, ranks: int
) -> tuple[Capture, Communication]:
    """The trace of a rank that computes nothing during its collectives."""
    start_ns, end_ns = start.astype(np.int64), end.astype(np.int64)
    window = union(np.array([begin]), end_ns[-1:])
    communication = int((end_ns - start_ns).sum())
    nothing, none = np.full(len(start_ns), -1), Intervals(start=start_ns[:0], end=start_ns[:0])
    device = DeviceCapture(
        device=0,
        lead_in_ns=0,
        lead_in_loading_ns=0,
        start_ns=begin,
        window_ns=window.total,
        compute_ns=window.total - communication,
        exposed_communication_ns=communication,
        exposed_copies_ns=0,
        idle_ns=0,
        idle_by_cause_ns={},
        events=len(start_ns),
        communication_ns=communication,
        copies_ns=0,
        busy_ns=window.total,
        kernel_busy_ns=window.total,
        complete=True,
    )
    capture = Capture(
        file=f"rank{rank}.json",
        rank=rank,
        world_size=ranks,
        host="",
        base_ns=None,
        start_ns=begin,
        end_ns=int(end_ns[-1]),
        steps=0,
        devices=(device,),
    )
    calls = Communication(
        file=capture.file,
        device=0,
        collectives=(Collective(kind="allreduce", dtype="Float", in_elements=1000, group_size=ranks),),
        communicators=(),
        what=np.zeros(len(start_ns), np.int32),
        communicator=nothing,
        sequence=np.arange(len(start_ns)),
        step=nothing,
        stream=np.zeros(len(start_ns), np.int32),
        start_ns=start_ns,
        end_ns=end_ns,
        window=window,
        hidden=none,
        borders=start_ns[:0],
    )
    return capture, calls


def stragglers(scatter: float, slow: float, ranks: int, jobs: int) -> list[str]:
    """The rank that is named in each of many jobs; empty if none is."""
    chance = np.random.default_rng(7)
    found = []
    for _ in range(jobs):
        captures, together = joined(*simulated(chance, scatter, slow, ranks))
        assert together is not None
        waited = sum(one.suffered_ns for one in together.waiting)
        assert waited == sum(one.caused_ns for one in together.waiting)
        assert waited == sum(one.devices[0].exposed_waiting_ns or 0 for one in captures)
        job = JobInMemory(name="job", captures=captures, across_ranks=together)
        named = [one.name for one in StragglerRank().check(job).devices if one.violating]
        uneven = UnevenRanks().check(job).status is Status.TRIGGERED
        assert not (named and uneven)
        found.append("".join(named))
    return found


@pytest.mark.parametrize(
    ("ranks", "slow", "jobs"),
    slow_but(
        (8, 0.2, 10), [(8, 0.2, 10), (8, 0.1, 150), (8, 0.2, 50), (4, 0.1, 100), (2, 0.2, 100), (64, 0.2, 5)]
    ),
)
def test_a_slow_rank_is_named(ranks: int, slow: float, jobs: int) -> None:
    named = stragglers(0.05, slow, ranks, jobs)

    assert named.count("rank 1") >= 0.98 * jobs
    assert set(named) <= {"rank 1", ""}


@pytest.mark.parametrize(
    ("ranks", "jobs"), slow_but((2, 30), [(2, 30), (2, 150), (4, 150), (8, 150), (64, 5)])
)
def test_nobody_is_named_where_all_are_slow_in_turn(ranks: int, jobs: int) -> None:
    assert stragglers(0.1, 0.0, ranks, jobs).count("") >= 0.99 * jobs


@pytest.mark.slow
def test_a_report_of_a_thousand_ranks_stays_small() -> None:
    captures, communication = simulated(np.random.default_rng(1), 0.05, 0.1, 1024)
    row = Operators(name="x" * 500, calls=1, self_ns=1, total_ns=1, device_self_ns=0, device_total_ns=0)
    large = [replace(one, operators=(row,) * 50) for one in captures]

    found, ranks = joined(large, communication)

    assert len(msgspec.json.encode((found, ranks))) < 4_000_000
    assert sum(bool(one.operators) for one in found) == 64
