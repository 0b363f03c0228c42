"""The rows of a trace file: a JSON array of them, or an object that holds one as ``traceEvents``.

A sound file is decoded in small blocks, which end where a row does. What cannot be decoded so is left to
``trace_damage``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from jobreport.readers import text_files
from jobreport.readers.traces.damage import damaged_part, damaged_rows
from jobreport.readers.traces.row import DECODER, Row, row_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally


class _Trace(msgspec.Struct):
    traceEvents: list[Row]  # noqa: N815 - the name in the file


class _RawTrace(msgspec.Struct):
    traceEvents: list[msgspec.Raw]  # noqa: N815 - the name in the file


_ROWS = msgspec.json.Decoder(list[Row])
_RAW_ROWS = msgspec.json.Decoder(list[msgspec.Raw])
_TRACE = msgspec.json.Decoder(_Trace)
_RAW_TRACE = msgspec.json.Decoder(_RawTrace)

#: Rows of so much text fit in a processor's cache, which makes reading them twice as fast.
_BLOCK = 1 << 17
#: Damaged rows are taken apart in blocks of this size; damage at the end of one is left to the next.
_DAMAGED_BLOCK = 16 << 20
#: A text in which no end of a row is found is decoded as a whole; what it has beyond this is not read. Damage that is
#: longer is taken apart here.
_LARGEST = 256 << 20
_BLANKS = b" \t\r\n"
_BLANKS_AND_COMMAS = _BLANKS + b","
#: Between two rows, one a line.
_SEAM = b"},\n{"
#: How the first row of an array begins; parts end where another row begins so.
_FIRST_KEY = re.compile(rb'\s*\[\s*(\{\s*"[^"\\]{1,40}")')
_ROWS_BEGIN = re.compile(rb'"traceEvents"[ \t\r\n]*+:[ \t\r\n]*+\[')

_DAMAGED = "compressed data is cut short or damaged; what comes before is in use"
_NO_END = "has no end: cut short, or still being written; the complete rows are in use"
_GROWING = "still being written; the complete rows are in use"
_CUT_OBJECT = "not complete JSON; the complete rows are in use"


class _Last(NamedTuple):
    """The text of the last rows of an array, or of all of an object, and how many lines stand before it."""

    text: bytes
    lines: int
    #: The file goes on; that is told already.
    cut: bool
    is_object: bool


def scan(file: SourceFile, tally: Tally, *, growing: bool = False) -> Iterator[list[Row]]:
    """The rows of a file in their order, many at a time; what is no row is counted.

    A file that is ``growing`` is known to be still being written.
    """
    try:
        for block in _blocks(file, tally):
            rows = block if isinstance(block, list) else _of_last(block, file, tally, growing=growing)
            if rows:
                yield rows
    except OSError as error:
        tally.add("skipped", "files", f"cannot be read: {error.strerror}", file=file.name)


def _of_last(last: _Last, file: SourceFile, tally: Tally, *, growing: bool) -> list[Row]:
    text, lines, cut, is_object = last
    if is_object:
        return _of_object(text, file, tally, lines, cut=cut)
    is_open = cut or not text[-64:].rstrip(_BLANKS).endswith(b"]")
    if not cut and (growing or is_open):
        tally.add("corrected", "files", _GROWING if growing else _NO_END, file=file.name)
    return _of_array(text, file, tally, lines, is_open=is_open)


def _blocks(file: SourceFile, tally: Tally) -> Iterator[list[Row] | _Last]:
    """The rows in blocks, and the text of the last; that of an object is an object again.

    An empty file comes in none.
    """
    parts: list[bytes] = []
    size, lines, limit = 0, 0, _BLOCK
    head, seams = b"", None
    is_object = cut = False
    try:
        for chunk in text_files.chunks(file.path):
            parts.append(chunk)
            size += len(chunk)
            if size < limit:
                continue
            text = b"".join(parts)
            if seams is None:
                # Blanks in front do not tell what stands behind them.
                if not text.strip(_BLANKS):
                    lines += text.count(b"\n")
                    parts, size = [], 0
                    continue
                is_object = _is_object(text)
                head = _head(text) if is_object else b""
                seams = _seams(text, len(head))
                text = text[len(head) :]
            end = next((at + 1 for seam in seams if (at := text.rfind(seam)) >= 0), 0)
            rows = _sound(text[:end], file, tally) if end else None
            if end and rows is None and size >= _DAMAGED_BLOCK and not is_object:
                rows, end = damaged_part(text[:end], file, tally, lines, goes_on=size < _LARGEST)
            if end and rows is not None:
                yield rows
                lines += text.count(b"\n", 0, end)
                parts = [text[end:]]
                size = len(parts[0])
                limit = max(_BLOCK, min(2 * size, _LARGEST))
            elif size < _LARGEST:
                parts, limit = [text], min(2 * size, _LARGEST)
            else:
                parts = [text]
                reason = f"larger than {_LARGEST >> 20} MiB and cannot be read in parts; the rest is not read"
                tally.add("skipped", "files", reason, file=file.name)
                cut = True
                break
    except text_files.DamagedError:
        tally.add("corrected", "files", _DAMAGED, file=file.name)
        cut = True
    text = b"".join(parts)
    text = head + text.removeprefix(b",") if head else text
    if text.strip(_BLANKS):
        yield _Last(text, lines, cut, is_object if seams else _is_object(text))


def _head(text: bytes) -> bytes:
    """How an object begins, up to the first row; empty where that is not clear."""
    begin = _ROWS_BEGIN.search(text)
    if begin is None:
        return b""
    try:
        value = DECODER.decode((text[: begin.end()] + b"]}").decode())
    except (ValueError, RecursionError):
        return b""
    # Anything else that is called so lies deeper, and is none of the object's own values.
    return text[: begin.end()] if isinstance(value, dict) and value.get("traceEvents") == [] else b""


def _seams(text: bytes, begin: int) -> list[bytes]:
    """What can stand between two rows of an array that begins so; none for an object that is one whole."""
    if _is_object(text) and not begin:
        return []
    first = _FIRST_KEY.match(text, max(0, begin - 1))
    # A seam without the key may also be one between objects within a row.
    return [*(b"}," + blank + first[1] for blank in (b"\n", b" ", b"") if first), _SEAM]


def _sound(text: bytes, file: SourceFile, tally: Tally) -> list[Row] | None:
    """The rows of a part of an array that is JSON; none where it is not."""
    whole = b"[" + text.strip(_BLANKS).removeprefix(b"[").strip(_BLANKS_AND_COMMAS) + b"]"
    try:
        return _ROWS.decode(whole)
    except (ValueError, RecursionError):
        pass
    try:
        return _one_by_one(_RAW_ROWS.decode(whole), file, tally)
    except (ValueError, RecursionError):
        return None


def _is_object(text: bytes) -> bool:
    first = text.lstrip(_BLANKS)[:1]
    return first == b"{" or (first != b"[" and _ROWS_BEGIN.search(text) is not None)


def _of_array(text: bytes, file: SourceFile, tally: Tally, lines: int, *, is_open: bool) -> list[Row]:
    """Rows of an array, or of a part of one: its brackets and its last comma may be missing."""
    if text.startswith(b"["):
        try:
            return _ROWS.decode(text)
        except (ValueError, RecursionError):
            pass
    core = text.strip(_BLANKS).removeprefix(b"[").removesuffix(b"]").strip(_BLANKS_AND_COMMAS)
    whole = b"[" + core + b"]"
    try:
        return _ROWS.decode(whole)
    except (ValueError, RecursionError):
        pass
    try:
        raw = _RAW_ROWS.decode(whole)
    except (ValueError, RecursionError):
        return damaged_rows(text, file, tally, lines, is_open=is_open)
    return _one_by_one(raw, file, tally)


def _of_object(text: bytes, file: SourceFile, tally: Tally, lines: int, *, cut: bool) -> list[Row]:
    # A key that stands there twice is read as the last by some and as both by none; it is no sound object.
    if text.count(b'"traceEvents"') < 2:
        try:
            return _TRACE.decode(text).traceEvents
        except (ValueError, RecursionError):
            pass
        try:
            return _one_by_one(_RAW_TRACE.decode(text).traceEvents, file, tally)
        except (ValueError, RecursionError):
            pass
    is_open = cut or not text[-64:].rstrip(_BLANKS).endswith(b"}")
    if begin := _ROWS_BEGIN.search(text):
        if not cut and (is_open or not _head(text)):
            tally.add("corrected", "files", _CUT_OBJECT, file=file.name)
        return damaged_rows(text, file, tally, lines, at=begin.end(), is_object=True, is_open=is_open)
    row = row_of(text)
    if not isinstance(row, Row) or row.ph:
        return damaged_rows(text, file, tally, lines, is_open=is_open)
    # Well-formed, and not a trace, or the key of its list is damaged.
    if b'"ph"' not in text:
        tally.add("skipped", "files", "has no list 'traceEvents'", file=file.name)
        return []
    return damaged_rows(text, file, tally, lines, at=text.index(b"{") + 1, is_object=True, is_open=is_open)


def _one_by_one(raw: list[msgspec.Raw], file: SourceFile, tally: Tally) -> list[Row]:
    """Rows of well-formed JSON of which some have values of an unexpected type."""
    rows = []
    for one in raw:
        text = bytes(one)
        if text.startswith(b"["):
            rows += damaged_rows(text, file, tally, None, is_open=False)
        elif isinstance(row := row_of(text), str):
            tally.add("skipped", "rows", row, file=file.name)
        else:
            rows.append(row)
    return rows
