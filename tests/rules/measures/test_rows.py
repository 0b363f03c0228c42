from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobrules.measures.rows import by_code, narrow, rows_by_lane, rows_by_mode, rows_by_rank, series_of
from jobrules.model import Events
from tests.jobs import joined_steps, make_events, make_steps

WIDE = np.iinfo(np.int64).max
NUMBERS = st.lists(st.integers(-3, 3) | st.sampled_from([-WIDE, WIDE, 65_532, 65_533]), max_size=20)


@given(NUMBERS)
def test_narrow_numbers_have_the_same_order(numbers: list[int]) -> None:
    plain = np.array(numbers, np.int64)

    found = narrow(plain)

    assert np.argsort(found, kind="stable").tolist() == np.argsort(plain, kind="stable").tolist()
    assert found.dtype == (np.uint16 if numbers and max(numbers) - min(numbers) < 1 << 16 else np.int64)


@given(st.lists(st.integers(-1, 4)), st.integers(0, 5))
def test_rows_stand_by_their_code(codes: list[int], many: int) -> None:
    order, edges = by_code(np.array(codes, np.int32), many)

    assert len(edges) == many + 1
    for code in range(many):
        assert order[edges[code] : edges[code + 1]].tolist() == [
            i for i, one in enumerate(codes) if one == code
        ]


def test_each_series_rank_and_mode_has_its_rows() -> None:
    steps = joined_steps(
        make_steps([(0, 1), (2, 3)], rank="10"),
        make_steps([(0, 2)], rank="9"),
        make_steps([(4, 5)], rank="9", phase="EVAL"),
    )

    assert {names[1:]: rows.tolist() for names, rows in series_of(steps).items()} == {
        ("9", "EVAL"): [3],
        ("9", "TRAIN"): [1],
        ("10", "TRAIN"): [0, 2],
    }
    assert {rank: rows.tolist() for rank, rows in rows_by_rank(steps).items()} == {"9": [1, 3], "10": [0, 2]}
    assert {mode: rows.tolist() for mode, rows in rows_by_mode(steps).items()} == {
        "EVAL": [3],
        "TRAIN": [0, 1, 2],
    }


def test_events_are_grouped_by_their_lanes() -> None:
    events = Events.joined(
        [make_events([("a", "x", 0, 9)]), make_events([("b", "x", 1, 2)]), make_events([("a", "x", 3, 4)])]
    )

    groups = rows_by_lane(events, lambda lane: lane.event_type if lane.event_type == "a" else None)

    assert {name: rows.tolist() for name, rows in groups.items()} == {"a": [0, 2]}
    assert rows_by_lane(Events(), lambda lane: lane) == {}
