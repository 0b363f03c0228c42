"""Columns of steps, and short numbers, of what the page plots of a training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from jobrules.model import FloatArray, IntArray, Positive

#: Decimal digits of a number in the report.
DIGITS = 4


class StepColumns(Struct, frozen=True, kw_only=True):
    """Columns of equally many steps."""

    start: int
    width: int
    count: Positive

    @classmethod
    def of(cls, steps: IntArray, most: int) -> StepColumns:
        """From the first to the last step, at most so many, and none narrower than the usual distance of steps."""
        known = np.unique(steps)
        start, stop = int(known[0]), int(known[-1]) + 1
        width = max(_usual(np.diff(known)), -(-(stop - start) // most))
        return cls(start=start, width=width, count=-(-(stop - start) // width))

    def column(self, steps: IntArray) -> IntArray:
        """In which column each step is; below 0 or from ``count`` on if in none."""
        return np.asarray((steps - self.start) // self.width, np.int64)


def _usual(gaps: IntArray) -> int:
    """The distance in which at least half of all steps lie; 1 without one."""
    ordered = np.sort(gaps)
    sums = np.cumsum(ordered)
    return int(ordered[np.searchsorted(sums, sums[-1] / 2)]) if len(gaps) else 1


def short(value: float) -> float:
    """A number as the report holds it."""
    return float(f"{value:.{DIGITS}g}")


def quantiles_of(
    keys: IntArray, values: FloatArray, groups: int, parts: Sequence[float]
) -> tuple[IntArray, list[FloatArray]]:
    """How many values each group has, and the quantiles of each, linear between values; NaN without any."""
    order = np.lexsort((values, keys))
    keys, values = keys[order], values[order]
    first = np.searchsorted(keys, np.arange(groups))
    counts = np.searchsorted(keys, np.arange(groups), "right") - first
    there = counts > 0
    found = []
    for part in parts:
        place = part * (counts[there] - 1)
        low, high = np.floor(place).astype(np.int64), np.ceil(place).astype(np.int64)
        below, above = values[first[there] + low], values[first[there] + high]
        one = np.full(groups, np.nan)
        # A difference of the two may be infinite.
        one[there] = below * (1 - (place - low)) + above * (place - low)
        found.append(one)
    return counts.astype(np.int64), found
