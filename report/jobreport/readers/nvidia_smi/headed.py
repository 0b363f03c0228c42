"""Logs in which a line names the columns of the rows under it: ``--query-gpu`` as CSV, ``dmon``, ``pmon``, scripts.

A log is what a tool wrote while somebody's loop ran it: headers come again, error messages stand among the rows, and
the last row may be cut. The names of the columns in front of any header can be given.
"""

from __future__ import annotations

import csv
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.errors import UsageError
from jobreport.readers.nvidia_smi.columns import MASK, columns
from jobreport.readers.nvidia_smi.table import Block, Skipped, Table, Texts
from jobreport.readers.nvidia_smi.times import is_date
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: Names of columns that are read of one line; a log has some dozens.
MAX_COLUMNS = 256
#: Lines of which is remembered whether they name columns: damage may repeat one a million times.
_REMEMBERED = 4096
#: Rows of one table at most, which bounds the memory for their cells.
_ROWS = 1 << 17
#: What may stand between the columns of a line that names them.
_SEPARATORS = ",;\t"
_SEPARATOR = re.compile(f"[{_SEPARATORS}]")
_NUMBER = re.compile(r"[-+]?[0-9.]+")
#: The time as nothing but nvidia-smi writes it.
_TIMESTAMP = re.compile(r"\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}\.\d{3}")
#: How the lines of ``nvidia-smi dmon`` and ``pmon`` begin that name columns and their units.
_MARK = "#"
#: Codes of remarks.
NO_HEADER, _CUT_LINE, _OTHER_FIELDS = (
    "nvidia_smi.no_header",
    "nvidia_smi.cut_line",
    "nvidia_smi.other_fields",
)


class _Header(Struct, frozen=True, kw_only=True):
    """Names of columns, and what separates them: a character, or ``None`` for blanks."""

    names: tuple[str, ...]
    separator: str | None
    #: Whether it is one of ``dmon`` or ``pmon``.
    marked: bool = False

    def row_at(self, lines: Sequence[str], place: int) -> tuple[str, int]:
        """The row that begins with a line, and of how many lines it is; empty if there is none.

        A quoted field may hold a separator, and the end of a line, of which the first line counts.
        """
        if '"' not in lines[place]:
            return self.row(lines[place]), 1
        separator = self.separator or " "
        for end in (place + 2, place + 1):
            reader = csv.reader(
                [f"{line}\n" for line in lines[place:end]], delimiter=separator, skipinitialspace=True
            )
            try:
                fields = [_SEPARATOR.sub(" ", field.partition("\n")[0]) for field in next(reader)]
            except csv.Error:  # a field that is longer than any
                continue
            if row := self.row(separator.join(fields)):
                return row, reader.line_num
        return "", 1

    def row(self, line: str) -> str:
        """The line without a separator at its end; empty unless it has a field for each column."""
        fields = len(self.names)
        if self.separator is None:
            # The last of what pmon writes is a command with blanks.
            return line if len(line.split(None, fields - 1)) == fields else ""
        more = line.count(self.separator) + 1 - fields
        if more == 1 and line.rstrip().endswith(self.separator):
            return line.rstrip()[:-1]
        return "" if more else line

    def table(self, rows: Sequence[str], lines: Sequence[int], line: int) -> Table:
        """The cells of rows, which begin in these lines, under the header in a line."""
        fields = len(self.names)
        if self.separator is None:
            cells = [cell for row in rows for cell in row.split(None, fields - 1)]
        else:
            cells = self.separator.join(rows).split(self.separator)
        return Table(
            names=self.names,
            line=line,
            columns=[Texts.of(cells[i::fields]) for i in range(fields)],
            lines=np.array(lines, np.int64),
            each_second=self.marked,
        )


def column_names(text: str) -> tuple[str, ...]:
    """Names of columns from ``timestamp,index,utilization.gpu``. Raises ``UsageError`` for what names none."""
    header = _header(text)
    if header is None:
        raise UsageError(
            f"--columns {escape_name(text)} names no columns of nvidia-smi; give one name for each column of the log, "
            "such as timestamp,index,utilization.gpu."
        )
    if twice := [name for name in header.names if header.names.count(name) > 1]:
        raise UsageError(
            f"--columns names {escape_name(twice[0])} twice; give each column a name of its own."
        )
    return header.names


def is_log(beginning: str, names: Sequence[str]) -> bool:
    """Whether a line names the columns of such a log, or the first one with several cells is a row.

    A row has a time as nvidia-smi writes it, or a date and a cell for each of ``names``.
    """
    lines = beginning.split("\n")
    header_of = lru_cache(_REMEMBERED)(_header)
    if any(header_of(line) for line in lines if not line[:1].isdigit()):
        return True
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    first = next((row for row in rows if len(row) > 1), [])
    first_as_named = next((row for row in rows if len(row) == len(names)), [])
    return any(map(_TIMESTAMP.fullmatch, first)) or any(map(is_date, first_as_named))


def tables(blocks: Iterable[Block], names: Sequence[str]) -> Iterator[Table | Skipped]:
    """All rows of a log, and what is left out; ``names`` are those of columns in front of any header.

    Rows under one header are one table, or several where they are very many.
    """
    log = _Log(names)
    for block in blocks:
        yield from log.read(block)
    yield from log.rest()


class _Log:
    """A log while it is read."""

    def __init__(self, names: Sequence[str]) -> None:
        #: In front of any header that of the given names; line 0.
        self._header = _Header(names=tuple(names), separator=",")
        self._header_line = 0
        self._header_of = lru_cache(_REMEMBERED)(_header)
        self._rows: list[str] = []
        self._lines: list[int] = []
        self._any_row = False
        #: Lines that the next block continues, and the number of the first.
        self._held: list[str] = []
        self._held_line = 0
        #: By the code of the remark on them.
        self._skipped: dict[str, Skipped] = {}

    def read(self, block: Block) -> Iterator[Table]:
        """The tables that are complete with a block."""
        lines, first = [*self._held, *block.lines], block.line - len(self._held)
        self._held = []
        if block.cut:
            self._skip(_CUT_LINE, first + len(lines) - 1, lines.pop())
        # A quote in the last line may join it to the next.
        elif '"' in lines[-1]:
            yield from self._read(lines, first, len(lines) - 1)
            return
        yield from self._read(lines, first, len(lines))

    def rest(self) -> Iterator[Table | Skipped]:
        """What is left at the end."""
        yield from self._read(self._held, self._held_line, len(self._held))
        if self._rows:
            yield self._table()
        yield from self._skipped.values()

    def _read(self, lines: Sequence[str], first: int, end: int) -> Iterator[Table]:
        """Read lines that begin in front of the one at ``end``; ``first`` is the number of the first of all."""
        place = 0
        while place < end:
            line = lines[place]
            # Rows begin with a time, a number or the name of a GPU; few other lines have to be looked at.
            if not line[:1].isdigit() and (found := self._header_of(line)):
                if self._rows and found != self._header:
                    yield self._table()
                # dmon names its columns every few rows.
                if not self._rows:
                    self._header, self._header_line = found, first + place
                place += 1
            else:
                place += self._row(lines, place, first + place)
                if len(self._rows) == _ROWS:
                    yield self._table()
        self._held, self._held_line = [*lines[place:]], first + place

    def _row(self, lines: Sequence[str], place: int, number: int) -> int:
        """Keep the row that begins with a line, or count it; gives the number of its lines."""
        line = lines[place]
        is_named = self._header_line > 0
        if not line.strip() or (line.startswith(_MARK) and (self._header.marked or not is_named)):
            return 1
        row, of_lines = self._header.row_at(lines, place) if self._header.names else ("", 1)
        if row:
            self._rows.append(row)
            self._lines.append(number)
            self._any_row = True
        else:
            self._skip(_OTHER_FIELDS if is_named or self._any_row else NO_HEADER, number, line)
        return of_lines

    def _table(self) -> Table:
        made = self._header.table(self._rows, self._lines, self._header_line)
        self._rows, self._lines = [], []
        return made

    def _skip(self, code: str, line: int, text: str) -> None:
        known = self._skipped.get(code) or Skipped(code=code, count=0, line=line, text=text)
        self._skipped[code] = replace(known, count=known.count + 1)


def _header(line: str) -> _Header | None:
    """The header that a line is; ``None`` if it is none."""
    marked, plain = line.startswith(_MARK), line.lstrip(_MARK)
    separator: str | None = max(_SEPARATORS, key=line.count)
    if marked and not any(one in line for one in _SEPARATORS):
        separator = None
    names = tuple(name.strip().strip('"') for name in plain.split(separator))
    if not 2 <= len(names) <= MAX_COLUMNS or any(map(_NUMBER.fullmatch, names)):
        return None
    known = [column for column in columns(names) if column]
    if len(known) < 2 or not any(column.metric or column.says == MASK for column in known):
        return None
    return _Header(names=names, separator=separator, marked=marked)
