"""Confusion: a class is often taken for another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.learning.last_classes import MIN_OF_CLASS, last_classes
from jobrules.measures.learning.robust import of_hundred
from jobrules.model import HowMuch, Reason, Severity
from jobrules.model.learning import Training
from jobrules.rule import percent
from jobrules.rules.learning.causes import CAUSES
from jobrules.rules.learning.class_imbalance import ClassImbalance
from jobrules.rules.learning.learning_rule import LearningRule
from jobrules.text import count
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from jobrules.model import Job, RuleResult
    from jobrules.model.learning import Learning

#: Pairs that are named.
_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class Confusion(LearningRule):
    """A class is often taken for another.

    What it checks
        Pairs of classes: whether more than ``pair`` of the labels of one are predicted as the other.

    Why it matters
        Classes that look alike, or wrong labels, limit accuracy.

    What to do
        * Look at examples of both classes.
        * Check their labels.

    Details
        Of the last evaluation, with at least 200 labels; classes with at least 20.
    """

    title: ClassVar[str] = "A class is often taken for another"
    needs: ClassVar[tuple[Training, ...]] = (Training.CLASSES,)

    pair: float = percent(30.0, "labels of a class predicted as another one")

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """Counts are of pairs."""
        del job
        found = last_classes(learning)
        if isinstance(found, Reason):
            return self.not_evaluated(found)
        label, taken_for, n = found.pairs.T
        of_label = found.labels[label]
        judged = (label != taken_for) & (of_label >= MIN_OF_CLASS)
        shares = np.where(judged, 100 * n / np.maximum(of_label, 1), 0.0)
        most = float(shares.max(initial=0.0))
        facts: dict[str, Any] = {
            "datapoints": int(found.labels.sum()),
            "measure": of_hundred(most, self.pair, "% of a class taken for another"),
        }
        worst = np.argsort(-shares, kind="stable")[: np.count_nonzero(shares > self.pair)].tolist()
        if not worst:
            return self.passed(
                f"At most {in_percent(most)} of a class are taken for another (threshold {self.pair:g}%)",
                **facts,
            )
        first = worst[0]
        title = f"{in_percent(shares[first])} of class {label[first]} are taken for class {taken_for[first]}"
        if len(worst) > 1:
            title += f", and {count(len(worst) - 1, 'more pair')} above {self.pair:g}%"
        named = [
            HowMuch("Taken for another", float(shares[i]), "%", of=f"{label[i]} for {taken_for[i]}")
            for i in worst[:_NAMED]
        ]
        # A model that learns nothing, or the largest class alone, confuses all others.
        finding = self.finding(
            title, *named, severity=Severity.INFO, because_of=(*CAUSES, ClassImbalance().key)
        )
        return self.found(learning, finding, violations=len(worst), **facts)
