"""LossAtChance on the vectors of the specification."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from jobrules.model import RuleResult, Severity, Status
from jobrules.rules.learning.loss_at_chance import LossAtChance
from tests.learning_data import counted, learning_job, scalars


def judged(loss: list[float], class_count: int | None = 10, **known: Any) -> RuleResult:
    return LossAtChance().check(learning_job(scalars(loss), class_count=class_count, **known))


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (2.257, Status.TRIGGERED),
        (2.256, Status.PASSED),
        (2.348, Status.TRIGGERED),
        (2.349, Status.PASSED),
    ],
)
def test_vectors(last: float, status: Status) -> None:
    result = judged([2.5] * 90 + [last] * 10)

    assert result.status is status
    assert result.measure is not None
    assert result.measure.is_bad == (status is Status.TRIGGERED)


def test_the_sentence_and_the_severity() -> None:
    (late,) = judged([2.5] * 90 + [2.303] * 10).findings
    half = judged([2.5] * 50 + [2.303] * 50)

    assert late.title.replace("\u00a0", " ") == "The loss is that of guessing among 10 classes (2.303)"
    assert (late.severity, half.findings[0].severity) == (Severity.WARNING, Severity.CRITICAL)
    assert half.details["since_step"] == 50
    assert judged([2.303] * 100).details["since_step"] == 0


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (judged([2.3] * 100, None), "the number of classes not recorded"),
        (judged([0.0] * 100, 1), "the number of classes not recorded"),
        (judged([2.3] * 9), "10 values of the loss needed, 9 recorded"),
        (
            judged([1.15, *[2.303] * 99]),
            "the loss began at 1.15, far from that of guessing among 10 classes (2.303)",
        ),
    ],
)
def test_not_evaluated(result: RuleResult, words: str) -> None:
    assert (result.status, str(result.reason).replace("\u00a0", " ")) == (Status.NOT_EVALUATED, words)


def test_the_number_of_classes_is_known_from_labels_too() -> None:
    rows = (counted([50, 50], [(0, 0, 50), (1, 1, 50)]),)

    assert judged([math.log(2)] * 100, None, classes=rows).status is Status.TRIGGERED


def test_losses_that_fall_pass() -> None:
    for seed in range(49):
        noise = np.random.default_rng(seed).normal(0, 0.05, 600)
        assert judged(list(0.05 + 2.25 * np.exp(-np.arange(600) / 150) + noise**2)).status is Status.PASSED
