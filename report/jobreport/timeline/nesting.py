"""Lanes of a viewer: what overlaps another event of its lane, and does not lie within it, moves to a lane beside it.

The format wants the events of a lane to nest; viewers drop or misdraw others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jobrules.model import IntArray

#: Events that are numbers of Python at a time, which take five times the memory.
_AT_ONCE = 1 << 16


def nested(start_us: IntArray, end_us: IntArray) -> IntArray:
    """(n,) the lane of each event, from 0: the first one whose open events all hold it.

    There are never more lanes than events that are open at one moment.
    """
    order = np.lexsort((-end_us, start_us))
    found = np.zeros(len(order), np.int64)
    #: Of each lane, the ends of its open events, the innermost one last.
    lanes: list[list[int]] = [[]]
    for begin in range(0, len(order), _AT_ONCE):
        rows = order[begin : begin + _AT_ONCE]
        for row, start, end in zip(
            rows.tolist(), start_us[rows].tolist(), end_us[rows].tolist(), strict=True
        ):
            lane = 0
            while True:
                open_us = lanes[lane]
                while open_us and open_us[-1] <= start:
                    open_us.pop()
                if not open_us or open_us[-1] >= end:
                    break
                lane += 1
                if lane == len(lanes):
                    lanes.append([])
            open_us.append(end)
            found[row] = lane
    return found
