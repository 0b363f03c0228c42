"""The text of an nvidia-smi log as tables: the lines that name columns, and the rows under them.

A log is what a tool wrote while somebody's loop ran it: headers come again, error messages stand among the rows, and
the last row may be cut.
"""

from __future__ import annotations

import codecs
import re
from collections import defaultdict
from functools import cache, lru_cache
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.errors import UsageError
from jobreport.readers.nvidia_smi.columns import MASK, columns
from jobreport.readers.nvidia_smi.times import is_date
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import IntArray

#: Names of columns that are read of one line; a log has some dozens.
MAX_COLUMNS = 256
#: Lines of which is remembered whether they name columns: damage may repeat one a million times.
_REMEMBERED = 4096
#: Rows of one table at most, which bounds the memory for their cells.
_ROWS = 1 << 17
#: A field in quotes, which may hold the separator and the end of a line; a longer one is damage.
_QUOTED = re.compile(r'"([^"]{0,200})"')
_BREAK = re.compile(r"[,;\t\n]")
#: What may stand between the columns of a line that names them.
_SEPARATORS = ",;\t"
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
_ENCODINGS = (
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)


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


class Table(Struct, frozen=True, kw_only=True, eq=False):
    """Rows under one header; at least one."""

    #: Names of the columns as written.
    names: tuple[str, ...]
    #: Number of the header's line, from 1; 0 for names that were given.
    line: int
    #: One for each name, all of the same length.
    columns: list[Texts]
    #: Whether the header is one of ``dmon`` or ``pmon``.
    marked: bool


class Skipped(Struct, frozen=True, kw_only=True):
    """Lines that are neither rows nor headers."""

    #: Code of the remark on them.
    code: str
    count: int
    #: Number of the first, from 1, and its text.
    line: int
    text: str


class _Header(Struct, frozen=True, kw_only=True):
    """Names of columns, and what separates them: a character, or ``None`` for blanks."""

    names: tuple[str, ...]
    separator: str | None
    #: As ``Table.marked``.
    marked: bool = False

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

    def table(self, rows: Sequence[str], line: int) -> Table:
        """The cells of rows under the header in a line."""
        fields = len(self.names)
        if self.separator is None:
            cells = [cell for row in rows for cell in row.split(None, fields - 1)]
        else:
            cells = self.separator.join(rows).split(self.separator)
        return Table(
            names=self.names,
            line=line,
            columns=[Texts.of(cells[i::fields]) for i in range(fields)],
            marked=self.marked,
        )


def decoded(data: bytes) -> str:
    """The text, with a mark in place of what is none, and one kind of line end."""
    mark, encoding = next(((m, e) for m, e in _ENCODINGS if data.startswith(m)), (b"", "utf-8"))
    text = data[len(mark) :].decode(encoding, "replace").replace("\0", "").lstrip("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _unquoted(text) if '"' in text else text


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


def is_log(text: str, names: Sequence[str] = ()) -> bool:
    """Whether a line names the columns of such a log, or the first one with several cells is a row.

    A row has a time as nvidia-smi writes it, or a date and a cell for each of ``names``.
    """
    lines = text.split("\n")
    header_of = lru_cache(_REMEMBERED)(_header)
    if any(header_of(line) for line in lines if not line[:1].isdigit()):
        return True
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    first = next((row for row in rows if len(row) > 1), [])
    first_as_named = next((row for row in rows if len(row) == len(names)), [])
    return any(map(_TIMESTAMP.fullmatch, first)) or any(map(is_date, first_as_named))


def tables(text: str, names: Sequence[str] = ()) -> Iterator[Table | Skipped]:
    """All rows of a log, and what is left out; ``names`` are those of columns in front of any header.

    Rows under one header are one table, or several where they are very many; those of ``dmon`` and ``pmon``, which
    may have no times, stay together.
    """
    lines = text.split("\n")
    if (cut := lines.pop()).strip():
        yield Skipped(code=_CUT_LINE, count=1, line=len(lines) + 1, text=cut)
    header_of = lru_cache(_REMEMBERED)(_header)
    given = _Header(names=tuple(names), separator=",")
    header = given if names and any(map(given.row, lines)) else None
    header_line = 0
    rows: list[str] = []
    skipped: defaultdict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        # Rows begin with a time, a number or the name of a GPU; few other lines have to be looked at.
        if not line[:1].isdigit() and (found := header_of(line)):
            if header and rows and found != header:
                yield header.table(rows, header_line)
                rows = []
            # dmon names its columns every few rows.
            if not rows:
                header, header_line = found, number
        elif line.startswith(_MARK) and (header is None or header.marked):
            continue
        elif header and (row := header.row(line)):
            rows.append(row)
            if len(rows) == _ROWS and not header.marked:
                yield header.table(rows, header_line)
                rows = []
        else:
            skipped[_OTHER_FIELDS if header else NO_HEADER].append(number)
    if header and rows:
        yield header.table(rows, header_line)
    for code, numbers in skipped.items():
        first = numbers[0]
        yield Skipped(code=code, count=len(numbers), line=first, text=lines[first - 1])


def _unquoted(text: str) -> str:
    """Fields without quotes, of several lines the first.

    Lines are joined only to one with as many fields as another that has no break in quotes: a quote too many costs no
    row.
    """

    @cache
    def whole() -> set[int]:
        """How many separators lines have that are sound as they are."""
        return {len(_BREAK.findall(line)) for line in text.split("\n") if line.count('"') % 2 == 0} - {0}

    def plain(match: re.Match[str]) -> str:
        first, broken, _ = match[1].strip(" ").partition("\n")
        if broken:
            line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
            # To the end of the line, or of the text.
            line += text[match.end() : text.find("\n", match.end()) % (len(text) + 1)]
            if len(_BREAK.findall(line)) not in whole() or _BREAK.search(match[1].replace("\n", "")):
                return match[0]
        return _BREAK.sub(" ", first)

    return _QUOTED.sub(plain, text)


def _header(line: str) -> _Header | None:
    """The header that a line is; ``None`` if it is none."""
    marked, plain = line.startswith(_MARK), line.lstrip(_MARK)
    separator: str | None = max(_SEPARATORS, key=line.count)
    if marked and not any(one in line for one in _SEPARATORS):
        separator = None
    names = tuple(name.strip() for name in plain.split(separator))
    if not 2 <= len(names) <= MAX_COLUMNS or any(map(_NUMBER.fullmatch, names)):
        return None
    known = [column for column in columns(names) if column]
    if len(known) < 2 or not any(column.metric or column.says == MASK for column in known):
        return None
    return _Header(names=names, separator=separator, marked=marked)
