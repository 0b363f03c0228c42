"""Rows of large tables that have something in common."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from jobrules.job import natural_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobrules.job import CodeArray, IntArray, Steps, StrArray

_S = TypeVar("_S")
_T = TypeVar("_T")


def grouped(*columns: StrArray) -> dict[tuple[str, ...], IntArray]:
    """Rows with the same names in all columns, ascending; the names in natural order."""
    # Searching is three times as fast as asking ``unique`` for the inverse, which sorts indices of text.
    codes = [np.searchsorted(np.unique(column), column) for column in columns]
    order = np.lexsort(codes)
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = np.any([np.diff(code[order]) != 0 for code in codes], axis=0)
    parts = np.split(order, np.flatnonzero(fresh)[1:]) if len(order) else []
    found = {tuple(str(column[rows[0]]) for column in columns): rows for rows in parts}
    return dict(sorted(found.items(), key=lambda item: [natural_key(name) for name in item[0]]))


def once(of: Callable[[_S], _T]) -> Callable[[_S], _T]:
    """A function that remembers its answer for each thing it is asked of, as long as that lives."""
    known: WeakKeyDictionary[_S, _T] = WeakKeyDictionary()

    @wraps(of)
    def asked(one: _S) -> _T:
        if one not in known:
            known[one] = of(one)
        return known[one]

    return asked


@once
def series_of(steps: Steps) -> dict[tuple[str, ...], IntArray]:
    """The rows of each node, worker and phase, ascending; in natural order of these names.

    To sort a million names takes a while, and many ask.
    """
    return grouped(steps.node, steps.worker, steps.phase)


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
