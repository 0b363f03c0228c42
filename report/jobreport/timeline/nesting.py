"""Lanes of a viewer: what overlaps another event of its lane, and does not lie within it, moves to a lane beside it.

The format wants the events of a lane to nest; viewers drop or misdraw others.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jobrules.model import IntArray

#: Events that are numbers of Python at a time, which take five times the memory.
_AT_ONCE = 1 << 16
#: Lanes that are looked at one by one, which is faster for so few.
_FEW = 8


def nested(start_us: IntArray, end_us: IntArray) -> IntArray:
    """(n,) the lane of each event, from 0: the first one whose open events all hold it.

    There are never more lanes than events that are open at one moment.
    """
    order = np.lexsort((-end_us, start_us))
    found = np.zeros(len(order), np.int64)
    #: Of each of the first lanes, the ends of its open events, the innermost one last.
    lanes: list[list[float]] = [[math.inf] for _ in range(_FEW)]
    others = _Lanes()
    for begin in range(0, len(order), _AT_ONCE):
        rows = order[begin : begin + _AT_ONCE]
        for row, start, end in zip(
            rows.tolist(), start_us[rows].tolist(), end_us[rows].tolist(), strict=True
        ):
            for lane, open_us in enumerate(lanes):
                while open_us[-1] <= start:
                    open_us.pop()
                if open_us[-1] >= end:
                    open_us.append(end)
                    found[row] = lane
                    break
            else:
                found[row] = _FEW + others.place(start, end)
    return found


class _Lanes:
    """Any number of lanes; the first one that fits is found in a time that grows with its logarithm."""

    def __init__(self) -> None:
        self._size = 1
        #: Of each lane, the ends of its open events, the innermost one last.
        self._open_us: list[list[float]] = [[math.inf]]
        #: From the place ``size`` on, the last end of each lane; before that, at each place the larger one of the two at
        #: its double.
        self._tree = [math.inf, math.inf]
        #: A heap of the ends of all open events, with the lane of each.
        self._ends: list[tuple[int, int]] = []

    def place(self, start_us: int, end_us: int) -> int:
        """The lane of the next event."""
        while self._ends and self._ends[0][0] <= start_us:
            lane = heappop(self._ends)[1]
            self._open_us[lane].pop()
            self._changed(lane)
        if self._tree[1] < end_us:
            self._double()
        place = 1
        while place < self._size:
            place *= 2
            place += self._tree[place] < end_us
        lane = place - self._size
        heappush(self._ends, (end_us, lane))
        self._open_us[lane].append(end_us)
        self._changed(lane)
        return lane

    def _changed(self, lane: int) -> None:
        place = self._size + lane
        tree, last_us = self._tree, self._open_us[lane][-1]
        tree[place] = last_us
        while place > 1:
            last_us = max(last_us, tree[place ^ 1])
            place //= 2
            if tree[place] == last_us:
                break
            tree[place] = last_us

    def _double(self) -> None:
        self._open_us += [[math.inf] for _ in range(self._size)]
        self._size *= 2
        self._tree = [math.inf] * self._size + [open_us[-1] for open_us in self._open_us]
        for place in reversed(range(1, self._size)):
            self._tree[place] = max(self._tree[2 * place : 2 * place + 2])
