"""The text of an nvidia-smi log as tables: where columns are named, and which lines are rows.

A log is what a tool wrote while somebody's loop ran it: headers come again, error messages stand among the rows, and
the last row may be half there.
"""

from __future__ import annotations

import codecs
import itertools
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.readers.smi_columns import MASK, column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Names of columns that are read of one line; a log has some dozens.
MOST_COLUMNS = 256
#: Rows that are taken apart together: their fields are many small objects.
_TOGETHER = 1 << 15
#: A field in quotes, which may hold the separator and the end of a line; a longer one is damage.
_QUOTED = re.compile(r'"([^"]{0,200})"')
_BREAK = re.compile(r"[,;\t\n]")
_SEPARATORS = ",;\t"
_NUMBER = re.compile(r"[-+]?[0-9.]+")
#: How the lines of ``nvidia-smi dmon`` and ``pmon`` begin that name columns and their units.
_MARK = "#"
_ENCODINGS = (
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)


class Table(Struct, frozen=True, kw_only=True):
    """Rows under one header."""

    #: Names of the columns as written.
    names: tuple[str, ...]
    #: Number of the header's line, from 1.
    line: int
    #: Each with as many fields as there are names; at least one.
    rows: list[list[str]]
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
    text = data[len(mark) :].decode(encoding, "replace").replace("\0", "")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _QUOTED.sub(_unquoted, text) if '"' in text else text


def has_header(text: str) -> bool:
    """Whether any line names the columns of such a log."""
    return any(_named(line) for line in text.split("\n") if not line[:1].isdigit())


def tables(text: str) -> Iterator[Table | Left]:
    """All rows of a log, some thousands at a time, and what is left out of each stretch."""
    lines = text.split("\n")
    if lines.pop().strip():
        yield Left(reason=CUT, count=1, line=len(lines) + 1)
    # Rows begin with a time, a number or the name of a GPU; few other lines have to be looked at.
    heads = [i for i, line in enumerate(lines) if not line[:1].isdigit() and _named(line)]
    yield from _left(NO_HEADER, [i for i in range(heads[0] if heads else len(lines)) if lines[i].strip()])
    held: list[list[str]] = []
    for place, (head, stop) in enumerate(itertools.pairwise([*heads, len(lines)])):
        names, separator = _named(lines[head]) or ((), None)
        marked = lines[head].startswith(_MARK)
        next_names = _named(lines[stop]) if stop < len(lines) else None
        for start in range(head + 1, stop, _TOGETHER):
            numbers = range(start, min(start + _TOGETHER, stop))
            rows = [_fields(lines[i], separator, len(names)) for i in numbers]
            odd = [
                i
                for i, row in zip(numbers, rows, strict=True)
                if len(row) != len(names) and lines[i].strip() and not (marked and lines[i].startswith(_MARK))
            ]
            yield from _left(OTHER, odd)
            held += [r for r in rows if len(r) == len(names) and not (marked and r[0].startswith(_MARK))]
            # dmon names its columns every few rows, and where it tells no times they must stay together.
            if held and len(held) >= _TOGETHER and not marked:
                yield Table(names=names, line=heads[place] + 1, rows=held, marked=marked)
                held = []
        if held and (next_names is None or next_names[0] != names):
            yield Table(names=names, line=heads[place] + 1, rows=held, marked=marked)
            held = []


def _left(reason: str, lines: Sequence[int]) -> Iterator[Left]:
    if lines:
        yield Left(reason=reason, count=len(lines), line=lines[0] + 1)


def _fields(line: str, separator: str | None, most: int) -> list[str]:
    """The fields of a line; the last of what ``pmon`` writes is a command with blanks."""
    if separator is None:
        return line.split(None, most - 1)
    fields = line.split(separator)
    return fields[:-1] if len(fields) == most + 1 and not fields[-1].strip() else fields


def _unquoted(match: re.Match[str]) -> str:
    """What is in quotes, of several lines the first."""
    return _BREAK.sub(" ", match[1].strip().partition("\n")[0])


def _named(line: str) -> tuple[tuple[str, ...], str | None] | None:
    """The names of columns that a line gives and what separates them, none for blanks; none if it is no header."""
    separator: str | None = None
    if line.startswith(_MARK) and not any(one in line for one in _SEPARATORS):
        names = line.lstrip(_MARK).split()
    else:
        separator = max(_SEPARATORS, key=line.count)
        names = [name.strip() for name in line.lstrip(_MARK).split(separator)]
    if not 2 <= len(names) <= MOST_COLUMNS or any(_NUMBER.fullmatch(name) for name in names):
        return None
    known = [found for name in names if (found := column(name))]
    if len(known) < 2 or not any(one.metric or one.says == MASK for one in known):
        return None
    return tuple(names), separator
