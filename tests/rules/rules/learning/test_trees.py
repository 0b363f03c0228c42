"""FeatureImportanceOverweight and TreeDepth."""

from __future__ import annotations

import pytest

from jobrules.model import RuleResult, Severity, Status, in_words
from jobrules.model.learning import Trees
from jobrules.rules.learning.feature_importance_overweight import FeatureImportanceOverweight
from jobrules.rules.learning.learning_rule import LearningRule
from jobrules.rules.learning.tree_depth import TreeDepth
from tests.learning_data import learning_job


def judged(rule: LearningRule, trees: Trees | None) -> RuleResult:
    return rule.check(learning_job(trees=trees))


def gains(*of: float) -> Trees:
    return Trees(importance=tuple((f"f{i}", gain) for i, gain in enumerate(of)))


def test_features() -> None:
    kept = judged(FeatureImportanceOverweight(), gains(40, 30, 10, 8, 7, 5))
    (finding,) = judged(FeatureImportanceOverweight(), gains(5, 40, 30, 11, 8, 6)).findings

    assert (kept.status, kept.headline.replace("\u00a0", " ")) == (
        Status.PASSED,
        "3 of 6 features give 80.0% of the gain",
    )
    assert (finding.title.replace("\u00a0", " "), finding.severity) == (
        "3 of 6 features give 81.0% of the gain: f1, f2, and f3",
        Severity.INFO,
    )
    assert in_words(finding.evidence) == "Share of the gain: f1 40.0%; f2 30.0%; f3 11.0%."
    assert (
        FeatureImportanceOverweight(nfeatures=1, threshold=0.3)
        .check(learning_job(trees=gains(40, 30, 10, 8, 7, 5)))
        .headline.startswith("1 of 6")
    )


def depths(*of: int, limit: int | None = 6) -> Trees:
    return Trees(depths=of, max_depth=limit)


def test_depth() -> None:
    kept = judged(TreeDepth(), depths(*[6] * 90, *[5] * 10))
    result = judged(TreeDepth(), depths(*[6] * 91, *[5] * 9))
    free, zero = (judged(TreeDepth(), depths(3, 4, limit=one)) for one in (None, 0))

    assert (kept.status, kept.headline.replace("\u00a0", " ")) == (
        Status.PASSED,
        "100 trees: depth 6 at the median, 6 at most, of 6 allowed",
    )
    assert result.findings[0].severity is Severity.INFO
    assert result.headline.replace("\u00a0", " ") == "91.0% of 100 trees are as deep as allowed (6)"
    assert free.headline.replace("\u00a0", " ") == (
        "2 trees: depth 3.5 at the median, 4 at most, without a limit"
    )
    # As XGBoost has it.
    assert zero == free


@pytest.mark.parametrize(
    ("rule", "trees", "words"),
    [
        (FeatureImportanceOverweight(), None, "no boosted trees were recorded"),
        (TreeDepth(), None, "no boosted trees were recorded"),
        (FeatureImportanceOverweight(), gains(1, 1, 1, 1, 1), "6 features needed, 5 recorded"),
        (FeatureImportanceOverweight(), gains(*[0.0] * 6), "no feature has any gain"),
        (TreeDepth(), gains(1), "depths of trees not recorded"),
    ],
)
def test_not_evaluated(rule: LearningRule, trees: Trees | None, words: str) -> None:
    result = judged(rule, trees)

    assert (result.status, str(result.reason)) == (Status.NOT_EVALUATED, words)
