"""Logs in which a line names the columns of the rows under it: ``--query-gpu`` as CSV, ``dmon``, ``pmon``, scripts.

A log is what a tool wrote while somebody's loop ran it: headers come again, dates and error messages stand among the
rows, each line may begin with the name of its writer, and the last row may be cut. The names of the columns in front
of any header can be given.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from functools import partial
from itertools import chain, compress, repeat
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.errors import UsageError
from jobreport.readers.nvidia_smi import columns as says
from jobreport.readers.nvidia_smi.columns import columns, is_header, may_measure
from jobreport.readers.nvidia_smi.prefixes import PREFIXES, Written, by_writer
from jobreport.readers.nvidia_smi.table import Skipped, SkippedLines, Table, Texts, columns_of, shapes_of
from jobreport.readers.nvidia_smi.times import are_dates
from jobreport.readers.nvidia_smi.units import OF_TOOL
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from jobreport.readers.nvidia_smi.table import Block
    from jobrules.model import IntArray

#: Names of columns that are read of one line; a log has some dozens.
MAX_COLUMNS = 256
#: Characters of a line that names columns at most; names in a file that are looked at, and different headers in it that
#: are read: more are damage or malice.
_MAX_HEADER, _MAX_NAMES, _MAX_HEADERS = 1 << 14, 1 << 12, 64
#: What may stand between the columns of a line that names them, besides blanks.
_SEPARATORS = ",;\t"
_SEPARATOR = re.compile(f"[{_SEPARATORS}]")
#: What is in all lines that name columns.
_SEVERAL = re.compile(f"[{_SEPARATORS}#]|[^ ]  ")
#: What no name has.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
#: What stands between the cells of a row of which blanks separate the columns.
_CELL_END = "\n"
#: ``column -t`` puts at least two blanks between columns.
_WIDE = re.compile(r"\s{2,}")
_DIGITS = "0123456789"
#: A cell of a row: a number, which may have a unit, or a date.
_NUMBER = re.compile(rf"[-+]?[0-9.][-+0-9.:/TZ ]*(?:{OF_TOOL})?")
_FRACTION = re.compile(r"(\d\d:\d\d:\d\d),(\d{3}|\d{6}|\d{9})(?!\d)")
#: The time as nothing but nvidia-smi writes it, or a number with one of its units.
_OF_TOOL = re.compile(
    rf"\d{{4}}/\d{{2}}/\d{{2}} \d{{2}}:\d{{2}}:\d{{2}}\.\d{{3}}|\d+(?:\.\d+)? (?:{OF_TOOL})"
)
#: The shape of a part of all times of a day.
_CLOCK = "1:11"
#: What a script draws around a date, and a line that is nothing else or has it at both ends.
_RULE = "-=+*#~_<>[]|: \t"
_BANNER = re.compile(r"\W*|\s*([-=+*#~_])\1.*\1\1\s*")
#: A line with several cells, one of them with a number: a row without a header, and not a prompt or ``sep=,``.
_ROW = re.compile(r"\s*[0-9][^,]*,|.*,\s*[0-9]")
#: A line of one word, and of how many lines in a block these are left out first.
_WORD, _MANY_LINES = re.compile(r"\s*[^\s,;:]*\s*|.{1,2}"), 1 << 18
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
#: Code of the remark on other lines.
_OTHER = "nvidia_smi.other_fields"


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

    def irregular(self, lines: Sequence[str]) -> IntArray:
        """Places of lines that are no rows as they stand."""
        separator, count = self.separator, len(self.names) - 1
        if not isinstance(separator, str) or not self.names:
            return np.arange(len(lines))
        counts = np.fromiter(map(str.count, lines, repeat(separator)), np.int64, len(lines))
        is_odd = counts != count
        for character in ('"', _MARK * self.marked):
            if character and character in "".join(lines):
                is_odd |= np.fromiter((character in line for line in lines), np.bool_, len(lines))
        return np.flatnonzero(is_odd)

    def rows_of(self, lines: Iterable[str]) -> dict[str, str]:
        """The cells of those lines that are rows."""
        if isinstance(self.separator, str):
            # Quotes make cells fewer, never more.
            separator, least = self.separator, len(self.names) - 1
            lines = [
                line
                for line in lines
                if (count := line.count(separator)) >= least and (count <= least + 1 or '"' in line)
            ]
        return {line: row for line in lines if (row := self.row_of(line))}

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
        if _SEPARATOR.search("".join(cells)):
            cells = [_SEPARATOR.sub(" ", cell) for cell in cells]
        return self.row(separator.join(cells))

    def row(self, line: str) -> str:
        """The cells of a line, with ``cell_end`` between them; empty unless it has one for each column."""
        fields = len(self.names)
        if not isinstance(self.separator, str):
            # The last of what pmon writes is a command with blanks; a date has none of its cells.
            plain = "" if _dates_of([line]) else line.strip()
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
    is_dated = bool(are_dates([*chain(*as_named)]).any() or _dates_of(lines))
    return any(map(_OF_TOOL.fullmatch, first)) or bool(as_named and is_dated)


def tables(blocks: Iterable[Block], names: Sequence[str]) -> Iterator[Table | Skipped]:
    """All rows of a log, and what is left out; ``names`` are those of columns in front of any header.

    The rows of one writer under one header are a table for each block.
    """
    skipped = SkippedLines()
    writers = _Writers(names, skipped)
    for block in blocks:
        lines, numbers = block.lines, np.arange(block.line, block.line + len(block.lines))
        if block.cut:
            if lines[-1].strip():
                skipped.add("nvidia_smi.cut_line", lines[-1], int(numbers[-1]))
            lines, numbers = lines[:-1], numbers[:-1]
        if block.line == 1:
            writers.prefix = _prefix_of(lines[:_SHOWN], names)
        if "" in lines:  # nothing but line ends may be all of a large file
            numbers = numbers[[*compress(range(len(lines)), lines)]]
            lines = [*filter(None, lines)]
        if len(lines) > _MANY_LINES:
            lines, numbers = _without_words(lines, numbers, skipped)
        yield from writers.read(lines, numbers)
    yield from skipped.found.values()


def _without_words(lines: list[str], numbers: IntArray, skipped: SkippedLines) -> tuple[list[str], IntArray]:
    """The lines without those of a single word, which are neither rows nor names nor dates: there may be millions."""
    words = {line for line in {*lines} if _WORD.fullmatch(line)}
    if left := {line for line in words if not (line.startswith(_MARK) or _BANNER.fullmatch(line))}:
        skipped.add_all(_OTHER, left, lines, numbers)
    is_other = ~np.fromiter(map(words.__contains__, lines), np.bool_, len(lines))
    return [*compress(lines, is_other.tolist())], numbers[is_other]


class _Writers:
    """Those of a log, by what stands in front of their lines."""

    def __init__(self, names: Sequence[str], skipped: SkippedLines) -> None:
        """``names`` are those of columns in front of any header."""
        self.prefix: re.Pattern[str] | None = None
        self._first = _Header(names=tuple(names), separator=",")
        self._headers, self._skipped = _Headers(), skipped
        self._writers: dict[str, _Writer] = {}
        #: Whether the prefix names machines or several tasks: the number of the only one names no machine.
        self._are_named = False

    def read(self, lines: list[str], numbers: IntArray) -> Iterator[Table]:
        """The rows of some lines with these numbers."""
        if self.prefix is None:
            written = Written(lines=lines, numbers=numbers)
            yield from self._writer("").read(written, self._headers.among(lines))
            return
        texts, times, names = by_writer(lines, self.prefix)
        self._are_named |= "host" in self.prefix.groupindex or len({*names} - {None}) > 1
        known = self._headers.among(texts)
        # There may be a writer for each line; one without any header has no rows.
        headed = {name for name, text in zip(names, texts, strict=True) if self._first.names or text in known}
        headed |= self._writers.keys()
        places: defaultdict[str, list[int]] = defaultdict(list)
        headless: list[int] = []
        for place, name in enumerate(names):
            if name is None:
                if lines[place].strip():
                    self._skipped.add(_OTHER, lines[place], int(numbers[place]))
            elif name in headed:
                places[name].append(place)
            else:
                headless.append(place)
        written = Written(lines=[texts[place] for place in headless], numbers=numbers[headless])
        for place, date in _Writer("", self._first, self._skipped).dates_among(written).items():
            self._writer(names[headless[place]] or "").date = date
        for name, some in places.items():
            written = Written(
                lines=[texts[place] for place in some],
                numbers=numbers[some],
                times=[times[place] for place in some] if "time" in self.prefix.groupindex else [],
            )
            yield from self._writer(name).read(written, known)

    def _writer(self, name: str) -> _Writer:
        if name not in self._writers:
            self._writers[name] = _Writer(name if self._are_named else "", self._first, self._skipped)
        return self._writers[name]


class _Writer:
    """The part of a log that one process wrote, while it is read."""

    def __init__(self, host: str, first: _Header, skipped: SkippedLines) -> None:
        """``first`` is the header in front of any, in line 0."""
        self._host = host
        self._header, self._header_line = first, 0
        self._any_row = False
        #: The last date between the rows.
        self.date = ""
        self._skipped = skipped

    def dates_among(self, written: Written) -> dict[int, str]:
        """The dates among lines without any header, by their places; the others are left out."""
        return self._under(self._header, 0, np.arange(len(written.lines)), written).dates

    def read(self, written: Written, known: Mapping[str, _Header]) -> Iterator[Table]:
        """The rows of some lines, those under equal headers as a table; ``known`` are all headers among them."""
        found = [
            self._under(header, line, places, written) for header, line, places in self._parts(written, known)
        ]
        # A date is that of all rows behind it, under whatever headers.
        date_at = dict(sorted(date for one in found for date in one.dates.items()))
        dates = [self.date, *date_at.values()]
        self.date = dates[-1]
        for one in (one for one in found if one.rows):
            if written.times:
                times = Texts.of([written.times[place] for place in one.places.tolist()])
            else:
                code = np.searchsorted(np.fromiter(date_at, np.int64), one.places)
                times = Texts(partial(lambda code: (dates, code), code))
            numbers = written.numbers[one.places]
            yield one.header.table(one.rows, lines=numbers, line=one.line, times=times, host=self._host)

    def _parts(
        self, written: Written, known: Mapping[str, _Header]
    ) -> Iterator[tuple[_Header, int, IntArray]]:
        """Each header, the number of its line, and the places of all lines under it."""
        lines = written.lines
        places = [place for place, line in enumerate(lines) if line in known] if known else []
        headers = [self._header, *(known[lines[place]] for place in places)]
        number_of: dict[_Header, int] = {}
        first_line: list[int] = []
        line_of = self._header_line
        numbers = []
        for header, place in zip(headers, [-1, *places], strict=True):
            if header != self._header:
                self._header, line_of = header, int(written.numbers[place])
            if header not in number_of:
                number_of[header] = len(first_line)
                first_line.append(line_of)
            numbers.append(number_of[header])
        self._header_line = line_of
        under = np.repeat(numbers, np.diff([0, *places, len(lines)]))
        under[places] = -1
        for header, number in number_of.items():
            yield header, first_line[number], np.flatnonzero(under == number)

    def _under(self, header: _Header, line: int, places: IntArray, written: Written) -> _Under:
        """The rows among the lines under a header, and the dates between them."""
        lines = written.lines
        if len(places) < len(lines):
            lines = [lines[place] for place in places.tolist()]
        odd = header.irregular(lines)
        if not len(odd):
            return self._kept(_Under(header=header, line=line, rows=lines, places=places, dates={}))
        # Damage may repeat a line a million times.
        texts = [*map(lines.__getitem__, odd.tolist())]
        distinct = {*texts}
        rows = header.rows_of(distinct)
        others = distinct - rows.keys()
        dates = _dates_of([*others])
        self._leave_out(header, others - dates.keys(), texts, written.numbers[places[odd]], is_named=line > 0)
        is_row = np.ones(len(lines), np.bool_)
        is_row[odd] = np.fromiter(map(rows.__contains__, texts), np.bool_, len(texts)) if rows else False
        kept = [rows.get(text, text) for text in lines] if rows else lines
        dated = zip(places[odd].tolist(), map(dates.get, texts), strict=True) if dates else ()
        return self._kept(
            _Under(
                header=header,
                line=line,
                rows=[*compress(kept, is_row.tolist())] if is_row.any() else [],
                places=places[is_row],
                dates={place: date for place, date in dated if date},
            )
        )

    def _kept(self, under: _Under) -> _Under:
        self._any_row |= bool(under.rows)
        return under

    def _leave_out(
        self, header: _Header, others: Set[str], texts: Sequence[str], numbers: IntArray, *, is_named: bool
    ) -> None:
        """Count those of some texts that are ``others``, but for what a script or the tool draws."""
        has_comments = header.marked or not is_named
        left = {
            text
            for text in others
            if text[:1].isalnum()
            or not ((has_comments and text.startswith(_MARK)) or _BANNER.fullmatch(text))
        }
        headless = set[str]()
        if not is_named and not self._any_row:
            headless = {text for text in left if _ROW.match(text)}
        for code, which in ((NO_HEADER, headless), (_OTHER, left - headless)):
            if which:
                self._skipped.add_all(code, which, texts, numbers)


class _Under(Struct, frozen=True, kw_only=True, eq=False):
    """The rows under equal headers in some lines."""

    header: _Header
    #: Number of the line of the first header.
    line: int
    rows: list[str]
    #: (n,) place of each among the lines.
    places: IntArray
    #: By their places, the dates between them.
    dates: dict[int, str]


def _dates_of(lines: Sequence[str]) -> dict[str, str]:
    """The date that a line is, with what a script draws around it; of those lines that are one."""
    lines = [line for line in lines if ":" in line]
    shapes = shapes_of(lines)
    if _CLOCK not in "\n".join(shapes):
        return {}
    timed = [line for line, shape in zip(lines, shapes, strict=True) if _CLOCK in shape]
    texts = [line.strip(_RULE) for line in timed]
    return dict(compress(zip(timed, texts, strict=True), are_dates(texts)))


def _prefix_of(lines: Sequence[str], names: Sequence[str]) -> re.Pattern[str] | None:
    """What stands in front of each line: of one with names of columns, or else of given ones, and of a row."""
    for prefix in PREFIXES:
        plain = [line[match.end() :] for line in lines if (match := prefix.match(line))]
        header = _first_header(plain) or _Header(names=tuple(names), separator=",")
        if header.names and any(header.row(line) for line in plain if not _header(line)):
            return prefix
    return None


def _first_header(lines: Sequence[str]) -> _Header | None:
    return next(iter(_Headers().among(lines).values()), None)


class _Headers:
    """The headers of a file; damage may repeat a line a million times, and vary it as often."""

    def __init__(self) -> None:
        #: Whether lines of a shape name columns, and how many names in shapes are still looked at.
        self._known: dict[str, bool] = {}
        self._names = _MAX_NAMES
        self._headers: dict[str, _Header | None] = {}

    def among(self, lines: Sequence[str]) -> dict[str, _Header]:
        """Lines that name columns, in their order; rows begin with a time, a number or the name of a GPU."""
        if {*map(itemgetter(slice(1)), lines)} <= {*_DIGITS}:
            return {}
        distinct = dict.fromkeys(line for line in lines if line[:1] not in _DIGITS)
        others = [line for line in distinct if line.isprintable() or not _CONTROL.search(line)]
        shapes = shapes_of(others)
        named = {
            shape
            for shape in may_measure([*dict.fromkeys(shapes)])
            if shape.lstrip()[:1] not in _DIGITS and _SEVERAL.search(shape) and self._is_header(shape)
        }
        return {
            line: header
            for line, shape in zip(others, shapes, strict=True)
            if shape in named and (header := self._of(line))
        }

    def _is_header(self, shape: str) -> bool:
        if shape not in self._known and self._names > 0 and (header := _fields(shape)):
            self._names -= len(header.names)
            self._known[shape] = is_header(header.names)
        return self._known.get(shape, False)

    def _of(self, line: str) -> _Header | None:
        if line not in self._headers and len(self._headers) < _MAX_HEADERS:
            self._headers[line] = _fields(line)
        return self._headers.get(line)


def _header(line: str) -> _Header | None:
    """The header that a line is; ``None`` if it is none."""
    header = _fields(line)
    return header if header and is_header(header.names) else None


def _fields(line: str) -> _Header | None:
    """The header that a line is, if its fields are names of columns; ``None`` if they are none."""
    if len(line) > _MAX_HEADER:
        return None
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
    return _Header(names=names, separator=separator, marked=marked)
