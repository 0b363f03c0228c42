"""The rows of a damaged trace: all that a careful reader would find.

Values are read one behind the other; commas and brackets between them are passed over. Where none can be read, text is
*damaged* up to the next whole object with a ``ph`` that is not the value of a key. It is cut into pieces where rows seem
to begin: at ``{`` behind a line break or a comma and in front of a key that rows have. A piece counts as many rows as it
has keys ``ph``, and at least one. In a text without an end, the last row, if its piece begins with ``{``, is the one in
which it was cut; it is not counted but told of the file. Where there is more damage than is read past, the number of
rows behind it is an estimate: pieces are counted and nothing is read.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from jobreport.readers.traces.row import DECODER, NO_JSON, NO_OBJECT, TOO_DEEP, Row, row_of_value, row_on_line

if TYPE_CHECKING:
    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally

#: Between two rows. Runs of blanks are looked at once, from their beginning.
_GAP = re.compile(r"[ \t\r\n,\[\]]*+")
_BEGIN = re.compile(r'(?<![ \t\r\n])[ \t\r\n]*+(?=\{[ \t\r\n]*+")')
#: By which damaged rows are counted: where they seem to begin, and what kind they are.
_MARKS = re.compile(
    r"(?<![ \t\r\n,])[ \t\r]*+[\n,][ \t\r\n,]*+\{"
    r'(?=[ \t\r\n]*+"(?:name|ph|cat|pid|tid|ts|dur|args)")|"ph"[ \t\r\n]*+:'
)
#: Behind the last row of an object.
_LIST_ENDS = re.compile(r'[ \t\r\n,\[\]]*?\](?=[ \t\r\n]*+(?:,[ \t\r\n]*+"|\}|\Z))')
_VALUE_ENDS = re.compile(r"[ \t\r\n]*+(?:[,\]]|\Z)")
_MORE_ROWS = re.compile(r'"traceEvents"[ \t\r\n]*+:[ \t\r\n]*+\[')
#: A value is looked for in so much text, and in ever more where that ends within it: what is wrong early in a
#: value is found without a look at all behind it.
_WINDOW = 1 << 12
#: How often each character of a text may be looked at in vain, and a short text at more. Damage takes one or two
#: looks, lists in lists that never end as many as may be nested.
_MOST_LOOKS, _SHORT = 10, 100_000
#: What a look costs at least, in characters.
_LOOK = 256
#: Characters that are looked at where values nest too deeply.
_DEEP = 10_000
NOT_READ = "behind more damage than is read past; not read"


def damaged_rows(
    data: bytes,
    file: SourceFile,
    tally: Tally,
    lines: int | None,
    *,
    is_open: bool,
    is_object: bool = False,
    at: int = 0,
) -> list[Row]:
    """The rows of a text from a byte on; what is none is counted.

    ``lines`` stand before the text; none where that is not known. A text that ``is_open`` has no end; in one that
    ``is_object`` other values stand behind the rows.
    """
    if lines is not None:
        lines += data.count(b"\n", 0, at)
    text = str(memoryview(data)[at:], "utf-8", "surrogateescape")
    return _Damaged(text, file, tally, lines).rows(is_object=is_object, is_open=is_open)[0]


def damaged_part(
    data: bytes, file: SourceFile, tally: Tally, lines: int, *, goes_on: bool
) -> tuple[list[Row], int]:
    """The rows of a part of an array that ends with ``}``, and how many of its bytes were read.

    In a text that ``goes_on`` they are those in front of what the text behind the part may change.
    """
    text = data.decode("utf-8", "surrogateescape")
    rows, end = _Damaged(text, file, tally, lines, goes_on=goes_on).rows(is_object=False, is_open=False)
    return rows, len(text[:end].encode("utf-8", "surrogateescape"))


class _Damaged:
    def __init__(
        self, text: str, file: SourceFile, tally: Tally, lines: int | None, *, goes_on: bool = False
    ) -> None:
        self._text = text
        self._goes_on = goes_on
        #: Whether a value in the damage may be none only because the text ends, and goes on.
        self._is_cut = False
        self._file = file
        self._tally = tally
        self._lines, self._lines_to = lines, 0
        self._looks = _MOST_LOOKS * (len(text) + _SHORT)
        self._reason = ""

    def rows(self, *, is_object: bool, is_open: bool) -> tuple[list[Row], int]:
        """All rows, and where what was read ends."""
        text = self._text
        rows: list[Row] = []
        at = 0
        while True:
            if is_object and (end := _LIST_ENDS.match(text, at)):
                more = _MORE_ROWS.search(text, end.end())
                if more is None:
                    return rows, len(text)
                at = more.end()
            at = self._gap(at)
            if at == len(text):
                return rows, at
            self._is_cut = False
            found = self._value(at, in_order=True)
            if found is None:
                begin, reason = at, self._reason
                at, found = self._next(at)
                if self._looks < 0:
                    self._skip(NOT_READ, begin, len(text), is_open=False)
                    return rows, len(text)
                if found is None and self._goes_on:
                    return rows, begin
                self._skip(reason, begin, at, is_open=is_open and found is None)
                if found is None:
                    return rows, at
            row, end_at = found
            if isinstance(row, Row):
                rows.append(row)
            else:
                self._tally.add("skipped", "rows", row, file=self._file.name, line=self._line(at))
            at = end_at

    def _gap(self, at: int) -> int:
        match = _GAP.match(self._text, at)
        return match.end() if match else at

    def _next(self, at: int) -> tuple[int, tuple[Row | str, int] | None]:
        """The next row that can be read and says of what kind it is, and where it begins and ends."""
        for before in _BEGIN.finditer(self._text, at + 1):
            if self._looks < 0 or self._is_cut:
                break
            begin = before.end()
            if self._text[before.start() - 1] != ":" and (found := self._value(begin, in_order=False)):
                return begin, found
        return len(self._text), None

    def _value(self, at: int, *, in_order: bool) -> tuple[Row | str, int] | None:
        """The row, or what is wrong with the value, that begins here, and where it ends; none where none can be read.

        ``in_order`` is a place where any value may stand; elsewhere only rows with a kind are found.
        """
        text = self._text
        window = text[at : at + _WINDOW]
        line = window.partition("\n")[0].rstrip(" \t\r,")
        row = row_on_line(line)
        if row is not None and (in_order or row.ph is not None):
            return row, at + len(line)
        size = _WINDOW
        while True:
            try:
                value, length = DECODER.raw_decode(window)
            except RecursionError:
                self._looks -= _DEEP
                self._reason = TOO_DEEP
                return None
            except json.JSONDecodeError as error:
                self._looks -= max(error.pos, _LOOK)
                is_cut = _is_cut(window, error)
                if len(window) < size or not is_cut:
                    self._is_cut = self._goes_on and is_cut
                    self._reason = NO_JSON
                    return None
            else:
                # A number may go on behind the window.
                if isinstance(value, dict) or length < len(window) or len(window) < size:
                    break
            size *= 16
            window = text[at : at + size]
        if isinstance(value, dict):
            if in_order or isinstance(value.get("ph"), str):
                return row_of_value(value, window[:length]), at + length
        elif in_order and _VALUE_ENDS.match(text, at + length):
            return NO_OBJECT, at + length
        self._reason = NO_JSON
        return None

    def _skip(self, reason: str, begin: int, end: int, *, is_open: bool) -> None:
        """Count the rows of a damaged text."""
        text = self._text
        count = kinds = 0
        is_row = text[begin] == "{"
        for mark in _MARKS.finditer(text, begin, end):
            if mark[0][-1] == "{":
                count, kinds, is_row = count + max(1, kinds), 0, True
            else:
                kinds += 1
        count += max(1, kinds) - (is_open and is_row)
        if count:
            self._tally.add(
                "skipped", "rows", reason, count=count, file=self._file.name, line=self._line(begin)
            )

    def _line(self, at: int) -> int:
        """The number of the line of a place behind the one that was last asked for; 0 where it is not known."""
        if self._lines is None:
            return 0
        self._lines += self._text.count("\n", self._lines_to, at)
        self._lines_to = at
        return self._lines + 1


def _is_cut(window: str, error: json.JSONDecodeError) -> bool:
    """Whether a text may be wrong only because it ends too soon."""
    return error.msg.startswith("Unterminated string") or error.pos > len(window) - 16
