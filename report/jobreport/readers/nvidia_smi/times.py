"""When the rows of an nvidia-smi log were written: dates with or without a zone, times of a day, or since a start.

Where the order of rows matters, it is that of the rows of one GPU of one machine, a *series*: a log may be sorted
by GPU.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
from msgspec import Struct

from jobreport.errors import UsageError
from jobrules.model import SECOND_US, IntArray
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.nvidia_smi.rows import Places
    from jobreport.readers.nvidia_smi.table import Texts
    from jobrules.model import BoolArray

#: 1990 and 2100: what lies outside is no date of a job.
_EARLIEST_S, _LATEST_S = 631_152_000, 4_102_444_800
#: No job runs longer than this, in seconds since its start.
_MAX_ELAPSED_S = 10 * 365 * 86400
#: Seconds, milli-, micro- and nanoseconds since the epoch.
_EPOCH_UNITS = (1, 10**3, 10**6, 10**9)
_DAY_US = 86400 * SECOND_US
_DATE = re.compile(
    r"(\d{4})[-/.]?(\d{2})[-/.]?(\d{2})[T _]*(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?\s*(Z|UTC|[-+]\d{2}:?\d{2})?"
)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?")
#: As ``date`` and C write it, with the name of the month; most names of zones are those of several.
_NAMED_DATE = re.compile(
    r"(?:[a-z]{3,9},? +)?(?:([a-z]{3,9}) +(\d{1,2})|(\d{1,2})[ -]([a-z]{3,9})),?(?:[ -]+(\d{4}))?,? +"
    r"(\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?)(?: *([ap])m)?(?: +(?:([-+]\d{2}:?\d{2}|z|utc|gmt)|[a-z]{2,5}))?"
    r"(?: +(\d{4}))?",
    re.IGNORECASE,
)
#: As Excel writes it.
_NUMBERED_DATE = re.compile(
    r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4}),? +(\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)(?: *([ap])m)?",
    re.IGNORECASE,
)
_OFFSET = re.compile(r"([-+])(\d{2}):?(\d{2})")
#: Where a clock was put back, times go back by an hour or half of one, and a zone's changes are at full quarters.
_BACK_US, _QUARTER_S = 10 * 60 * SECOND_US, 900
#: Times of which the zone is looked up at a time.
_BLOCK = 1 << 16

#: A usual date has digits at these places, one of these characters between, and digits of a fraction behind.
_DIGITS = (0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18)
_BETWEEN = {4: "-/", 7: "-/", 10: " T", 13: ":", 16: ":", 19: "."}
_USUAL_WIDTHS = 19, 26
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

#: What the times of a log are.
ZONED, LOCAL, CLOCK, RELATIVE = "zoned", "local", "clock", "relative"
#: Local times with numbers for day and month, the order of which their values show or, for ``EITHER``, do not.
DATE_ORDERS = DAY_FIRST, MONTH_FIRST, EITHER = "day-first", "month-first", "either"
_KINDS = (LOCAL, CLOCK, RELATIVE, ZONED, *DATE_ORDERS)


class Times(Struct, kw_only=True, eq=False):
    """When each row of a table was written."""

    #: (n,) microseconds since the epoch; those of ``LOCAL`` times as if they were UTC, of ``CLOCK`` ones
    #: since midnight and of ``RELATIVE`` ones since the start.
    time_us: IntArray
    #: (n,) whether the row has a time.
    there: BoolArray
    #: (n,) whether the row has a time of another kind, which cannot be compared with these.
    other: BoolArray
    #: ``ZONED``, ``LOCAL``, ``CLOCK`` or ``RELATIVE``.
    kind: str


class _Time(Struct):
    us: int
    kind: str


def times_of(texts: Texts, *, elapsed: bool, factor: float = 1.0) -> Times:
    """Times in the cells of a column.

    ``elapsed``: its name says that they count from a start. ``factor``: seconds in one of a bare number.
    """
    plain = [*map(str.strip, texts.distinct)]
    us = _usual_dates(plain)
    kinds = np.where(us < 0, len(_KINDS), _KINDS.index(LOCAL))
    for place in np.flatnonzero(us < 0).tolist():
        if one := _time(plain[place], elapsed=elapsed, factor=factor):
            us[place], kinds[place] = one.us, _KINDS.index(one.kind)
    rows = np.bincount(kinds[texts.code], minlength=len(_KINDS) + 1)[:-1]
    # One kind a table, the commonest: one damaged time costs no other row.
    kind = int(np.argmax(rows))
    order = max((DAY_FIRST, MONTH_FIRST), key=lambda one: rows[_KINDS.index(one)])
    if _KINDS[kind] in DATE_ORDERS and rows[_KINDS.index(order)]:
        either, kind = kinds == _KINDS.index(EITHER), _KINDS.index(order)
        us[either], kinds[either] = in_order(us[either], order), kind
    there = (kinds == kind)[texts.code]
    other = (kinds < len(_KINDS))[texts.code] & ~there
    return Times(time_us=np.where(there, us[texts.code], -1), there=there, other=other, kind=_KINDS[kind])


def in_order(day_first_us: IntArray, order: str) -> IntArray:
    """Dates that were read with the day first, in another order; each must be one in both."""
    if order != MONTH_FIRST:
        return day_first_us
    days, rest = np.divmod(day_first_us, _DAY_US)
    date = days.astype("datetime64[D]")
    month_start = date.astype("datetime64[M]")
    year_start = date.astype("datetime64[Y]")
    day = (date - month_start).astype(np.int64)
    month = (month_start - year_start.astype("datetime64[M]")).astype(np.int64)
    swapped = (year_start.astype("datetime64[M]") + day).astype("datetime64[D]") + month
    return np.asarray(swapped.astype(np.int64) * _DAY_US + rest)


def _usual_dates(texts: Sequence[str]) -> IntArray:
    """(n,) microseconds of texts like ``2026/01/03 15:36:53.507`` that all have one length; -1 for all others."""
    none = np.full(len(texts), -1)
    width = len(texts[0]) if texts else 0
    joined = "".join(texts)
    if not _USUAL_WIDTHS[0] <= width <= _USUAL_WIDTHS[1] or {*map(len, texts)} != {width}:
        return none
    if not joined.isascii():
        return none
    characters = np.frombuffer(joined.encode(), np.uint8).reshape(-1, width)
    digits = (characters - ord("0")).astype(np.int64)

    def number(begin: int, end: int) -> IntArray:
        return np.asarray(digits[:, begin:end] @ 10 ** np.arange(end - begin)[::-1])

    is_usual = (digits[:, [*_DIGITS, *range(20, width)]] < 10).all(axis=1)
    for place, allowed in _BETWEEN.items():
        if place < width:
            is_usual &= np.isin(characters[:, place], [*allowed.encode()])
    year, month, day = number(0, 4), number(5, 7), number(8, 10)
    hour, minute, second = number(11, 13), number(14, 16), number(17, 19)
    is_usual &= (year >= 1970) & (year < 2200) & (month >= 1) & (month <= 12)
    is_usual &= (hour < 24) & (minute < 60) & (second < 60) & (day > 0)
    months = np.where(is_usual, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    starts, ends = (one.astype("datetime64[D]").astype(np.int64) for one in (months, months + 1))
    seconds = (starts + day - 1) * 86400 + hour * 3600 + minute * 60 + second
    is_usual &= (day <= ends - starts) & (seconds >= _EARLIEST_S) & (seconds <= _LATEST_S)
    fraction = number(20, width) * 10 ** (26 - width) if width > 20 else 0
    return np.where(is_usual, seconds * SECOND_US + fraction, none)


def is_date(text: str) -> bool:
    """Whether a cell says when it was written, by a date or as seconds since the epoch."""
    time = _time(text.strip(), elapsed=False, factor=1.0)
    return time is not None and time.kind not in (CLOCK, RELATIVE)


def in_zone(local_us: IntArray, series: Places | IntArray, zone: tzinfo) -> IntArray:
    """Local times of a zone in the order of their rows, as UTC.

    An hour that the clock shows twice is the later one where times of the same of ``series`` (n,) went back within it.
    """
    found = np.empty_like(local_us)
    twice, later_us = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start in range(0, len(local_us), _BLOCK):
        piece = local_us[start : start + _BLOCK]
        quarters, of_quarter = np.unique(piece // (_QUARTER_S * SECOND_US), return_inverse=True)
        first, second = (
            np.array([_offset_us(one, zone, fold) for one in quarters.tolist()], np.int64)[of_quarter]
            for fold in (0, 1)
        )
        found[start : start + _BLOCK] = piece - first
        twice.append(start + np.flatnonzero(first > second))
        later_us.append((piece - second)[first > second])
    # Each such hour by itself: a clock that was set at another time, or a year before, does not matter.
    all_twice = np.concatenate(twice)
    days = local_us[all_twice] // _DAY_US
    order, begin = _together(series[all_twice].astype(np.int64) * (_LATEST_S // 86400) + days)
    rows = all_twice[order]
    again = _count(np.diff(local_us[rows], prepend=local_us[rows[:1]]) < -_BACK_US, begin) > 0
    found[rows[again]] = np.concatenate(later_us)[order][again]
    return found


def zone_of(name: str) -> tzinfo:
    """The zone of a name (``Europe/Berlin``) or an offset (``+02:00``). Raises ``UsageError`` for what is none."""
    if name.upper() in ("Z", "UTC"):
        return UTC
    try:
        if match := _OFFSET.fullmatch(name):
            offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
            return timezone(offset if match[1] == "+" else -offset)
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError) as error:
        raise UsageError(
            f"Unknown time zone {escape_name(name)}. Use a name such as Europe/Berlin or an offset such as +02:00."
        ) from error


def _offset_us(quarter: int, zone: tzinfo, fold: int) -> int:
    at = datetime.fromtimestamp(quarter * _QUARTER_S, UTC).replace(tzinfo=zone, fold=fold)
    offset = at.utcoffset() or timedelta()
    return round(offset.total_seconds()) * SECOND_US


def _time(text: str, *, elapsed: bool, factor: float) -> _Time | None:
    try:
        return _number(float(text), elapsed=elapsed, factor=factor)
    except ValueError:
        pass
    if match := _DATE.fullmatch(text):
        return _date(match)
    if (us := _clock_us(text)) is not None:
        return _Time(us, CLOCK)
    if match := _NAMED_DATE.fullmatch(text):
        return _named_date(match)
    if match := _NUMBERED_DATE.fullmatch(text):
        return _numbered_date(match)
    return None


def _clock_us(text: str, half: str | None = None) -> int | None:
    """Microseconds since midnight; ``half`` is ``a`` or ``p`` of a clock of twelve hours."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = (int(match[i]) for i in (1, 2, 3))
    if half:
        hours = hours % 12 + 12 * (half.lower() == "p") if 1 <= hours <= 12 else 24
    if hours >= 24 or minutes >= 60 or seconds >= 61:
        return None
    return (hours * 3600 + minutes * 60 + seconds) * SECOND_US + _fraction(match[4])


def _named_date(match: re.Match[str]) -> _Time | None:
    month, day = (match[1], match[2]) if match[1] else (match[4], match[3])
    year, clock_us = match[5] or match[9], _clock_us(match[6], match[7])
    if month[:3].lower() not in _MONTHS or clock_us is None:
        return None
    if year is None:
        return _Time(clock_us, CLOCK)
    return _zoned(_day_us(int(year), _MONTHS.index(month[:3].lower()) + 1, int(day)), clock_us, match[8])


def _numbered_date(match: re.Match[str]) -> _Time | None:
    one, other, year = int(match[1]), int(match[3]), int(match[4])
    clock_us = _clock_us(match[5] if match[5].count(":") > 1 else f"{match[5]}:00", match[6])
    if clock_us is None:
        return None
    by_day, by_month = _day_us(year, other, one), _day_us(year, one, other)
    # With dots, the day comes first in every country.
    kind = DAY_FIRST if match[2] == "." or by_month is None else MONTH_FIRST if by_day is None else EITHER
    if time := _zoned(by_month if kind == MONTH_FIRST else by_day, clock_us, None):
        time.kind = kind
    return time


def _day_us(year: int, month: int, day: int) -> int | None:
    try:
        return int(datetime(year, month, day, tzinfo=UTC).timestamp()) * SECOND_US
    except ValueError:
        return None


def _zoned(day_us: int | None, clock_us: int, zone: str | None) -> _Time | None:
    """The time of a day in a zone; ``None`` outside of the years that a job may be of."""
    if day_us is None or not _EARLIEST_S * SECOND_US <= day_us + clock_us <= _LATEST_S * SECOND_US:
        return None
    if zone is None:
        return _Time(day_us + clock_us, LOCAL)
    away_us = 0
    if offset := _OFFSET.fullmatch(zone):
        away_us = (int(offset[2]) * 60 + int(offset[3])) * 60 * SECOND_US * (1 if offset[1] == "+" else -1)
    return _Time(day_us + clock_us - away_us, ZONED)


def _number(value: float, *, elapsed: bool, factor: float) -> _Time | None:
    if not elapsed:
        for unit in _EPOCH_UNITS:
            if _EARLIEST_S * unit <= value <= _LATEST_S * unit:
                return _Time(round(value * SECOND_US / unit), ZONED)
    seconds = value * factor
    return _Time(round(seconds * SECOND_US), RELATIVE) if 0 <= seconds <= _MAX_ELAPSED_S else None


def _date(match: re.Match[str]) -> _Time | None:
    year, month, day, hours, minutes, seconds = (int(match[i]) for i in range(1, 7))
    if hours >= 24 or minutes >= 60 or seconds >= 60:
        return None
    clock_us = (hours * 3600 + minutes * 60 + seconds) * SECOND_US + _fraction(match[7])
    return _zoned(_day_us(year, month, day), clock_us, match[8])


def _fraction(digits: str | None) -> int:
    return int(f"{digits or '':0<6}"[:6])


def unwrapped(time_us: IntArray, series: Places | IntArray) -> IntArray:
    """Times of a day in the order of their rows, a day later wherever those of a series go back: midnight has passed.

    A series that begins earlier in the day than the log does begins after midnight.
    """
    order, begin = _together(series)
    times = time_us[order]
    days = _count(np.diff(times, prepend=times[:1]) < -_DAY_US // 2, begin)
    days += times[begin] < time_us[0] - _BACK_US
    found = np.empty_like(time_us)
    found[order] = times + _DAY_US * days
    return found


def _together(series: Places | IntArray) -> tuple[IntArray, IntArray]:
    """(n,) an order that brings the rows of each series together, and the place in it where each one's series begins."""
    order = np.argsort(series, kind="stable")
    sorted_ = series[order]
    return order, np.searchsorted(sorted_, sorted_)


def _count(flags: BoolArray, begin: IntArray) -> IntArray:
    """(n,) how many flags of its series are true up to each, without the first of the series."""
    total = np.cumsum(flags)
    return np.asarray(total - total[begin])
