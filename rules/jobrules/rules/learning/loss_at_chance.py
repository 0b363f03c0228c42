"""LossAtChance: the loss is that of guessing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from jobrules.measures.learning.robust import block_medians, few, finite, shown
from jobrules.model import Measure, Reason, ReasonKind, Severity
from jobrules.model.learning import LOSS, TRAINING, Training
from jobrules.rule import percent
from jobrules.rules.learning.learning_rule import LearningRule
from jobrules.text import number
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from jobrules.model import Job, RuleResult
    from jobrules.model.learning import Learning

_MIN_VALUES = 10
#: Cross entropy begins near that of guessing: at most so far from it.
_NEAR = 0.5


@dataclass(frozen=True, kw_only=True)
class LossAtChance(LearningRule):
    """The loss is that of guessing.

    What it checks
        Whether the median loss of the last tenth is within ``within`` of the logarithm of the number of classes. Critical
        for the whole second half.

    Why it matters
        The model knows nothing of its inputs.

    What to do
        * Check that labels keep the order of inputs when data is shuffled.
        * Overfit one batch on purpose.
        * Change the learning rate.

    Details
        For cross entropy. A loss that begins more than 50% away from that of guessing is not evaluated.
    """

    title: ClassVar[str] = "The loss is that of guessing"
    needs: ClassVar[tuple[Training, ...]] = (Training.LOSS,)

    within: float = percent(2.0, "distance from the loss of guessing")

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """Compares the median of each tenth."""
        del job
        classes = learning.class_count or max((len(one.labels) for one in learning.classes), default=0)
        if classes < 2:
            return self.not_evaluated(Reason(kind=ReasonKind.NOT_RECORDED, what="the number of classes"))
        steps, loss = finite(learning.series(LOSS, TRAINING))
        if len(loss) < _MIN_VALUES:
            return self.not_evaluated(few(len(loss), _MIN_VALUES, "values of the loss"))
        chance = math.log(classes)
        guessing = f"that of guessing among {number(classes)} classes ({shown(chance)})"
        if abs(loss[0] - chance) > _NEAR * chance:
            what = f"the loss began at {shown(float(loss[0]))}, far from {guessing}"
            return self.not_evaluated(Reason(kind=ReasonKind.OTHER, what=what))
        tenths = block_medians(loss, 10)
        away = 100 * np.abs(tenths - chance) / chance
        near = away <= self.within
        last = shown(float(tenths[-1]))
        measure = Measure(
            value=round(float(away[-1]), 2),
            limits=(self.within,),
            bad="below",
            scale=max(10 * self.within, float(away[-1])) or 1.0,
            unit="% away from the loss of guessing",
            limit_text=f"threshold {self.within:g}%",
        )
        if not near[-1]:
            headline = f"The loss is {last}, {in_percent(float(away[-1]))} away from {guessing}"
            return self.passed(headline, measure=measure)
        since = int(np.argmax(np.minimum.accumulate(near[::-1])[::-1]))
        starts = [part[0] for part in np.array_split(steps, 10)]
        severity = Severity.CRITICAL if since <= 5 else Severity.WARNING
        return self.found(
            learning,
            self.finding(
                f"The loss is {guessing}",
                severity=severity,
            ),
            since_step=int(starts[since]),
            measure=measure,
        )
