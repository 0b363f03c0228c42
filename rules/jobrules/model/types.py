"""Array types, numbers in their bounds, times and the natural order of names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta

IntArray = npt.NDArray[np.int64]

#: Numbers into a short list of names.
CodeArray = npt.NDArray[np.int32]

#: Members of a small enumeration.
MarkArray = npt.NDArray[np.int8]

FloatArray = npt.NDArray[np.float64]

BoolArray = npt.NDArray[np.bool_]

StrArray = npt.NDArray[np.str_]

SECOND_US = 1_000_000

#: Numbers of ``report.json``, which a reader of it checks: no count, time, or number of bytes of a job is larger.
Count = Annotated[int, Meta(ge=0, lt=10**18)]
Positive = Annotated[int, Meta(gt=0, lt=10**18)]
Amount = Annotated[float, Meta(ge=0, lt=1e18)]
#: A share; sums of rounded ones may be a little more than all.
Percent = Annotated[float, Meta(ge=0, le=100.05)]


def _no_ints() -> IntArray:
    return np.empty(0, np.int64)


def _no_codes() -> CodeArray:
    return np.empty(0, np.int32)


def _no_marks() -> MarkArray:
    return np.empty(0, np.int8)


def _no_flags() -> BoolArray:
    return np.empty(0, np.bool_)


def span_of(spans: Iterable[tuple[int, int] | None]) -> tuple[int, int] | None:
    """From the earliest start to the latest end; None without any span."""
    known = [span for span in spans if span]
    return (min(start for start, _ in known), max(end for _, end in known)) if known else None


_DIGITS = re.compile(r"(\d+)")


def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts ``gpu2`` before ``gpu10``; a number of any length is compared as text."""
    parts = (part.lstrip("0") if i % 2 else part for i, part in enumerate(_DIGITS.split(name)))
    return (*((len(part) if i % 2 else 0, part) for i, part in enumerate(parts)), (0, name))


def natural_sorted(names: set[str] | Sequence[str]) -> tuple[str, ...]:
    """Names in natural order."""
    return tuple(sorted(names, key=natural_key))
