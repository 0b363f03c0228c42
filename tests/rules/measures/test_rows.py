from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobrules.measures.rows import narrow

WIDE = np.iinfo(np.int64).max
NUMBERS = st.lists(st.integers(-3, 3) | st.sampled_from([-WIDE, WIDE, 65_532, 65_533]), max_size=20)


@given(NUMBERS)
def test_narrow_numbers_have_the_same_order(numbers: list[int]) -> None:
    plain = np.array(numbers, np.int64)

    found = narrow(plain)

    assert np.argsort(found, kind="stable").tolist() == np.argsort(plain, kind="stable").tolist()
    assert found.dtype == (np.uint16 if numbers and max(numbers) - min(numbers) < 1 << 16 else np.int64)
