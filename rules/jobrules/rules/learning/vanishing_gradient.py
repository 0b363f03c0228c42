"""VanishingGradient: weight matrices get almost no gradient and do not move."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.learning.robust import few, of_hundred
from jobrules.model import BoolArray, FloatArray, IntArray, Note, Severity
from jobrules.model.learning import Collection, Training
from jobrules.rule import number as a_number
from jobrules.rule import percent
from jobrules.rules.learning.learning_rule import (
    MIN_RECORDS,
    TensorRule,
    frozen,
    named,
    not_recorded,
    of_matrices,
)
from jobrules.rules.learning.tensor_rows import Rows
from jobrules.text import count

if TYPE_CHECKING:
    from jobrules.model import RuleResult
    from jobrules.model.learning import Learning, TensorRecords


@dataclass(frozen=True, kw_only=True)
class VanishingGradient(TensorRule):
    """Weight matrices get almost no gradient and do not move.

    What it checks
        The root mean square of each matrix's gradient. It vanishes where it is 0; or below ``relative`` of the largest
        while the matrix changes by less than ``ratio`` a step.

    Why it matters
        Layers that do not move do not learn.

    What to do
        * Use residual paths, normalization, and ReLU-like units.
        * Check the initialization. Freeze layers that are not meant to learn.

    Details
        Triggers for matrices whose gradient vanishes in at least ``share`` of their records; critical if they are half of
        all matrices. Vectors, such as biases, are not compared: their gradients are of another size. A constant factor of
        the loss changes nothing.
    """

    title: ClassVar[str] = "Weight matrices get almost no gradient and do not move"
    needs: ClassVar[tuple[Training, ...]] = (Training.GRADIENT,)

    relative: float = a_number(1e-4, "gradient, as a part of the largest of all matrices", high=1)
    ratio: float = a_number(1e-6, "change of a matrix by a step, as a part of it", high=1)
    share: float = percent(50.0, "records in which a gradient vanishes")

    def judge_tensors(self, records: TensorRecords, learning: Learning) -> RuleResult:
        """Counts are of matrices."""
        found = self.gradients(records)
        matrices = int((found.records > 0).sum())
        if matrices < 2:
            return self.not_evaluated(few(matrices, 2, "weight matrices with gradients"))
        judged = found.records >= MIN_RECORDS
        if not judged.any():
            return self.not_evaluated(few(int(found.records.max()), MIN_RECORDS, "records of gradients"))
        gone, whole = found.vanishing(self.share), int(judged.sum())
        names = found.rows.names(gone)
        if (
            not names
            and Training.UPDATE not in learning.has
            and found.vanishing(self.share, found.is_small).any()
        ):
            return self.not_evaluated(not_recorded(Training.UPDATE))
        smallest = found.rows.median(found.relative)
        least = int(np.nanargmin(smallest))
        note = f"Smallest: {smallest[least]:.1g} of the largest, {named(found.rows.names(smallest == smallest[least]))}"
        often = float(100 * (found.rows.count(found.is_gone)[judged] / found.records[judged]).max())
        facts: dict[str, Any] = {
            "measure": of_hundred(often, self.share, "% of the records of a matrix"),
            "details": {"vanishing": names},
            "evaluated": whole,
            "violating": len(names),
            "counted": "weight matrices",
        }
        if not names:
            kept = f"No gradient of {count(whole, 'weight matrix', 'weight matrices')} vanishes"
            return self.passed(". ".join([kept, note, *frozen(records)]), **facts)
        finding = self.finding(
            f"{of_matrices(len(names), whole)} get almost no gradient and do not move",
            *map(Note, (f"Vanishing: {named(names)}", note, *frozen(records))),
            severity=Severity.CRITICAL if 2 * len(names) >= whole else Severity.WARNING,
        )
        return self.found(learning, finding, **facts)

    def gradients(self, records: TensorRecords) -> Gradients:
        """Which gradients of matrices vanish."""
        rows = Rows.of(records, Collection.GRADIENT, matrices=True)
        rows = rows.where(np.isfinite(rows("rms")))
        rms = rows("rms")
        largest = np.zeros(len(rows))
        if len(rows):
            starts = np.flatnonzero(np.diff(rows.record, prepend=-1))
            largest = np.repeat(np.maximum.reduceat(rms, starts), np.diff(starts, append=len(rows)))
        is_small = (rms == 0) | (rms < self.relative * largest)
        ratio = rows.joined("ratio", Rows.of(records, Collection.UPDATE))
        return Gradients(
            rows=rows,
            relative=np.divide(rms, largest, out=np.zeros(len(rows)), where=largest > 0),
            is_small=is_small,
            is_gone=is_small & ((rms == 0) | (ratio < self.ratio)),
        )


class Gradients(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Gradients of matrices, a row each by step."""

    rows: Rows
    #: (n,) size, as a part of the largest of the same step.
    relative: FloatArray
    #: (n,) whether the gradient is small, and whether the matrix does not move, either.
    is_small: BoolArray
    is_gone: BoolArray

    @cached_property
    def records(self) -> IntArray:
        """(tensors,) records of each matrix."""
        return self.rows.count()

    def vanishing(self, share: float, kind: BoolArray | None = None) -> BoolArray:
        """(tensors,) matrices with enough records, at least this share of which are gone, or of another kind."""
        hits = self.rows.count(self.is_gone if kind is None else kind)
        return (self.records >= MIN_RECORDS) & (100 * hits >= share * self.records)
