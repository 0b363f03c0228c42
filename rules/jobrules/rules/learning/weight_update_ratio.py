"""WeightUpdateRatio: steps change weights by too little or too much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec.structs import replace

from jobrules.measures.learning.robust import few
from jobrules.model import Note, Reason, ReasonKind
from jobrules.model.learning import LEARNING_RATE, Collection, Training
from jobrules.model.order import median
from jobrules.rule import number as a_number
from jobrules.rules.learning.learning_rule import (
    MIN_RECORDS,
    TensorRule,
    at_steps,
    frozen,
    named,
    of_matrices,
)
from jobrules.rules.learning.tensor_rows import Rows

if TYPE_CHECKING:
    from jobrules.model import BoolArray, Finding, FloatArray, RuleResult
    from jobrules.model.learning import Learning, Scalars, TensorRecords

NO_RATE = Reason(kind=ReasonKind.OTHER, what="the learning rate was 0 all along")
_LOW_RATE = Reason(kind=ReasonKind.OTHER, what="the learning rate was near 0 in all records but the first")
#: Records left out at the beginning; records count from this part of the highest learning rate on.
_SETTLING, _OF_RATE = 5, 0.1
#: Change of weights by a step with which most models learn, as a part of them.
_USUAL = 1e-3
#: A smaller change is none.
_LEAST = 1e-12
_HIGH_ADVICE = ("Lower the learning rate, or warm it up for longer.", "Clip gradients at their usual norm.")


@dataclass(frozen=True, kw_only=True)
class WeightUpdateRatio(TensorRule):
    """Steps change weights by too little or too much.

    What it checks
        The norm of a step's change of a weight matrix over the norm of the matrix: the median below ``low`` for most
        matrices, or above ``high`` for any.

    Why it matters
        Weights that hardly move do not learn; weights that jump forget.

    What to do
        * Raise the learning rate.
        * Check that the optimizer has the parameters, and that the learning rate schedule is right.

    Details
        The first 5 records are left out, and those with less than a tenth of the highest learning rate. Without a recorded
        learning rate the largest change is compared with ``low``: a schedule that ends near 0 makes small changes on
        purpose.
    """

    title: ClassVar[str] = "Steps change weights by too little or too much"
    needs: ClassVar[tuple[Training, ...]] = (Training.UPDATE,)

    low: float = a_number(1e-6, "change by the median step, as a part of a matrix", high=1)
    high: float = a_number(0.1, "the same, above which it is too much")

    def judge_tensors(self, records: TensorRecords, learning: Learning) -> RuleResult:
        """Counts are of matrices."""
        rows = Rows.of(records, Collection.UPDATE, matrices=True)
        rows = rows.where(np.isfinite(rows("ratio")))
        number_of = rows.count()
        if not (number_of >= MIN_RECORDS).any():
            most = int(number_of.max(initial=0))
            return self.not_evaluated(few(most, MIN_RECORDS, "records of weight updates"))
        rate = learning.series(LEARNING_RATE)
        if rate_is_zero(rate):
            return self.not_evaluated(NO_RATE)
        rows = rows.where((rows.earlier >= _SETTLING) & (number_of >= MIN_RECORDS)[rows.tensor])
        rows = rows.where(_trains(rows, rate))
        change = rows.median(rows("ratio"))
        # A schedule that is not known may end near 0, but not all records are of its end.
        upper = change if rate else rows.largest(rows("ratio"))
        whole = int((~np.isnan(change)).sum())
        if not whole:
            return self.not_evaluated(_LOW_RATE)
        low, high = upper < self.low, change > self.high
        findings = [
            *([self._low(rows, change, low, whole)] if 2 * low.sum() > whole else []),
            *([self._high(rows, change, high, whole)] if high.any() else []),
        ]
        typical = median(change[~np.isnan(change)])
        facts: dict[str, Any] = {
            "details": {"change": typical},
            "evaluated": whole,
            "violating": int((low | high).sum()),
            "counted": "weight matrices",
        }
        if findings:
            notes = tuple(map(Note, frozen(records)))
            first, *others = (replace(one, evidence=(*one.evidence, *notes)) for one in findings)
            return self.found(learning, first, *others, **facts)
        changes = f"The median step changes the median weight matrix by {typical:.1g} of its size"
        return self.passed(". ".join([changes, *frozen(records)]), **facts)

    def _low(self, rows: Rows, change: FloatArray, low: BoolArray, whole: int) -> Finding:
        typical = median(change[low])
        rest = (
            f": at this rate they need {float(f'{1 / typical:.1e}'):,.0f} steps to change once; usual is about {_USUAL:g}"
            if typical > _LEAST
            else ""
        )
        return self.finding(
            f"The median step changes {of_matrices(int(low.sum()), whole)} by less than {self.low:g} of their size",
            Note(f"Too little: {named(rows.names(low))}"),
            Note(f"They change by {typical:.1g} of their size a step{rest}"),
        )

    def _high(self, rows: Rows, change: FloatArray, high: BoolArray, whole: int) -> Finding:
        return self.finding(
            f"The median step changes {of_matrices(int(high.sum()), whole)} by more than {self.high:g} of their size",
            Note(f"Too much: {named(rows.names(high))}"),
            Note(f"The most: {np.nanmax(change):.2g} of its size a step"),
            key="large-weight-updates",
            advice=_HIGH_ADVICE,
        )


def rate_is_zero(rate: Scalars | None) -> bool:
    """Whether a known learning rate is 0 all along."""
    return rate is not None and not rate.value.any()


def _trains(rows: Rows, rate: Scalars | None) -> BoolArray:
    """(n,) where the learning rate is not far below its highest; all if it is not known."""
    if rate is None:
        return np.ones(len(rows), dtype=np.bool_)
    kept: BoolArray = at_steps(rate, rows.step) >= _OF_RATE * rate.value.max(where=rate.finite, initial=0)
    return kept
