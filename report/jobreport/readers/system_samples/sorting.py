"""Sorting the samples of a device by time."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from jobrules.model import FloatArray, IntArray

#: Times in microseconds and values, in no particular order.
Part: TypeAlias = tuple[IntArray, FloatArray]


class SampleSorter:
    """Sorts the samples of one device at a time.

    Devices that are sampled together have equal times: the order of one is kept for the next, and devices with equal
    times share one array of them.
    """

    def __init__(self) -> None:
        self._times: IntArray = np.empty(0, np.int64)
        self._order: IntArray | None = None
        #: Ascending: all times, and the distinct ones; below, which of all but the first repeat the one before.
        self._times_sorted = self._distinct = self._times
        self._again = np.empty(0, np.bool_)

    def sorted(self, parts: list[Part]) -> tuple[IntArray, FloatArray, int]:
        """Ascending times, their values, and the number of exact repetitions, which are dropped.

        Different values at one time stay, in ascending order.
        """
        self._order_by(np.concatenate([times for times, _ in parts]))
        values = np.concatenate([values for _, values in parts])
        if self._order is None:
            return self._times_sorted, values, 0
        values = values[self._order]
        if not self._again.any():
            return self._times_sorted, values, 0
        repeated = self._again & (values[1:] == values[:-1])
        if np.array_equal(repeated, self._again):
            return self._distinct, values[_but(repeated)], int(np.count_nonzero(repeated))
        values = values[np.lexsort((values, self._times_sorted))]
        repeated = self._again & (values[1:] == values[:-1])
        keep = _but(repeated)
        return self._times_sorted[keep], values[keep], int(np.count_nonzero(repeated))

    def _order_by(self, times: IntArray) -> None:
        if np.array_equal(times, self._times):
            return
        self._times = self._times_sorted = times
        self._order = None
        if (times[1:] <= times[:-1]).any():
            self._order = np.argsort(times, kind="stable")
            self._times_sorted = times[self._order]
            self._again = self._times_sorted[1:] == self._times_sorted[:-1]
            self._distinct = self._times_sorted[_but(self._again)]


def _but(
    repeated: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.concatenate(([True], ~repeated))
