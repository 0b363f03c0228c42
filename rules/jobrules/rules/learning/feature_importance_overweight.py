"""FeatureImportanceOverweight: a few features decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jobrules.measures.learning.robust import few, of_hundred
from jobrules.model import HowMuch, Reason, ReasonKind, Severity
from jobrules.rule import number
from jobrules.rules.learning.learning_rule import LearningRule
from jobrules.text import count, join_names, share

if TYPE_CHECKING:
    from jobrules.model import Job, RuleResult
    from jobrules.model.learning import Learning

#: Reason of a rule on boosted trees, if the model has none.
NO_TREES = Reason(kind=ReasonKind.NOT_APPLICABLE, what="no boosted trees were recorded")
#: Features of a model that is judged.
_MIN_FEATURES = 6
#: No gain is larger.
_LARGEST = 1e150


@dataclass(frozen=True, kw_only=True)
class FeatureImportanceOverweight(LearningRule):
    """A few features decide.

    What it checks
        Of boosted trees: whether the ``nfeatures`` features with the largest gain hold more than ``threshold`` of all gain.

    Why it matters
        One of them may contain the answer, which new data will not.

    What to do
        * Check how these features are made, and whether they are known at prediction time.

    Details
        Of models with at least 6 features.
    """

    section: ClassVar[str] = "trees"
    title: ClassVar[str] = "A few features decide"

    threshold: float = number(0.8, "share of the gain", high=1)
    nfeatures: int = number(3, "features that are summed", low=1)

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """``Datapoints`` are features."""
        del job
        if learning.trees is None:
            return self.not_evaluated(NO_TREES)
        gains = sorted(
            ((gain, name) for name, gain in learning.trees.importance if 0 <= gain < _LARGEST), reverse=True
        )
        if len(gains) < _MIN_FEATURES:
            return self.not_evaluated(few(len(gains), _MIN_FEATURES, "features"))
        whole = sum(gain for gain, _ in gains)
        if not whole:
            return self.not_evaluated(Reason(kind=ReasonKind.OTHER, what="no feature has any gain"))
        top = gains[: self.nfeatures]
        part = sum(gain for gain, _ in top) / whole
        facts: dict[str, Any] = {
            "datapoints": len(gains),
            "measure": of_hundred(100 * part, 100 * self.threshold, "% of the gain"),
        }
        title = f"{len(top)} of {count(len(gains), 'feature')} give {share(part)} of the gain"
        if part <= self.threshold:
            return self.passed(title, **facts)
        named = [HowMuch("Share of the gain", 100 * gain / whole, "%", of=name) for gain, name in top]
        return self.found(
            learning,
            self.finding(f"{title}: {join_names([name for _, name in top])}", *named, severity=Severity.INFO),
            **facts,
        )
