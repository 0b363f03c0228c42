"""ClassImbalance and Confusion on the vectors of the specification."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from jobrules.model import RuleResult, Severity, Status, in_words
from jobrules.model.learning import ClassCounts
from jobrules.rules.learning.class_imbalance import ClassImbalance
from jobrules.rules.learning.confusion import Confusion
from jobrules.rules.learning.learning_rule import LearningRule
from tests.learning_data import counted, learning_job


def judged(rule: LearningRule, *rows: ClassCounts) -> RuleResult:
    return rule.check(learning_job(classes=rows))


def two(large: int, small: int, recall: float) -> ClassCounts:
    """The large class is always recognized."""
    right = round(small * recall)
    return counted([large, small], [(0, 0, large), (1, 1, right), (1, 0, small - right)])


@pytest.mark.parametrize(
    ("row", "status", "severity"),
    [
        (two(900, 100, 0.3), Status.PASSED, None),
        (two(910, 90, 0.3), Status.TRIGGERED, Severity.WARNING),
        (two(910, 90, 0.6), Status.TRIGGERED, Severity.INFO),
        # Strict: ten times is kept, and half is half.
        (two(1000, 100, 0.0), Status.PASSED, None),
        (two(910, 90, 0.5), Status.TRIGGERED, Severity.INFO),
        # Of 4 labels the recall is not known.
        (two(910, 4, 0.0), Status.TRIGGERED, Severity.INFO),
        (two(910, 5, 0.0), Status.TRIGGERED, Severity.WARNING),
    ],
)
def test_imbalance(row: ClassCounts, status: Status, severity: Severity | None) -> None:
    result = judged(ClassImbalance(), row)

    assert (result.status, next((one.severity for one in result.findings), None)) == (status, severity)


def test_what_is_said_of_classes_that_are_never_predicted() -> None:
    labels = [1814, *[20] * 8, 26, 0]
    row = counted(labels, [(label, 0, n) for label, n in enumerate(labels) if n])
    (finding,) = judged(ClassImbalance(), row).findings

    assert finding.title == (
        "Class 0 has 90.7% of the labels, and small classes are recognized in 0.0% of cases (median)"
    )
    assert in_words(finding.evidence).replace("\u00a0", " ") == (
        "Labels of the largest class by the smallest: 90.7. Accuracy: 90.7%. Recall of class 0: 100.0%. "
        "Median recall of small classes: 0.0%. 9 classes never predicted: 1, 2, 3, and 6 more. "
        "1 class without any label: 10."
    )


def test_pairs_that_were_left_out_leave_recall_and_accuracy_unknown() -> None:
    row = replace(two(910, 90, 0.3), pairs=np.array([[0, 0, 910]]), complete=False)
    (finding,) = judged(ClassImbalance(), row).findings

    assert finding.severity is Severity.INFO
    assert "Accuracy" not in in_words(finding.evidence)
    assert "recall" not in in_words(finding.evidence)


def seven(taken: int) -> ClassCounts:
    """Of class 7, with 100 labels, so many are taken for 1; class 8 has 19 labels, all taken for 9."""
    labels = [100, 100, 0, 0, 0, 0, 0, 100, 19, 0]
    pairs = [(0, 0, 100), (1, 1, 100), (7, 1, taken), (7, 7, 100 - taken), (8, 9, 19)]
    return counted(labels, pairs)


def test_confusion() -> None:
    (finding,) = judged(Confusion(), seven(34)).findings
    kept = judged(Confusion(), seven(30))

    assert (finding.title, finding.severity) == ("34.0% of class 7 are taken for class 1", Severity.INFO)
    assert (kept.status, kept.headline) == (
        Status.PASSED,
        "At most 30.0% of a class are taken for another (threshold 30%)",
    )


def test_the_ten_most_confused_pairs_are_named() -> None:
    pairs = [(label, (label + 1) % 12, 40 + label) for label in range(12)]
    result = judged(Confusion(), counted([100] * 12, pairs))
    (finding,) = result.findings

    assert finding.title.replace("\u00a0", " ") == (
        "51.0% of class 11 are taken for class 0, and 11 more pairs above 30%"
    )
    assert (result.violations, len(finding.evidence)) == (12, 10)
    assert in_words(finding.evidence).startswith("Taken for another: 11 for 0 51.0%; 10 for 11 50.0%")


@pytest.mark.parametrize("rule", [ClassImbalance(), Confusion()], ids=lambda rule: rule.name)
def test_not_evaluated(rule: LearningRule) -> None:
    few = judged(rule, counted([100, 99], [(0, 0, 100), (1, 1, 99)]))

    assert str(judged(rule).reason) == "labels and predictions not recorded"
    assert str(few.reason) == "200 labels of an evaluation needed, 199 recorded"


def test_all_rows_of_the_last_evaluation_count_and_no_others() -> None:
    training = replace(seven(100), step=900, mode="TRAIN")
    earlier, one, other = seven(100), replace(seven(40), step=200), replace(seven(20), step=200)
    shorter = replace(other, labels=other.labels[:9], predicted=other.predicted[:9])

    result = judged(Confusion(), earlier, one, shorter, training)

    # Class 8 has 38 labels by now.
    assert result.headline.replace("\u00a0", " ") == "100.0% of class 8 are taken for class 9"
    assert result.datapoints == 2 * 319
    assert judged(Confusion(), training).headline.startswith("100.0% of class 7")
