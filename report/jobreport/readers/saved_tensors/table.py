"""Rows of tensors, step by step, and counts of classes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from jobreport.readers.names import as_name
from jobreport.readers.saved_tensors.statistics import BINS
from jobrules.model.learning import COUNTS, STATISTICS, ClassCounts, Tensor, TensorRecords
from jobrules.model.order import distinct

if TYPE_CHECKING:
    from jobreport.readers.saved_tensors.files import Kind
    from jobrules.model import FloatArray, IntArray

#: Rows that are kept, tensors of a model, and pairs of classes; classes.
_MAX_ROWS, _MAX_TENSORS, _MAX_PAIRS, _MAX_CLASSES = 250_000, 20_000, 1000, 200_000
_COLUMNS = (*COUNTS, *STATISTICS)


class _Step(Struct):
    number: int
    step: int
    time_us: int = 0
    #: By place in the tensors: columns and bins.
    rows: dict[int, tuple[FloatArray, IntArray | None]] = field(default_factory=dict)


class Table:
    """The rows of all steps, or of each second, fourth, … one."""

    def __init__(self, stride: int) -> None:
        """Only the steps with numbers that ``stride`` divides have rows."""
        self._stride, self._kept = stride, 0
        self._tensors: dict[tuple[str, str], int] = {}
        self._facts: list[Tensor] = []
        self._steps: list[_Step] = []
        #: Steps without rows.
        self.left_out = 0

    def begin(self, number: int, step: int) -> bool:
        """Begin with the next step, unless it is left out."""
        while self._kept > _MAX_ROWS and len(self._steps) > 1:
            self._stride *= 2
            kept = [one for one in self._steps if one.number % self._stride == 0]
            self.left_out += len(self._steps) - len(kept)
            self._steps, self._kept = kept, sum(len(one.rows) for one in kept)
        if number % self._stride:
            self.left_out += 1
            return False
        self._steps.append(_Step(number, step))
        return True

    def add(
        self,
        kind: Kind,
        shape: tuple[int, ...],
        dtype: str,
        time_us: int,
        row: dict[str, float],
        bins: IntArray | None,
    ) -> bool:
        """Add a row of the last step, unless there are too many tensors."""
        key = str(kind.collection), kind.name
        place = self._tensors.get(key, len(self._facts))
        if place == _MAX_TENSORS or kind.collection is None:
            return False
        if place == len(self._facts):
            name, collection = as_name(kind.name), kind.collection
            one = Tensor(name=name, collection=collection, shape=shape, dtype=dtype, module=kind.module)
            self._facts.append(one)
            self._tensors[key] = place
        last = self._steps[-1]
        last.time_us = time_us
        self._kept += place not in last.rows
        last.rows[place] = np.array([row.get(name, np.nan) for name in _COLUMNS]), bins
        return True

    def has(self, kind: Kind) -> bool:
        """Whether the last step has a row of a tensor."""
        return self._tensors.get((str(kind.collection), kind.name)) in self._steps[-1].rows

    def records(self) -> TensorRecords | None:
        """All rows; None without any."""
        steps = [one for one in self._steps if one.rows]
        if not steps:
            return None
        counts = [len(one.rows) for one in steps]
        places, rows = zip(*(pair for one in steps for pair in sorted(one.rows.items())), strict=True)
        values = np.stack([row for row, _ in rows], axis=1)
        bins = [row_bins for _, row_bins in rows]
        none = np.zeros(BINS, np.int32)
        has_bins = any(one is not None for one in bins)
        return TensorRecords(
            tensors=tuple(self._facts),
            tensor=np.array(places, np.int32),
            step=np.repeat(np.array([one.step for one in steps], np.int64), counts),
            time_us=np.repeat(np.array([one.time_us for one in steps], np.int64), counts),
            bins=np.stack([none if one is None else one.astype(np.int32) for one in bins])
            if has_bins
            else np.empty((0, BINS), np.int32),
            **dict(zip(_COLUMNS, values, strict=True)),
        )


class Counts:
    """Labels and predictions of some batches."""

    def __init__(self) -> None:
        #: By label and prediction, as one number.
        self._pairs: Counter[int] = Counter()
        self.step = 0

    def add(self, step: int, labels: IntArray, predictions: IntArray) -> None:
        """Add a batch; what is no class, such as padding, is left out."""
        known = (np.minimum(labels, predictions) >= 0) & (np.maximum(labels, predictions) < _MAX_CLASSES)
        codes = labels[known] * _MAX_CLASSES + predictions[known]
        kinds = distinct(codes)
        counts = np.bincount(np.searchsorted(kinds, codes))
        self._pairs.update(dict(zip(kinds.tolist(), counts.tolist(), strict=True)))
        self.step = step

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def counted(self, mode: str) -> ClassCounts:
        """All batches together, of which there is one at the least."""
        pairs = np.array(
            [(*divmod(code, _MAX_CLASSES), n) for code, n in self._pairs.most_common()], np.int64
        )
        size = int(pairs[:, :2].max()) + 1
        labels, predicted = (
            np.bincount(pairs[:, axis], weights=pairs[:, 2], minlength=size).astype(np.int64)
            for axis in (0, 1)
        )
        return ClassCounts(
            step=self.step,
            mode=mode,
            labels=labels,
            predicted=predicted,
            pairs=pairs[:_MAX_PAIRS],
            complete=len(pairs) <= _MAX_PAIRS,
        )
