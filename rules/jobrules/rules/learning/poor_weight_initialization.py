"""PoorWeightInitialization: weights begin with values that are hard to train."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.learning.robust import shown
from jobrules.model import Note, Reason, ReasonKind, Severity
from jobrules.model.learning import LOSS, Collection
from jobrules.rule import number as a_number
from jobrules.rules.learning.learning_rule import LearningRule, fold, named, of_matrices
from jobrules.rules.learning.tensor_rows import Rows
from jobrules.rules.learning.vanishing_gradient import VanishingGradient
from jobrules.text import join_names, number

if TYPE_CHECKING:
    from jobrules.model import Job, RuleResult
    from jobrules.model.learning import Learning, TensorRecords

_LATE = Reason(kind=ReasonKind.NOT_RECORDED, what="the first step")
#: Steps of which the first is one, and records in which what is 0 at first may begin to move, as adapters do.
_FIRST, _BEGINNING = 1, 10
#: Smallest gradient of a matrix, as a part of the largest.
_GRADIENT = 1e-5
#: Modules of one kind that are compared.
_MODULES = 3
#: Standard deviations below this part of the root mean square are lost in the rounding of the records.
_ROUNDED = 0.02


@dataclass(frozen=True, kw_only=True)
class PoorWeightInitialization(LearningRule):
    """Weights begin with values that are hard to train.

    What it checks
        At the first step: matrices of one value, a loss above ``loss_factor`` times that of guessing a class, inputs of
        activations that differ more than ``spread`` between modules, and gradients that differ 100,000-fold.

    Why it matters
        Such a start costs steps, or the model never learns.

    What to do
        * Use the framework's initialization for the activation.
        * Scale residual branches, and check the scale of the inputs.

    Details
        Matrices of one value, or two of the four, are critical. Of activations, the standard deviations of the inputs of
        at least 3 modules of one kind are compared; of gradients, the root mean squares of matrices. A matrix of 0, or a
        gradient, counts if it stays so in the first 10 records: adapters such as LoRA begin at 0 on purpose. A job that
        resumes is not evaluated.
    """

    title: ClassVar[str] = "Weights begin with values that are hard to train"

    loss_factor: float = a_number(2.0, "first loss, as a multiple of that of guessing", unit="times", low=1)
    spread: float = a_number(
        1000.0, "inputs of activations, the largest over the smallest", unit="times", low=1
    )

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """Counts are of the four checks."""
        del job
        records = learning.tensors
        if records is None or not len(records) or records.step[0] > _FIRST:
            records = None
        checks = {
            "weights": _symmetric(records) if records else None,
            "the loss": self._loss(learning),
            "activations": self._activations(records) if records else None,
            "gradients": _gradients(records) if records else None,
        }
        judged = {name: found for name, found in checks.items() if found is not None}
        if not judged:
            return self.not_evaluated(_LATE)
        problems = [found for found in judged.values() if found]
        facts: dict[str, Any] = {
            "evaluated": len(judged),
            "violating": len(problems),
            "counted": "checks of the first step",
        }
        if not problems:
            return self.passed(f"Nothing unusual at the first step in {join_names([*judged])}", **facts)
        is_grave = len(problems) > 1 or bool(checks["weights"])
        missing = [name for name, found in checks.items() if found is None]
        finding = self.finding(
            f"At the first step {'; '.join(problems)}",
            *([Note(f"Not checked: {join_names(missing)}")] if missing else []),
            severity=Severity.CRITICAL if is_grave else Severity.WARNING,
        )
        return self.found(learning, finding, **facts)

    def _loss(self, learning: Learning) -> str | None:
        loss, classes = learning.series(LOSS), learning.class_count or 0
        if not loss or loss.step[0] > _FIRST or not loss.finite[0] or classes < 2:
            return None
        first, guess = float(loss.value[0]), math.log(classes)
        if first <= self.loss_factor * guess:
            return ""
        return f"the loss was {shown(first)}, where guessing among {number(classes)} classes gives {shown(guess)}"

    def _activations(self, records: TensorRecords) -> str | None:
        rows = Rows.of(records, Collection.PREACTIVATION)
        rows = rows.where((rows.earlier == 0) & (rows.step <= _FIRST))
        # The range bounds what rounding hides.
        std = rows("std")
        spread = np.where(std > _ROUNDED * rows("rms"), std, (rows("max") - rows("min")) / 2)
        kinds: dict[str, list[float]] = {}
        for code, one in zip(rows.tensor, spread, strict=True):
            if np.isfinite(one):
                kinds.setdefault(records.tensors[code].module, []).append(float(one))
        ends = {kind: (min(found), max(found)) for kind, found in kinds.items() if len(found) >= _MODULES}
        if not ends:
            return None
        kind, (low, high) = max(
            ends.items(), key=lambda one: one[1][1] / one[1][0] if one[1][0] else math.inf
        )
        if low == 0:
            return f"the inputs of some {named([kind])} modules did not vary"
        if high <= self.spread * low:
            return ""
        return f"the spread of inputs differed {fold(high / low)} between {named([kind])} modules"


def _symmetric(records: TensorRecords) -> str | None:
    """On matrices of one value; scales of norms have one on purpose, and what is 0 may begin to move."""
    rows = Rows.of(records, Collection.PARAMETER, matrices=True)
    mixes = [sum(size > 1 for size in one.shape) > 1 and "Norm" not in one.module for one in records.tensors]
    known = (
        np.array(mixes, dtype=np.bool_)[rows.tensor] & (rows.earlier < _BEGINNING) & np.isfinite(rows("max"))
    )
    rows = rows.where(known)
    begins = (rows.earlier == 0) & (rows.step <= _FIRST)
    if not begins.any():
        return None
    is_flat, is_zero = rows("min") == rows("max"), rows("zero") == rows("count")
    stays = rows.count(is_zero) == rows.count()
    flat = rows.count(begins & is_flat & (~is_zero | stays[rows.tensor])) > 0
    if not flat.any():
        return ""
    of = of_matrices(int(flat.sum()), int(begins.sum()))
    return f"{of} had one value everywhere: {named(rows.names(flat))}"


def _gradients(records: TensorRecords) -> str | None:
    """On gradients that differ by too much in each of the first records."""
    found = VanishingGradient().gradients(records)
    rows = found.rows
    begins = rows.count((rows.earlier == 0) & (rows.step <= _FIRST)) > 0
    if begins.sum() < 2:
        return None
    # Also of what is not 0 at the first step alone.
    early = rows.earlier < _BEGINNING
    weak = begins & (rows.where(early).largest(found.relative[early]) < _GRADIENT)
    if not weak.any():
        return ""
    of = of_matrices(int(weak.sum()), int(begins.sum()))
    return f"{of} had less than {_GRADIENT:g} of the largest gradient: {named(rows.names(weak))}"
