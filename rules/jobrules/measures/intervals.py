"""Unions of time intervals, and how much of other intervals they cover."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import BoolArray, Events, IntArray, Steps

_LONG_AGO = np.iinfo(np.int64).min


class Intervals(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Disjoint intervals ``[start, end)``, ascending; none is empty and no two touch."""

    start_us: IntArray
    end_us: IntArray

    @property
    def total_us(self) -> int:
        """Length of all together."""
        return int((self.end_us - self.start_us).sum())

    def overlap_us(self, start_us: IntArray, end_us: IntArray) -> IntArray:
        """(n,) how much of each given interval lies inside; the given ones may come in any order."""
        return self._before(end_us) - self._before(start_us)

    def shared_us(self, other: Intervals) -> int:
        """How long both hold."""
        few, many = sorted((self, other), key=lambda one: len(one.start_us))
        return int(many.overlap_us(few.start_us, few.end_us).sum())

    def holds(self, time_us: IntArray) -> BoolArray:
        """(n,) which moments lie inside; a start does, an end does not."""
        return np.asarray(time_us < self._ends[self._begun(time_us)])

    def _begun(self, time_us: IntArray) -> IntArray:
        """(n,) how many intervals have begun by each moment."""
        return np.searchsorted(self.start_us, time_us, side="right").astype(np.int64)

    @cached_property
    def _ends(self) -> IntArray:
        """End of the last of the first 0, 1, 2, … intervals."""
        return np.append(_LONG_AGO, self.end_us)

    @cached_property
    def _sums(self) -> IntArray:
        """Length of the first 0, 1, 2, … intervals."""
        return np.append(0, np.cumsum(self.end_us - self.start_us))

    def _before(self, time_us: IntArray) -> IntArray:
        """(n,) how much lies before each moment: all that has begun, without what is still to come."""
        begun = self._begun(time_us)
        last_end = self._ends[begun]
        return np.asarray(self._sums[begun] - np.where(last_end > time_us, last_end - time_us, 0))


def union(start_us: IntArray, end_us: IntArray) -> Intervals:
    """The union of intervals in any order: touching ones become one, empty ones vanish."""
    some = end_us > start_us
    start_us, end_us = start_us[some], end_us[some]
    order = np.argsort(start_us, kind="stable")
    start_us, reach = start_us[order], np.maximum.accumulate(end_us[order])
    separate = start_us[1:] > reach[:-1]
    first, last = np.ones(len(start_us), np.bool_), np.ones(len(start_us), np.bool_)
    first[1:], last[:-1] = separate, separate
    return Intervals(start_us=start_us[first], end_us=reach[last])


def time_of(table: Events | Steps, rows: IntArray) -> Intervals:
    """The time in which any of some events or steps ran."""
    return union(table.start_us[rows], table.end_us[rows])


def joined(several: Sequence[Intervals]) -> Intervals:
    """The union of unions; at least one must be given."""
    if len(several) == 1:
        return several[0]
    return union(
        np.concatenate([one.start_us for one in several]), np.concatenate([one.end_us for one in several])
    )
