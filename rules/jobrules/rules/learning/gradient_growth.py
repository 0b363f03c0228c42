"""GradientGrowth: the gradient norm grows, or jumps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.learning.robust import few
from jobrules.model import Measure, Note, Severity
from jobrules.model.learning import GRADIENT_NORM, Collection, Training
from jobrules.model.order import median, quantiles
from jobrules.rule import number as a_number
from jobrules.rules.learning.learning_rule import LearningRule, fold, not_recorded
from jobrules.rules.learning.tensor_rows import Rows
from jobrules.text import number, times

if TYPE_CHECKING:
    from jobrules.model import FloatArray, IntArray, Job, RuleResult
    from jobrules.model.learning import Learning

#: Values that are needed, that are left out at the beginning, and with which a value is compared.
_NEEDED, _SETTLING, _BEFORE = 40, 10, 20
#: From so many jumps on they are a warning.
_MANY = 3
#: Jumps whose steps the title names.
_MAX_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class GradientGrowth(LearningRule):
    """The gradient norm grows, or jumps.

    What it checks
        The median norm of all gradients in the last quarter of training against that in the first, and each norm against
        the median of the 20 before it.

    Why it matters
        Growing gradients come before a loss that is NaN.

    What to do
        * Clip gradients at their usual norm.
        * Lower the learning rate, or warm it up for longer.

    Details
        The norm is the one that was logged, otherwise that of the recorded gradients. The first 10 values are left out of
        the quarters. Growth of more than ``growth`` times is a warning. Jumps of more than ``jump`` times are info, three
        of them a warning; successive values are one jump. Values that are not finite belong to ExplodingTensor.
    """

    title: ClassVar[str] = "The gradient norm grows, or jumps"

    growth: float = a_number(100.0, "growth from the first to the last quarter", unit="times", low=1)
    jump: float = a_number(100.0, "a norm, as a multiple of those before", unit="times", low=1)

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """Counts are of norms."""
        del job
        step, norm = _norms(learning)
        if not len(norm):
            return self.not_evaluated(not_recorded(Training.GRADIENT))
        known = np.isfinite(norm)
        step, norm = step[known], norm[known]
        if len(norm) < _NEEDED:
            return self.not_evaluated(few(len(norm), _NEEDED, "gradient norms"))
        later = norm[_SETTLING:]
        quarter = len(later) // 4
        first, last = median(later[:quarter]), median(later[-quarter:])
        growth = last / first if first else 0.0
        before = np.lib.stride_tricks.sliding_window_view(norm[:-1], _BEFORE)
        # Few values are that much above the lowest before them; medians of all take much memory.
        above = np.flatnonzero(norm[_BEFORE:] > self.jump * before.min(axis=1))
        usual = quantiles(before[above], (0.5,))[:, 0]
        jumped = above[(norm[above + _BEFORE] > self.jump * usual) & (usual > 0)] + _BEFORE
        jumps = step[jumped[np.diff(jumped, prepend=-1) > 1]]
        facts: dict[str, Any] = {
            "measure": Measure(
                value=round(growth, 2),
                limits=(self.growth,),
                bad="above",
                scale=max(2 * self.growth, growth),
                unit="times",
                limit_text=f"threshold {self.growth:g} times",
            ),
            "details": {"growth": growth, "jumps": len(jumps)},
            "evaluated": len(norm),
            "violating": len(jumped),
            "counted": "gradient norms",
        }
        at = [number(one) for one in jumps[:_MAX_NAMED]] + ["…"] * (len(jumps) > _MAX_NAMED)
        steps = f"{'step' if len(jumps) == 1 else 'steps'} {', '.join(at)}"
        jumping = f"jumped above {self.jump:g} times its usual size {times(len(jumps))} ({steps})"
        ends = f"{first:.3g} in the first quarter, {last:.3g} in the last"
        if growth > self.growth:
            span = f"between steps {number(step[_SETTLING])} and {number(step[-1])}"
            title, severity = f"The gradient norm grew {fold(growth)} {span}", Severity.WARNING
        elif len(jumps):
            title = f"The gradient norm {jumping}"
            severity = Severity.WARNING if len(jumps) >= _MANY else Severity.INFO
        else:
            return self.passed(f"The median gradient norm is {ends}, without a jump", **facts)
        notes = [f"Median norm: {ends}", *([f"It {jumping}"] if len(jumps) and jumping not in title else [])]
        return self.found(learning, self.finding(title, *map(Note, notes), severity=severity), **facts)


def _norms(learning: Learning) -> tuple[IntArray, FloatArray]:
    """Steps and norms of all gradients together: as logged, or else as recorded by all ranks."""
    if logged := learning.series(GRADIENT_NORM):
        return logged.step, logged.value
    if learning.tensors is None:
        return np.empty(0, np.int64), np.empty(0)
    rows = Rows.of(learning.tensors, Collection.GRADIENT)
    starts = np.flatnonzero(np.diff(rows.record, prepend=-1))
    squares = np.add.reduceat(rows("l2") ** 2, starts) if len(rows) else np.empty(0)
    return rows.step[starts], np.sqrt(squares)
