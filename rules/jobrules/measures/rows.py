"""Rows of large tables, grouped."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jobrules.model import CodeArray, Events, IntArray, Lane, Steps, StepSeries

_K = TypeVar("_K")

#: The mode of training steps.
TRAIN = "TRAIN"


def series_of(steps: Steps) -> dict[StepSeries, IntArray]:
    """Rows of each series of steps, ascending; in natural order of the series."""
    return _rows_by(steps.series, steps.code)


def rows_by_rank(steps: Steps) -> dict[str, IntArray]:
    """Rows of the steps of each rank of one node, ascending; in natural order of the ranks."""
    return _rows_by([rank for _, rank, _ in steps.series], steps.code)


def rows_by_mode(steps: Steps) -> dict[str, IntArray]:
    """Rows of the steps of each mode of one node, ascending."""
    return _rows_by([mode for _, _, mode in steps.series], steps.code)


def rows_by_lane(events: Events, group: Callable[[Lane], _K | None]) -> dict[_K, IntArray]:
    """Rows of the events of each group of lanes, ascending; a lane whose group is None is left out."""
    return _rows_by([group(lane) for lane in events.lanes], events.lane)


def _rows_by(groups: Sequence[_K | None], code: CodeArray) -> dict[_K, IntArray]:
    """Rows of each group that has some; ``code`` is the position of a row in ``groups``."""
    number = {group: i for i, group in enumerate(dict.fromkeys(one for one in groups if one is not None))}
    of_code = np.array([-1 if one is None else number[one] for one in groups], np.int32)
    order, edges = by_code(of_code[code], len(number))
    return {
        group: order[first:stop]
        for group, (first, stop) in zip(number, itertools.pairwise(edges), strict=True)
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
