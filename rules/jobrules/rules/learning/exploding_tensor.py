"""ExplodingTensor: the loss, a gradient, or a weight is not a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.model import HowMuch, Note, Reason, ReasonKind, Severity
from jobrules.model.learning import LOSS, Collection
from jobrules.model.order import distinct
from jobrules.rule import percent
from jobrules.rules.learning.learning_rule import LearningRule, named
from jobrules.rules.learning.tensor_rows import Rows
from jobrules.text import capitalized, count, number, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import IntArray, Job, RuleResult
    from jobrules.model.learning import Learning

_NOTHING = Reason(kind=ReasonKind.NOT_RECORDED, what="the loss, gradients, and weights", verb="were")
#: Tensors that count, a gradient before the weight that it changes; and events without a change.
_KINDS, _SKIPPED = (Collection.GRADIENT, Collection.PARAMETER), ("overflow", "skipped")
#: Steps in which a loss scale settles, and skipped steps in a row that it may need then; of fewer steps after that, one is no share.
_SETTLING, _IN_A_ROW, _FEWEST = 1000, 10, 100
_SKIPPED_ADVICE = (
    "Lower the learning rate, or use bfloat16, which needs no loss scale.",
    "Look for operations that leave the range of float16, such as large sums and exponentials.",
)


@dataclass(frozen=True, kw_only=True)
class ExplodingTensor(LearningRule):
    """The loss, a gradient, or a weight is not a number.

    What it checks
        NaN and infinity in the loss, gradients, and weights. Also more than ``skipped`` of skipped steps, or 10
        in a row.

    Why it matters
        A weight that is NaN stays NaN: the job learns nothing more.

    What to do
        * Stop at the first NaN, and look at the batch of that step.
        * Clip gradients, lower the learning rate, or use bfloat16.

    Details
        Gradients of steps that a loss scaler skipped do not count: they change no weight. Outputs of modules do not
        count either, as masks are infinite on purpose. `torch.autograd.set_detect_anomaly` names the operator, but is
        slow.
    """

    title: ClassVar[str] = "The loss, a gradient, or a weight is not a number"

    skipped: float = percent(1.0, "steps skipped for overflow, of those after the first 1,000")

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """Counts are of steps with a loss, or with a record of gradients or weights."""
        del job
        skipped = distinct(np.array([one.step for one in learning.events if one.name in _SKIPPED], np.int64))
        main = learning.series(LOSS)
        losses = [one for one in learning.scalars if main and (one.name, one.mode) == (LOSS, main.mode)]
        rows = [Rows.of(learning.tensors, kind) for kind in _KINDS] if learning.tensors else []
        rows = [one.where(~np.isin(one.step, skipped)) for one in rows[:1]] + rows[1:]
        of_loss = [(one.step, ~one.finite) for one in losses]
        of_rows = [(one.step, one("nan") + one("inf") > 0) for one in rows]
        every = distinct(np.concatenate([skipped[:0], *(step for step, _ in (*of_loss, *of_rows))]))
        wrong = distinct(np.concatenate([skipped[:0], *(step[bad] for step, bad in (*of_loss, *of_rows))]))
        if not len(every):
            return self.not_evaluated(_NOTHING)
        known = {"evaluated": len(every), "violating": len(wrong), "counted": "steps"}
        if not len(wrong):
            return self._finite(learning, skipped, known)
        # What is wrong at the end has been so since the last step without.
        fine = every[~np.isin(every, wrong)]
        lasting = wrong[wrong > fine[-1]] if len(fine) else wrong
        since = int(lasting[0]) if len(lasting) else None
        is_loss = any(bad.any() for _, bad in of_loss)
        state = f"{'the loss was' if is_loss else 'gradients or weights were'} NaN or infinite"
        if since is None:
            title = f"{capitalized(state)} in {number(len(wrong))} of {count(len(every), 'step')}, first in step {number(wrong[0])}"
        else:
            part = (every[-1] - since + 1) / (every[-1] - every[0] + 1)
            title = f"From step {number(since)} on {state}: {share(part)} of the steps"
        finding = self.finding(title, Note(_origin(rows)), severity=Severity.CRITICAL)
        return self.found(learning, finding, since_step=since, **known)

    def _finite(self, learning: Learning, skipped: IntArray, known: dict[str, Any]) -> RuleResult:
        """The result without NaN and infinity: of skipped steps alone."""
        steps = [learning.first_step or 0, learning.last_step, *skipped.tolist()]
        first, end = min(steps), max(steps) + 1
        part = int((skipped >= _SETTLING).sum()) / max(_FEWEST, end - max(_SETTLING, first))
        ends = np.flatnonzero(np.diff(skipped) > 1) + 1
        row = int(np.diff(ends, prepend=0, append=len(skipped)).max())
        if 100 * part <= self.skipped and row <= _IN_A_ROW:
            what = "losses, gradients, and weights" if learning.tensors else "losses"
            also = f"; {count(len(skipped), 'step')} skipped for overflow" if len(skipped) else ""
            return self.passed(
                f"All recorded {what} are finite ({count(known['evaluated'], 'step')}){also}", **known
            )
        finding = self.finding(
            f"{count(len(skipped), 'step')} skipped for overflow, up to {number(row)} in a row",
            HowMuch("Of the steps after the first 1,000", 100 * part, "%"),
            key="skipped-steps",
            advice=_SKIPPED_ADVICE,
        )
        counts = {"evaluated": end - first, "violating": len(skipped)}
        return self.found(learning, finding, **known | counts)


def _origin(rows: Sequence[Rows]) -> str:
    """Which gradients or weights were the first with NaN or infinity, as a clause."""
    if not any(map(len, rows)):
        return "Gradients and weights were not recorded"
    seen = [wrong for one in rows if len(wrong := one.where(one("nan") + one("inf") > 0))]
    if not seen:
        return "No recorded gradient or weight has it"
    first = min(seen, key=lambda one: one.step[0])
    names = first.names(first.count(first.step == first.step[0]) > 0)
    kind = first.records.tensors[first.tensor[0]].collection
    return f"First seen in the {kind} of {named(names)}, recorded at step {number(first.step[0])}"
