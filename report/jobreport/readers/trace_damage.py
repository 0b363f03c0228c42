"""The rows of a damaged trace: all that a careful reader would find.

Values are read one behind the other; commas and brackets between them are passed over. Where none can be read, text is
*damaged* up to the next whole object with a ``ph`` that is not the value of a key. Damaged text counts as one row, and
as one more for each place in it where a row seems to begin: ``{`` behind a line break or a comma. In a text without an
end, the last of these, if it begins so, is the row in which it was cut; it is not counted but told of the file.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from jobreport.readers.trace_row import DECODER, NO_JSON, NO_OBJECT, TOO_DEEP, Row, row_of_value, row_on_line

if TYPE_CHECKING:
    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally

#: Between two rows. Runs of blanks are looked at once, from their beginning.
_GAP = re.compile(r"[ \t\r\n,\[\]]*+")
_BEGIN = re.compile(r'(?<![ \t\r\n])[ \t\r\n]*+(?=\{[ \t\r\n]*+")')
_SEAM = re.compile(r"(?<![ \t\r\n,])[ \t\r\n,]++(?=\{)")
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
_NOT_READ = "behind more damage than is read past; not read"


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
    return _Damaged(str(memoryview(data)[at:], "utf-8", "surrogateescape"), file, tally, lines).rows(
        is_object=is_object, is_open=is_open
    )


class _Damaged:
    def __init__(self, text: str, file: SourceFile, tally: Tally, lines: int | None) -> None:
        self._text = text
        self._file = file
        self._tally = tally
        self._lines, self._lines_to = lines, 0
        self._looks = _MOST_LOOKS * (len(text) + _SHORT)
        self._reason = ""

    def rows(self, *, is_object: bool, is_open: bool) -> list[Row]:
        """All rows."""
        text = self._text
        rows: list[Row] = []
        at = 0
        while True:
            if is_object and (end := _LIST_ENDS.match(text, at)):
                more = _MORE_ROWS.search(text, end.end())
                if more is None:
                    return rows
                at = more.end()
            at = self._gap(at)
            if at == len(text):
                return rows
            found = self._value(at, in_order=True)
            if found is None:
                begin, reason = at, self._reason
                at, found = self._next(at)
                if self._looks < 0:
                    self._skip(_NOT_READ, begin, len(text), is_open=False)
                    return rows
                self._skip(reason, begin, at, is_open=is_open and found is None)
                if found is None:
                    return rows
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
            begin = before.end()
            if self._text[before.start() - 1] != ":" and (found := self._value(begin, in_order=False)):
                return begin, found
            if self._looks < 0:
                break
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
                if len(window) < size or not _is_cut(window, error):
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
        """Count the rows that seem to begin in a damaged text."""
        count, last = 1, begin
        for gap in _SEAM.finditer(self._text, begin, end):
            if begin < gap.end() < end and not {"\n", ","}.isdisjoint(gap[0]):
                count, last = count + 1, gap.end()
        # What begins like one is the row in which the text was cut.
        count -= is_open and self._text[last] == "{"
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
