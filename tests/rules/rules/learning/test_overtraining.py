"""Overtraining: the vector of the specification, and what stands in for times and validation."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace as with_fields

from jobrules.model import Job, RuleResult, Severity, Status
from jobrules.model.learning import VAL_LOSS, Scalars
from jobrules.rules.learning.overtraining import Overtraining
from tests.copies import replace
from tests.jobs import make_job
from tests.learning_data import learning_job, scalars

#: The best of ten evaluations, one each hour from 1 h on, is the third: a loss of a step each minute.
VALIDATION = scalars(
    [1.0, 0.8, 0.5, *[0.6] * 7], VAL_LOSS, mode="EVAL", steps=[60 * (i + 1) for i in range(10)], step_s=60.0
)
TRAIN = scalars(list(np.linspace(2, 1, 601)), step_s=60.0)


def with_gpus(job: Job, gpus: int) -> Job:
    return replace(make_job(gpu=[[100.0] * gpus] * 601, interval_s=60.0), learning=job.learning)


def judged(*series: Scalars, gpus: int = 0) -> RuleResult:
    job = learning_job(*series)
    return Overtraining().check(with_gpus(job, gpus) if gpus else job)


def test_the_vector() -> None:
    result = judged(TRAIN, VALIDATION, gpus=8)

    assert result.headline.replace("\u00a0", " ") == (
        "70.0% of the training time (56.0 GPU-hours) came after the best validation loss (step 180)"
    )
    assert result.findings[0].severity is Severity.WARNING
    assert result.details["since_step"] == 180


def test_a_short_time_is_a_remark() -> None:
    """Without GPUs hours count, and an hour is needed."""
    minutes = [
        with_fields(one, time_us=TRAIN.time_us[0] + one.step * 1_000_000) for one in (TRAIN, VALIDATION)
    ]

    result = judged(*minutes)

    assert result.findings[0].severity is Severity.INFO
    assert result.headline.replace("\u00a0", " ") == (
        "70.0% of the training time (7 min) came after the best validation loss (step 180)"
    )
    assert judged(TRAIN, VALIDATION).findings[0].severity is Severity.WARNING


@pytest.mark.parametrize(
    ("best", "status"), [(8, Status.TRIGGERED), (9, Status.PASSED)], ids=["20% after", "10% after"]
)
def test_the_threshold(best: int, status: Status) -> None:
    losses = [1.0] * 10
    losses[best - 1 :] = [0.5] * (11 - best)

    # The first of equal medians is the best.
    assert judged(TRAIN, with_fields(VALIDATION, value=np.array(losses))).status is status


def test_without_times_it_is_the_share_of_steps() -> None:
    series = [with_fields(one, time_us=np.zeros(len(one), np.int64)) for one in (TRAIN, VALIDATION)]

    result = judged(*series, gpus=8)

    assert result.headline == "70.0% of the steps came after the best validation loss (step 180)"
    assert result.findings[0].severity is Severity.INFO


def test_without_validation_it_is_the_last_block_with_a_better_training_loss() -> None:
    loss = np.append(np.linspace(2, 1, 300), np.full(300, 1.0))
    result = judged(scalars(list(loss), step_s=60.0))

    assert result.headline.replace("\u00a0", " ") == (
        "45.1% of the training time (4 h 30 min) came after the best training loss (step 329)"
    )
    # Half a percent a block adds up.
    slow = judged(scalars(list(np.linspace(2, 1.8, 600)), step_s=60.0))
    assert slow.status is Status.PASSED


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (judged(with_fields(VALIDATION, value=np.full(10, np.nan))), "8 evaluations needed, 0 recorded"),
        (judged(scalars([1.0] * 49)), "50 values of the loss needed, 49 recorded"),
        (Overtraining().check(learning_job(scalars([1.0], "lr"))), "the loss not recorded"),
    ],
)
def test_not_evaluated(result: RuleResult, words: str) -> None:
    assert (result.status, str(result.reason).replace("\u00a0", " ")) == (Status.NOT_EVALUATED, words)


def test_a_validation_loss_that_falls_to_the_end_passes() -> None:
    for seed in range(49):
        curve = np.exp(-np.arange(30) / 10) + np.random.default_rng(seed).normal(0, 0.005, 30)
        steps = [20 * (i + 1) for i in range(30)]
        assert judged(scalars(list(curve), VAL_LOSS, steps=steps)).status is Status.PASSED
