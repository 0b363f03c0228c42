"""When rows of nvidia-smi logs were written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from jobreport.errors import UsageError
from jobreport.options import Options
from jobreport.readers.nvidia_smi.table import Texts, columns_of
from jobreport.readers.nvidia_smi.times import (
    CLOCK,
    DAY_FIRST,
    LOCAL,
    MONTH_FIRST,
    RELATIVE,
    ZONED,
    clock_change,
    in_zone,
    times_of,
    unwrapped,
    zone_of,
)
from jobreport.readers.registry import read_directory
from jobrules.model import SECOND_US
from tests.once import slow_but

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
        ("Tue, 13 Jan 2026 15:00:00 +0000", us("2026-01-13T15:00:00+00:00"), ZONED),
        ("Tue Jan 13 15:00:00 2026", us("2026-01-13T15:00:00+00:00"), LOCAL),
        ("13 January 2026 15:00:00", us("2026-01-13T15:00:00+00:00"), LOCAL),
        ("13.01.2026 15:00:00", us("2026-01-13T15:00:00+00:00"), DAY_FIRST),
        ("13/1/2026 15:00:00", us("2026-01-13T15:00:00+00:00"), DAY_FIRST),
        ("1/13/2026 15:00:00", us("2026-01-13T15:00:00+00:00"), MONTH_FIRST),
        ("1/13/2026 3:00:00 PM", us("2026-01-13T15:00:00+00:00"), MONTH_FIRST),
        ("1746556388.344134", 1746556388344134, ZONED),
        ("1746556388344", 1746556388344000, ZONED),
        ("1746556388344134000", 1746556388344134 // 1024 * 1024, ZONED),  # a float has 53 bits
        ("12.5", 12_500_000, RELATIVE),
        ("23:59:58", 86398 * SECOND_US, CLOCK),
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


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["2026/01/03 15:36:53", "1746556388"], LOCAL),
        (["2026-01-03T15:36:53Z", "2026-01-03T15:36:53", "2026-01-03T15:36:53Z"], ZONED),
        (["2026-01-03T15:36:53Z", "2026-01-03T15:36:53", "2026-01-03T15:36:54"], LOCAL),
        (["1746556388", "17.5", "1746556388", "1746556389"], ZONED),
        (["17.5", "1746556388", "17.5"], RELATIVE),
    ],
)
def test_of_two_kinds_in_a_table_the_commonest_is_used(texts: list[str], kind: str) -> None:
    found = times_of(Texts.of([*texts, "x"]), elapsed=False)

    alone = [times_of(Texts.of([text]), elapsed=False).kind == kind for text in texts]
    assert (found.kind, found.there.tolist()) == (kind, [*alone, False])
    assert found.other.sum() == 1


@pytest.mark.parametrize("factor", [1.0, 3600.0])
@pytest.mark.parametrize("elapsed", [False, True])
@pytest.mark.parametrize("form", ["{}", "{}.25", "99{:06}", "17465563{:02}"])
def test_times_of_many_rows_are_those_of_each_alone(form: str, elapsed: bool, factor: float) -> None:
    texts = [form.format(i) for i in range(100)]
    (column,) = columns_of(texts, "\n", 1)

    found = times_of(column, elapsed=elapsed, factor=factor)

    alone = [times_of(Texts.of([text]), elapsed=elapsed, factor=factor) for text in texts]
    assert found.kind == alone[0].kind
    assert found.there.tolist() == [bool(one.there[0]) for one in alone]
    assert found.time_us.tolist() == [int(one.time_us[0]) for one in alone]


def test_midnight() -> None:
    times = np.array([86398, 86399, 0, 1, 86399, 3]) * SECOND_US
    assert np.diff(unwrapped(times, times[0])).tolist() == [
        SECOND_US,
        SECOND_US,
        SECOND_US,
        86398 * SECOND_US,
        4 * SECOND_US,
    ]


def test_a_gpu_that_is_first_seen_after_midnight() -> None:
    found = unwrapped(np.array([0, 1]) * SECOND_US, 86399 * SECOND_US)
    assert (found // SECOND_US).tolist() == [86400, 86401]


def test_a_clock_that_was_set_before_has_no_effect_on_the_hour_that_comes_twice() -> None:
    clock = ["00:20", "00:05", "01:00", "01:30", "02:00", "02:30", "02:00", "02:30", "03:00"]
    local = np.array([us(f"2026-10-25T{one}+00:00") for one in clock])
    # The autumn of the year before is in the same log.
    before = local - 364 * DAY_US

    found = in_zone(np.concatenate([before, local]), ZoneInfo("Europe/Berlin"))

    utc = ["22:20", "22:05", "23:00", "23:30", "00:00", "00:30", "01:00", "01:30", "02:00"]
    for year, mine in (("2025-10-26", found[:9]), ("2026-10-25", found[9:])):
        midnight = us(f"{year}T00:00+00:00")
        assert ((mine - midnight) % DAY_US // SECOND_US).tolist() == [
            int(h) * 3600 + int(m) * 60 for h, m in (one.split(":") for one in utc)
        ]


@pytest.mark.parametrize(
    "zone",
    slow_but(
        {"Europe/Berlin", "Australia/Lord_Howe"},
        ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"],
    ),
)
def test_the_clock_of_a_zone_through_a_year(zone: str) -> None:
    """Each quarter of an hour of a year, through both changes of the clock."""
    moments = np.arange(us("2025-01-01T00:00:00+00:00"), us("2026-01-01T00:00:00+00:00"), 900 * SECOND_US)
    wall = [
        datetime.fromtimestamp(int(one) // SECOND_US, ZoneInfo(zone)).replace(tzinfo=UTC) for one in moments
    ]
    local = np.array([int(one.timestamp()) * SECOND_US for one in wall])
    # Without the second pass of the hour that comes twice only the order separates the passes.
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
    with pytest.raises(UsageError, match="Unknown time zone"):
        zone_of(name)


@pytest.mark.parametrize(
    ("every_s", "before_min", "moments"),
    # In the last three the hour that the clock shows twice is most of the log.
    slow_but(
        {(10, 17, 1500), (20, 58, 360)},
        [(1, 17, 1500), (10, 17, 1500), (45, 17, 1500), (5, 50, 1440), (7, 50, 1028), (20, 58, 360)],
    ),
)
@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", "2026-10-25T01:00Z"),
        ("Europe/Berlin", "2026-03-29T01:00Z"),
        ("America/New_York", "2026-11-01T06:00Z"),
        ("America/New_York", "2026-03-08T07:00Z"),
        ("UTC", "2026-03-29T01:00Z"),
    ],
)
def test_a_log_over_a_change_of_the_clock_names_the_option(
    tmp_path: Path, zone: str, change: str, every_s: int, before_min: int, moments: int
) -> None:
    start = datetime.fromisoformat(change) - timedelta(minutes=before_min, seconds=3)
    times = [(start + timedelta(seconds=i * every_s)).astimezone(ZoneInfo(zone)) for i in range(moments)]
    rows = [
        f"{at:%Y/%m/%d %H:%M:%S}.417, {gpu}, {(7 * i + gpu) % 100} %"
        for i, at in enumerate(times)
        for gpu in (0, 1)
    ]
    (tmp_path / "gpu.csv").write_text("\n".join(["timestamp, index, utilization.gpu [%]", *rows, ""]))

    said = {
        given: {
            one.code for one in read_directory(tmp_path, Options(timezone=given)).quality.sources[0].remarks
        }
        for given in ("UTC", zone)
    }

    assert ("nvidia_smi.clock_change" in said["UTC"]) == (zone != "UTC")
    assert said[zone] == {"nvidia_smi.zone"}


@pytest.mark.parametrize("pause_s", [-3600, 3600])
def test_an_hour_without_rows_is_no_change_of_the_clock(pause_s: int) -> None:
    time_us = us("2026-01-03T10:17:00Z") + np.cumsum([1] * 99 + [pause_s + 1] + [1] * 99) * SECOND_US

    assert clock_change(time_us) == 0
