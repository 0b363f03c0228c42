"""The rows of a trace file: a JSON array of them, or an object that holds one as ``traceEvents``.

A sound file is decoded in small blocks, which end where a row does. What cannot be decoded so is taken
apart row by row, or line by line, and costs only itself.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

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
    ts: float | None = None
    dur: float | None = 0.0
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

#: Rows of so much text fit in a processor's cache, which makes reading them twice as fast.
_BLOCK = 1 << 17
#: Damaged rows are taken apart in blocks of this size.
_DAMAGED_BLOCK = 16 << 20
#: A text in which no end of a row is found is decoded as a whole; what it has beyond this is not read.
_LARGEST = 256 << 20
_BLANKS = b" \t\r\n"
_BLANKS_AND_COMMAS = _BLANKS + b","
_AROUND_ROW = _BLANKS_AND_COMMAS + b"[]"
#: Between two rows, one a line.
_SEAM = b"},\n{"
#: How the first row of an array begins; parts end where another row begins so.
_FIRST_KEY = re.compile(rb'\s*\[\s*(\{\s*"[^"\\]{1,40}")')
_NEXT_ROW = re.compile(r"\}\s*,\s*(?=\{)")
_ROW_SEAM = re.compile(rb"\}\s*,\s*(?=\{)")
_ROW_ON_LINE = re.compile(rb"\n\s*\{")
#: No row is longer; where a text was cut, its last row is looked for in so much of it.
_TAIL = 1 << 20
_GAP = re.compile(r"[\s,]*")
_ROWS_BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
#: Times that reading goes on behind damage in a text without lines; each may cost a look at all of it.
_MOST_DAMAGES = 100
_MOST_DIGITS = 400

NO_OBJECT = "not a JSON object"
_NO_JSON = "not complete JSON"
_NOT_READ = "behind the last damaged place that is read past; not read"
_NO_TEXT = "not UTF-8 text"
_TOO_DEEP = "nested too deeply"
_DAMAGED = "compressed data is cut short or damaged; what comes before is in use"
_NO_END = "has no end: cut short, or still being written; the complete rows are in use"
_GROWING = "still being written; the complete rows are in use"
_CUT_OBJECT = "not complete JSON; the complete rows are in use"


class _Block(NamedTuple):
    """Text with whole rows, how many lines stand before it, and whether it is the last."""

    text: bytes
    lines: int
    last: bool
    #: The file goes on; that is told already.
    cut: bool = False
    is_object: bool = False
    #: Its rows, where it is sound and not the last.
    rows: list[Row] | None = None


def scan(file: SourceFile, tally: Tally, *, growing: bool = False) -> Iterator[list[Row]]:
    """The rows of a file in their order, many at a time; what is no row is counted.

    A file that is ``growing`` is known to be still being written.
    """
    try:
        for text, lines, last, cut, is_object, sound in _blocks(file, tally):
            if sound is not None:
                rows = sound
            elif is_object:
                rows = _of_object(text, file, tally, lines, cut=cut)
            else:
                ends = text[-64:].rstrip(_BLANKS).endswith(b"]")
                if last and not cut and (growing or not ends):
                    tally.add("corrected", "files", _GROWING if growing else _NO_END, file=file.name)
                rows = _of_array(text if ends or not last else _uncut(text), file, tally, lines)
            if rows:
                yield rows
    except OSError as error:
        tally.add("skipped", "files", f"cannot be read: {error.strerror}", file=file.name)


def _blocks(file: SourceFile, tally: Tally) -> Iterator[_Block]:
    """The text in blocks, of an object only its rows; the last one of an object is an object again.

    An empty file comes in none.
    """
    parts: list[bytes] = []
    size, lines, limit = 0, 0, _BLOCK
    head, seams = b"", None
    is_object = cut = False
    try:
        for chunk in plain.chunks(file.path):
            parts.append(chunk)
            size += len(chunk)
            if size < limit:
                continue
            text = b"".join(parts)
            if seams is None:
                is_object = _is_object(text)
                head = _head(text) if is_object else b""
                seams = _seams(text, len(head))
                text = text[len(head) :]
            end = next((at + 1 for seam in seams if (at := text.rfind(seam)) >= 0), 0)
            rows = _sound(text[:end], file, tally) if end else None
            if rows is not None or (end and size >= _DAMAGED_BLOCK and not is_object):
                yield _Block(text[:end], lines, last=False, rows=rows)
                lines += text.count(b"\n", 0, end)
                parts = [text[end:]]
                size, limit = len(parts[0]), _BLOCK
            elif size < _LARGEST:
                parts, limit = [text], 2 * size
            else:
                parts = [text]
                reason = f"larger than {_LARGEST >> 20} MiB and cannot be read in parts; the rest is not read"
                tally.add("skipped", "files", reason, file=file.name)
                cut = True
                break
    except plain.DamagedError:
        tally.add("corrected", "files", _DAMAGED, file=file.name)
        cut = True
    text = b"".join(parts)
    text = head + text.removeprefix(b",") if head else text
    if text and not text.isspace():
        yield _Block(text, lines, last=True, cut=cut, is_object=is_object if seams else _is_object(text))


def _head(text: bytes) -> bytes:
    """How an object begins, up to the first row; empty where that is not clear."""
    begin = _ROWS_BEGIN.search(text)
    if begin is None:
        return b""
    try:
        value = _DECODER.decode((text[: begin.end()] + b"]}").decode())
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


def _uncut(text: bytes) -> bytes:
    """An array that has no end, without the row in which it was cut."""
    begin = max(0, len(text) - _TAIL)
    at = max((seam.end() for seam in _ROW_SEAM.finditer(text, begin)), default=0)
    if begin and not at:
        return text
    core = text[at:].strip(_AROUND_ROW)
    if not core.startswith(b"{") or _ROW_ON_LINE.search(core):  # more than one row, or none
        return text
    try:
        _DECODER.raw_decode(core.decode("utf-8", "replace"))
    except ValueError:
        return text[:at]
    except RecursionError:
        pass
    return text


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


def _of_object(text: bytes, file: SourceFile, tally: Tally, lines: int, *, cut: bool) -> list[Row]:  # noqa: PLR0911 - a list of layouts
    try:
        return _TRACE.decode(text).traceEvents
    except (ValueError, RecursionError):
        pass
    try:
        return _one_by_one(_RAW_TRACE.decode(text).traceEvents, file, tally)
    except (ValueError, RecursionError):
        pass
    if begin := _ROWS_BEGIN.search(text):
        if not cut and not text[-64:].rstrip(_BLANKS).endswith(b"}"):
            tally.add("corrected", "files", _CUT_OBJECT, file=file.name)
        try:
            return _ROWS.decode(b"[" + _uncut(text[begin.end() :]).strip(_BLANKS_AND_COMMAS) + b"]")
        except (ValueError, RecursionError):
            lines += text.count(b"\n", 0, begin.end())
            return _in_turn(text[begin.end() :].decode("utf-8", "replace"), 0, file, tally, lines)
    row = _loose(text)
    if isinstance(row, Row):  # well-formed, and not a trace
        if row.ph:
            return [row]
        tally.add("skipped", "files", "has no list 'traceEvents'", file=file.name)
        return []
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
    rows: list[Row | tuple[int, bytes]] = []
    faults: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for number, line in enumerate(text.split(b"\n"), start=lines + 1):
        core = line.strip(_AROUND_ROW)
        if not core:
            continue
        row = _row(core) if core.startswith(b"{") else _NO_JSON
        if not isinstance(row, str):
            rows.append(row)
        elif core.startswith(b"{") and _ROW_SEAM.search(core):
            rows.append((number, core))
        else:
            faults[row][0] += 1
            faults[row][1] = faults[row][1] or number
    if not any(isinstance(row, Row) and row.ph for row in rows):
        return _in_turn(text.decode("utf-8", "replace"), 0, file, tally, lines)
    for reason, (count, first) in faults.items():
        tally.add("skipped", "rows", reason, count=count, file=file.name, line=first)
    found: list[Row] = []
    for one in rows:
        if isinstance(one, Row):
            found.append(one)
        else:  # several on a line
            number, core = one
            found += _in_turn(core.decode("utf-8", "replace"), 0, file, tally, number - 1)
    return found


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
            if damages == _MOST_DAMAGES:
                left = 1 + sum(1 for _ in _NEXT_ROW.finditer(text, at))
                tally.add("skipped", "rows", _NOT_READ, count=left, file=file.name)
                return rows
            reason = _TOO_DEEP if isinstance(error, RecursionError) else _NO_JSON
            tally.add("skipped", "rows", reason, file=file.name, line=lines + text.count("\n", 0, at) + 1)
            damages += 1
            following = _NEXT_ROW.search(text, at)
            if following is None:
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
    """A number as it is; infinite for what is there and is none."""
    if value is None or (type(value) in (int, float) and value == value):  # noqa: PLR0124 - NaN is no number
        return value  # type: ignore[return-value]
    return float("inf")
