"""One row of a trace, with the values that are used."""

from __future__ import annotations

import json
from typing import Any

import msgspec

#: What a row may number a process or a thread with.
Scalar = int | float | str | None


class Args(msgspec.Struct, gc=False):
    """The arguments of a row."""

    pid: Scalar = None
    step_num: float | None = None
    thread_id: Scalar = None
    tid: Scalar = None
    name: Any = None
    start_time_since_epoch_in_micros: Any = None
    num_workers: Any = None
    pin_memory: Any = None


class Row(msgspec.Struct, gc=False):
    """A row of a trace; ``ts`` is NaN if the row has none. Times and steps may stand in quotes."""

    name: str | None = None
    pid: Scalar = None
    ph: str | None = None
    ts: float = float("nan")
    dur: float = 0.0
    args: Args | None = None
    tid: Scalar = None


_ROWS = msgspec.json.Decoder(list[Row], strict=False)


def sound_rows(text: bytes) -> list[Row] | None:
    """The rows of a text of rows with commas between them; None if one of them is not sound."""
    try:
        return _ROWS.decode(b"[" + text + b"]")
    except (ValueError, RecursionError):
        return None


def values_of(text: bytes) -> list[Any] | None:
    """The values of a text of values with commas between them, as Python's decoder reads them; None if it cannot.

    It knows NaN and Infinity, which Python writes and JSON does not have. Bytes that are not UTF-8 become lone
    surrogates.
    """
    try:
        values: list[Any] = json.loads(f"[{text.decode('utf-8', 'surrogateescape')}]")
    except (ValueError, RecursionError):
        return None
    return values


def row_of(value: object) -> Row | None:
    """The row that a JSON value is; None if it is no object, or if a value in it is of an unexpected type."""
    try:
        return msgspec.convert(value, Row, strict=False)
    except (ValueError, RecursionError):
        return None
