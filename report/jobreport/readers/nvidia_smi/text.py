"""The text of an nvidia-smi log as tables: where columns are named, and which lines are rows.

A log is what a tool wrote while somebody's loop ran it: headers come again, error messages stand among the rows, and
the last row may be half there.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections import Counter
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

from jobreport.readers.nvidia_smi.columns import MASK, columns
from jobreport.readers.nvidia_smi.guess import guessed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Set

    from jobrules.model import IntArray

#: Names of columns, and what separates them; none for blanks.
Header: TypeAlias = "tuple[tuple[str, ...], str | None]"
#: Names of columns that are read of one line; a log has some dozens.
MOST_COLUMNS = 256
#: Rows that tell what the columns are where no line does.
_LOOKED_AT = 1000
#: Lines of which is remembered whether they name columns: damage may repeat one a million times.
_REMEMBERED = 4096
#: Rows that are taken apart together.
_TOGETHER = 1 << 17
#: So few rows are taken apart without pandas, which takes a millisecond to begin.
_FEW = 256
#: A field in quotes, which may hold the separator and the end of a line; a longer one is damage.
_QUOTED = re.compile(r'"([^"]{0,200})"')
_BREAK = re.compile(r"[,;\t\n]")
#: What may stand between the columns of a line that names them.
SEPARATORS = ",;\t"
_NUMBER = re.compile(r"[-+]?[0-9.]+")
#: How the lines of ``nvidia-smi dmon`` and ``pmon`` begin that name columns and their units.
_MARK = "#"
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
        place = {text: i for i, text in enumerate(dict.fromkeys(cells))}
        return cls(
            distinct=list(place), code=np.fromiter(map(place.__getitem__, cells), np.int64, len(cells))
        )


class Table(Struct, frozen=True, kw_only=True, eq=False):
    """Rows under one header; at least one."""

    #: Names of the columns as written.
    names: tuple[str, ...]
    #: Number of the header's line, from 1; 0 where there is none and the rows tell what they are (``smi_guess``).
    line: int
    #: One for each name, all of the same length.
    columns: list[Texts]
    #: Whether the header is one of ``dmon`` or ``pmon``.
    marked: bool


class Left(Struct, frozen=True, kw_only=True):
    """Lines that are neither rows nor headers."""

    reason: str
    count: int
    #: Number of the first, from 1.
    line: int


NO_HEADER = "in front of any line that names columns"
OTHER = "not as many fields as columns: a message, or a damaged row"
CUT = "the last line has no end: it may be half of a row"


def decoded(data: bytes) -> str:
    """The text, with a mark in place of what is none, and one kind of line end."""
    mark, encoding = next(((m, e) for m, e in _ENCODINGS if data.startswith(m)), (b"", "utf-8"))
    text = data[len(mark) :].decode(encoding, "replace").replace("\0", "").lstrip("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _unquoted(text) if '"' in text else text


def is_log(text: str) -> bool:
    """Whether any line names the columns of such a log, or the first rows tell what they are."""
    lines = text.split("\n")
    named = lru_cache(_REMEMBERED)(_named)
    return any(named(line) for line in lines if not line[:1].isdigit()) or _guessed(lines) is not None


def header_of(text: str) -> Header | None:
    """The first line that names columns, unless it is one of ``dmon`` or ``pmon``, which name them every few rows."""
    lines = (line for line in text.split("\n") if not line[:1].isdigit() and not line.startswith(_MARK))
    return next(filter(None, map(lru_cache(_REMEMBERED)(_named), lines)), None)


def tables(text: str, headers: Set[Header] = frozenset()) -> Iterator[Table | Left]:
    """All rows of a log, and what is left out.

    Rows in front of any header have the one of ``headers`` with as many columns, if only one has.

    Rows under one header are one table, or several where they are very many; those of ``dmon`` and ``pmon``, which
    may tell no times, stay together.
    """
    lines = text.split("\n")
    if lines.pop().strip():
        yield Left(reason=CUT, count=1, line=len(lines) + 1)
    # Rows begin with a time, a number or the name of a GPU; few other lines have to be looked at.
    named = lru_cache(_REMEMBERED)(_named)
    heads = {i: header for i, line in enumerate(lines) if not line[:1].isdigit() and (header := named(line))}
    places = [*heads, len(lines)]
    if header := _borrowed(lines[: places[0]], headers) or _guessed(lines[: places[0]]):
        heads[-1] = header
        places.insert(0, -1)
    else:
        # What dmon says of the units of its columns stands in front of some rows.
        note = _MARK if heads and lines[places[0]].startswith(_MARK) else "\n"
        early = [i for i in range(places[0]) if lines[i].strip() and not lines[i].startswith(note)]
        yield from _left(NO_HEADER, early)
    held: list[str] = []
    for head, stop in itertools.pairwise(places):
        names, separator = heads[head]
        marked = head >= 0 and lines[head].startswith(_MARK)
        # dmon names its columns every few rows.
        again = stop < len(lines) and heads[stop][0] == names
        odd: list[int] = []
        for i in range(head + 1, stop):
            if row := _row(lines[i], separator, len(names)):
                held.append(row)
            elif lines[i].strip() and not (marked and lines[i].startswith(_MARK)):
                odd.append(i)
            if len(held) == _TOGETHER and not marked:
                yield Table(
                    names=names, line=head + 1, columns=_columns(held, separator, len(names)), marked=marked
                )
                held = []
        if held and not again:
            yield Table(
                names=names, line=head + 1, columns=_columns(held, separator, len(names)), marked=marked
            )
            held = []
        yield from _left(OTHER, odd)


def _usual(lines: Sequence[str], separator: str | None) -> list[list[str]]:
    """The cells of the first rows, of those with the commonest number of them."""
    rows = [line.split(separator) for line in lines[:_LOOKED_AT]]
    fields, _ = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
    return [row for row in rows if len(row) == fields > 1]


def _borrowed(lines: Sequence[str], headers: Set[Header]) -> Header | None:
    """The header that fits rows without one; none if several do."""
    fields = {
        separator: len(rows[0]) if (rows := _usual(lines, separator)) else 0
        for separator in {separator for _, separator in headers}
    }
    fitting = [(names, separator) for names, separator in headers if len(names) == fields[separator]]
    return fitting[0] if len(fitting) == 1 else None


def _guessed(lines: Sequence[str]) -> Header | None:
    """Names for the columns of rows without a header, from the first of them."""
    rows = _usual(lines, SEPARATORS[0])
    names = guessed(rows) if rows else None
    return (names, SEPARATORS[0]) if names else None


def _left(reason: str, lines: Sequence[int]) -> Iterator[Left]:
    if lines:
        yield Left(reason=reason, count=len(lines), line=lines[0] + 1)


def _row(line: str, separator: str | None, fields: int) -> str:
    """The line if it has so many fields, else nothing."""
    if separator is None:
        # The last of what pmon writes is a command with blanks.
        return line if not line.startswith(_MARK) and len(line.split(None, fields - 1)) == fields else ""
    more = line.count(separator) - fields + 1
    if more == 1 and line.rstrip().endswith(separator):
        return line.rstrip()[:-1]
    return "" if more else line


def _columns(rows: Sequence[str], separator: str | None, fields: int) -> list[Texts]:
    if separator is None or len(rows) < _FEW:
        most = -1 if separator else fields - 1
        return [Texts.of(cells) for cells in zip(*(row.split(separator, most) for row in rows), strict=True)]
    import pandas as pd  # noqa: PLC0415 - takes a third of a second, which other jobs need not wait for

    frame = pd.read_csv(
        io.StringIO("\n".join(rows)),
        sep=separator,
        header=None,
        dtype=str,
        quoting=csv.QUOTE_NONE,
        na_filter=False,
        index_col=False,
        skip_blank_lines=False,
    )
    coded = (pd.factorize(cells) for _, cells in frame.items())
    return [Texts(distinct=[*map(str, names)], code=code.astype(np.int64)) for code, names in coded]


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


def _named(line: str) -> Header | None:
    """The header that a line is; none if it is none."""
    separator: str | None = None
    if line.startswith(_MARK) and not any(one in line for one in SEPARATORS):
        names = line.lstrip(_MARK).split()
    else:
        separator = max(SEPARATORS, key=line.count)
        names = [name.strip() for name in line.lstrip(_MARK).split(separator)]
    if not 2 <= len(names) <= MOST_COLUMNS or any(_NUMBER.fullmatch(name) for name in names):
        return None
    known = [found for found in columns(names) if found]
    if len(known) < 2 or not any(one.metric or one.says == MASK for one in known):
        return None
    return tuple(names), separator
