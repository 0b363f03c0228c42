"""The rows of samples that the two ways of reading their files have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jobrules.job import FloatArray

#: Stands for a value that is missing or no number; NaN cannot, because a file may hold that itself.
ABSENT = -1.7976931348623157e308
#: Lines that are longer are skipped where DuckDB does not take them; its own limit is 16 MiB or a little more.
LONGEST_LINE = 16_000_000


class Rows(NamedTuple):
    """All rows of one sensor in one file, in no particular order; a tuple, because there are many."""

    #: Number of the file.
    file: int
    node: str | None
    #: None in the rows that stand for lines that are no JSON object.
    type: str | None
    dimension: str | None
    name: str | None
    #: Seconds since the epoch; NaN where missing or no number.
    seconds: FloatArray
    #: NaN and infinity are what the file says; ``ABSENT`` where missing or no number.
    values: FloatArray
