"""Samples of any file, line by line; a line that is no sample is told with the reason and its place."""

from __future__ import annotations

import json
from array import array
from math import inf, isfinite
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np

from jobreport.readers import text_files
from jobreport.readers.faults import EARLIEST_S, LATEST_S
from jobreport.readers.system_samples.rows import Rows

if TYPE_CHECKING:
    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally

#: Bytes of the longest line that is looked at. What a parser makes of a hostile one takes some 25 times the memory.
LONGEST_LINE = 4 << 20

_NOT_FINITE = "value is NaN or infinite"

#: Node, type, dimension and name.
_Sensor: TypeAlias = tuple[str | None, str, str | None, str | None]


class _Sample(msgspec.Struct, gc=False):
    """A line as the agent writes it."""

    Type: str
    Value: float
    Timestamp: float
    NodeId: str | None = None
    Dimension: str | None = None
    Name: str | None = None


_decode = msgspec.json.Decoder(_Sample).decode


class _NoSampleError(Exception):
    """The reason is its text; empty for a blank line."""


def rows(number: int, file: SourceFile, tally: Tally) -> list[Rows]:
    """The samples of a file, which has that number; all else in it goes to the tally.

    Each line that is not blank is a row: a sample, or counted as skipped or dropped.
    """
    sensors: dict[_Sensor, tuple[array[float], array[float]]] = {}
    #: How often each reason was met, and where first.
    faults: dict[str, tuple[int, int]] = {}
    damage = ""
    try:
        for place, line in enumerate(text_files.lines(file.path, LONGEST_LINE), start=1):
            if line == b"":
                continue
            try:
                sensor, seconds, value = _usual(line) or _unusual(line)
            except _NoSampleError as error:
                count, first = faults.get(str(error), (0, place))
                faults[str(error)] = count + 1, first
                continue
            known = sensors.get(sensor)
            if known is None:
                known = sensors[sensor] = array("d"), array("d")
            known[0].append(seconds)
            known[1].append(value)
    except text_files.DamagedError:
        damage = "compressed data is cut short or damaged; what comes before is in use"
    except OSError as error:
        damage = f"cannot be read: {error.strerror}"
    faults.pop("", None)
    for reason, (count, first) in faults.items():
        action, unit = ("dropped", "samples") if reason == _NOT_FINITE else ("skipped", "lines")
        tally.add(action, unit, reason, count=count, file=file.name, line=first)
    if damage or not (sensors or faults):
        tally.add("skipped", "files", damage or "empty", file=file.name)
    return [
        Rows(number, *sensor, np.frombuffer(seconds), np.frombuffer(values))
        for sensor, (seconds, values) in sensors.items()
    ]


def _usual(line: bytes | None) -> tuple[_Sensor, float, float] | None:
    """Sensor, seconds and value of a sample as most are written, or none."""
    # What is not ASCII may be no text at all, which the quick parser does not see in keys that it passes over.
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
    """Sensor, seconds and value of any sample. Raises ``_NoSampleError`` where there is none."""
    if line is None:
        raise _NoSampleError("too long for a sample")
    if not line.strip(b" \t\r"):
        raise _NoSampleError
    try:
        sample = json.loads(line.decode())
    except UnicodeDecodeError:
        raise _NoSampleError("not UTF-8 text") from None
    except (ValueError, RecursionError):
        raise _NoSampleError("not complete JSON") from None
    if not isinstance(sample, dict):
        raise _NoSampleError("not a JSON object")
    for key in ("Type", "Timestamp", "Value"):
        if sample.get(key) is None:
            raise _NoSampleError(f"key {key!r} without a value" if key in sample else f"no key {key!r}")
    seconds, value = (_number(key, sample[key]) for key in ("Timestamp", "Value"))
    if not EARLIEST_S <= seconds <= LATEST_S:
        raise _NoSampleError("'Timestamp' is not a time in seconds between 1990 and 2100")
    if not isfinite(value):
        raise _NoSampleError(_NOT_FINITE)
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
    raise _NoSampleError(f"{key!r} is not a number")


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
