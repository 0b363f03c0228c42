"""Samples of any file, line by line; a line that is no sample is counted with the reason and its place."""

from __future__ import annotations

import json
from array import array
from math import inf, isfinite
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec
import numpy as np

from jobreport.readers import text_files
from jobreport.readers.bounds import EARLIEST_S, LATEST_S
from jobreport.readers.tally import UnusableError

if TYPE_CHECKING:
    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally
    from jobrules.model import FloatArray

#: Bytes. A parser takes some 25 times the memory for a hostile line.
MAX_LINE = 4 << 20

_BLANK = "blank line"

#: Node, type, dimension and name.
_Sensor: TypeAlias = tuple[str | None, str, str | None, str | None]


class Rows(NamedTuple):
    """Samples of one sensor in one file, in no particular order; a tuple, because there are many."""

    #: Number of the file.
    file: int
    node: str | None
    type: str
    dimension: str | None
    name: str | None
    #: Seconds since the epoch, between 1990 and 2100.
    seconds: FloatArray
    #: Finite.
    values: FloatArray


class _Sample(msgspec.Struct, gc=False):
    """A line as the agent writes it."""

    Type: str
    Value: float
    Timestamp: float
    NodeId: str | None = None
    Dimension: str | None = None
    Name: str | None = None


_decode = msgspec.json.Decoder(_Sample).decode


def rows(number: int, file: SourceFile, tally: Tally) -> list[Rows]:
    """The samples of a file, which has that number; every other line that is not blank goes to the tally."""
    sensors: dict[_Sensor, tuple[array[float], array[float]]] = {}
    is_empty = True
    with text_files.noting(file, tally):
        for place, line in enumerate(text_files.lines(file.path, MAX_LINE), start=1):
            if line == b"":
                continue
            try:
                sensor, seconds, value = _usual(line) or _unusual(line)
            except UnusableError as error:
                if error.code != _BLANK:
                    tally.note(error.code, file=file.name, line=place, **error.fields)
                    is_empty = False
                continue
            known = sensors.get(sensor)
            if known is None:
                known = sensors[sensor] = array("d"), array("d")
            known[0].append(seconds)
            known[1].append(value)
        if is_empty and not sensors:
            tally.note("file.empty", file=file.name)
    return [
        Rows(number, *sensor, np.frombuffer(seconds), np.frombuffer(values))
        for sensor, (seconds, values) in sensors.items()
    ]


def _usual(line: bytes | None) -> tuple[_Sensor, float, float] | None:
    """Sensor, seconds and value of a sample as most are written, or None."""
    # What is not ASCII may be no text at all, which the quick parser does not see in keys that it skips.
    if line is None or not line.isascii():
        return None
    try:
        one = _decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if not (EARLIEST_S <= one.Timestamp <= LATEST_S and isfinite(one.Value)):
        return None
    return (one.NodeId, one.Type, one.Dimension, one.Name), one.Timestamp, one.Value


def _unusual(line: bytes | None) -> tuple[_Sensor, float, float]:
    """Sensor, seconds and value of any sample. Raises ``UnusableError`` if there is none."""
    if line is None:
        raise UnusableError("samples.long")
    if not line.strip(b" \t\r"):
        raise UnusableError(_BLANK)
    try:
        sample = json.loads(line.decode())
    except UnicodeDecodeError:
        raise UnusableError("file.not_utf8", unit="lines") from None
    except (ValueError, RecursionError):
        raise UnusableError("file.not_json", unit="lines") from None
    if not isinstance(sample, dict):
        raise UnusableError("file.not_object", unit="lines")
    for key in ("Type", "Timestamp", "Value"):
        if sample.get(key) is None:
            raise UnusableError("samples.no_value", key=key)
    seconds, value = (_number(key, sample[key]) for key in ("Timestamp", "Value"))
    if not EARLIEST_S <= seconds <= LATEST_S:
        raise UnusableError("samples.time")
    if not isfinite(value):
        raise UnusableError("samples.not_finite")
    node, dimension, name = (_text(sample.get(key)) for key in ("NodeId", "Dimension", "Name"))
    return (node, _text(sample["Type"]) or "", dimension, name), seconds, value


def _number(key: str, value: object) -> float:
    try:
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            return float(value)
    except OverflowError:
        return inf
    except ValueError:
        pass
    raise UnusableError("samples.no_value", key=key)


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
