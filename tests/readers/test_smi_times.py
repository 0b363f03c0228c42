"""When rows of nvidia-smi logs were written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from jobreport.errors import UsageError
from jobreport.readers.smi_text import Texts
from jobreport.readers.smi_times import LOCAL, RELATIVE, ZONED, in_zone, times_of, unwrapped, zone_of
from jobrules.job import SECOND_US

DAY_US = 86400 * SECOND_US


def us(text: str) -> int:
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "time_us", "kind"),
    [
        ("2026/01/03 15:36:53.507", us("2026-01-03T15:36:53.507+00:00"), LOCAL),
        ("2026-01-03 15:36:53", us("2026-01-03T15:36:53+00:00"), LOCAL),
        ("20260103 15:36:53", us("2026-01-03T15:36:53+00:00"), LOCAL),
        ("2025-09-24T03:17:04.490Z", us("2025-09-24T03:17:04.490+00:00"), ZONED),
        (" 2025-09-24T03:17:04.4901234+02:00 ", us("2025-09-24T01:17:04.490123+00:00"), ZONED),
        ("2025-09-24T03:17:04-0330", us("2025-09-24T06:47:04+00:00"), ZONED),
        ("1746556388.344134", 1746556388344134, ZONED),
        ("1746556388344", 1746556388344000, ZONED),
        ("1746556388344134000", 1746556388344134 // 1024 * 1024, ZONED),  # a float has 53 bits
        ("12.5", 12_500_000, RELATIVE),
        ("23:59:58", 86398 * SECOND_US, RELATIVE),
    ],
)
def test_a_time_and_its_kind(text: str, time_us: int, kind: str) -> None:
    found = times_of(Texts.of([text]), elapsed=False)
    assert (found.kind, bool(found.there[0])) == (kind, True)
    assert abs(int(found.time_us[0]) - time_us) <= (1024 if len(text) == 19 and text.isdigit() else 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[N/A]",
        "2026/13/03 15:36:53",
        "2026/01/03 25:36:53",
        "nan",
        "inf",
        "-5",
        "1e300",
        "0001/01/01 00:00:00",
        "12:61:00",
    ],
)
def test_what_is_no_time(text: str) -> None:
    assert not times_of(Texts.of([text]), elapsed=False).there[0]


def test_seconds_since_the_start_may_be_as_large_as_a_date() -> None:
    found = times_of(Texts.of(["0.08", "0.34"]), elapsed=True)
    assert (found.kind, found.time_us.tolist()) == (RELATIVE, [80_000, 340_000])
    assert times_of(Texts.of(["1500"]), elapsed=True, factor=1e-3).time_us.tolist() == [1_500_000]


def test_of_two_kinds_in_a_table_one_is_used() -> None:
    found = times_of(Texts.of(["2026/01/03 15:36:53", "1746556388", "x"]), elapsed=False)
    assert (found.kind, found.there.tolist()) == (LOCAL, [True, False, False])


def test_midnight() -> None:
    times = np.array([86398, 86399, 0, 1, 86399, 3]) * SECOND_US
    assert np.diff(unwrapped(times)).tolist() == [
        SECOND_US,
        SECOND_US,
        SECOND_US,
        86398 * SECOND_US,
        4 * SECOND_US,
    ]


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]
)
def test_the_clock_of_a_zone_through_a_year(zone: str) -> None:
    """Each quarter of an hour of a year, through both changes of the clock."""
    moments = np.arange(us("2025-01-01T00:00:00+00:00"), us("2026-01-01T00:00:00+00:00"), 900 * SECOND_US)
    wall = [
        datetime.fromtimestamp(int(one) // SECOND_US, ZoneInfo(zone)).replace(tzinfo=UTC) for one in moments
    ]
    local = np.array([int(one.timestamp()) * SECOND_US for one in wall])
    # Without the second pass of the hour that comes twice nothing tells the passes apart but the order.
    months = np.split(np.arange(len(moments)), 12)
    found = np.concatenate([in_zone(local[rows], ZoneInfo(zone)) for rows in months])
    assert np.array_equal(found, moments)


@pytest.mark.parametrize(("name", "hours"), [("UTC", 0), ("+02:00", 2), ("-0330", -3.5), ("Asia/Tokyo", 9)])
def test_zones(name: str, hours: float) -> None:
    noon = us("2025-06-01T12:00:00+00:00")
    assert in_zone(np.array([noon]), zone_of(name))[0] == noon - hours * 3600 * SECOND_US


@pytest.mark.parametrize(
    "name", ["", "Europe/Nowhere", "../../etc/passwd", "+99:00", "/etc/localtime", "a\0b"]
)
def test_no_zone(name: str) -> None:
    with pytest.raises(UsageError, match="is no time zone"):
        zone_of(name)
