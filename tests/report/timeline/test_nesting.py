from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.timeline import nesting
from jobreport.timeline.nesting import nested

Spans = list[tuple[int, int]]


def lanes_of(spans: Spans) -> list[int]:
    start_us, end_us = np.array(spans, np.int64).reshape(-1, 2).T
    found: list[int] = nested(start_us, end_us).tolist()
    return found


@pytest.mark.parametrize(
    ("spans", "lanes"),
    [
        ([(0, 10), (10, 20)], [0, 0]),
        ([(0, 10), (2, 5), (5, 8)], [0, 0, 0]),
        ([(0, 10), (5, 15)], [0, 1]),
        ([(0, 10), (5, 15), (6, 9)], [0, 1, 0]),
        ([(0, 10), (0, 10)], [0, 0]),
        ([(0, 5), (0, 10)], [0, 0]),
        ([(0, 10), (5, 5)], [0, 0]),
        ([(5, 5), (0, 10)], [0, 0]),
        ([(0, 1), (1, 2), (2, 2)], [0, 0, 0]),
        ([(2, 4), (0, 3), (1, 2)], [1, 0, 0]),
        ([], []),
    ],
)
def test_what_does_not_nest_moves_beside(spans: Spans, lanes: list[int]) -> None:
    assert lanes_of(spans) == lanes


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=40))
def test_lanes_nest_and_are_no_more_than_events_at_once(pairs: list[tuple[int, int]]) -> None:
    spans = [(start, start + length) for start, length in pairs]
    lanes = lanes_of(spans)
    for lane in set(lanes):
        own = [span for span, number in zip(spans, lanes, strict=True) if number == lane]
        for one, other in ((a, b) for i, a in enumerate(own) for b in own[:i]):
            first, last = sorted((one, other), key=lambda span: (span[0], -span[1]))
            assert last[0] >= first[1] or last[1] <= first[1]
    # Moments in which most are open: those of a begin. One of no length is open at its moment.
    most = max(
        (sum(a <= at and (at < b or (a, b) == (at, at)) for a, b in spans) for at, _ in spans), default=0
    )
    assert len(set(lanes)) <= max(most, 0)


@pytest.mark.parametrize("few", [1, 2, 8])
@given(spans=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=80))
def test_the_lane_is_the_first_one_that_fits(few: int, spans: Spans) -> None:
    spans = [(start, start + length) for start, length in spans]
    lanes: list[list[tuple[int, int]]] = [[] for _ in spans]
    expected = [0] * len(spans)
    for i in sorted(range(len(spans)), key=lambda i: (spans[i][0], -spans[i][1])):
        start, end = spans[i]
        expected[i] = next(
            lane for lane, own in enumerate(lanes) if all(other >= end for _, other in own if other > start)
        )
        lanes[expected[i]].append(spans[i])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_FEW", few)
        assert lanes_of(spans) == expected


def test_many_that_overlap_like_stairs_take_no_time() -> None:
    count = 30_000
    start_us = np.arange(count)
    began = time.monotonic()

    assert nested(start_us, start_us + count).tolist() == [*range(count)]
    # With a look at each lane, a minute and a half.
    assert time.monotonic() - began < 20
