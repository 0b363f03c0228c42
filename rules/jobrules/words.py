"""Numbers, times and counts in sentences, the same wherever they are told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from jobrules.job import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Sequence

NBSP = "\u00a0"
THIN = "\u202f"


def percent(value: float) -> str:
    """``41.0 %`` from a number of percent."""
    return f"{value:.1f}{NBSP}%"


def share(value: float) -> str:
    """``41.0 %`` from a fraction."""
    return percent(100 * value)


def count(n: int, one: str, many: str | None = None) -> str:
    """``1 node``, ``2 nodes``, ``12 345 samples``."""
    return number(n) + NBSP + (one if n == 1 else many or one + "s")


def number(n: int) -> str:
    """``12 345``, with thin spaces."""
    return f"{n:,}".replace(",", THIN)


def duration(us: float) -> str:
    """``3 h 12 min``, ``9 min 30 s``, ``0.5 s``: two units at most."""
    seconds = round(us / SECOND_US, 1)
    if seconds < 60:
        return f"{seconds:g}{NBSP}s"
    whole = round(seconds)
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    parts: list[tuple[int, str]] = []
    for size, name in units:
        amount, whole = divmod(whole, size)
        if amount or parts:
            parts.append((amount, name))
        if len(parts) == 2:
            break
    return " ".join(f"{amount}{NBSP}{name}" for amount, name in parts if amount or len(parts) == 1)


def clock(us: int) -> str:
    """``08:26:31 UTC``."""
    return f"{_utc(us):%H:%M:%S}{NBSP}UTC"


def between(start_us: int, end_us: int) -> str:
    """``08:26:31 to 11:22:49 UTC``, with the dates where they differ."""
    start, end = _utc(start_us), _utc(end_us)
    if start.date() == end.date():
        return f"{start:%H:%M:%S} to {end:%H:%M:%S}{NBSP}UTC"
    return f"{start:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S}{NBSP}UTC"


def _utc(us: int) -> datetime:
    return datetime.fromtimestamp(us // SECOND_US, UTC)


def listed(names: Sequence[str], most: int = 4) -> str:
    """``a, b and c``; past ``most`` names ``a, b, c and 5 more``. For names from data: see ``shown``."""
    names = [shown(name) for name in names]
    if len(names) > most:
        return ", ".join(names[: most - 1]) + f" and {len(names) - most + 1} more"
    if len(names) < 2:
        return "".join(names)
    return ", ".join(names[:-1]) + " and " + names[-1]


def shown(text: str, most: int = 80) -> str:
    """Text from data, fit for a sentence: one line, control characters escaped, cut in the middle."""
    if len(text) > most:
        text = f"{text[: most * 2 // 3]}…{text[len(text) - most // 3 + 1 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
