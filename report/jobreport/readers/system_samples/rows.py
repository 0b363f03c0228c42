"""The rows of samples that the two ways of reading their files have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jobrules.model import FloatArray


class Rows(NamedTuple):
    """Samples of one sensor in one file, in no particular order; a tuple, because there are many."""

    #: Number of the file.
    file: int
    node: str | None
    type: str
    dimension: str | None
    name: str | None
    #: Seconds since the epoch, between 1990 and 2100.
    seconds: FloatArray
    #: Finite.
    values: FloatArray
