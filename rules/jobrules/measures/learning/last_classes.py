"""Labels and predictions of the last evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobrules.measures.learning.robust import few
from jobrules.model.learning import EVALUATION, ClassCounts
from jobrules.model.order import distinct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import IntArray, Reason
    from jobrules.model.learning import Learning

#: Labels of an evaluation that is judged, and of a class whose mistakes are.
MIN_LABELS, MIN_OF_CLASS = 200, 20


def last_classes(learning: Learning) -> ClassCounts | Reason:
    """The last evaluation, or what there is too little of."""
    found = last_evaluation(learning.classes)
    labels = int(found.labels.sum())
    return found if labels >= MIN_LABELS else few(labels, MIN_LABELS, "labels of an evaluation")


def last_evaluation(classes: Sequence[ClassCounts]) -> ClassCounts:
    """All that was counted at the step of the last evaluation, or of anything else without one."""
    rows = [one for one in classes if one.mode == EVALUATION] or list(classes)
    step = max(one.step for one in rows)
    return added([one for one in rows if one.step == step])


def added(rows: Sequence[ClassCounts]) -> ClassCounts:
    """The sum of counts of one step, at least one."""
    size = max(len(one.labels) for one in rows)
    return ClassCounts(
        step=rows[0].step,
        mode=rows[0].mode,
        labels=np.sum([_padded(one.labels, size) for one in rows], axis=0),
        predicted=np.sum([_padded(one.predicted, size) for one in rows], axis=0),
        pairs=_summed(np.concatenate([one.pairs for one in rows]), size),
        complete=all(one.complete for one in rows),
    )


def _padded(counts: IntArray, size: int) -> IntArray:
    return np.append(counts, np.zeros(size - len(counts), np.int64))


def _summed(pairs: IntArray, size: int) -> IntArray:
    """Each pair once, with the sum of its counts."""
    codes = pairs[:, 0] * size + pairs[:, 1]
    known = distinct(codes)
    sums = np.bincount(np.searchsorted(known, codes), weights=pairs[:, 2], minlength=len(known))
    return np.stack([known // size, known % size, sums.astype(np.int64)], axis=1)
