"""LossNotDecreasing on the vectors of the specification, on random series, and beside the vendor's formula."""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.model import FloatArray, RuleResult, Severity, Status
from jobrules.rules.learning.loss_not_decreasing import LossNotDecreasing
from tests.learning_data import learning_job, scalars


def judged(loss: FloatArray | list[float], rule: LossNotDecreasing | None = None) -> RuleResult:
    return (rule or LossNotDecreasing()).check(learning_job(scalars(list(loss))))


@pytest.mark.parametrize(
    ("loss", "status", "words"),
    [
        ([2.0] * 50, Status.TRIGGERED, "After 50 steps the loss is 2 (2 in the first tenth of them)"),
        (
            [2 - 0.01 * i for i in range(100)],
            Status.PASSED,
            "The loss went from 1.955 to 1.055 in 100 steps",
        ),
        (
            [2.1, 1.9] * 50,
            Status.NOT_EVALUATED,
            "Not evaluated: noise of the loss hides falls of less than 13.7%",
        ),
        ([2.0] * 49, Status.NOT_EVALUATED, "Not evaluated: 50 values of the loss needed, 49 recorded"),
        ([0.0] * 60, Status.TRIGGERED, "After 60 steps the loss is 0 (0 in the first tenth of them)"),
        (
            [-2.0] * 60,
            Status.TRIGGERED,
            "After 60 steps the loss is \u22122 (\u22122 in the first tenth of them)",
        ),
        # No floor where the loss is negative: 0.4% less is a fall.
        (
            list(np.linspace(-2, -2.008, 60)),
            Status.PASSED,
            "The loss went from \u22122 to \u22122.008 in 60 steps",
        ),
        (
            list(np.linspace(2, 1.992, 60)),
            Status.TRIGGERED,
            "After 60 steps the loss is 1.992 (2 in the first tenth of them)",
        ),
    ],
)
def test_vectors(loss: list[float], status: Status, words: str) -> None:
    result = judged(loss)

    assert (result.status, result.headline.replace("\u00a0", " ")) == (status, words)


def test_a_loss_that_falls_at_once_did_not_begin_low() -> None:
    assert judged([2.3, 0.9, 0.3, *[0.05] * 97]).headline.endswith("(0.05 in the first tenth of them)")


def test_a_rise_is_critical_and_the_whole_time_did_not_help() -> None:
    result = judged(list(np.linspace(1, 3, 60)))

    (finding,) = result.findings
    assert finding.severity is Severity.CRITICAL
    assert judged([1.0] * 60).findings[0].severity is Severity.WARNING
    assert result.details["since_step"] == 0


def test_values_that_are_not_finite_do_not_count() -> None:
    series = [np.nan, np.inf, *np.linspace(2, 1, 60)]

    assert judged(series).status is Status.PASSED


def rate(status: Status, level: FloatArray, noise: float, series: int) -> float:
    """Share of random series around a level with a result."""
    found = [
        judged(level + np.random.default_rng(seed).normal(0, noise * level[0], len(level))).status
        for seed in range(series)
    ]
    return found.count(status) / series


def flat(n: int) -> FloatArray:
    return np.full(n, 2.0)


def falls(n: int, by: float) -> FloatArray:
    return np.linspace(2.0, 2.0 * (1 - by), n)


@pytest.mark.parametrize("n", [100, 600, 3000])
def test_random_series(n: int) -> None:
    """As the specification states: 300 series each."""
    halves = 2.0 * (0.5 + 0.5 * np.exp(-np.arange(n) / (0.05 * n)))

    assert rate(Status.TRIGGERED, flat(n), 0.01, 300) == 1
    assert rate(Status.TRIGGERED, falls(n, 0.05), 0.01, 300) <= 0.03
    assert rate(Status.TRIGGERED, falls(n, 0.2), 0.01, 300) == 0
    assert rate(Status.TRIGGERED, falls(n, 0.2), 0.1, 300) == 0
    assert rate(Status.TRIGGERED, falls(n, 0.2), 0.3, 300) == 0
    assert rate(Status.TRIGGERED, halves, 0.1, 300) == 0


def test_large_noise_is_mostly_not_evaluated() -> None:
    assert rate(Status.NOT_EVALUATED, flat(100), 0.1, 100) >= 0.9


def vendor(loss: FloatArray) -> bool:
    """Fires at the first value that is no less than that of ten steps before."""
    return bool((loss[10:] >= loss[:-10]).any())


def test_a_healthy_loss_passes_where_the_vendors_formula_fires() -> None:
    rng = np.random.default_rng(0)
    healthy = [2.3 * np.exp(-np.arange(600) / 150) + 0.05 + rng.normal(0, 0.05, 600) ** 2 for _ in range(49)]

    assert [judged(one).status for one in healthy] == [Status.PASSED] * 49
    assert all(vendor(one) for one in healthy)
