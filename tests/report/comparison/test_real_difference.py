"""The statistics: quantiles from tables, pairs computed by hand from the formulas, and properties of any pair."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jobreport.comparison.real_difference import (
    Sample,
    difference,
    incomplete_beta,
    not_by_chance,
    of_equal_code,
    t_quantile,
)
from jobrules.analyses.blocks import block_edges


@pytest.mark.parametrize(
    ("df", "quantile"),
    [(1, 12.706205), (2, 4.302653), (10, 2.228139), (38, 2.024394), (4.5, 2.658912), (1e6, 1.959966)],
)
def test_quantiles_of_t_are_those_of_tables(df: float, quantile: float) -> None:
    assert f"{t_quantile(df):.6f}" == f"{quantile:.6f}"


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0, 1))
def test_the_incomplete_beta_function_is_a_sum_for_whole_numbers(a: int, b: int, x: float) -> None:
    n = a + b - 1
    binomial = math.fsum(math.comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(a, n + 1))

    assert incomplete_beta(a, b, x) == pytest.approx(binomial, abs=1e-12)


def blocks(values: Sequence[float]) -> Sample:
    """Of the logarithms of the means of 20 blocks."""
    edges = block_edges(len(values))
    return Sample.of_blocks([math.log(np.mean(values[a:b])) for a, b in pairwise(edges)])


def noise(seed: int, n: int = 400) -> list[float]:
    """A linear congruential generator, so that anyone can make the same numbers."""
    found, x = [], seed
    for _ in range(n):
        x = (1103515245 * x + 12345) % 2**31
        found.append(0.9 + 0.2 * x / 2**31)
    return found


def waves(n: int, period: int, middle: float) -> list[float]:
    return [1 + 0.1 * ((i % period) - middle) / middle for i in range(n)]


def scaled(values: Sequence[float], factor: Callable[[int], float]) -> list[float]:
    return [value * factor(i) for i, value in enumerate(values)]


SAW = [1 + 0.02 * (i % 3) for i in range(200)]
#: A, B, then as printed: d, se, both correlations, both effective numbers, degrees of freedom, change and interval in percent.
VECTORS = {
    "nothing varies between blocks": (
        waves(200, 10, 4.5),
        scaled(waves(200, 10, 4.5), lambda i: 1.05),
        ("0.048790", "0.000000", ".0500", ".0500", "18.095", "18.095", "–", "5.000", "5.000", "5.000"),
    ),
    "blocks out of step": (
        waves(200, 7, 3.0),
        scaled(waves(200, 7, 3.0), lambda i: 1.05),
        ("0.048790", "0.003875", ".0000", ".0000", "20.000", "20.000", "38.000", "5.000", "4.180", "5.827"),
    ),
    "a change of course": (
        SAW,
        scaled(SAW, lambda i: 1.2 if i >= 100 else 1.0),
        ("0.091161", "0.066217", ".0000", ".8967", "20.000", "2.000", "1.000", "9.545", "-52.767", "154.062"),
    ),
    "three percent": (
        noise(1),
        scaled(noise(2), lambda i: 1.03),
        ("0.029676", "0.003629", ".1194", ".0000", "15.733", "20.000", "30.330", "3.012", "2.252", "3.778"),
    ),
    "half a percent": (
        noise(1),
        scaled(noise(3), lambda i: 1.005),
        ("0.006178", "0.004496", ".1194", ".1467", "15.733", "14.884", "27.006", "0.620", "-0.304", "1.552"),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_pairs_that_were_computed_by_hand(name: str) -> None:
    a, b, printed = VECTORS[name]
    one, other = blocks(a), blocks(b)

    found = difference(one, other)

    def percent(logarithm: float) -> str:
        return f"{100 * math.expm1(logarithm):.3f}"

    assert printed == (
        f"{found.d:.6f}",
        f"{found.se:.6f}",
        f"{one.correlation:.4f}".removeprefix("0"),
        f"{other.correlation:.4f}".removeprefix("0"),
        f"{one.effective:.3f}",
        f"{other.effective:.3f}",
        "–" if found.df is None else f"{found.df:.3f}",
        percent(found.d),
        percent(found.d - found.half),
        percent(found.d + found.half),
    )


VALUES = st.lists(st.floats(-5, 5), min_size=2, max_size=20)


@given(VALUES, VALUES)
def test_swapping_a_pair_changes_the_sign_and_nothing_else(a: list[float], b: list[float]) -> None:
    one, other = Sample.of_blocks(a), Sample.of_values(b, in_logarithms=False)
    there, back = difference(one, other, 0.1), difference(other, one, 0.1)

    assert replace(there, d=-there.d) == back


@given(VALUES, st.floats(-3, 3))
def test_what_is_added_to_all_values_is_the_difference(a: list[float], added: float) -> None:
    one, other = (Sample.of_values([v + by for v in a], in_logarithms=False) for by in (0.0, added))

    assert difference(one, other).d == pytest.approx(added, abs=1e-12)


def test_the_spread_between_runs_widens_the_interval_and_nothing_else() -> None:
    """3% of each of two single runs, known as if 12 runs had shown it: of equal code, fewer than 3% seem to differ."""
    still = Sample(mean=0.0, correlation=0.0, effective=20.0, variance=0.0)
    spread = 0.03 * math.sqrt(2)

    assert difference(still, still, spread).half == pytest.approx(math.log(1.0968), abs=1e-4)
    for variance in (1e-4, 1e-2):
        rough = replace(still, variance=variance)
        alone, wide = difference(rough, rough), difference(rough, rough, spread)
        assert (wide.own_half, wide.se, wide.df) == (alone.half, alone.se, alone.df)
        assert alone.half < wide.half < math.hypot(alone.half, difference(still, still, spread).half) * 1.001


@pytest.mark.parametrize(
    ("spread", "least", "most"), [(0.01, 0.0, 0.01), (0.06, 0.03, 0.1), (0.2, 0.03, 0.1)]
)
def test_one_run_differs_as_repeats_do_if_that_is_more_than_is_assumed(
    spread: float, least: float, most: float
) -> None:
    """False alarms of one run against three, where 3% are assumed."""
    generator = np.random.default_rng(5)
    found = 0
    for _ in range(600):
        one, *others = np.exp(generator.normal(0, spread, 4))
        single = Sample(mean=math.log(one), correlation=0.0, effective=20.0, variance=1e-6)
        repeats = Sample.of_values(others, in_logarithms=True)
        a, b, assumed = of_equal_code(single, repeats, 0.03)
        test = difference(a, b, assumed or 0.0)
        found += abs(test.d) > test.half

    assert least <= found / 600 <= most


@given(st.lists(st.floats(0.1, 10), min_size=20, max_size=20), st.floats(0.1, 10))
def test_what_is_tested_is_the_ratio_that_is_shown(totals: list[float], factor: float) -> None:
    sizes = [20.0 + i % 2 for i in range(20)]
    one, other = (
        Sample.of_ratio([factor_of * t for t in totals], sizes, in_logarithms=True)
        for factor_of in (1.0, factor)
    )

    assert math.exp(one.mean) == pytest.approx(sum(totals) / sum(sizes))
    assert difference(one, other).d == pytest.approx(math.log(factor), abs=1e-9)
    assert one.variance == pytest.approx(other.variance, abs=1e-9)


def test_of_many_chances_the_smallest_have_to_be_smaller() -> None:
    assert not_by_chance([0.04]) == {0.04}
    assert not_by_chance([0.04, 0.5, 0.9]) == set()
    assert not_by_chance([0.001, 0.02, 0.9]) == {0.001, 0.02}
    assert not_by_chance([0.03, 0.02, 0.9]) == set()
