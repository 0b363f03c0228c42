"""Logs in which a line names the columns of the rows under it: ``--query-gpu`` as CSV, ``dmon``, ``pmon``, scripts.

A log is what a tool wrote while somebody's loop ran it: headers come again, dates and error messages stand among the
rows, each line may begin with the name of its writer, and the last row may be cut. The names of the columns in front
of any header can be given.
"""

from __future__ import annotations

import csv
import re
from functools import lru_cache
from itertools import chain, repeat
from operator import contains, itemgetter
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.errors import UsageError
from jobreport.readers.nvidia_smi import columns as says
from jobreport.readers.nvidia_smi.columns import columns, is_header
from jobreport.readers.nvidia_smi.prefixes import PREFIXES, Written, by_writer
from jobreport.readers.nvidia_smi.table import Skipped, Table, Texts, columns_of
from jobreport.readers.nvidia_smi.times import is_date
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from jobreport.readers.nvidia_smi.table import Block
    from jobrules.model import IntArray

#: Names of columns that are read of one line; a log has some dozens.
MAX_COLUMNS = 256
#: Characters of a line of which is remembered whether it names columns.
_MAX_REMEMBERED = 1 << 14
#: What may stand between the columns of a line that names them, besides blanks.
_SEPARATORS = ",;\t"
_SEPARATOR = re.compile(f"[{_SEPARATORS}]")
#: What stands between the cells of a row of which blanks separate the columns.
_CELL_END = "\n"
#: ``column -t`` puts at least two blanks between columns.
_WIDE = re.compile(r"\s{2,}")
_DIGITS = "0123456789"
_NUMBER = re.compile(r"[-+]?[0-9.]+")
_FRACTION = re.compile(r"(\d\d:\d\d:\d\d),(\d{3}|\d{6}|\d{9})(?!\d)")
#: The time as nothing but nvidia-smi writes it, or a number with one of its units.
_OF_TOOL = re.compile(r"\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}\.\d{3}|\d+(?:\.\d+)? (?:%|MiB|MHz|W)")
#: What a script draws around a date, and a line that is nothing else or has it at both ends.
_RULE = "-=+*#~_<>[]|: \t"
_BANNER = re.compile(r"\W*|\s*([-=+*#~_])\1.*\1\1\s*")
#: A line with several cells, one of them with a number: a row without a header, and not a prompt or ``sep=,``.
_ROW = re.compile(r"\s*[0-9][^,]*,|.*,\s*[0-9]")
#: Lines in which a prefix of all lines is looked for.
_SHOWN = 2000
#: Rows in which a date is looked for: the first may be a header of other names.
_SHOWN_ROWS = 10
#: How the lines of ``nvidia-smi dmon`` and ``pmon`` begin that name columns and their units.
_MARK = "#"
#: Columns that say when a row was written.
_TIMES = {says.TIME, says.EPOCH, says.DATE, says.ELAPSED}
#: Code of the remark on rows without names of columns.
NO_HEADER = "nvidia_smi.no_header"


class _Header(Struct, frozen=True, kw_only=True):
    """Names of columns, and what separates them: a character, or a pattern of blanks."""

    names: tuple[str, ...]
    separator: str | re.Pattern[str] | None
    #: Whether it is one of ``dmon`` or ``pmon``.
    marked: bool = False

    @property
    def cell_end(self) -> str:
        """What stands between the cells of what ``row`` returns."""
        return self.separator if isinstance(self.separator, str) else _CELL_END

    def irregular(self, lines: Sequence[str], begin: int, end: int) -> Iterable[int]:
        """Places of lines that are no rows as they stand."""
        separator, count = self.separator, len(self.names) - 1
        if not isinstance(separator, str) or not self.names:
            return range(begin, end)
        mine = lines[begin:end]
        others = np.fromiter(map(str.count, mine, repeat(separator)), np.int64, len(mine)) != count
        for character in ('"', _MARK * self.marked):
            if character and character in "".join(mine):
                others |= np.fromiter(map(contains, mine, repeat(character)), np.bool_, len(mine))
        return (begin + np.flatnonzero(others)).tolist()

    def row_of(self, line: str) -> str:
        """The cells of a line that may have quotes around them; empty if it is no row."""
        if not self.names or (self.marked and line.startswith(_MARK)):
            return ""
        if '"' not in line:
            return self.row(line)
        separator = self.separator if isinstance(self.separator, str) else " "
        try:
            (cells,) = csv.reader([line], delimiter=separator, skipinitialspace=True)
        except (csv.Error, ValueError):  # a cell that is longer than any, or none
            return ""
        return self.row(separator.join(_SEPARATOR.sub(" ", cell) for cell in cells))

    def row(self, line: str) -> str:
        """The cells of a line, with ``cell_end`` between them; empty unless it has one for each column."""
        fields = len(self.names)
        if not isinstance(self.separator, str):
            # The last of what pmon writes is a command with blanks; a date has none of its cells.
            plain = "" if _date_in(line) else line.strip()
            found = _WIDE.split(plain) if self.separator else plain.split(None, fields - 1)
            return _CELL_END.join(found) if len(found) == fields else ""
        more = line.count(self.separator) + 1 - fields
        if more == 1 and line.rstrip().endswith(self.separator):
            return line.rstrip()[:-1]
        if more == 1 and self.separator == ",":
            # The comma in front of a fraction of a second, as GNU date and Python write it.
            line, fractions = _FRACTION.subn(r"\1.\2", line, count=1)
            more -= fractions
        return "" if more else line

    def table(self, rows: Sequence[str], *, lines: IntArray, line: int, times: Texts, host: str) -> Table:
        """The cells of rows; ``times`` and ``host`` are said of them where they say none themselves."""
        names, cells = self.names, columns_of(rows, self.cell_end, len(self.names))
        known = {column.says for column in columns(names) if column}
        if not known & _TIMES and any(times.distinct):
            names, cells = (*names, says.TIME), [*cells, times]
        if host and says.HOST not in known:
            names, cells = (*names, "hostname"), [*cells, Texts.of([host] * len(rows))]
        return Table(names=names, line=line, columns=cells, lines=lines, each_second=self.marked)


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


def header_names(beginning: str) -> tuple[str, ...]:
    """The names in the first header of a text; none without one."""
    header = _first_header(beginning.split("\n"))
    return header.names if header else ()


def is_log(beginning: str, names: Sequence[str]) -> bool:
    """Whether a line names the columns of such a log, or the first one with several cells is a row.

    A row has a time or a unit as nvidia-smi writes them, or a cell for each of ``names`` and a date, which may be a line
    of its own.
    """
    lines = beginning.split("\n")
    if _first_header(lines) or _prefix_of(lines, names):
        return True
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if "|" not in line]
    first = next((row for row in rows if len(row) > 1), [])
    as_named = [row for row in rows if len(row) == len(names)][:_SHOWN_ROWS]
    is_dated = any(map(is_date, chain(*as_named))) or any(map(_date_in, lines))
    return any(map(_OF_TOOL.fullmatch, first)) or bool(as_named and is_dated)


def tables(blocks: Iterable[Block], names: Sequence[str]) -> Iterator[Table | Skipped]:
    """All rows of a log, and what is left out; ``names`` are those of columns in front of any header.

    The rows of one writer under one header are a table for each block.
    """
    skipped = _SkippedLines()
    writers: dict[str, _Writer] = {}
    prefix, names_writers = None, False
    for block in blocks:
        lines, numbers = block.lines, np.arange(block.line, block.line + len(block.lines))
        if block.cut:
            skipped.add("nvidia_smi.cut_line", int(numbers[-1]), lines[-1])
            lines, numbers = lines[:-1], numbers[:-1]
        if block.line == 1:
            prefix = _prefix_of(lines[:_SHOWN], names)
        if "" in lines:  # nothing but line ends may be all of a large file
            numbers = numbers[np.fromiter(map(bool, lines), np.bool_, len(lines))]
            lines = [*filter(None, lines)]
        parts = {"": Written(lines=lines, numbers=numbers)}
        if prefix:
            parts, others = by_writer(lines, numbers, prefix)
            for place in others:
                skipped.add("nvidia_smi.other_fields", int(numbers[place]), lines[place])
            # The number of the only task names no machine.
            names_writers |= "host" in prefix.groupindex or len(parts) > 1
        for writer, written in parts.items():
            if writer not in writers:
                writers[writer] = _Writer(writer if names_writers else "", names, skipped)
            yield from writers[writer].read(written)
    yield from skipped.found.values()


class _SkippedLines:
    """Lines that are left out, by the code of the remark on them."""

    def __init__(self) -> None:
        self.found: dict[str, Skipped] = {}

    def add(self, code: str, line: int, text: str) -> None:
        if text.strip():
            known = self.found.get(code) or Skipped(code=code, count=0, line=line, text=text)
            self.found[code] = replace(known, count=known.count + 1)


class _Writer:
    """The part of a log that one process wrote, while it is read."""

    def __init__(self, host: str, names: Sequence[str], skipped: _SkippedLines) -> None:
        self._host = host
        #: In front of any header that of the given names, in line 0.
        self._header = _Header(names=tuple(names), separator=",")
        self._header_line = 0
        self._any_row = False
        #: The last date between the rows.
        self._date = ""
        self._skipped = skipped

    def read(self, written: Written) -> Iterator[Table]:
        """The rows of some lines, those under each header as a table."""
        begin, repeated = 0, set[int]()
        for place in _candidates(written.lines):
            header = _header(written.lines[place])
            if header == self._header:
                repeated.add(place)
            elif header:
                yield from self._table(written, begin, place, repeated)
                self._header, self._header_line = header, int(written.numbers[place])
                begin, repeated = place + 1, set()
        yield from self._table(written, begin, len(written.lines), repeated)

    def _table(self, written: Written, begin: int, end: int, headers: Set[int]) -> Iterator[Table]:
        """The rows among some lines, if there are any; ``headers`` are the places of those that name columns."""
        lines, header = written.lines, self._header
        rows: list[str] = []
        places: list[int] = []
        dates = {0: self._date}
        after = begin
        for place in sorted({*header.irregular(lines, begin, end), *headers}):
            rows += lines[after:place]
            places += range(after, place)
            after = place + 1
            if place in headers:
                continue
            if row := header.row_of(lines[place]):
                rows.append(row)
                places.append(place)
            elif date := _date_in(lines[place]):
                dates[len(rows)] = self._date = date
            else:
                self._leave_out(int(written.numbers[place]), lines[place])
        rows += lines[after:end]
        places += range(after, end)
        if rows:
            self._any_row = True
            times = Texts.of([written.times[place] for place in places]) if written.times else None
            yield header.table(
                rows,
                lines=written.numbers[places],
                line=self._header_line,
                times=times or _dates(dates, len(rows)),
                host=self._host,
            )

    def _leave_out(self, number: int, line: str) -> None:
        """Count a line that is no row."""
        is_named = self._header_line > 0
        is_comment = line.startswith(_MARK) and (self._header.marked or not is_named)
        if not is_comment and not _BANNER.fullmatch(line):
            is_row = not is_named and not self._any_row and _ROW.match(line)
            self._skipped.add(NO_HEADER if is_row else "nvidia_smi.other_fields", number, line)


def _dates(dates: Mapping[int, str], rows: int) -> Texts:
    """The date of each row, by the first row that each is in front of."""
    counts = np.diff([*dates, rows])
    return Texts(lambda: ([*dates.values()], np.repeat(np.arange(len(dates)), counts)))


def _date_in(line: str) -> str:
    """The date that a line is, with what a script draws around it; empty if it is none."""
    text = line.strip(_RULE)
    return text if ":" in text and is_date(text) else ""


def _prefix_of(lines: Sequence[str], names: Sequence[str]) -> re.Pattern[str] | None:
    """What stands in front of each line: of one with names of columns, or else of given ones, and of a row."""
    for prefix in PREFIXES:
        plain = [line[match.end() :] for line in lines if (match := prefix.match(line))]
        header = _first_header(plain) or _Header(names=tuple(names), separator=",")
        if header.names and any(header.row(line) for line in plain if not _header(line)):
            return prefix
    return None


def _first_header(lines: Sequence[str]) -> _Header | None:
    return next((header for place in _candidates(lines) if (header := _header(lines[place]))), None)


def _candidates(lines: Sequence[str]) -> list[int]:
    """Places of lines that may name columns: rows begin with a time, a number or the name of a GPU."""
    if {*map(itemgetter(slice(1)), lines)} <= {*_DIGITS}:
        return []
    others = [place for place, line in enumerate(lines) if line[:1] not in _DIGITS]
    return [place for place in others if lines[place].lstrip()[:1] not in _DIGITS]


def _header(line: str) -> _Header | None:
    """The header that a line is; ``None`` if it is none."""
    return (_short_header if len(line) <= _MAX_REMEMBERED else _short_header.__wrapped__)(line)


@lru_cache(1024)  # damage may repeat a line a million times
def _short_header(line: str) -> _Header | None:
    marked, plain = line.startswith(_MARK), line.lstrip(_MARK)
    separator: str | re.Pattern[str] | None
    if any(one in line for one in _SEPARATORS):
        separator = character = max(_SEPARATORS, key=line.count)
        fields = plain.split(character)
    elif marked:
        separator, fields = None, plain.split()
    else:
        separator, fields = _WIDE, _WIDE.split(plain.strip())
    names = tuple(name.strip().strip('"') for name in fields)
    if not 2 <= len(names) <= MAX_COLUMNS or any(map(_NUMBER.fullmatch, names)):
        return None
    if separator is _WIDE and "|" in line:  # the heads of the boxed table
        return None
    if not is_header(names):
        return None
    return _Header(names=names, separator=separator, marked=marked)
