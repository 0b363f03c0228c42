"""Overfit: vectors of the specification, and noise."""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.model import FloatArray, RuleResult, Severity, Status
from jobrules.model.learning import VAL_ACCURACY, VAL_LOSS, Scalars
from jobrules.rules.learning.overfit import Overfit
from tests.learning_data import learning_job, scalars

RISING = [1, 0.8, 0.6, 0.5, 0.52, 0.55, 0.6, 0.65, 0.7, 0.75]
FLAT = [1, 0.8, 0.6, 0.5, 0.5, 0.51, 0.5, 0.49, 0.5, 0.51]
TRAIN = [1, 0.8, 0.6, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15]


def judged(validation: list[float], train: list[float], *more: Scalars, every: int = 100) -> RuleResult:
    steps = [every * (i + 1) for i in range(len(validation))]
    of_train = [every * (i + 1) * len(validation) // len(train) for i in range(len(train))]
    return Overfit().check(
        learning_job(
            scalars(train, steps=of_train), scalars(validation, VAL_LOSS, mode="EVAL", steps=steps), *more
        )
    )


def test_the_vectors() -> None:
    rises, flat = judged(RISING, TRAIN), judged(FLAT, TRAIN)

    assert rises.findings[0].title.replace("\u00a0", " ") == (
        "Validation loss rose from 0.52 to 0.7 after evaluation 4 of 10 (step 400) while training loss fell"
    )
    assert rises.findings[0].severity is Severity.WARNING
    assert rises.findings[0].advice[0] == "Keep the checkpoint of step 400."
    # Three deviations of the noise of the nine differences.
    assert rises.details["needed"] == pytest.approx(3 * 1.4826 * 0.05 / np.sqrt(2))
    assert rises.details["since_step"] == 400
    assert flat.status is Status.PASSED
    assert flat.headline == "The validation loss went from 0.5 to 0.5 after evaluation 4 of 10 (step 400)"


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (judged(RISING[:7], TRAIN[:7]), "8 evaluations needed, 7 recorded"),
        (
            judged([1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.5, 0.9, 0.9, 0.9], TRAIN),
            "5 evaluations after the best needed, 4 recorded",
        ),
        (
            Overfit().check(learning_job(scalars(RISING, VAL_LOSS, mode="EVAL"))),
            "the loss not recorded",
        ),
        (Overfit().check(learning_job(scalars(TRAIN))), "validation loss not recorded"),
    ],
)
def test_not_evaluated(result: RuleResult, words: str) -> None:
    assert (result.status, str(result.reason).replace("\u00a0", " ")) == (Status.NOT_EVALUATED, words)


def test_a_training_loss_that_rises_too_is_no_overfitting() -> None:
    result = judged(RISING, [*TRAIN[:4], *RISING[4:]])

    assert (result.status, result.headline) == (
        Status.PASSED,
        "The training loss rose with the validation loss",
    )


def test_the_training_loss_is_the_mean_of_up_to_twenty_steps_before_an_evaluation() -> None:
    """One low value a hundred steps before the end does not make it fall."""
    train = np.full(1000, 0.45)
    train[900] = -1000
    assert judged(RISING, list(train)).status is Status.TRIGGERED

    train = np.append(np.full(400, 0.45), np.full(600, 0.46))
    train[900] = -1000
    assert judged(RISING, list(train)).status is Status.PASSED


def test_an_evaluation_before_the_first_step_has_the_first_training_loss() -> None:
    validation = [2.0, 0.5, 0.55, *np.linspace(0.6, 1.2, 7)]
    series = scalars(validation, VAL_LOSS, mode="EVAL", steps=range(0, 1000, 100))

    def of(train: FloatArray) -> RuleResult:
        return Overfit().check(learning_job(series, scalars(train.tolist(), steps=range(10, 910))))

    assert of(np.linspace(1, 0.1, 900)).details["since_step"] == 100
    assert of(np.linspace(1, 0.1, 900)).findings[0].severity is Severity.WARNING
    assert of(np.linspace(1, 1.1, 900)).status is Status.PASSED
    assert str(of(np.full(900, np.nan)).reason) == "no value of the training loss is finite"


@pytest.mark.parametrize(
    ("accuracy", "severity"),
    [
        ([0.5, 0.6, 0.8, 0.8, 0.8, *[0.795] * 5], Severity.INFO),
        ([0.5, 0.6, 0.8, 0.8, 0.8, *[0.78] * 5], Severity.WARNING),
        ([50.0, 60.0, 80.0, 80.0, 80.0, *[79.5] * 5], Severity.INFO),
        ([50.0, 60.0, 80.0, 80.0, 80.0, *[78.0] * 5], Severity.WARNING),
    ],
)
def test_accuracy_that_keeps_makes_it_a_remark(accuracy: list[float], severity: Severity) -> None:
    more = scalars(accuracy, VAL_ACCURACY, mode="EVAL", steps=[100 * (i + 1) for i in range(10)])

    assert judged(RISING, TRAIN, more).findings[0].severity is severity


def test_negative_losses_are_judged_by_noise_alone() -> None:
    """No rise in percent of a loss that crosses 0."""
    shifted = [value - 0.55 for value in RISING]

    assert judged(shifted, TRAIN).status is Status.TRIGGERED
    assert judged(shifted, TRAIN).measure is None


@pytest.mark.parametrize(
    ("floor", "spread", "most"),
    [(0.5, 0.01, 0), (0.5, 0.05, 2), (0.5, 0.1, 2), (1, 0.01, 0), (1, 0.05, 20), (1, 0.1, 20)],
)
def test_noise_alone_hardly_triggers(floor: float, spread: float, most: int) -> None:
    """500 series of 30 each, that fall to a floor or are flat from the start: the best of many is best by chance."""
    found = []
    for seed in range(500):
        noise = np.random.default_rng(seed).normal(0, spread, 30)
        curve = floor + (1 - floor) * np.exp(-np.arange(30) / 5)
        found.append(judged(list(curve * (1 + noise)), list(np.linspace(1, 0, 30))).status)

    assert found.count(Status.TRIGGERED) <= most
