"""What a call asks for: names, and times."""

from __future__ import annotations

import difflib
import re
from datetime import UTC, datetime, timedelta
from operator import index
from typing import TYPE_CHECKING, TypeAlias

from jobreport.settings import seconds
from jobrules.model import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobrules.model import IntArray

#: One name, several, or a pattern that is searched in each; None for all. A plain text is never a pattern.
Names: TypeAlias = "str | Iterable[str] | re.Pattern[str] | None"
#: A time with a date; text, in ISO form or as ``90s`` since the start of the job; a time since the start; or microseconds.
Moment: TypeAlias = "datetime | timedelta | str | int | None"
#: The number of a step, or a slice of numbers, whose end is not part of it.
StepNumbers: TypeAlias = "int | slice | None"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
#: Known names that an error lists, where none is near.
_MOST = 10


def chosen(wanted: Names, known: Iterable[str]) -> frozenset[str]:
    """The known names that are wanted. Raises ``KeyError`` for an unknown one, with a near one."""
    known = list(dict.fromkeys(known))
    if wanted is None:
        return frozenset(known)
    if isinstance(wanted, re.Pattern):
        return frozenset(filter(wanted.search, known))
    names = frozenset({wanted} if isinstance(wanted, str) else map(str, wanted))
    for name in sorted(names.difference(known)):
        raise KeyError(_unknown(name, known))
    return names


def _unknown(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"{name}; did you mean {near[0]}?"
    more = f", and {len(known) - _MOST} more" if len(known) > _MOST else ""
    return f"{name}; known are {', '.join(known[:_MOST])}{more}" if known else f"{name}; there are none"


def moment(asked: Moment, start_us: int) -> int | None:
    """Microseconds of a moment. Raises ``ValueError`` for a text that is none."""
    if isinstance(asked, str):
        since_s = seconds(asked)
        if since_s is not None or asked == "0s":
            return start_us + round((since_s or 0) * SECOND_US)
        try:
            asked = datetime.fromisoformat(asked)
        except ValueError:
            raise ValueError(
                f"{asked!r} is no time such as 2025-03-07T08:00, nor one since the start such as 90s"
            ) from None
    if asked is None:
        return None
    if asked != asked:  # noqa: PLR0124 - NaT
        raise ValueError(f"{asked!r} is no time")
    if isinstance(asked, timedelta):
        return start_us + asked // _US
    if isinstance(asked, datetime):
        return ((asked if asked.tzinfo else asked.replace(tzinfo=UTC)) - _EPOCH) // _US
    return index(asked)


def length_us(asked: timedelta | str) -> int:
    """Microseconds of a length of time, such as ``10s``. Raises ``ValueError`` for one that is none."""
    found = moment(asked, 0) if isinstance(asked, timedelta) or seconds(asked) else None
    if not found or found < 0:
        raise ValueError(f"{asked!r} is no length of time, such as '10s'")
    return found


def numbered(asked: StepNumbers, number: IntArray, phase: str) -> tuple[int, int]:
    """First number and the one after the last. Raises ``KeyError`` if no step has one of them."""
    known = number[number >= 0]
    if isinstance(asked, slice):
        if asked.step not in (None, 1) or (asked.start or 0) < 0 or (asked.stop or 0) < 0:
            raise ValueError("steps are sliced by their numbers, without a stride and not from the end")
        first, stop = (
            asked.start or 0,
            asked.stop if asked.stop is not None else int(known.max(initial=0)) + 1,
        )
        name = f"{phase} step from {first} {'on' if asked.stop is None else f'to {stop - 1}'}"
    else:
        first = index(asked)  # type: ignore[arg-type]  # None asks for nothing
        stop, name = first + 1, f"{phase} step {first}"
    if not ((known >= first) & (known < stop)).any():
        there = f"there are {known.min()} to {known.max()}" if len(known) else "none has a number"
        raise KeyError(f"no {name}; {there}")
    return first, stop
