"""LowPrecisionUnderflow: parts of the gradients are too small for float16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.learning.robust import few, of_hundred
from jobrules.model import Note, Reason, ReasonKind
from jobrules.model.learning import LOSS_SCALE, Collection, Training
from jobrules.model.order import distinct
from jobrules.rule import percent
from jobrules.rules.learning.learning_rule import MIN_RECORDS, TensorRule, at_steps
from jobrules.rules.learning.tensor_rows import Rows
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from jobrules.model import RuleResult
    from jobrules.model.learning import Learning, TensorRecords

_NOT_FLOAT16 = Reason(kind=ReasonKind.NOT_APPLICABLE, what="gradients were not computed in float16")
_NO_HISTOGRAMS = Reason(kind=ReasonKind.NOT_RECORDED, what="histograms of gradients", verb="were")
_NO_SCALE = Reason(kind=ReasonKind.NOT_RECORDED, what="the loss scale")
#: Exponent of the smallest float16, and of the upper end of the first bin.
_SMALLEST, _FIRST_BIN = -24, -40


@dataclass(frozen=True, kw_only=True)
class LowPrecisionUnderflow(TensorRule):
    """Parts of the gradients are too small for float16.

    What it checks
        The share of the elements of all matrices' gradients, without those that are 0, that times the loss scale are below
        the smallest float16. Triggers if it is above ``share`` in half of the records.

    Why it matters
        Such elements become 0: their weights do not learn.

    What to do
        * Scale the loss, with `torch.amp.GradScaler`.
        * Use bfloat16, which has the range of float32.

    Details
        The smallest float16 is 2 to the power of -24. Counted by the recorded histograms, whose first bin ends at 2 to the
        power of -40: what a loss scale above 65,536 leaves below is not seen.
    """

    title: ClassVar[str] = "Parts of the gradients are too small for float16"
    needs: ClassVar[tuple[Training, ...]] = (Training.GRADIENT,)

    share: float = percent(10.0, "elements of gradients that are too small")

    def judge_tensors(self, records: TensorRecords, learning: Learning) -> RuleResult:
        """Counts are of records."""
        scale = learning.series(LOSS_SCALE)
        if learning.amp != "float16":
            return self.not_evaluated(_NOT_FLOAT16)
        if not len(records.bins):
            return self.not_evaluated(_NO_HISTOGRAMS)
        rows = Rows.of(records, Collection.GRADIENT, matrices=True)
        factor = at_steps(scale, rows.step) if scale else np.zeros(len(rows))
        is_known = np.isfinite(factor) & (factor > 0)
        rows, factor = rows.where(is_known), factor[is_known]
        if not len(rows):
            return self.not_evaluated(_NO_SCALE)
        # Bins that end at or below the smallest float16.
        ends = np.clip(_SMALLEST - _FIRST_BIN + 1 - np.log2(factor), 0, records.bins.shape[1]).astype(
            np.int64
        )
        small = np.zeros(len(rows))
        for end in distinct(ends):
            small[ends == end] = records.bins[rows.places[ends == end], :end].sum(axis=1)
        starts = np.flatnonzero(np.diff(rows.record, prepend=-1))
        elements = np.add.reduceat(records.bins.sum(axis=1)[rows.places], starts)
        parts = 100 * np.add.reduceat(small, starts)[elements > 0] / elements[elements > 0]
        if len(parts) < MIN_RECORDS:
            return self.not_evaluated(few(len(parts), MIN_RECORDS, "records of gradients"))
        # Half of the records are above the share if the upper one in the middle is.
        lost = float(np.sort(parts)[len(parts) // 2])
        facts: dict[str, Any] = {
            "measure": of_hundred(lost, self.share, "% of gradient elements"),
            "details": {"share": lost},
            "evaluated": len(parts),
            "violating": int((parts > self.share).sum()),
            "counted": "records",
        }
        headline = f"{in_percent(lost)} of the gradient elements vanish in float16"
        if lost <= self.share:
            return self.passed(headline, **facts)
        scales = f"Loss scale: {factor.min():,.6g} to {factor.max():,.6g}"
        return self.found(learning, self.finding(headline, Note(scales)), **facts)
