from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobrules.measures.value_counts import Counted

NUMBERS = st.lists(st.integers(-5, 5) | st.integers(0, 10**12), min_size=1, max_size=40)
SHARES = (0.0, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)


@given(NUMBERS, st.integers(1, 4))
def test_counted_numbers_tell_what_the_numbers_tell(numbers: list[int], parts: int) -> None:
    plain = np.array(numbers, np.int64)

    found = Counted.joined([Counted.of(plain[i::parts]) for i in range(parts)])

    assert np.repeat(found.values, found.counts).tolist() == sorted(numbers)
    assert (len(found), found.total) == (len(numbers), sum(numbers))
    assert found.quantiles(*SHARES) == np.quantile(plain, SHARES).tolist()
    for limit in (-6, 0, 0.5, numbers[0], 10**13):
        assert found.above(limit) == sum(one > limit for one in numbers)


def test_nothing_is_counted_as_nothing() -> None:
    for nothing in (Counted.of(np.empty(0, np.int64)), Counted.joined([])):
        assert (len(nothing), nothing.total, nothing.above(0)) == (0, 0, 0)
