"""Quantiles, medians, and distinct values are those of numpy, to the last digit."""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.model.order import distinct, median, quantiles

PROBS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.995, 1.0)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 101])
@pytest.mark.parametrize("kind", ["all different", "ties", "whole numbers"])
def test_what_numpy_finds(kind: str, count: int) -> None:
    rng = np.random.default_rng(count)
    values = rng.random((4, count)) * 100 if kind == "all different" else rng.integers(0, 4, (4, count)) / 3
    values = np.floor(3 * values).astype(np.int64) if kind == "whole numbers" else values

    assert quantiles(values, PROBS).tolist() == np.quantile(values, PROBS, axis=-1).T.tolist()
    assert [*map(median, values)] == np.median(values, axis=1).tolist()


@pytest.mark.parametrize("values", [[], [7], [3, 3, 3], [2, -5, 2, 0, -5]])
def test_each_number_once(values: list[int]) -> None:
    numbers = np.array(values, np.int64)

    assert distinct(numbers).dtype == np.int64
    assert distinct(numbers).tolist() == np.unique(numbers).tolist()
