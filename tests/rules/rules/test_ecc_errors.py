"""ECCErrors: growth during the job, what was there before, and counters that were reset."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from jobrules.model import SECOND_US, Job, RuleResult, Severity, in_words
from jobrules.rule import run_rules
from jobrules.rules.ecc_errors import ECCErrors
from tests.jobs import START_US, Values, sampled


def checked(job: Job) -> RuleResult:
    (found,) = run_rules([ECCErrors()], job, strict=True)
    return found


def logged(corrected: Values, uncorrected: Values | None = None) -> Job:
    more: dict[str, Any] = {} if uncorrected is None else {"gpu_ecc_uncorrected": uncorrected}
    return sampled(60.0, gpu_ecc_corrected=corrected, **more)


@pytest.mark.parametrize("seed", range(6))
def test_errors_and_resets_are_those_of_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = np.cumsum(rng.choice([0, 0, 0, 1, 2], (40, 2)), axis=0).astype(float)
    table[20:, 1] -= table[20, 1]  # the second one is reset
    table[3:6, 0] = np.nan

    found = checked(logged(table))

    for g in range(2):
        values = [v for v in table[:, g].tolist() if v == v]
        errors = resets = 0
        for before, after in pairwise(values):
            resets += after < before
            errors += after if after < before else after - before
        block = found.details["algo-1"][f"gpu{g}"]["corrected"]
        assert block == {"errors": errors, "before": values[0], "resets": resets}


def test_an_uncorrected_error_is_critical_and_told_before_corrected_ones() -> None:
    found = checked(logged([0] * 10 + [4] * 50, [0] * 30 + [1] * 30))

    first, second = found.findings
    assert (first.key, first.severity) == ("ecc-errors", Severity.CRITICAL)
    assert first.title == "1\u00a0uncorrected memory error on 1\u00a0GPU"
    assert (first.start_us, first.end_us) == (START_US + 29 * 60 * SECOND_US, START_US + 30 * 60 * SECOND_US)
    assert (second.key, second.severity) == ("corrected-memory-errors", Severity.INFO)
    assert "Errors: 4. Errors per hour: 4.1." in in_words(second.evidence)
    assert (found.violations, found.evaluated) == (1, 1)


def test_what_was_counted_before_is_reported_with_new_errors_too() -> None:
    (finding,) = checked(logged([[5, 4]] * 5 + [[7, 4]] * 5, [[3, 0]] * 10)).findings

    assert finding.title == "2\u00a0corrected memory errors on 1\u00a0GPU"
    assert in_words(finding.evidence).endswith(
        "3\u00a0uncorrected errors before the job. 9\u00a0corrected errors before the job."
    )


def test_a_counter_that_falls_was_reset_and_counts_from_0() -> None:
    found = checked(logged([9, 9, 0, 2]))
    assert found.findings[0].title == "2\u00a0corrected memory errors on 1\u00a0GPU"
    assert "Resets of the counter: 1." in in_words(found.findings[0].evidence)


@pytest.mark.parametrize(
    ("uncorrected", "clause"),
    [
        (None, "Uncorrected errors not recorded."),
        ([[np.nan, 0]] * 10, "Uncorrected errors not recorded on algo-1 gpu0."),
        ([[0, 0]] + [[np.nan, 0]] * 9, "per hour: 20."),
    ],
)
def test_that_results_are_right_is_said_only_where_it_was_counted(
    uncorrected: Values | None, clause: str
) -> None:
    """``gpu0`` has the corrected errors, and ``gpu1`` a counter of uncorrected ones."""
    corrected = [[0, 0]] * 5 + [[3, 0]] * 5

    (unknown,) = checked(logged(corrected, uncorrected)).findings
    (known,) = checked(logged(corrected, [[0, np.nan]] * 9 + [[0, 0]])).findings
    spoiled = checked(logged(corrected, [[0, 0]] * 5 + [[1, 0]] * 5)).findings[1]

    assert in_words(unknown.evidence).endswith(clause)
    assert " ".join(unknown.advice).startswith("Record uncorrected errors too")
    assert " ".join(known.advice).startswith("Do nothing for this job: its results are correct. Report")
    assert " ".join(spoiled.advice).startswith("Report the GPU to the operator")
