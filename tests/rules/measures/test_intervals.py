from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobrules.measures.intervals import Intervals, joined, union

BASE = 1_700_000_000_000_000
PAIRS = st.lists(st.tuples(st.integers(0, 30), st.integers(-2, 8)).map(lambda p: (p[0], p[0] + p[1])))


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, np.int64).reshape(-1, 2) + BASE
    return table[:, 0], table[:, 1]


def moments(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for start, end in pairs for t in range(start, end)}


def pairs_of(found: Intervals) -> list[tuple[int, int]]:
    return list(zip((found.start - BASE).tolist(), (found.end - BASE).tolist(), strict=True))


def test_nothing_overlaps_nothing() -> None:
    found = union(*columns([]))

    assert found.total == 0
    assert found.overlap(*columns([(0, 9)])).tolist() == [0]


@given(PAIRS)
def test_a_union_is_disjoint_ascending_and_holds_the_same_moments(pairs: list[tuple[int, int]]) -> None:
    found = pairs_of(union(*columns(pairs)))

    assert moments(found) == moments(pairs)
    edges = [edge for pair in found for edge in pair]
    assert edges == sorted(set(edges))


@given(PAIRS, PAIRS.map(lambda pairs: [(a, max(a, b)) for a, b in pairs]))
def test_overlaps_agree_with_counting_moments(
    pairs: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    found = union(*columns(pairs))
    inside = moments(pairs)

    assert found.total == len(inside)
    assert found.overlap(*columns(others)).tolist() == [len(moments([one]) & inside) for one in others]
    assert found.shared(union(*columns(others))) == len(moments(others) & inside)


@given(st.lists(PAIRS, min_size=1, max_size=4))
def test_unions_are_joined_as_their_intervals_are(several: list[list[tuple[int, int]]]) -> None:
    found = joined([union(*columns(pairs)) for pairs in several])

    assert pairs_of(found) == pairs_of(union(*columns([pair for pairs in several for pair in pairs])))
