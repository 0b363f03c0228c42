"""Rows of tensors of one collection: counts and medians of each tensor, and where the same tensor stands in another one."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from jobrules.model import BoolArray, CodeArray, FloatArray, IntArray
    from jobrules.model.learning import Collection, TensorRecords


class Rows(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Some rows of the records, in their order: by step."""

    records: TensorRecords
    #: (n,) places in the records.
    places: IntArray

    @classmethod
    def of(cls, records: TensorRecords, collection: Collection, *, matrices: bool = False) -> Rows:
        """The rows of the tensors of a collection that are not frozen, or of matrices alone; empty shards do not count."""
        chosen = [
            one.collection is collection and one.trainable and (one.is_matrix or not matrices)
            for one in records.tensors
        ]
        is_chosen = np.array(chosen, dtype=np.bool_)[records.tensor]
        return cls(records=records, places=np.flatnonzero(is_chosen & (records.count != 0)))

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def tensor(self) -> CodeArray:
        """(n,) place in the tensors of the records."""
        return self.records.tensor[self.places]

    @cached_property
    def step(self) -> IntArray:
        """(n,) ascending."""
        return self.records.step[self.places]

    @cached_property
    def record(self) -> IntArray:
        """(n,) the number of the step among all that were recorded."""
        step = self.records.step
        return np.cumsum(np.concatenate([[False], step[1:] != step[:-1]])[: len(step)])[self.places]

    def where(self, kept: BoolArray) -> Rows:
        """Some of these rows."""
        return Rows(records=self.records, places=self.places[kept])

    def names(self, kept: BoolArray) -> tuple[str, ...]:
        """Names of some of the tensors of the records, in forward order."""
        return tuple(self.records.tensors[code].name for code in np.flatnonzero(kept))

    def __call__(self, column: str) -> FloatArray:
        """(n,) a column of the records."""
        found: FloatArray = getattr(self.records, column)[self.places]
        return found

    def count(self, kept: BoolArray | None = None) -> IntArray:
        """(tensors,) rows of each tensor, or those of them that are kept."""
        codes = self.tensor if kept is None else self.tensor[kept]
        return np.bincount(codes, minlength=len(self.records.tensors))

    @cached_property
    def earlier(self) -> IntArray:
        """(n,) how many rows of the same tensor come before a row."""
        order = np.argsort(self.tensor, kind="stable")
        ordered, found = self.tensor[order], np.empty(len(self), np.int64)
        found[order] = np.arange(len(self)) - np.searchsorted(ordered, ordered)
        return found

    def median(self, values: FloatArray, *, upper: bool = False) -> FloatArray:
        """(tensors,) of the values of each tensor that are not NaN, of two in the middle the upper one if so wished; NaN
        without any."""
        known = self.where(~np.isnan(values))
        values, number = values[~np.isnan(values)], known.count()
        ordered = values[np.lexsort((values, known.tensor))]
        start, has = np.cumsum(number) - number, number > 0
        high = ordered[(start + number // 2)[has]]
        low = high if upper else ordered[(start + (number - 1) // 2)[has]]
        found = np.full(len(number), np.nan)
        found[has] = (low + high) / 2
        return found

    def largest(self, values: FloatArray) -> FloatArray:
        """(tensors,) of the values of each tensor, which are none NaN; NaN without any."""
        found = np.full(len(self.records.tensors), np.nan)
        np.fmax.at(found, self.tensor, values)
        return found

    def joined(self, column: str, other: Rows) -> FloatArray:
        """(n,) a column of the other rows, of the same step and the tensor of the same name; NaN without one."""
        codes: dict[str, int] = {}
        of_name = np.array([codes.setdefault(one.name, len(codes)) for one in self.records.tensors])
        own, others = (rows.record * len(codes) + of_name[rows.tensor] for rows in (self, other))
        order = np.argsort(others)
        found = np.append(other(column)[order], np.nan)
        place = np.searchsorted(others[order], own)
        same = np.append(others[order], -1)[place] == own
        return np.where(same, found[place], np.nan)
