"""Overtraining: much of the training came after the best loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from jobrules.measures.learning.evaluations import MIN_EVALUATIONS, Evaluations
from jobrules.measures.learning.robust import block_medians, few, finite
from jobrules.measures.work_span import HOUR_US
from jobrules.model import Measure, Reason, Severity
from jobrules.model.learning import LOSS, TRAINING, Training, time_of_step
from jobrules.rule import number, percent
from jobrules.rules.learning.causes import CAUSES
from jobrules.rules.learning.learning_rule import LearningRule, not_recorded
from jobrules.rules.learning.loss_not_decreasing import MIN_VALUES
from jobrules.text import digits_for, duration, share
from jobrules.text import number as in_words

if TYPE_CHECKING:
    from jobrules.model import Job, RuleResult
    from jobrules.model.learning import Learning

#: Without validation: blocks of the training loss, and what a new best one is lower by.
_BLOCKS, _BETTER = 20, 0.01


@dataclass(frozen=True, kw_only=True)
class Overtraining(LearningRule):
    """Much of the training came after the best loss.

    What it checks
        The share of training time after the best validation loss. Info from ``threshold``, a warning from ``warning`` and
        ``hours``.

    Why it matters
        GPUs worked for a model that got no better.

    What to do
        * Stop early, after some evaluations without improvement.
        * Train for fewer epochs.

    Details
        Evaluations are medians of three, and at least 8. Without validation: the time after the last of 20 blocks whose
        median training loss is the best so far by 1%. Without times: the share of steps, info only. Hours are GPU-hours
        if there are GPUs.
    """

    title: ClassVar[str] = "Much of the training came after the best loss"

    threshold: float = percent(20.0, "share after the best loss")
    warning: float = percent(50.0, "share for a warning")
    hours: float = number(1.0, "GPU-hours, or hours without GPUs, for a warning", unit="h")

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """By time if it is known."""
        best = _best(learning)
        if isinstance(best, Reason):
            return self.not_evaluated(best)
        step, of = best
        after, hours = _after(learning, step)
        gpus = job.gpu_count + job.gpus_unknown
        amount = ""
        if hours is not None:
            device_hours = hours * (gpus or 1)
            in_gpus = f"{in_words(device_hours, digits_for(device_hours))} GPU-hours"
            amount = f" ({in_gpus if gpus else duration(hours * HOUR_US)})"
        whole = "steps" if hours is None else "training time"
        title = f"{share(after)} of the {whole}{amount} came after the best {of} (step {in_words(step)})"
        measure = Measure(
            value=round(100 * after, 1),
            limits=(self.threshold, self.warning),
            bad="above",
            scale=100.0,
            unit=f"% of the {whole} after the best loss",
            limit_text=f"threshold {self.threshold:g}%, warning {self.warning:g}%",
        )
        if 100 * after < self.threshold:
            return self.passed(title, measure=measure)
        is_warning = 100 * after >= self.warning and hours is not None and device_hours >= self.hours
        finding = self.finding(
            title,
            severity=Severity.WARNING if is_warning else Severity.INFO,
            # A warning would be lost in an info.
            because_of=CAUSES if is_warning else (*CAUSES, "overfit"),
        )
        return self.found(
            learning, finding, since_step=step, measure=measure, details={"best_step": step, "after": after}
        )


def _best(learning: Learning) -> tuple[int, str] | Reason:
    """The step of the best loss, and which loss it is."""
    if Training.VALIDATION in learning.has:
        found = Evaluations.of(learning)
        if len(found) < MIN_EVALUATIONS:
            return few(len(found), MIN_EVALUATIONS, "evaluations")
        return found.best_step, "validation loss"
    if Training.LOSS not in learning.has:
        return not_recorded(Training.LOSS)
    steps, loss = finite(learning.series(LOSS, TRAINING))
    if len(loss) < MIN_VALUES:
        return few(len(loss), MIN_VALUES, "values of the loss")
    lowest, last = np.inf, 0
    for i, value in enumerate(block_medians(loss, _BLOCKS)):
        # Compared with the last one that counted, so that small steps add up.
        if value <= lowest - _BETTER * abs(lowest) or not i:
            lowest, last = value, i
    return int(np.array_split(steps, _BLOCKS)[last][-1]), "training loss"


def _after(learning: Learning, step: int) -> tuple[float, float | None]:
    """Share of the training after a step, and in hours; of the steps, and None, if no times are known."""
    best_us, span_us = time_of_step(learning, step), learning.span_us
    if best_us and span_us and span_us[0] <= best_us <= span_us[1] and span_us[0] < span_us[1]:
        after_us = span_us[1] - best_us
        return after_us / (span_us[1] - span_us[0]), after_us / HOUR_US
    first = min(int(one.step[0]) for one in learning.scalars if len(one))
    return (learning.last_step - step) / max(1, learning.last_step - first), None
