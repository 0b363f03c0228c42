"""StalledTraining: the vector of the specification, the end of the samples, and what is in a gap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jobrules.model import SECOND_US, RuleResult, Severity, Status, in_words
from jobrules.model.learning import LearningEvent, Scalars
from jobrules.rules.learning.stalled_training import StalledTraining
from tests.copies import replace
from tests.jobs import make_job
from tests.learning_data import START_US, learning_job, matrix, scalars, tensors


def series(*at_s: float, mode: str = "TRAIN") -> Scalars:
    one = scalars([1.0] * len(at_s), mode=mode)
    return replace(one, time_us=START_US + (np.array(at_s) * SECOND_US).astype(np.int64))


def with_gap(seconds: float) -> list[float]:
    """A record each 10 s, with one gap."""
    before = [10.0 * i for i in range(50)]
    return before + [before[-1] + seconds + 10.0 * i for i in range(50)]


def judged(*given: Scalars, **known: Any) -> RuleResult:
    return StalledTraining().check(learning_job(*given, **known))


def test_the_vector() -> None:
    long, short = judged(series(*with_gap(1801))), judged(series(*with_gap(1800)))

    assert (long.findings[0].severity, long.headline.replace("\u00a0", " ")) == (
        Severity.WARNING,
        "No step for 30 min 1 s",
    )
    assert (short.status, short.headline.replace("\u00a0", " ")) == (
        Status.PASSED,
        "The longest time without a record was 30 min (threshold 30 min)",
    )


def test_rare_records_are_usual() -> None:
    assert judged(series(0, 3600, 7200, 10_800)).status is Status.PASSED
    # 20 times 100 s.
    assert judged(series(*[100.0 * i for i in range(50)], 4900 + 2000)).status is Status.PASSED
    assert judged(series(*[100.0 * i for i in range(50)], 4900 + 2001)).status is Status.TRIGGERED


@pytest.mark.parametrize(
    ("gpu", "finished", "severity", "words"),
    [
        (
            100.0,
            None,
            Severity.CRITICAL,
            "No step for 46 min 40 s before the end; GPU utilization was 100.0%",
        ),
        (100.0, True, Severity.WARNING, "No step for 46 min 40 s before the end; GPU utilization was 100.0%"),
        # A sampler that ran on after the training.
        (0.0, None, Severity.WARNING, "No step for 46 min 40 s before the end; GPU utilization was 0.0%"),
    ],
)
def test_the_end_of_the_samples(gpu: float, finished: bool | None, severity: Severity, words: str) -> None:
    # Busy for 500 s, then as given for 2,800 s.
    job = make_job(gpu=[95.0] * 500 + [gpu] * 2801, interval_s=1.0, start_us=START_US)
    learned = learning_job(series(*[10.0 * i for i in range(51)]))
    result = StalledTraining().check(replace(job, learning=learned.learning, finished=finished))

    (finding,) = result.findings
    assert (finding.severity, finding.title.replace("\u00a0", " ")) == (severity, words)
    assert result.details["since_us"] == START_US + 500 * SECOND_US


def test_samples_of_another_time_say_nothing_of_the_end() -> None:
    job = make_job(gpu=[95.0] * 100, interval_s=60.0, start_us=START_US + 86_400 * SECOND_US)
    learned = learning_job(series(*[10.0 * i for i in range(51)]))

    assert StalledTraining().check(replace(job, learning=learned.learning)).status is Status.PASSED


def test_evaluations_checkpoints_and_restarts_in_the_gap_are_named() -> None:
    at = with_gap(4000)
    middle = START_US + 2000 * SECOND_US
    events = tuple(
        LearningEvent(step=1, time_us=middle + shift * SECOND_US, name=name)
        for shift, name in ((0, "checkpoint"), (1, "resume"), (-1700, "overflow"))
    )
    (finding,) = judged(series(*at), series(490 + 1000, mode="EVAL"), events=events).findings

    # The evaluation's own record splits the time; the longer part of it is told.
    assert finding.title.replace("\u00a0", " ") == "No step for 50 min"
    assert in_words(finding.evidence).endswith(
        "Recorded in that time: checkpoint and resume. "
        "Steps that were repeated after the restart count with their last time only."
    )

    (finding,) = judged(series(*at), series(490 + 3990, mode="EVAL")).findings
    assert in_words(finding.evidence).endswith("Recorded in that time: evaluation.")


def test_records_of_tensors_count() -> None:
    rows = {matrix("w"): [{"rms": 1.0}] * 4}
    result = judged(tensors=tensors(rows, steps=[0, 10, 20, 2010]))

    assert result.headline.replace("\u00a0", " ") == "No step for 33 min 10 s"


def test_without_times_nothing_is_known() -> None:
    result = judged(scalars([1.0] * 9, timed=False))

    assert str(result.reason) == "times of the training not recorded"
    assert str(judged(series(0)).reason) == "2 records of the training needed, 1 recorded"
