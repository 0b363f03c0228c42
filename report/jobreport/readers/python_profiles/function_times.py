"""How long each function took, from what a profiler of Python code wrote.

Times are seconds. What cannot be used is counted in ``faults``, by reason; a file that cannot be used
at all raises ``UnusableError``.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from msgspec import Struct

from jobreport.readers.faults import EARLIEST_S, LATEST_S
from jobreport.readers.python_profiles import marshalled
from jobrules.model import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: File, line and name of a function.
Key: TypeAlias = tuple[str, int, str]

_LONGEST_S = LATEST_S - EARLIEST_S
_LAST_LINE = (1 << 31) - 1
_MOST_CALLS = (1 << 63) - 1
#: Of a path in Linux; comparing longer ones could cost any time.
_LONGEST_TEXT = 4096
#: How Pyinstrument calls the time that a function spent in itself, where it lists it as one it called.
_OWN_TIME = "[self]"
_NO_TIME = "time is negative, NaN, infinite or no number"


class UnusableError(Exception):
    """Why a file gives no profile, as the end of a sentence."""


class Spent(Struct, kw_only=True):
    """What a function took."""

    #: None where the profiler does not count.
    calls: int | None = None
    self_s: float = 0.0
    total_s: float = 0.0


def of_dump(data: bytes, faults: Counter[str]) -> dict[Key, Spent]:
    """The functions in a dump of cProfile."""
    try:
        entries = marshalled.loads(data)
    except marshalled.NotReadableError as error:
        raise UnusableError(f"not a readable dump of cProfile: it {error}") from error
    if not isinstance(entries, list):
        raise UnusableError("not a dump of cProfile")
    spent: dict[Key, Spent] = {}
    for key, value in entries:
        if not _is_key(key) or not isinstance(value, tuple) or len(value) != 5:
            faults["not an entry of cProfile"] += 1
            continue
        _, calls, self_s, total_s, _ = value
        if not _is_count(calls):
            faults["number of calls is not a count"] += 1
        elif not _is_time(self_s) or not _is_time(total_s):
            faults[_NO_TIME] += 1
        elif key in spent:
            faults["second entry of a function"] += 1
        else:
            spent[key] = Spent(calls=calls, self_s=float(self_s), total_s=float(total_s))
    return spent


def _is_key(key: object) -> TypeGuard[Key]:
    """Such a key costs little to hash and to compare."""
    return (
        isinstance(key, tuple)
        and len(key) == 3
        and _is_text(key[0])
        and _is_line(key[1])
        and _is_text(key[2])
    )


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= _LONGEST_TEXT


def _is_line(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _LAST_LINE


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _MOST_CALLS


def _is_time(value: object) -> TypeGuard[float]:
    """Whether a number of seconds can be a part of a run; NaN cannot."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LONGEST_S


def pyinstrument_session(data: bytes) -> Mapping[str, Any]:
    """What Pyinstrument wrote; it has a root frame."""
    try:
        session = json.loads(data)
    except RecursionError:
        raise UnusableError("nested too deeply") from None
    except ValueError as error:
        raise UnusableError("not complete JSON") from error
    if not isinstance(session, dict) or "root_frame" not in session:
        raise UnusableError("not a profile of Pyinstrument")
    if session["root_frame"] is None:
        raise UnusableError("Pyinstrument recorded nothing")
    return session


def session_span(session: Mapping[str, Any]) -> tuple[int, int] | None:
    """From when to when by the profiler's own word."""
    start, lasted = session.get("start_time"), session.get("duration")
    if not _is_time(start) or not _is_time(lasted):
        return None
    if not EARLIEST_S <= start <= start + lasted <= LATEST_S:
        return None
    return round(start * SECOND_US), round((start + lasted) * SECOND_US)


def of_tree(root: object, faults: Counter[str]) -> dict[Key, Spent]:
    """Sum the frames of each function; one that calls itself counts once towards its total.

    The time of a frame that cannot be used stays with its caller; those below it are not used either.
    """
    spent: defaultdict[Key, Spent] = defaultdict(Spent)
    entered: defaultdict[Key, int] = defaultdict(int)
    stack: list[tuple[Key, Iterator[tuple[Key, Mapping[str, Any]]]]] = []
    coming = iter(_frames([root], faults))
    while True:
        if (at := next(coming, None)) is not None:
            key, frame = at
            called = _frames(frame.get("children"), faults)
            one = spent[key]
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
            return spent


def _frames(values: object, faults: Counter[str]) -> list[tuple[Key, Mapping[str, Any]]]:
    """The frames that can be used, each with its function."""
    frames: list[tuple[Key, Mapping[str, Any]]] = []
    for value in values if isinstance(values, list) else ():
        if not isinstance(value, dict) or not _is_text(name := value.get("function")):
            faults["no function in it"] += 1
            _count_below(value, faults)
        elif not _is_time(value.get("time")):
            faults[_NO_TIME] += 1
            _count_below(value, faults)
        elif name != _OWN_TIME or value.get("children"):
            path = next(
                (p for p in (value.get("file_path"), value.get("file_path_short")) if isinstance(p, str)), ""
            )
            line = value.get("line_no")
            frames.append(((path, line if _is_line(line) else 0, name), value))
    return frames


def _count_below(value: object, faults: Counter[str]) -> None:
    """Count the frames below one that cannot be used."""
    left = [value]
    while left:
        one = left.pop()
        below = one.get("children") if isinstance(one, dict) else None
        if isinstance(below, list):
            left += below
            faults["below a frame that cannot be used"] += len(below)
