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
    #: By jobrecord: who wrote a file; the profiler at work in a step; whether a step was recorded in part.
    writer: Any = None
    profiled: Any = None
    cut: Any = None
    #: By jobrecord: when the recording began in which a file was written, and a mark of the command that wrote it.
    recording: Any = None
    command: Any = None
    #: By jobrecord: the size of the batches of a step, and whether that, or that it is an evaluation, was inferred.
    samples: Any = None
    tokens: Any = None
    inferred: Any = None


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
        return _ROWS.decode(b"".join((b"[", text, b"]")))
    except (ValueError, RecursionError):
        return None


def rows_of(text: bytes) -> tuple[list[Row], int] | None:
    """The rows of such a text by Python's decoder, and how many of its values are none; None if it is no JSON.

    Python's decoder knows NaN and Infinity, which Python writes and JSON does not have. Bytes that are not UTF-8
    become lone surrogates.
    """
    if (sound := sound_rows(text)) is not None:
        return sound, 0
    try:
        values = json.loads(f"[{text.decode('utf-8', 'surrogateescape')}]")
    except (ValueError, RecursionError):
        return None
    rows = [row for row in map(row_of, values) if row is not None]
    return rows, len(values) - len(rows)


def row_of(value: object) -> Row | None:
    """The row that a JSON value is; None if it is no object, or if a value in it is of an unexpected type."""
    if not isinstance(value, dict):
        return None
    used = _only(value, Row)
    if isinstance(args := used.get("args"), dict):
        used["args"] = _only(args, Args)
    try:
        return msgspec.convert(used, Row, strict=False)
    except ValueError:
        return None


def _only(value: dict[str, Any], fields_of: type[msgspec.Struct]) -> dict[str, Any]:
    """The values that are used; the other keys may hold what msgspec does not take."""
    return {key: value[key] for key in fields_of.__struct_fields__ if key in value}
