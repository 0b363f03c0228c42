"""What rules on a series share."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from jobrules.measures.learning.robust import around, block_medians, finite, kendall, noise, shown
from tests.learning_data import scalars


def test_noise_is_the_standard_deviation_whatever_the_trend() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 0.5, 100_000)

    assert noise(values) == pytest.approx(0.5, rel=0.02)
    assert noise(values + np.linspace(0, 100, 100_000)) == pytest.approx(0.5, rel=0.02)
    assert noise(np.array([1.9, 2.1] * 50)) == pytest.approx(0.2097, abs=1e-4)


def test_kendall_counts_pairs() -> None:
    assert kendall(np.arange(20.0)) == 190
    assert kendall(-np.arange(20.0)) == -190
    assert kendall(np.array([1.0, 3.0, 2.0, 2.0])) == 3 - 2


def test_blocks_and_medians_of_three() -> None:
    values = np.random.default_rng(1).normal(size=103)

    assert block_medians(values, 20).tolist() == [
        statistics.median(one) for one in np.array_split(values, 20)
    ]
    assert around(values).tolist() == [statistics.median(values[i - 1 : i + 2]) for i in range(1, 102)]
    assert [len(around(values[:n])) for n in range(4)] == [0, 0, 0, 1]


def test_values_that_are_no_numbers_are_left_out() -> None:
    steps, values = finite(scalars([1.0, np.nan, -np.inf, 2.0, 1e300]))

    assert (steps.tolist(), values.tolist()) == ([0, 3, 4], [1.0, 2.0, 1e150])
    assert [len(one) for one in finite(None)] == [0, 0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (2.3064, "2.306"),
        (2.0, "2"),
        (0.035123, "0.03512"),
        (9_123_456.0, "9,123,000"),
        (-2.5, "\u22122.5"),
        (0.0, "0"),
        (9.9999, "10"),
        (1.5e-7, "1.500e-07"),
        (-1e150, "\u22121.000e+150"),
    ],
)
def test_a_number_with_four_digits(value: float, words: str) -> None:
    assert shown(value) == words
