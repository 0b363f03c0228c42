"""UnchangedTensor: weights get gradients, but never move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.learning.robust import few
from jobrules.model import Note, Severity
from jobrules.model.learning import LEARNING_RATE, Collection, Training
from jobrules.rules.learning.learning_rule import MIN_RECORDS, TensorRule, frozen, named
from jobrules.rules.learning.tensor_rows import Rows
from jobrules.rules.learning.vanishing_gradient import VanishingGradient
from jobrules.rules.learning.weight_update_ratio import NO_RATE, rate_is_zero
from jobrules.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Finding, RuleResult
    from jobrules.model.learning import Learning, TensorRecords

_FORGOTTEN_ADVICE = (
    "Add them to a parameter group of the optimizer.",
    "Set `requires_grad=False` if they are not meant to learn.",
)
_FORGOTTEN = "outside all parameter groups of the optimizer got gradients"
_ZERO = "had only zeros at the end, or never got a gradient"
_ZERO_ADVICE = ("Check that the branch is used in the forward pass, and that nothing masks it.",)


@dataclass(frozen=True, kw_only=True)
class UnchangedTensor(TensorRule):
    """Weights get gradients, but never move.

    What it checks
        Weights that no recorded step changed, though they got gradients. Also matrices that are 0 at the end, and
        gradients that are always 0.

    Why it matters
        The rest of the model hides that they never learn.

    What to do
        * Check that the optimizer has these weights, and their learning rate.
        * Keep float32 copies of weights if rounding loses the updates.

    Details
        Needs 10 records in which the gradient is not 0. What is 0 is info. Frozen weights are listed, not judged.
    """

    title: ClassVar[str] = "Weights get gradients, but never move"
    needs: ClassVar[tuple[Training, ...]] = (Training.GRADIENT, Training.UPDATE)

    def judge_tensors(self, records: TensorRecords, learning: Learning) -> RuleResult:
        """Counts are of parameters."""
        if rate_is_zero(learning.series(LEARNING_RATE)):
            return self.not_evaluated(NO_RATE)
        gradients, updates = Rows.of(records, Collection.GRADIENT), Rows.of(records, Collection.UPDATE)
        size = gradients("rms")
        flowing, known = gradients.count(size > 0), gradients.count(~np.isnan(size))
        if not (known >= MIN_RECORDS).any():
            most = int(known.max(initial=0))
            return self.not_evaluated(few(most, MIN_RECORDS, "records of gradients"))
        still = (updates("ratio") == 0) | (updates("l2") == 0)
        unmoved = {*updates.names((updates.count() > 0) & (updates.count(still) == updates.count()))}
        unchanged = [name for name in gradients.names(flowing >= MIN_RECORDS) if name in unmoved]
        outside = {one.name for one in records.tensors if not one.optimized}
        forgotten = [name for name in unchanged if name in outside]
        lost = [name for name in unchanged if name not in outside]
        without = gradients.names((known >= MIN_RECORDS) & (flowing == 0))
        zero = list(dict.fromkeys([*_zero(records), *without]))
        vanishing = VanishingGradient()
        of_matrices = vanishing.gradients(records)
        vanished = {*map(_layer, of_matrices.rows.names(of_matrices.vanishing(vanishing.share)))}

        def told(names: Sequence[str], what: str, **facts: Any) -> list[Finding]:
            """One finding on these weights, if there are any; part of VanishingGradient's if they are of its layers."""
            if not names:
                return []
            reasons = (vanishing.key,) if vanished.issuperset(map(_layer, names)) else ()
            title = f"{count(len(names), 'parameter')} {what}: {named(names)}"
            return [self.finding(title, *map(Note, frozen(records)), because_of=reasons, **facts)]

        findings = [
            *told(forgotten, _FORGOTTEN, key="not-in-optimizer", advice=_FORGOTTEN_ADVICE),
            *told(lost, "got gradients, but never moved"),
            *told(zero, _ZERO, key="always-zero", severity=Severity.INFO, advice=_ZERO_ADVICE),
        ]
        whole = len({*gradients.names(known >= MIN_RECORDS), *zero})
        facts: dict[str, Any] = {
            "details": {"not_in_optimizer": forgotten, "unchanged": lost, "zero": zero},
            "evaluated": whole,
            "violating": len({*unchanged, *zero}),
            "counted": "parameters",
        }
        if findings:
            return self.found(learning, *findings, **facts)
        moved = f"All {count(whole, 'parameter')} with gradients moved"
        return self.passed(". ".join([moved, *frozen(records)]), **facts)


def _layer(name: str) -> str:
    """What a weight is part of, as its bias is."""
    return name.rpartition(".")[0] or name


def _zero(records: TensorRecords) -> tuple[str, ...]:
    """Weight matrices that are 0 in their last record, if that is after step 0."""
    rows = Rows.of(records, Collection.PARAMETER, matrices=True)
    last = rows.where(rows.earlier == rows.count()[rows.tensor] - 1)
    return last.names(last.count((last("zero") == last("count")) & (last.step > 0)) > 0)
