"""LossNotDecreasing: the loss does not fall."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from jobrules.measures.learning.robust import (
    OF_MEDIAN,
    TINY,
    block_medians,
    few,
    finite,
    kendall,
    noise,
    shown,
)
from jobrules.model import Measure, Reason, ReasonKind, Severity
from jobrules.model.learning import LOSS, TRAINING, Training
from jobrules.model.order import median
from jobrules.rule import percent
from jobrules.rules.learning.learning_rule import LearningRule
from jobrules.text import count
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from jobrules.model import FloatArray, Job, RuleResult
    from jobrules.model.learning import Learning

#: Values of the loss before it is judged.
MIN_VALUES = 50
#: A steady fall is one that chance gives in 1% of all series: of Kendall's S over so many blocks, whose standard deviation
#: is the root of ``n (n - 1) (2n + 5) / 18``.
_BLOCKS, _Z = 20, 2.326
_STANDARD_DEVIATION = math.sqrt(_BLOCKS * (_BLOCKS - 1) * (2 * _BLOCKS + 5) / 18)


@dataclass(frozen=True, kw_only=True)
class LossNotDecreasing(LearningRule):
    """The loss does not fall.

    What it checks
        Whether the median loss of the second half lies below that of the first tenth, by more than ``floor`` and noise.
        Critical if it rises.

    Why it matters
        The training does not improve the model.

    What to do
        * Overfit one batch on purpose: if that fails, the code is wrong.
        * Raise the learning rate.
        * Check labels, and that this loss is optimized.

    Details
        A slow but steady fall passes, too: by Kendall's test over 20 blocks. Not evaluated where noise hides more than
        ``seen``. Of a loss that is 0 or less somewhere, any fall beyond noise counts.
    """

    title: ClassVar[str] = "The loss does not fall"
    needs: ClassVar[tuple[Training, ...]] = (Training.LOSS,)

    floor: float = percent(1.0, "fall that counts, of the loss at the start")
    seen: float = percent(5.0, "noise that hides larger falls is too much")

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """Compares the first tenth with the second half."""
        del job
        steps, loss = finite(learning.series(LOSS, TRAINING))
        if len(loss) < MIN_VALUES:
            return self.not_evaluated(few(len(loss), MIN_VALUES, "values of the loss"))
        tenths = np.array_split(loss, 10)
        late = np.concatenate(tenths[5:])
        first, last = median(tenths[0]), median(tenths[-1])
        gain = first - median(late)
        floor = self.floor / 100 if loss.min() > 0 else 0.0
        need = 3 * OF_MEDIAN * noise(loss) * math.sqrt(1 / len(tenths[0]) + 1 / len(late))
        need = max(floor * abs(first), need)
        span = count(int(steps[-1] - steps[0]) + 1, "step")
        details = {"first": first, "last": last, "gain": gain, "needed": need}
        if 0 < gain >= need or _falls_steadily(loss, floor):
            return self.passed(
                f"The loss went from {shown(first)} to {shown(last)} in {span}", details=details
            )
        if need > self.seen / 100 * abs(first) and gain > -need:
            hidden = in_percent(100 * need / first) if floor else shown(need)
            why = f"noise of the loss hides falls of less than {hidden}"
            return self.not_evaluated(Reason(kind=ReasonKind.OTHER, what=why), details=details)
        rises = gain < -need
        title = f"After {span} the loss is {shown(last)} ({shown(first)} in the first tenth of them)"
        return self.found(
            learning,
            self.finding(title, severity=Severity.CRITICAL if rises else Severity.WARNING),
            since_step=int(steps[0]),
            measure=_measure(gain / first, need / first) if floor and first > TINY else None,
            details=details,
        )


def _falls_steadily(loss: FloatArray, floor: float) -> bool:
    """Whether blocks fall more often than chance lets them, and the last ones lie below the first by the floor."""
    blocks = block_medians(loss, _BLOCKS)
    s = kendall(blocks)
    first, last = float(blocks[:5].mean()), float(blocks[-5:].mean())
    return s < 0 and (abs(s) - 1) / _STANDARD_DEVIATION > _Z and first - last >= floor * abs(first)


def _measure(gain: float, need: float) -> Measure:
    return Measure(
        value=round(max(0.0, 100 * gain), 2),
        limits=(round(100 * need, 2),),
        bad="below",
        scale=max(200 * need, 100 * gain),
        unit="% below the loss at the start",
        limit_text=f"a fall of {in_percent(100 * need)} would show",
    )
