"""Ticks and round numbers."""

from __future__ import annotations

import pytest

from jobreport.page.figures.scales import ceiling, time_ticks

MINUTE = 60_000_000
START = 1_763_107_200_000_000  # 2025-11-14 08:00:00 UTC


@pytest.mark.parametrize(
    ("span_us", "labels"),
    [
        (40 * MINUTE, ["08:00", "08:10", "08:20", "08:30", "08:40"]),
        (3 * 24 * 60 * MINUTE, ["08:00", "20:00", "08:00", "20:00", "08:00", "20:00", "08:00"]),
        (1_000_000, ["08:00:00", "08:00:00.2", "08:00:00.4", "08:00:00.6", "08:00:00.8", "08:00:01"]),
    ],
)
def test_ticks_are_round_times_of_day(span_us: int, labels: list[str]) -> None:
    assert len(time_ticks(START, START + span_us)) <= 7
    if span_us < 24 * 60 * MINUTE:
        assert [tick.label for tick in time_ticks(START, START + span_us)] == labels


def test_a_year_has_few_ticks() -> None:
    assert 1 < len(time_ticks(START, START + 365 * 24 * 60 * MINUTE)) <= 14


def test_a_moment_has_no_ticks() -> None:
    assert time_ticks(START, START) == ()


@pytest.mark.parametrize(
    ("value", "top"),
    [(0, 1), (-3, 1), (0.3, 0.3), (7, 8), (100, 100), (101, 200), (float("inf"), 1), (41e6, 5e7)],
)
def test_the_top_of_a_scale_is_a_round_number_above_the_value(value: float, top: float) -> None:
    assert ceiling(value) == pytest.approx(top)
