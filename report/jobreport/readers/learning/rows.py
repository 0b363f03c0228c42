"""Rows of tensors as they are read: in columns, and evenly fewer where they are too many."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from jobrules.model.learning import COUNTS, STATISTICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.learning.lines import Record
    from jobrules.model.types import BoolArray, CodeArray, FloatArray, IntArray

#: Rows of tensors that are kept of a job, and that are put into arrays at once.
MAX_ROWS, _BATCH = 250_000, 1 << 14
#: Exponent of the first bin, and bins.
FIRST_BIN, BINS = -40, 64
COLUMNS = (*COUNTS, *STATISTICS)

Columns: TypeAlias = "dict[str, FloatArray]"


class Rows:
    """Rows of the records of a file: all of them, or those of every second, fourth, … record."""

    def __init__(self, most: int = MAX_ROWS) -> None:
        self._most = most
        self._last: tuple[int, int] | None = None
        self._record, self._stride, self._kept = -1, 1, 0
        self._batch: list[tuple[Record, int]] = []
        self._waiting = 0
        #: (n,) of each batch: number of the record in the file, step, time, and id of the tensor.
        self._whose: list[IntArray] = []
        self._values: list[FloatArray] = []
        self._bins: list[CodeArray] = []
        #: Rows that were left out.
        self.left_out = 0

    def add(self, one: Record) -> None:
        """Keep the rows of a line. Raises ``ValueError`` if its columns differ in length."""
        lengths = {len(column) for name in COLUMNS if (column := getattr(one, name)) is not None}
        histograms = one.hist_first or [], one.hist or []
        lengths |= {len(some) for some in histograms} if any(histograms) else set()
        if lengths - {len(one.id)} or len(one.id) > self._most:
            raise ValueError
        for first, counts in zip(*histograms, strict=True):
            if counts and (first is None or first + len(counts) > FIRST_BIN + BINS):
                raise ValueError
        if self._last != (one.step, one.time_us):
            self._last = one.step, one.time_us
            self._record += 1
        if self._record % self._stride:
            self.left_out += len(one.id)
        elif one.id:
            self._batch.append((one, self._record))
            self._waiting += len(one.id)
        if self._waiting >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        batch, self._batch, self._waiting = self._batch, [], 0
        if not batch:
            return
        sizes = [len(one.id) for one, _ in batch]
        whose = np.array([(record, one.step, one.time_us) for one, record in batch], np.int64)
        ids = np.fromiter(chain.from_iterable(one.id for one, _ in batch), np.int64)
        self._whose.append(np.column_stack([np.repeat(whose, sizes, axis=0), ids]))
        missing = [None] * max(sizes)
        self._values.append(
            np.stack(
                [
                    np.concatenate(
                        [np.array(getattr(one, name) or missing[: len(one.id)], float) for one, _ in batch]
                    )
                    for name in COLUMNS
                ]
            )
        )
        self._bins.append(_bins(batch, len(ids)))
        self._kept += len(ids)
        while self._kept > self._most:
            self._thin()

    def _thin(self) -> None:
        """Leave out the rows of every second record that is kept; of a single record that is too large, the last ones."""
        self._stride *= 2
        whose, values, bins = self.arrays()
        kept: BoolArray = whose[:, 0] % self._stride == 0
        if kept.all():
            kept[self._most :] = False
        self.left_out += int((~kept).sum())
        self._whose, self._values = [whose[kept]], [values[:, kept]]
        self._bins = [bins[kept]] if len(bins) else []
        self._kept = int(kept.sum())

    def finish(self) -> None:
        """Put the last rows into arrays."""
        self._flush()

    def arrays(self) -> tuple[IntArray, FloatArray, CodeArray]:
        """(n, 4) record, step, time, and id; (columns, n) values; (n, 64) bins, no rows if none was recorded."""
        whose = np.concatenate([np.empty((0, 4), np.int64), *self._whose])
        values = np.concatenate([np.empty((len(COLUMNS), 0)), *self._values], axis=1)
        bins = np.concatenate([np.empty((0, BINS), np.int32), *self._bins])
        return whose, values, bins


def _bins(batch: Sequence[tuple[Record, int]], rows: int) -> CodeArray:
    """(n, 64) of all rows."""
    counts = [of_row or [] for one, _ in batch for of_row in one.hist or [None] * len(one.id)]
    firsts = [
        FIRST_BIN if e is None else e for one, _ in batch for e in one.hist_first or [None] * len(one.id)
    ]
    lengths = np.fromiter(map(len, counts), np.int64, rows)
    found = np.zeros((rows, BINS), np.int32)
    ends = np.cumsum(lengths)
    place = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
    row = np.repeat(np.arange(rows), lengths)
    found[row, place + np.repeat(np.array(firsts, np.int64) - FIRST_BIN, lengths)] = np.fromiter(
        chain.from_iterable(counts), np.int32, int(ends[-1])
    )
    return found
