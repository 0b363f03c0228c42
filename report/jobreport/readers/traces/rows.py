"""The rows of a trace file: a JSON array of them, or an object that holds one as ``traceEvents``.

A file is read in blocks, each decoded at once. Where that fails, a file that is written line by line loses the lines
that are no rows; any other file is read up to the first row that cannot be read, and the rest is counted in bytes.
"""

from __future__ import annotations

import json
import re
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from jobreport.readers import text_files
from jobreport.readers.traces.row import Row, row_of, rows_of, sound_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally

#: Bytes that are decoded at once: their rows fit in a processor's cache.
_BLOCK = 1 << 16
#: Bytes, and lines of them, by which the layout of a file is known.
_HEAD, _HEAD_LINES = 1 << 16, 8
#: Longer text without the end of a row or of a line is no trace.
_MAX_ROW_BYTES = 64 << 20

_BLANKS = b" \t\r\n"
_AROUND_ROWS = _BLANKS + b",[]"
_LIST_BEGINS = re.compile(rb'\s*+(?:\[|\{.*?"traceEvents"\s*+:\s*+\[)\s*+', re.DOTALL)
_LIST_ENDS = re.compile(r'\]\s*+(?:,\s*+"|\}|\Z)')
_FILE_ENDS = re.compile(rb"\]\s*+\}?\s*+\Z")
_ARRAY_ENDS, _OBJECT_ENDS = re.compile(rb"\s*+\]\s*+\Z"), re.compile(rb"\s*+\]\s*+\}\s*+\Z")
#: Bytes at the end of a file in which its list ends.
_FILE_END = 64
#: How a line behind the rows of an object begins.
_LINE_ENDS_LIST = (b"]", b"],", b"]}")
_BETWEEN_ROWS = re.compile(rb"\}\s*+,\s*+\{")
#: Bytes at the end of a block in which the last row usually ends.
_ROW_END = 1 << 12
_BETWEEN_VALUES = re.compile(r"[ \t\r\n,]*+")
_STEP_NUMBER = re.compile(rb'"step_num"\s*+:\s*+(["0-9])')
_DECODER = json.JSONDecoder()


def scan(file: SourceFile, tally: Tally, *, growing: bool = False) -> Iterator[tuple[list[Row], bool | None]]:
    """The rows of a file in their order, many at a time, and whether the first step number among them is text.

    ``tally`` counts what is not read. A file that is ``growing`` was not closed by its writer.
    """
    layout: _ByLine | _InOrder | None = None
    has_rows = False
    parts: list[bytes] = []
    wanted = _HEAD
    for part, is_last in _parts(file, tally):
        parts.append(part)
        if sum(map(len, parts)) < wanted and not is_last:
            continue
        text = b"".join(parts)
        if layout is None:
            layout, begin = _layout(text, file, tally)
            text = text[begin:]
        rows, used = layout.read(text, is_last=is_last)
        if rows:
            has_rows = True
            first = _STEP_NUMBER.search(text)
            yield rows, first[1] == b'"' if first else None
        parts = [text[used:]]
        # Each attempt costs as much as there is text, so that the next one waits for twice as much.
        wanted = _BLOCK if used else 2 * len(text)
    if layout is None or tally.mentions(file.name):
        return
    if growing:
        tally.note("traces.growing", file=file.name)
    elif not (has_rows or layout.has_losses):
        tally.note("traces.empty", file=file.name)
    elif not layout.is_complete:
        tally.note("traces.no_end", file=file.name)


def _parts(file: SourceFile, tally: Tally) -> Iterator[tuple[bytes, bool]]:
    """The text of a file in parts of at most a block, and whether it is the last; that one may be empty."""
    last = b""
    try:
        for text in text_files.chunks(file.path):
            for at in range(0, len(text), _BLOCK):
                if last:
                    yield last, False
                last = text[at : at + _BLOCK]
    except text_files.TooLargeError as error:
        code, fields = error.remark
        tally.note(code, file=file.name, **fields)
    except text_files.DamagedError:
        tally.note("traces.damaged_gzip", file=file.name)
    except OSError as error:
        tally.note("traces.unreadable", file=file.name, error=error.strerror or "")
        return
    yield last, True


def _layout(text: bytes, file: SourceFile, tally: Tally) -> tuple[_ByLine | _InOrder, int]:
    """How the rows of a file are read, by its beginning, and where they begin."""
    head = _LIST_BEGINS.match(text)
    begin = head.end() if head else 0
    lines = BytesIO(text)
    lines.seek(begin)
    first = list(filter(None, (line.strip(_AROUND_ROWS) for line in islice(lines, _HEAD_LINES))))
    known = [rows_of(line) for line in first]
    if 2 * sum(found is not None and (len(found[0]), found[1]) == (1, 0) for found in known) > len(first):
        is_object = text[:begin].lstrip().startswith(b"{")
        return _ByLine(file, tally, is_object=is_object, line=text.count(b"\n", 0, begin)), begin
    return _InOrder(file, tally), begin


class _Layout:
    """How the rows of a file are read."""

    def __init__(self, file: SourceFile, tally: Tally) -> None:
        self._file = file
        self._tally = tally
        #: Whether the end of the list was read, or the rest is counted as lost.
        self.is_complete = False
        self.has_losses = False

    def _lose(self, code: str, *, count: int = 1, line: int = 0) -> None:
        if count:
            self._tally.note(code, count=count, file=self._file.name, line=line)
            self.has_losses = True


class _ByLine(_Layout):
    """A file with a row a line; a line may hold several."""

    def __init__(self, file: SourceFile, tally: Tally, *, is_object: bool, line: int) -> None:
        super().__init__(file, tally)
        self._is_object = is_object
        self._has_ended = False
        #: Lines in front of what is read next.
        self._line = line

    def read(self, text: bytes, *, is_last: bool) -> tuple[list[Row], int]:
        """The rows on the complete lines of a text, and the bytes of these."""
        if self._has_ended or not text.strip(_BLANKS):
            return [], len(text)
        end = len(text) if is_last else text.rfind(b"\n")
        if end < 0:
            if len(text) <= _MAX_ROW_BYTES:
                return [], 0
            end = len(text)
        ends = _OBJECT_ENDS if self._is_object else _ARRAY_ENDS
        closing = ends.search(text, max(0, end - _FILE_END), end)
        self.is_complete = closing is not None
        lines = text[: closing.start() if closing else end]
        breaks = int(np.count_nonzero(np.frombuffer(lines, np.uint8) == ord("\n")))
        rows = sound_rows(lines.strip(_AROUND_ROWS))
        # Sound lines hold one row each, so that nothing depends on where blocks end.
        if rows is None or len(rows) != breaks + 1:
            rows = self._line_by_line(lines.split(b"\n"), is_last=is_last)
        self._line += breaks + 1
        return rows, end + 1

    def _line_by_line(self, lines: list[bytes], *, is_last: bool) -> list[Row]:
        found: list[Row] = []
        for number, line in enumerate(lines, 1):
            if self._is_object and line.strip(_BLANKS)[:2] in _LINE_ENDS_LIST:
                self._has_ended = self.is_complete = True
                break
            if (known := rows_of(line.strip(_AROUND_ROWS))) is not None:
                rows, odd = known
                found += rows
                self._lose("traces.odd_row", count=odd, line=self._line + number)
            elif number < len(lines) or not is_last or self.is_complete:
                self._lose("traces.not_json", line=self._line + number)
            # Else the file is cut in this line.
        return found


class _InOrder(_Layout):
    """Any other file, up to the first row that cannot be read."""

    _is_lost = False

    def read(self, text: bytes, *, is_last: bool) -> tuple[list[Row], int]:
        """The complete rows of a text, and the bytes of these."""
        if self._is_lost:
            self._lose("traces.rest", count=len(text))
        if self.is_complete:
            return [], len(text)
        if is_last:
            closing = _FILE_ENDS.search(text)
            end = closing.start() if closing else 0
        else:
            end = _last_row_end(text)
        rows = sound_rows(text[:end].strip(_BLANKS + b",")) if end else None
        if rows is None:
            return self._one_by_one(text, is_last=is_last)
        self.is_complete = is_last
        return rows, len(text) if is_last else end

    def _one_by_one(self, text: bytes, *, is_last: bool) -> tuple[list[Row], int]:
        loose = text.decode("utf-8", "surrogateescape")
        rows: list[Row] = []
        at = 0
        while True:
            at = _BETWEEN_VALUES.match(loose, at).end()  # type: ignore[union-attr]
            closing = _LIST_ENDS.match(loose, at)
            if closing and (is_last or closing.end() < len(loose)):
                self.is_complete = True
                return rows, len(text)
            try:
                value, end = _DECODER.raw_decode(loose, at)
            except (ValueError, RecursionError):
                break
            if not isinstance(value, dict):
                break
            if (row := row_of(value)) is not None:
                rows.append(row)
            else:
                self._lose("traces.odd_row")
            at = end
        used = len(loose[:at].encode("utf-8", "surrogateescape"))
        if not (is_last or (not rows and len(text) > _MAX_ROW_BYTES)):
            return rows, used
        self._is_lost = self.is_complete = used < len(text)
        self._lose("traces.rest", count=len(text) - used)
        return rows, len(text)


def _last_row_end(text: bytes) -> int:
    """Where the last row ends that another one follows; 0 if none is found."""
    for begin in (max(0, len(text) - _ROW_END), 0):
        if found := list(_BETWEEN_ROWS.finditer(text, begin)):
            return found[-1].start() + 1
    return 0
