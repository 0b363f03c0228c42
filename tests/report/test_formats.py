from __future__ import annotations

import pytest

from jobreport import formats
from jobreport.formats import Scale

DAY_US = 86_400_000_000
START_US = 1_763_107_200_000_000  # 2025-11-14 08:00:00 UTC


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0, 1, "0.0"), (12345.67, 1, "12,345.7"), (1_054_080, 0, "1,054,080"), (0.25, 2, "0.25")],
)
def test_thousands_are_separated_by_a_comma(value: float, digits: int, text: str) -> None:
    assert formats.number(value, digits) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(70.0, "70"), (0.5, "0.5"), (12_000, "12,000"), (None, "none"), ("GLOBAL", "GLOBAL")],
)
def test_parameters_are_printed_as_they_were_given(value: float | str | None, text: str) -> None:
    assert formats.plain_number(value) == text


@pytest.mark.parametrize(
    ("largest", "unit"),
    [(0, "B/s"), (999, "B/s"), (1000, "kB/s"), (4.1e7, "MB/s"), (2e9, "GB/s"), (3e13, "TB/s")],
)
def test_bytes_per_second_get_a_prefix(largest: float, unit: str) -> None:
    assert formats.rate_scale((0.0, largest)).unit == unit


def test_other_units_stay() -> None:
    assert formats.rate_scale((5e6,), "%") == Scale(factor=1.0, unit="%")
    assert formats.rate_scale(()) == Scale(factor=1.0, unit="B/s")


def test_times_state_their_zone_and_their_day() -> None:
    assert formats.date_time(START_US) == "2025-11-14 08:00:00\u00a0UTC"
    assert formats.column_time(START_US, with_day=False) == "08:00:00"
    assert formats.column_time(START_US, with_day=True) == "2025-11-14 08:00:00"
    assert not formats.spans_days(START_US, START_US + 1)
    assert formats.spans_days(START_US, START_US + DAY_US)


def test_all_of_a_count_are_named() -> None:
    assert [formats.every(n, "GPU") for n in (1, 2, 8)] == ["The GPU", "Both GPUs", "All 8\u00a0GPUs"]


def test_exported_names_exist() -> None:
    assert set(formats.__all__) <= set(vars(formats))
