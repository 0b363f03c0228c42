"""One row of a trace, whatever it holds."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

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


NO_OBJECT = "not a JSON object"
NO_JSON = "not complete JSON"
NO_TEXT = "not UTF-8 text"
TOO_DEEP = "nested too deeply"

_ROW = msgspec.json.Decoder(Row)
_MOST_DIGITS = 400
#: Bytes that are not UTF-8, as Python's decoder can pass them on.
_NO_UTF8 = re.compile("[\udc80-\udcff]")


def row_of(text: bytes) -> Row | str:
    """The row that a text is, or what is wrong with it."""
    try:
        return _ROW.decode(text)
    except (ValueError, RecursionError):
        pass
    loose = text.decode("utf-8", "surrogateescape")
    try:
        value = DECODER.decode(loose)
    except RecursionError:
        return TOO_DEEP
    except ValueError:
        return NO_JSON
    return row_of_value(value, loose)


def row_on_line(line: str) -> Row | None:
    """The row that a text is, if it is one without anything odd."""
    try:
        return _ROW.decode(line)
    except (ValueError, RecursionError):
        return None


def row_of_value(value: object, text: str) -> Row | str:
    """The row that a JSON value is, or what is wrong with it; ``text`` is what it was read from."""
    if not isinstance(value, dict):
        return NO_OBJECT
    row = _as_row(value)
    return NO_TEXT if not text.isascii() and _NO_UTF8.search(text) and _has_no_utf8(row) else row


def _has_no_utf8(row: Row) -> bool:
    """Whether anything that is in use holds what is not UTF-8."""
    used = [row, row.args or Args()]
    return any(_NO_UTF8.search(str(getattr(one, key))) for one in used for key in one.__struct_fields__)


def _integer(digits: str) -> float:
    """A number too long to be one is infinite; Python refuses to convert it."""
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


#: Knows NaN and Infinity, which Python writes and JSON does not have.
DECODER = json.JSONDecoder(parse_int=_integer)


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
