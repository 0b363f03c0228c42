"""The rows of a trace file: a JSON array of them, or an object that holds one as ``traceEvents``.

A sound file is decoded in blocks of some megabytes. What cannot be decoded so is taken apart row by
row, or line by line, and costs only itself.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from jobreport.readers import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally

#: What a row may name a process or a thread with; both are looked up.
Scalar = int | float | str | None


class Args(msgspec.Struct, gc=False):
    """The arguments of a row that are of use, of any type."""

    pid: Any = None
    step_num: Any = None
    thread_id: Any = None
    tid: Any = None
    name: Any = None
    start_time_since_epoch_in_micros: Any = None
    num_workers: Any = None
    pin_memory: Any = None


class Row(msgspec.Struct, gc=False):
    """A row of a trace; absent and null are the same."""

    name: str | None = None
    pid: Scalar = None
    ph: str | None = None
    ts: int | float | None = None
    dur: int | float | None = None
    args: Args | None = None
    tid: Scalar = None


class _Trace(msgspec.Struct):
    traceEvents: list[Row]  # noqa: N815 - the name in the file


class _RawTrace(msgspec.Struct):
    traceEvents: list[msgspec.Raw]  # noqa: N815 - the name in the file


_ROW = msgspec.json.Decoder(Row)
_ROWS = msgspec.json.Decoder(list[Row])
_RAW_ROWS = msgspec.json.Decoder(list[msgspec.Raw])
_TRACE = msgspec.json.Decoder(_Trace)
_RAW_TRACE = msgspec.json.Decoder(_RawTrace)

_BLOCK = 16 << 20
#: A file without line breaks between its rows is decoded as a whole; what it has beyond this is not read.
_LARGEST = 256 << 20
_BLANKS = b" \t\r\n"
_BLANKS_AND_COMMAS = _BLANKS + b","
_AROUND_ROW = _BLANKS_AND_COMMAS + b"[]"
#: Between two rows, one a line.
_SEAM = b"},\n{"
_NEXT_ROW = re.compile(r"\}\s*,\s*(?=\{)")
_GAP = re.compile(r"[\s,]*")
_ROWS_BEGIN = re.compile(r'"traceEvents"\s*:\s*\[')
#: Times that reading goes on behind damage in a text without lines; each may cost a look at all of it.
_MOST_DAMAGES = 100
_MOST_DIGITS = 400

NO_OBJECT = "not a JSON object"
_NO_JSON = "not complete JSON"
_NO_TEXT = "not UTF-8 text"
_TOO_DEEP = "nested too deeply"
_DAMAGED = "compressed data is cut short or damaged; what comes before is in use"
_NO_END = "has no end: cut short, or still being written; the complete rows are in use"
_GROWING = "still being written; the complete rows are in use"


def scan(file: SourceFile, tally: Tally, *, growing: bool = False) -> Iterator[list[Row]]:
    """The rows of a file in their order, many at a time; what is no row is counted.

    A file that is ``growing`` is known to be still being written.
    """
    try:
        for text, lines, last in _blocks(file, tally):
            if not lines and _is_object(text):
                rows = _of_object(text, file, tally)
            else:
                if last and (growing or not text[-64:].rstrip(_BLANKS).endswith(b"]")):
                    tally.add("corrected", "files", _GROWING if growing else _NO_END, file=file.name)
                rows = _of_array(text, file, tally, lines)
            if rows:
                yield rows
    except OSError as error:
        tally.add("skipped", "files", f"cannot be read: {error.strerror}", file=file.name)


def _blocks(file: SourceFile, tally: Tally) -> Iterator[tuple[bytes, int, bool]]:
    """Text with whole rows, how many lines stand before it, and whether it is the last.

    Only an array with a row a line comes in several blocks; an empty file comes in none.
    """
    parts: list[bytes] = []
    size, lines, limit = 0, 0, _BLOCK
    try:
        for chunk in plain.chunks(file.path):
            parts.append(chunk)
            size += len(chunk)
            if size < limit:
                continue
            text = b"".join(parts)
            is_object = not lines and _is_object(text)
            end = -1 if is_object else text.rfind(_SEAM)
            if end >= 0:
                end += len(_SEAM) - 1
                yield text[:end], lines, False
                lines += text.count(b"\n", 0, end)
                parts = [text[end:]]
                size, limit = len(parts[0]), _BLOCK
            elif size < _LARGEST:
                parts, limit = [text], 2 * size
            else:
                reason = f"larger than {_LARGEST >> 20} MiB without line breaks; the rest is not read"
                tally.add("skipped", "files", reason, file=file.name)
                break
    except plain.DamagedError:
        tally.add("skipped", "files", _DAMAGED, file=file.name)
    text = b"".join(parts)
    if text and not text.isspace():
        yield text, lines, True


def _is_object(text: bytes) -> bool:
    return text[:1] != b"[" and text.lstrip(_BLANKS).startswith(b"{")


def _of_array(text: bytes, file: SourceFile, tally: Tally, lines: int) -> list[Row]:
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
        return _of_damaged(text, file, tally, lines)
    return _one_by_one(raw, file, tally)


def _of_object(text: bytes, file: SourceFile, tally: Tally) -> list[Row]:
    try:
        return _TRACE.decode(text).traceEvents
    except (ValueError, RecursionError):
        pass
    try:
        return _one_by_one(_RAW_TRACE.decode(text).traceEvents, file, tally)
    except (ValueError, RecursionError):
        pass
    row = _loose(text)
    if isinstance(row, Row):  # well-formed, and not a trace
        if row.ph:
            return [row]
        tally.add("skipped", "files", "has no list 'traceEvents'", file=file.name)
        return []
    known = text.decode("utf-8", "replace")
    if begin := _ROWS_BEGIN.search(known):
        tally.add("corrected", "files", "not complete JSON; the complete rows are in use", file=file.name)
        return _in_turn(known, begin.end(), file, tally)
    return _of_damaged(text, file, tally, 0)


def _one_by_one(raw: list[msgspec.Raw], file: SourceFile, tally: Tally) -> list[Row]:
    """Rows of well-formed JSON of which some have values of an unexpected type."""
    rows = []
    for one in raw:
        row = _row(bytes(one))
        if isinstance(row, str):
            tally.add("skipped", "rows", row, file=file.name)
        else:
            rows.append(row)
    return rows


def _of_damaged(text: bytes, file: SourceFile, tally: Tally, lines: int) -> list[Row]:
    """Rows of what is not JSON as a whole: a line each, or else one behind the other."""
    rows: list[Row] = []
    faults: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for number, line in enumerate(text.split(b"\n"), start=lines + 1):
        core = line.strip(_AROUND_ROW)
        if not core:
            continue
        row = _row(core) if core.startswith(b"{") else _NO_JSON
        if isinstance(row, str):
            faults[row][0] += 1
            faults[row][1] = faults[row][1] or number
        else:
            rows.append(row)
    if not any(row.ph for row in rows):
        return _in_turn(text.decode("utf-8", "replace"), 0, file, tally, lines)
    for reason, (count, first) in faults.items():
        tally.add("skipped", "rows", reason, count=count, file=file.name, line=first)
    return rows


def _in_turn(text: str, at: int, file: SourceFile, tally: Tally, lines: int = 0) -> list[Row]:
    """Rows of a text that does not have one a line, from a place within the array on."""
    rows: list[Row] = []
    damages = 0
    while True:
        at = _gap(text, at)
        if at >= len(text) or text[at] == "]":
            return rows
        if text[at] == "[" and not rows:
            at += 1
            continue
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            reason = _TOO_DEEP if isinstance(error, RecursionError) else _NO_JSON
            tally.add("skipped", "rows", reason, file=file.name, line=lines + text.count("\n", 0, at) + 1)
            damages += 1
            following = _NEXT_ROW.search(text, at)
            if following is None or damages == _MOST_DAMAGES:
                return rows
            at = following.end()
            continue
        if isinstance(value, dict):
            rows.append(_as_row(value))
        else:
            tally.add("skipped", "rows", NO_OBJECT, file=file.name)


def _gap(text: str, at: int) -> int:
    match = _GAP.match(text, at)
    return match.end() if match else at


# One row


def _row(text: bytes) -> Row | str:
    """A row, or what is wrong with it."""
    try:
        return _ROW.decode(text)
    except (ValueError, RecursionError):
        return _loose(text)


def _loose(text: bytes) -> Row | str:
    """A row whose values may have any type, or what is wrong with it."""
    try:
        value = _DECODER.decode(text.decode())
    except UnicodeDecodeError:
        return _NO_TEXT
    except RecursionError:
        return _TOO_DEEP
    except ValueError:
        return _NO_JSON
    return _as_row(value) if isinstance(value, dict) else NO_OBJECT


def _integer(digits: str) -> float:
    """A number too long to be one is infinite; Python refuses to convert it."""
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


#: Knows NaN and Infinity, which Python writes and JSON does not have.
_DECODER = json.JSONDecoder(parse_int=_integer)


def _as_row(value: dict[str, Any]) -> Row:
    args = value.get("args")
    known = Args(**{key: args.get(key) for key in Args.__struct_fields__}) if isinstance(args, dict) else None
    name, ph = value.get("name"), value.get("ph")
    return Row(
        name=name if isinstance(name, str) else None,
        ph=ph if isinstance(ph, str) else None,
        pid=_scalar(value.get("pid")),
        tid=_scalar(value.get("tid")),
        ts=_time(value.get("ts")),
        dur=_time(value.get("dur")),
        args=known,
    )


def _scalar(value: object) -> Scalar:
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None


def _time(value: object) -> float | None:
    """A number as it is; NaN for what is there and is none."""
    if value is None or type(value) in (int, float):
        return value  # type: ignore[return-value]
    return float("nan")
