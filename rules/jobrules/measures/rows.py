"""Rows of large tables that have something in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from jobrules.model import CodeArray, IntArray, Steps, StepSeries


def series_of(steps: Steps) -> dict[StepSeries, IntArray]:
    """The rows of each node, worker and phase, ascending; in natural order of these names."""
    order, edges = by_code(steps.code, len(steps.series))
    return {
        one: order[first:stop]
        for one, first, stop in zip(steps.series, edges[:-1], edges[1:], strict=True)
        if stop > first
    }


def narrow(numbers: IntArray | CodeArray) -> npt.NDArray[np.integer[Any]]:
    """Numbers in the same order that take two bytes each, where that holds them: they are sorted much faster."""
    if not len(numbers):
        return numbers
    low, high = int(numbers.min()), int(numbers.max())
    return (numbers - low).astype(np.uint16) if high - low < 1 << 16 else numbers


def by_code(code: IntArray | CodeArray, codes: int) -> tuple[IntArray, list[int]]:
    """Rows by their code, ascending within it, and where those of each of the codes begin and the last ends.

    Rows of code -1 come before the first.
    """
    order = np.argsort(narrow(code), kind="stable")
    return order, np.searchsorted(code, np.arange(codes + 1), sorter=order).tolist()
