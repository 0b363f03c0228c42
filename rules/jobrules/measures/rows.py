"""Rows of large tables, grouped by a code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from jobrules.model import CodeArray, IntArray, Steps, StepSeries


def series_of(steps: Steps) -> dict[StepSeries, IntArray]:
    """Rows of each series of steps, ascending; in natural order of the series."""
    order, edges = by_code(steps.code, len(steps.series))
    return {
        one: order[first:stop]
        for one, first, stop in zip(steps.series, edges[:-1], edges[1:], strict=True)
        if stop > first
    }


def narrow(numbers: IntArray | CodeArray) -> npt.NDArray[np.integer[Any]]:
    """The numbers less the smallest, in two bytes each if they fit, which sort much faster."""
    if not len(numbers):
        return numbers
    low, high = int(numbers.min()), int(numbers.max())
    return (numbers - low).astype(np.uint16) if high - low < 1 << 16 else numbers


def by_code(code: IntArray | CodeArray, codes: int) -> tuple[IntArray, list[int]]:
    """Rows sorted by code, ascending within each code, and the (codes + 1,) edges of the codes among them.

    Rows of code -1 come before the first edge.
    """
    order = np.argsort(narrow(code), kind="stable")
    return order, np.searchsorted(code, np.arange(codes + 1), sorter=order).tolist()
