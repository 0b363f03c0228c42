"""What a form of log gives to the reader: tables of cells, and lines that are left out.

A form is a module with the two functions of ``Form``; it turns the lines of a file, as they come, into tables whose
columns have names that ``columns`` knows. Which GPU a row is of, when it was written, and what was measured is the same
for all. Nothing holds the text of a file.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jobrules.model import IntArray


class Block(Struct, frozen=True, kw_only=True):
    """Consecutive lines of a file."""

    #: Number of the first, from 1.
    line: int
    #: Without their ends.
    lines: list[str]
    #: Whether the last of them lacks its end, so that its last value may be cut.
    cut: bool = False


class Texts(Struct, frozen=True, kw_only=True, eq=False):
    """The cells of a column; most texts come many times."""

    #: Each text once.
    distinct: list[str]
    #: (n,) position of each cell's text among them.
    code: IntArray

    @classmethod
    def of(cls, cells: Sequence[str]) -> Texts:
        """From the cells."""
        place: defaultdict[str, int] = defaultdict(count().__next__)
        code = np.fromiter(map(place.__getitem__, cells), np.int64, len(cells))
        return cls(distinct=list(place), code=code)


def columns_of(rows: Sequence[str], cell_end: str, count: int) -> list[Texts]:
    """The cells of rows by column; ``cell_end`` stands between the cells of a row, of which there are ``count``."""
    cells = cell_end.join(rows).split(cell_end)
    return [Texts.of(cells[place::count]) for place in range(count)]


class Table(Struct, frozen=True, kw_only=True, eq=False):
    """Rows with the same columns; at least one."""

    #: Names of the columns as written.
    names: tuple[str, ...]
    #: Number of the line that has the names, from 1; 0 for names that were given.
    line: int
    #: One for each name, all of the same length.
    columns: list[Texts]
    #: (n,) number of the line of each row, from 1.
    lines: IntArray
    #: Whether rows without times are a second apart.
    each_second: bool = False


class Skipped(Struct, frozen=True, kw_only=True):
    """Lines that are neither rows nor headers."""

    #: Code of the remark on them.
    code: str
    count: int
    #: Number of the first, from 1, and its text.
    line: int
    text: str


class Form(Protocol):
    """One form of log."""

    def is_log(self, beginning: str, names: Sequence[str]) -> bool:
        """Whether the beginning of a text is of this form; ``names`` are those of ``--columns``."""

    def tables(self, blocks: Iterable[Block], names: Sequence[str]) -> Iterator[Table | Skipped]:
        """All rows of a text of this form, as they come, and what is left out."""
