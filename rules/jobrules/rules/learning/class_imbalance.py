"""ClassImbalance: few labels of some classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.learning.last_classes import last_classes
from jobrules.model import HowMuch, Measure, Note, Reason, Severity
from jobrules.model.learning import Training
from jobrules.model.order import median
from jobrules.rule import number
from jobrules.rules.learning.learning_rule import LearningRule
from jobrules.text import count, join_names, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Fact, Job, RuleResult
    from jobrules.model.learning import Learning

#: Labels of a class whose recall is known.
_KNOWN = 5
#: Small classes are not recognized if their recall is below this part of that of the largest class.
_HALF = 0.5


@dataclass(frozen=True, kw_only=True)
class ClassImbalance(LearningRule):
    """Few labels of some classes.

    What it checks
        Whether one class has more than ``imbalance`` times the labels of another. A warning if small classes are
        recognized less than half as often as the largest.

    Why it matters
        Accuracy hides classes that are never recognized.

    What to do
        * Judge by balanced accuracy.
        * Weight or resample classes.

    Details
        Of the last evaluation, with at least 200 labels. Small classes have fewer labels than the mean; their median
        recall counts, of those with at least 5 labels. Classes without any label are listed.
    """

    title: ClassVar[str] = "Few labels of some classes"
    needs: ClassVar[tuple[Training, ...]] = (Training.CLASSES,)

    imbalance: float = number(10.0, "times the labels of the smallest class", low=1)

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """``Datapoints`` are labels."""
        del job
        found = last_classes(learning)
        if isinstance(found, Reason):
            return self.not_evaluated(found)
        labels, recall = found.labels, found.recall
        present = labels > 0
        top = int(labels.argmax())
        most, whole = int(labels[top]), int(labels.sum())
        ratio = most / int(labels[present].min())
        small = (labels >= _KNOWN) & (labels < labels[present].mean()) & ~np.isnan(recall)
        of_small = median(recall[small]) if small.any() else np.nan
        facts: dict[str, Any] = {
            "datapoints": whole,
            "measure": Measure(
                value=round(ratio, 1),
                limits=(self.imbalance,),
                bad="above",
                scale=max(2 * self.imbalance, ratio),
                unit="times the labels of the smallest class",
                limit_text=f"threshold {self.imbalance:g}",
            ),
        }
        if ratio <= self.imbalance:
            times = f"{ratio:.1f} times the labels of the smallest"
            return self.passed(f"The largest class has {times} (threshold {self.imbalance:g})", **facts)
        # NaN, of a recall that is not known, is not below.
        is_warning = of_small < _HALF * recall[top]
        title = f"Class {top} has {share(most / whole)} of the labels"
        if is_warning:
            title += f", and small classes are recognized in {share(of_small)} of cases (median)"
        evidence: list[Fact] = [HowMuch("Labels of the largest class by the smallest", round(ratio, 1))]
        if found.complete:
            right = found.pairs[found.pairs[:, 0] == found.pairs[:, 1], 2].sum()
            evidence.append(HowMuch("Accuracy", 100 * float(right) / whole, "%"))
        if not np.isnan(of_small + recall[top]):
            evidence.append(HowMuch(f"Recall of class {top}", 100 * float(recall[top]), "%"))
            evidence.append(HowMuch("Median recall of small classes", 100 * of_small, "%"))
        evidence += _listed("never predicted", np.flatnonzero(present & (found.predicted == 0)).tolist())
        evidence += _listed("without any label", np.flatnonzero(~present).tolist())
        severity = Severity.WARNING if is_warning else Severity.INFO
        return self.found(learning, self.finding(title, *evidence, severity=severity), **facts)


def _listed(what: str, classes: Sequence[int]) -> list[Fact]:
    """``9 classes never predicted: 1, 2, 3, and 6 more``; empty without any."""
    if not classes:
        return []
    return [Note(f"{count(len(classes), 'class', 'classes')} {what}: {join_names(list(map(str, classes)))}")]
