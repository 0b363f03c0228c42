"""How long each function took, from the file of a Python profiler.

Times are in seconds. Unusable entries are counted in ``faults``, by code of the remark; an unusable file raises
``UnusableError``.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from msgspec import Struct

from jobreport.readers.bounds import EARLIEST_S, LATEST_S
from jobreport.readers.python_profiles import marshalled
from jobreport.readers.tally import UnusableError
from jobrules.model import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: File, line and name of a function.
Key: TypeAlias = tuple[str, int, str]

_MAX_S = LATEST_S - EARLIEST_S
_MAX_COUNT = (1 << 63) - 1
#: Characters of a path in Linux; comparing longer ones could cost any time.
_MAX_TEXT = 4096
#: Pyinstrument's name for the self time of a function, which it may list as a function called.
_SELF = "[self]"


class FunctionTime(Struct, kw_only=True):
    """Time of one function."""

    #: None if the profiler does not count calls.
    calls: int | None = None
    self_s: float = 0.0
    total_s: float = 0.0


def of_dump(data: bytes, faults: Counter[str]) -> dict[Key, FunctionTime]:
    """The functions in a dump of cProfile."""
    try:
        entries = marshalled.loads(data)
    except marshalled.NotReadableError as error:
        raise UnusableError("profiles.unreadable", profiler="cProfile") from error
    if not isinstance(entries, list):
        raise UnusableError("profiles.unreadable", profiler="cProfile")
    times: dict[Key, FunctionTime] = {}
    for key, value in entries:
        if not _is_key(key) or not isinstance(value, tuple) or len(value) != 5:
            faults["profiles.entry"] += 1
            continue
        _, calls, self_s, total_s, _ = value
        if not _is_count(calls):
            faults["profiles.entry"] += 1
        elif not _is_time(self_s) or not _is_time(total_s):
            faults["profiles.time"] += 1
        elif key in times:
            faults["profiles.second"] += 1
        else:
            times[key] = FunctionTime(calls=calls, self_s=float(self_s), total_s=float(total_s))
    return times


def _is_key(key: object) -> TypeGuard[Key]:
    """True for file, line and name of a function, at little cost to hash and to compare."""
    return (
        isinstance(key, tuple)
        and len(key) == 3
        and _is_text(key[0])
        and _is_count(key[1])
        and _is_text(key[2])
    )


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= _MAX_TEXT


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _MAX_COUNT


def _is_time(value: object) -> TypeGuard[float]:
    """True for a number of seconds that a job can take; not for NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_S


def pyinstrument_session(data: bytes) -> Mapping[str, Any]:
    """The JSON that Pyinstrument wrote; it has a root frame."""
    try:
        session = json.loads(data)
    except (ValueError, RecursionError):
        raise UnusableError("file.not_json") from None
    if not isinstance(session, dict) or "root_frame" not in session:
        raise UnusableError("profiles.unreadable", profiler="Pyinstrument")
    if session["root_frame"] is None:
        raise UnusableError("profiles.no_function")
    return session


def session_span(session: Mapping[str, Any]) -> tuple[int, int] | None:
    """Start and end as the profiler recorded them; None if it did not."""
    start, lasted = session.get("start_time"), session.get("duration")
    if not _is_time(start) or not _is_time(lasted):
        return None
    if not EARLIEST_S <= start <= start + lasted <= LATEST_S:
        return None
    return round(start * SECOND_US), round((start + lasted) * SECOND_US)


def of_tree(root: object, faults: Counter[str]) -> dict[Key, FunctionTime]:
    """Sum the frames of each function; one that calls itself counts once towards its total.

    The time of an unusable frame stays with its caller; the frames that it called are not used either.
    """
    times: defaultdict[Key, FunctionTime] = defaultdict(FunctionTime)
    entered: defaultdict[Key, int] = defaultdict(int)
    stack: list[tuple[Key, Iterator[tuple[Key, Mapping[str, Any]]]]] = []
    coming = iter(_frames([root], faults))
    while True:
        if (at := next(coming, None)) is not None:
            key, frame = at
            called = _frames(frame.get("children"), faults)
            one = times[key]
            one.self_s += max(0.0, frame["time"] - math.fsum(child["time"] for _, child in called))
            if not entered[key]:
                one.total_s += frame["time"]
            entered[key] += 1
            stack.append((key, coming))
            coming = iter(called)
        elif stack:
            key, coming = stack.pop()
            entered[key] -= 1
        else:
            return times


def _frames(values: object, faults: Counter[str]) -> list[tuple[Key, Mapping[str, Any]]]:
    """The usable frames, each with its function."""
    frames: list[tuple[Key, Mapping[str, Any]]] = []
    for value in values if isinstance(values, list) else ():
        if not isinstance(value, dict) or not _is_text(name := value.get("function")):
            faults["profiles.entry"] += 1
        elif not _is_time(value.get("time")):
            faults["profiles.time"] += 1
        elif name != _SELF or value.get("children"):
            path = next(
                (p for p in (value.get("file_path"), value.get("file_path_short")) if isinstance(p, str)), ""
            )
            line = value.get("line_no")
            frames.append(((path, line if _is_count(line) else 0, name), value))
    return frames
