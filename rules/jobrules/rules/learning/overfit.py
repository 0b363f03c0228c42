"""Overfit: the validation loss rises while the training loss falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.learning.evaluations import MIN_EVALUATIONS, Evaluations
from jobrules.measures.learning.robust import TINY, around, few, finite, noise, shown
from jobrules.model import HowMuch, Measure, Reason, ReasonKind, Severity
from jobrules.model.learning import LOSS, TRAINING, VAL_ACCURACY, Training
from jobrules.rule import percent
from jobrules.rules.learning.learning_rule import LearningRule
from jobrules.text import number

if TYPE_CHECKING:
    from jobrules.model import FloatArray, IntArray, Job, RuleResult
    from jobrules.model.learning import Learning

_NO_TRAINING = Reason(kind=ReasonKind.OTHER, what="no value of the training loss is finite")
#: Evaluations after the best one.
_AFTER = 5
#: The training loss of an evaluation is the mean of so many values up to it.
_TRAIN_VALUES = 20
#: Accuracy that falls by no more keeps.
_POINT = 1.0


@dataclass(frozen=True, kw_only=True)
class Overfit(LearningRule):
    """The validation loss rises while the training loss falls.

    What it checks
        Whether the median of the last three evaluations lies above the best by more than ``rise`` and three deviations of
        noise.

    Why it matters
        The model learns its training data by heart, and gets worse on other data.

    What to do
        * Stop earlier.
        * Use more data, augmentation, weight decay, or dropout.

    Details
        Evaluations are medians of three. Needs 8 evaluations, 5 of them after the best, and a training loss that is no
        higher at the end. Info if validation accuracy falls by no more than one point.
    """

    title: ClassVar[str] = "The validation loss rises while the training loss falls"
    needs: ClassVar[tuple[Training, ...]] = (Training.VALIDATION, Training.LOSS)

    rise: float = percent(10.0, "rise of the validation loss, of its best")

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """``Datapoints`` are evaluations."""
        del job
        found = Evaluations.of(learning)
        if len(found) < MIN_EVALUATIONS:
            return self.not_evaluated(few(len(found), MIN_EVALUATIONS, "evaluations"))
        k, step = found.best, found.best_step
        best, end = float(found.smooth[k - 1]), float(found.smooth[-1])
        least = self.rise / 100 * abs(best) if found.loss.min() > 0 else 0.0
        need = max(least, 3 * noise(found.loss))
        after = f"after evaluation {number(k + 1)} of {number(len(found))} (step {number(step)})"
        details = {"best": best, "best_step": step, "last": end, "needed": need}
        facts: dict[str, Any] = {
            "datapoints": len(found),
            "measure": _measure(end / best - 1, need / best) if best > TINY else None,
            "details": details,
        }
        if end - best <= need:
            return self.passed(
                f"The validation loss went from {shown(best)} to {shown(end)} {after}", **facts
            )
        rest = len(found) - 1 - k
        if rest < _AFTER:
            return self.not_evaluated(few(rest, _AFTER, "evaluations after the best"), details=details)
        steps, loss = finite(learning.series(LOSS, TRAINING))
        if not len(steps):
            return self.not_evaluated(_NO_TRAINING, details=details)
        train = around(_up_to(steps, loss, found.steps))
        if train[-1] > train[k - 1]:
            return self.passed("The training loss rose with the validation loss", **facts)
        fall = _fall_of_accuracy(learning, step)
        keeps = fall is not None and fall <= _POINT
        return self.found(
            learning,
            self.finding(
                f"Validation loss rose from {shown(best)} to {shown(end)} {after} while training loss fell",
                *([HowMuch("Change of validation accuracy", -fall, "points")] if fall is not None else ()),
                severity=Severity.INFO if keeps else Severity.WARNING,
                advice=(f"Keep the checkpoint of step {number(step)}.", *self.documentation().advice),
            ),
            since_step=step,
            **facts,
        )


def _up_to(steps: IntArray, loss: FloatArray, evaluations: IntArray) -> FloatArray:
    """(evaluations,) mean of the last values of the training loss since the evaluation before; of none, the nearest value."""
    end = np.maximum(1, np.searchsorted(steps, evaluations, side="right"))
    start = np.minimum(np.maximum(end - _TRAIN_VALUES, np.append(0, end[:-1])), end - 1)
    sums = np.append(0.0, np.cumsum(loss))
    return np.asarray((sums[end] - sums[start]) / (end - start))


def _fall_of_accuracy(learning: Learning, step: int) -> float | None:
    """Points by which validation accuracy is lower at the end than at a step; None if it is not known."""
    steps, accuracy = finite(learning.series(VAL_ACCURACY))
    if len(steps) < MIN_EVALUATIONS:
        return None
    smooth = around(accuracy)
    then = min(max(int(np.searchsorted(steps, step)) - 1, 0), len(smooth) - 1)
    # A share, or a number of percent.
    return float(smooth[then] - smooth[-1]) * (100 if accuracy.max() <= 1 else 1)


def _measure(rise: float, need: float) -> Measure:
    return Measure(
        value=round(max(0.0, 100 * rise), 1),
        limits=(round(100 * need, 1),),
        bad="above",
        scale=100 * max(2 * need, rise) or 1.0,
        unit="% above the best validation loss",
        limit_text=f"a rise of {100 * need:.1f}% would show",
    )
