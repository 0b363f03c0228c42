"""Numbers, units and names in words, and rounding that adds up."""

from __future__ import annotations

import itertools
import math
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from jobrules.model.types import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Sequence


def apportion(values: Sequence[float], total: float, digits: int) -> tuple[float, ...]:
    """Round non-negative values in proportion so that they add up to ``round(total, digits)``.

    Largest-remainder method: every value is rounded down, and the units that are left go to the
    largest remainders, the earlier value first. All zero stays all zero.
    """
    whole = sum(values)
    if whole <= 0:
        return tuple(0.0 for _ in values)
    scale = 10**digits
    units = round(total * scale)
    exact = [value / whole * units for value in values]
    floors = [math.floor(x) for x in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: floors[i] - exact[i])
    for i in by_remainder[: units - sum(floors)]:
        floors[i] += 1
    return tuple(round(n / scale, digits) for n in floors)


def digits_for(total: float, significant: int = 3) -> int:
    """Digits after the point that show ``total`` with ``significant`` digits, between 1 and 6."""
    if total <= 0:
        return 1
    return min(6, max(1, significant - 1 - math.floor(math.log10(total))))


NBSP = "\u00a0"
#: Sign of a number below 0.
MINUS = "\u2212"

#: Marks on one letter; more of them cover the lines around.
_MAX_MARKS = 4

#: No job ran in 1970: a time of that year counts from the start of a log that names no dates.
_FIRST_DATED_US = 365 * 86400 * SECOND_US

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def percent(value: float) -> str:
    """``41.0%`` from a number of percent."""
    return f"{number(value, 1)}%"


def rounded_percent(value: float) -> str:
    """A number of percent with the digits that a decision needs: ``62%``, ``8.7%``, ``0.3%``; what is not all is no 100%."""
    if 0 < value < 0.05:
        return "under 0.1%"
    if 99.5 <= value < 100:
        return "99%"
    return f"{value:.1f}%" if 0 < value < 9.95 else f"{math.floor(value + 0.5)}%"


def share(value: float) -> str:
    """``41.0%`` from a fraction."""
    return percent(100 * value)


def count(n: int, one: str, many: str | None = None) -> str:
    """``1 node``, ``2 nodes``, ``12,345 samples``."""
    return number(n) + NBSP + (one if n == 1 else many or one + "s")


def number(n: float, digits: int = 0) -> str:
    """``12,345``, with so many digits after the point; below 0 with a true minus."""
    return f"{n:,.{digits}f}".replace("-", MINUS)


def capitalized(text: str) -> str:
    """The text with an upper-case first letter."""
    return text[:1].upper() + text[1:]


def quantity(value: float, unit: str) -> str:
    """A value with its unit: ``41.0%``, ``14 s``, ``850 MHz``, ``2.5 points``, ``12 GPUs``."""
    if unit == "%":
        return percent(value)
    if unit == "s":
        return duration(value * SECOND_US)
    digits = 0 if value == round(value) or unit in ("MHz", "°C") else 1
    return number(value, digits) + (NBSP + unit if unit else "")


def without_check(n: int, one: str) -> str:
    """``; 2 GPUs not evaluated``, the end of a headline; empty without any."""
    return f"; {count(n, one)} not evaluated" if n else ""


def times(n: int) -> str:
    """``once``, ``12 times``."""
    return "once" if n == 1 else count(n, "time")


def some_of(n: int, whole: int, one: str) -> str:
    """``1 GPU``, ``both GPUs``, ``all 8 GPUs``, ``3 of 8 GPUs``."""
    if n < whole:
        return f"{number(n)} of {count(whole, one)}"
    return count(1, one) if n == 1 else f"both {one}s" if n == 2 else f"all {count(n, one)}"


def duration(us: float) -> str:
    """``3 h 12 min``, ``9 min 30 s``, ``0.5 s``: two units at most."""
    seconds = round(us / SECOND_US, 1)
    if seconds < 60:
        return f"{seconds:g}{NBSP}s"
    # Rounded to the smaller of two units first, so that 1 h 59 min 59 s is 2 h and not 1 h 59 min.
    (size, name), (part, part_name) = next(
        (larger, smaller)
        for larger, smaller in itertools.pairwise(_UNITS)
        if round(seconds / smaller[0]) * smaller[0] >= larger[0]
    )
    amount, rest = divmod(round(seconds / part), size // part)
    return f"{amount}{NBSP}{name}" + (f" {rest}{NBSP}{part_name}" if rest else "")


def took(us: float) -> str:
    """A short time with three digits, ``0.346 s``, ``12.5 ms``; from 10 s on like ``duration``."""
    if us >= 10 * SECOND_US:
        return duration(us)
    return f"{us / SECOND_US:.3g}{NBSP}s" if us >= SECOND_US // 10 else f"{us / 1000:.3g}{NBSP}ms"


def dated(us: int) -> bool:
    """True if a time has a date; otherwise it counts from the start of a log without dates."""
    return us >= _FIRST_DATED_US


def elapsed(us: int) -> str:
    """Hours, minutes and seconds of a time that counts from the start: ``00:12:24``, ``49:00:00``."""
    minutes, seconds = divmod(us // SECOND_US, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"


def clock(us: int) -> str:
    """``08:26:31 UTC``; without dates ``00:12:24 after the start``."""
    return f"{utc(us):%H:%M:%S}{NBSP}UTC" if dated(us) else f"{elapsed(us)} after the start"


def between(start_us: int, end_us: int) -> str:
    """``2026-11-14 08:26:31 to 11:22:49 UTC``, with the second date if it differs; one time if both are in one second.

    Without dates: ``00:00:00 to 00:12:24 after the start``.
    """
    if not dated(start_us):
        return f"{elapsed(start_us)} to {clock(end_us)}"
    start, end = utc(start_us), utc(end_us)
    if start == end:
        return f"{start:%Y-%m-%d %H:%M:%S}{NBSP}UTC"
    until = f"{end:%H:%M:%S}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M:%S}"
    return f"{start:%Y-%m-%d %H:%M:%S} to {until}{NBSP}UTC"


def utc(us: int) -> datetime:
    """The time, rounded down to the second."""
    return datetime.fromtimestamp(us // SECOND_US, UTC)


def join_names(names: Sequence[str], most: int = 4) -> str:
    """``a, b, and c``; past ``most`` names ``a, b, c, and 5 more``. Names are escaped."""
    names = [escape_name(name) for name in names]
    if len(names) > most:
        return ", ".join(names[: most - 1]) + f", and {len(names) - most + 1} more"
    if len(names) < 2:
        return "".join(names)
    comma = "," if len(names) > 2 else ""
    return ", ".join(names[:-1]) + f"{comma} and " + names[-1]


def escape_name(text: str, most: int = 80) -> str:
    """Text from data, fit for a sentence: one line of at most ``most`` characters, cut in the middle.

    Control characters are escaped, and so are marks beyond ``_MAX_MARKS``.
    """
    if len(text) > most:
        text = f"{text[: most * 2 // 3]}…{text[len(text) - most // 3 + 1 :]}"
    if text.isascii() and text.isprintable():
        return text
    seen, marks = [], 0
    for c in text:
        marks = marks + 1 if unicodedata.category(c) in ("Mn", "Me") else 0
        plain = c.isprintable() and marks <= _MAX_MARKS
        seen.append(c if plain else c.encode("unicode_escape").decode())
    return "".join(seen)
