"""When the rows of an nvidia-smi log were written: dates with or without a zone, times of a day, or since a start."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.errors import UsageError
from jobreport.readers.bounds import EARLIEST_S, EARLIEST_US, LATEST_S, LATEST_US
from jobreport.readers.nvidia_smi.table import DATE_LENGTHS, Texts, shapes_of
from jobrules.model import SECOND_US, IntArray
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from jobrules.model import BoolArray, FloatArray

#: No job runs longer than this, in seconds since its start.
_MAX_ELAPSED_S = 10 * 365 * 86400
#: Seconds, milli-, micro- and nanoseconds since the epoch.
_EPOCH_UNITS = (1, 10**3, 10**6, 10**9)
_DAY_US, _HOUR_US = 86400 * SECOND_US, 3600 * SECOND_US
#: A clock that changes shows in rows that are nearer than this share of an hour.
_MAX_STEP = 0.1
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

#: A usual date has one of these characters at each of these places, and digits at all others.
_BETWEEN = {4: "-/", 7: "-/", 10: " T", 13: ":", 16: ":", 19: "."}
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
    if texts.even is not None and (dates := _usual_dates(texts.even)) is not None:
        all_ = np.ones(len(dates), np.bool_)
        return Times(time_us=dates, there=all_, other=~all_, kind=LOCAL)
    at: IntArray | slice
    if (numbers := texts.plain()) and not numbers[1]:
        (us, kinds), at = _numbers(numbers[0], elapsed=elapsed, factor=factor), slice(None)
    else:
        (us, kinds), at = _each_time(texts.distinct, elapsed=elapsed, factor=factor), texts.code
    rows = np.bincount(kinds[at], minlength=len(_KINDS) + 1)[:-1]
    # One kind a table, the commonest: one damaged time costs no other row.
    kind = int(np.argmax(rows))
    order = max((DAY_FIRST, MONTH_FIRST), key=lambda one: rows[_KINDS.index(one)])
    if _KINDS[kind] in DATE_ORDERS and rows[_KINDS.index(order)]:
        either, kind = kinds == _KINDS.index(EITHER), _KINDS.index(order)
        us[either], kinds[either] = in_order(us[either], order), kind
    there = (kinds == kind)[at]
    other = (kinds < len(_KINDS))[at] & ~there
    return Times(time_us=np.where(there, us[at], -1), there=there, other=other, kind=_KINDS[kind])


def _each_time(
    texts: Sequence[str], *, elapsed: bool = False, factor: float = 1.0
) -> tuple[IntArray, IntArray]:
    """(n,) microseconds of each text, and the place of its kind in ``_KINDS``; one behind them where it is no time."""
    us, kinds = np.full(len(texts), -1), np.full(len(texts), len(_KINDS))
    plain = [text.strip() for text in texts]
    shapes = Texts.of(shapes_of(plain))
    of_shape = np.split(np.argsort(shapes.code, kind="stable"), np.cumsum(np.bincount(shapes.code)))
    for shape, places in zip(shapes.distinct, of_shape, strict=False):
        some = [plain[place] for place in places.tolist()]
        if _is_number(shape):
            values = np.array([*map(float, "\n".join(some).replace(",", ".").split("\n"))])
            us[places], kinds[places] = _numbers(values, elapsed=elapsed, factor=factor)
        elif form := next((form for form in _FORMS if form[0].fullmatch(shape)), None):
            us[places], kinds[places] = _dates(some, *form)
    return us, kinds


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _numbers(values: FloatArray, *, elapsed: bool, factor: float) -> tuple[IntArray, IntArray]:
    """As ``_each_time``, for numbers: since the epoch, or a start."""
    us, kinds = np.full(len(values), -1), np.full(len(values), len(_KINDS))
    seconds = values * factor
    since_start = (seconds >= 0) & (seconds <= _MAX_ELAPSED_S)
    us[since_start], kinds[since_start] = np.rint(seconds[since_start] * SECOND_US), _KINDS.index(RELATIVE)
    for unit in () if elapsed else _EPOCH_UNITS:
        dates = (values >= EARLIEST_S * unit) & (values <= LATEST_S * unit)
        us[dates], kinds[dates] = np.rint(values[dates] * SECOND_US / unit), _KINDS.index(ZONED)
    return us, kinds


def _dates(
    texts: Sequence[str], pattern: re.Pattern[str], read: Callable[[re.Match[str]], _Time | None]
) -> tuple[IntArray, IntArray]:
    """As ``_each_time``, for texts of one shape, which a pattern matches."""
    is_usual = pattern is _DATE and len(texts[0]) in DATE_LENGTHS and texts[0].isascii()
    if is_usual and (usual := _usual_dates(np.array(texts, np.bytes_))) is not None:
        return usual, np.full(len(texts), _KINDS.index(LOCAL))
    times = [read(match) if (match := pattern.fullmatch(text)) else None for text in texts]
    us = np.array([time.us if time else -1 for time in times])
    return us, np.array([_KINDS.index(time.kind) if time else len(_KINDS) for time in times])


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


def _usual_dates(cells: NDArray[np.bytes_]) -> IntArray | None:
    """(n,) microseconds of cells like ``2026/01/03 15:36:53.507``; ``None`` if any is another text."""
    width = cells.itemsize
    characters = cells.view(np.uint8).reshape(-1, width)
    signs = [place for place in _BETWEEN if place < width]
    is_even = (characters[:, signs] == characters[0, signs]).all() and (characters[:, 20:] <= ord("9")).all()
    if not is_even or not all(chr(characters[0, place]) in _BETWEEN[place] for place in signs):
        return None
    with_dashes = characters.copy()
    with_dashes[:, [4, 7]] = ord("-")
    try:
        time_us = with_dashes.view(cells.dtype)[:, 0].astype("datetime64[us]").astype(np.int64)
    except ValueError:
        return None
    is_possible = (time_us >= EARLIEST_US) & (time_us <= LATEST_US)
    return time_us if is_possible.all() else None


def is_date(text: str) -> bool:
    """Whether a cell says when it was written, by a date or as seconds since the epoch."""
    return bool(are_dates([text])[0])


def are_dates(texts: Sequence[str]) -> BoolArray:
    """(n,) ``is_date`` of each."""
    _, kinds = _each_time(texts)
    return np.isin(kinds, [_KINDS.index(kind) for kind in (LOCAL, ZONED, *DATE_ORDERS)])


def in_zone(time_us: IntArray, zone: tzinfo) -> IntArray:
    """Local times of a zone in the order of the rows of one GPU, which become UTC.

    An hour that the clock shows twice is the later one where times went back within it.
    """
    if zone is UTC:
        return time_us
    twice, local_us, later_us = ([np.empty(0, np.int64)] for _ in range(3))
    for start in range(0, len(time_us), _BLOCK):
        piece = time_us[start : start + _BLOCK]
        quarters, of_quarter = np.unique(piece // (_QUARTER_S * SECOND_US), return_inverse=True)
        first, second = (
            np.array([_offset_us(one, zone, fold) for one in quarters.tolist()], np.int64)[of_quarter]
            for fold in (0, 1)
        )
        rows = np.flatnonzero(first > second)
        twice.append(start + rows)
        local_us.append(piece[rows])
        later_us.append((piece - second)[rows])
        piece -= first
    all_twice, all_local_us, all_later_us = map(np.concatenate, (twice, local_us, later_us))
    # Each such hour by itself: a clock that was set at another time, or a year before, does not matter.
    days = all_local_us // _DAY_US
    for day in np.unique(days).tolist():
        mine = np.flatnonzero(days == day)
        wall_us = all_local_us[mine]
        again = mine[np.cumsum(np.diff(wall_us, prepend=wall_us[:1]) < -_BACK_US) > 0]
        time_us[all_twice[again]] = all_later_us[again]
    return time_us


def clock_change(time_us: IntArray) -> int:
    """The first time after a step of an hour to a full hour, in the order of the rows of one GPU; 0 without one."""
    steps_us = np.diff(time_us)
    usual_us = np.median(steps_us) if len(steps_us) else 0
    near_us = 2 * usual_us + SECOND_US
    is_hour = np.abs(np.abs(steps_us - usual_us) - _HOUR_US) <= near_us
    is_full = (time_us[1:] + SECOND_US) % _HOUR_US <= near_us + SECOND_US
    changes = np.flatnonzero(is_hour & is_full & (0 < usual_us < _MAX_STEP * _HOUR_US))
    return int(time_us[changes[0] + 1]) if len(changes) else 0


def zone_of(name: str) -> tzinfo:
    """The zone of a name (``Europe/Berlin``) or an offset (``+02:00``). Raises ``UsageError`` for what is none."""
    if name.upper() in ("Z", "UTC"):
        return UTC
    try:
        if match := _OFFSET.fullmatch(name):
            offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
            return timezone(offset if match[1] == "+" else -offset)
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - most logs are read without

        return ZoneInfo(name)
    except (LookupError, OSError, ValueError) as error:
        raise UsageError(
            f"Unknown time zone {escape_name(name)}. Use a name such as Europe/Berlin or an offset such as +02:00."
        ) from error


def _offset_us(quarter: int, zone: tzinfo, fold: int) -> int:
    at = datetime.fromtimestamp(quarter * _QUARTER_S, UTC).replace(tzinfo=zone, fold=fold)
    offset = at.utcoffset() or timedelta()
    return round(offset.total_seconds()) * SECOND_US


def _clock(match: re.Match[str]) -> _Time | None:
    us = _clock_us(match[0])
    return None if us is None else _Time(us, CLOCK)


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
    if day_us is None or not EARLIEST_US <= day_us + clock_us <= LATEST_US:
        return None
    if zone is None:
        return _Time(day_us + clock_us, LOCAL)
    away_us = 0
    if offset := _OFFSET.fullmatch(zone):
        away_us = (int(offset[2]) * 60 + int(offset[3])) * 60 * SECOND_US * (1 if offset[1] == "+" else -1)
    return _Time(day_us + clock_us - away_us, ZONED)


def _date(match: re.Match[str]) -> _Time | None:
    year, month, day, hours, minutes, seconds = (int(match[i]) for i in range(1, 7))
    if hours >= 24 or minutes >= 60 or seconds >= 60:
        return None
    clock_us = (hours * 3600 + minutes * 60 + seconds) * SECOND_US + _fraction(match[7])
    return _zoned(_day_us(year, month, day), clock_us, match[8])


def _fraction(digits: str | None) -> int:
    return int(f"{digits or '':0<6}"[:6])


#: The forms of times that are no numbers, and what reads each. A pattern asks for digits, not for which.
_FORMS = (
    (_DATE, _date),
    (_CLOCK, _clock),
    (_NAMED_DATE, _named_date),
    (_NUMBERED_DATE, _numbered_date),
)


def unwrapped(time_us: IntArray, first_us: int) -> IntArray:
    """Times of a day in the order of the rows of one GPU, a day later wherever they go back: midnight has passed.

    ``first_us`` is the first time of the log: a GPU that begins earlier in the day begins after midnight.
    """
    days = np.cumsum(np.diff(time_us, prepend=time_us[:1]) < -_DAY_US // 2)
    return np.asarray(time_us + _DAY_US * (days + (time_us[0] < first_us - _BACK_US)))
