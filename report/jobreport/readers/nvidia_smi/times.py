"""When the rows of an nvidia-smi log were written: dates with or without a zone, times of a day, or since a start.

Where the order of rows matters, it is that of the rows of one GPU of one machine, a *series*: a log may be sorted
by GPU.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
from msgspec import Struct

from jobreport.errors import UsageError
from jobrules.model import SECOND_US, IntArray
from jobrules.text import escape_name

if TYPE_CHECKING:
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
_OFFSET = re.compile(r"([-+])(\d{2}):?(\d{2})")
#: Where a clock was put back, times go back by an hour or half of one, and a zone's changes are at full quarters.
_BACK_US, _QUARTER_S = 10 * 60 * SECOND_US, 900

#: What the times of a log are.
ZONED, LOCAL, CLOCK, RELATIVE = "zoned", "local", "clock", "relative"


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
    times = [_time(text.strip(), elapsed=elapsed, factor=factor) for text in texts.distinct]
    rows: Counter[str] = Counter()
    for one, count in zip(times, np.bincount(texts.code, minlength=len(times)).tolist(), strict=True):
        rows[one.kind if one else ""] += count
    # One kind a table, the commonest: one damaged time costs no other row.
    kind = max((LOCAL, CLOCK, RELATIVE, ZONED), key=rows.__getitem__)
    time_us = np.array([one.us if one and one.kind == kind else -1 for one in times], np.int64)
    other = np.array([one is not None and one.kind != kind for one in times], np.bool_)
    found_us = time_us[texts.code]
    return Times(time_us=found_us, there=found_us >= 0, other=other[texts.code], kind=kind)


def is_date(text: str) -> bool:
    """Whether a cell says when it was written, by a date or as seconds since the epoch."""
    time = _time(text.strip(), elapsed=False, factor=1.0)
    return time is not None and time.kind in (LOCAL, ZONED)


def in_zone(local_us: IntArray, series: IntArray, zone: tzinfo) -> IntArray:
    """Local times of a zone in the order of their rows, as UTC.

    An hour that the clock shows twice is the later one where times of the same of ``series`` (n,) went back within it.
    """
    quarters, of_quarter = np.unique(local_us // (_QUARTER_S * SECOND_US), return_inverse=True)
    first, second = (
        np.array([_offset_us(one, zone, fold) for one in quarters.tolist()], np.int64)[of_quarter]
        for fold in (0, 1)
    )
    twice = np.flatnonzero(first > second)
    if len(twice):
        # Each such hour by itself: a clock that was set at another time, or a year before, does not matter.
        order, begin = _together(series[twice] * (_LATEST_S // 86400) + local_us[twice] // _DAY_US)
        rows = twice[order]
        again = _count(np.diff(local_us[rows], prepend=local_us[rows[0]]) < -_BACK_US, begin) > 0
        first[rows[again]] = second[rows[again]]
    return np.asarray(local_us - first)


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
    if match := _CLOCK.fullmatch(text):
        hours, minutes, seconds = (int(match[i]) for i in (1, 2, 3))
        if hours < 24 and minutes < 60 and seconds < 61:
            return _Time((hours * 3600 + minutes * 60 + seconds) * SECOND_US + _fraction(match[4]), CLOCK)
    return None


def _number(value: float, *, elapsed: bool, factor: float) -> _Time | None:
    if not elapsed:
        for unit in _EPOCH_UNITS:
            if _EARLIEST_S * unit <= value <= _LATEST_S * unit:
                return _Time(round(value * SECOND_US / unit), ZONED)
    seconds = value * factor
    return _Time(round(seconds * SECOND_US), RELATIVE) if 0 <= seconds <= _MAX_ELAPSED_S else None


def _date(match: re.Match[str]) -> _Time | None:
    try:
        at = datetime(*(int(match[i]) for i in range(1, 7)), tzinfo=UTC)  # type: ignore[misc,arg-type]
    except ValueError:
        return None
    us = int(at.timestamp()) * SECOND_US + _fraction(match[7])
    if not _EARLIEST_S * SECOND_US <= us <= _LATEST_S * SECOND_US:
        return None
    zone = match[8]
    if zone is None:
        return _Time(us, LOCAL)
    if offset := _OFFSET.fullmatch(zone):
        away = (int(offset[2]) * 60 + int(offset[3])) * 60 * SECOND_US
        us += -away if offset[1] == "+" else away
    return _Time(us, ZONED)


def _fraction(digits: str | None) -> int:
    return int(f"{digits or '':0<6}"[:6])


def unwrapped(time_us: IntArray, series: IntArray) -> IntArray:
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


def _together(series: IntArray) -> tuple[IntArray, IntArray]:
    """(n,) an order that brings the rows of each series together, and the place in it where each one's series begins."""
    order = np.argsort(series, kind="stable")
    sorted_ = series[order]
    return order, np.searchsorted(sorted_, sorted_)


def _count(flags: BoolArray, begin: IntArray) -> IntArray:
    """(n,) how many flags of its series are true up to each, without the first of the series."""
    total = np.cumsum(flags)
    return np.asarray(total - total[begin])
