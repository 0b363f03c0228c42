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
    """Disjoint intervals ``[start, end)`` of one unit, ascending; none is empty and no two touch."""

    start: IntArray
    end: IntArray

    @property
    def total(self) -> int:
        """Length of all together."""
        return int((self.end - self.start).sum())

    def overlap(self, start: IntArray, end: IntArray) -> IntArray:
        """(n,) how much of each given interval lies inside; the given ones may come in any order."""
        return self._before(end) - self._before(start)

    def shared(self, other: Intervals) -> int:
        """How long both hold."""
        few, many = sorted((self, other), key=lambda one: len(one.start))
        return int(many.overlap(few.start, few.end).sum())

    def holds(self, time: IntArray) -> BoolArray:
        """(n,) which moments lie inside; a start does, an end does not."""
        return np.asarray(time < self._ends[self._begun(time)])

    def _begun(self, time: IntArray) -> IntArray:
        """(n,) how many intervals have begun by each moment."""
        return np.searchsorted(self.start, time, side="right").astype(np.int64)

    @cached_property
    def _ends(self) -> IntArray:
        """End of the last of the first 0, 1, 2, … intervals."""
        return np.append(_LONG_AGO, self.end)

    @cached_property
    def _sums(self) -> IntArray:
        """Length of the first 0, 1, 2, … intervals."""
        return np.append(0, np.cumsum(self.end - self.start))

    def _before(self, time: IntArray) -> IntArray:
        """(n,) how much lies before each moment: all that has begun, without what is still to come."""
        begun = self._begun(time)
        last_end = self._ends[begun]
        return np.asarray(self._sums[begun] - np.where(last_end > time, last_end - time, 0))


def union(start: IntArray, end: IntArray) -> Intervals:
    """The union of intervals in any order: touching ones become one, empty ones vanish."""
    some = end > start
    start, end = start[some], end[some]
    if len(start) < 2:
        return Intervals(start=start, end=end)
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    separate = start[1:] > reach[:-1]
    first, last = np.ones(len(start), np.bool_), np.ones(len(start), np.bool_)
    first[1:], last[:-1] = separate, separate
    return Intervals(start=start[first], end=reach[last])


def within(start: IntArray, end: IntArray, first: int, last: int) -> Intervals:
    """The union of intervals in any order, as far as they lie between two moments."""
    # ``clip`` takes ten times as long for few.
    start, end = (np.minimum(np.maximum(edge, first), last) for edge in (start, end))
    return union(start, end)


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """The time in which both hold."""
    few = min(one, other, key=lambda some: len(some.start))
    return _where_cut(one, other, inside=True) if len(few.start) else few


def difference(one: Intervals, other: Intervals) -> Intervals:
    """The time in which ``one`` holds and ``other`` does not."""
    return _where_cut(one, other, inside=False) if len(one.start) and len(other.start) else one


def _where_cut(one: Intervals, other: Intervals, *, inside: bool) -> Intervals:
    cuts = np.sort(np.concatenate([one.start, one.end, other.start, other.end]))
    begin, end = cuts[:-1], cuts[1:]
    kept = one.holds(begin) & (other.holds(begin) == inside)
    return union(begin[kept], end[kept])


def time_of(table: Events | Steps, rows: IntArray) -> Intervals:
    """The time in which any of some events or steps ran."""
    return union(table.start_us[rows], table.end_us[rows])


def joined(several: Sequence[Intervals]) -> Intervals:
    """The union of unions; at least one must be given."""
    several = [one for one in several if len(one.start)] or several[:1]
    if len(several) == 1:
        return several[0]
    return union(np.concatenate([one.start for one in several]), np.concatenate([one.end for one in several]))


def outside(found: Intervals, start: int, end: int) -> Intervals:
    """The time from start to end that lies in none of the intervals."""
    return within(np.append(start, found.end), np.append(found.start, end), start, end)
