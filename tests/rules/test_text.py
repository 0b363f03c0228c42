from __future__ import annotations

import pytest

from jobrules.text import between, count, duration, escape_name, join_names, number, percent, quantity

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.5, "0.5 s"),
        (59.96, "1 min"),
        (60, "1 min"),
        (90, "1 min 30 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (7199, "2 h"),
        (86_395, "1 d"),
        (86_399 * 3, "3 d"),
        (11_520, "3 h 12 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds * SECOND).replace("\u00a0", " ") == text


def test_counts_agree_in_number_and_group_thousands() -> None:
    assert [count(n, "node") for n in (0, 1, 12345)] == [
        "0\u00a0nodes",
        "1\u00a0node",
        "12,345\u00a0nodes",
    ]


def test_numbers_below_0_have_a_true_minus() -> None:
    assert (number(-1234.5, 1), percent(-3.0), quantity(-2.5, "points")) == (
        "−1,234.5",
        "−3.0%",
        "−2.5\u00a0points",
    )


def test_ranges_name_the_day_once_unless_it_changes() -> None:
    start = 1_700_000_040 * SECOND

    assert between(start, start + 60 * SECOND) == "2023-11-14 22:14:00 to 22:15:00\u00a0UTC"
    assert between(start, start + 86400 * SECOND) == "2023-11-14 22:14:00 to 2023-11-15 22:14:00\u00a0UTC"


def test_long_lists_say_how_many_more() -> None:
    assert join_names(["a"]) == "a"
    assert join_names(["a", "b", "c"]) == "a, b, and c"
    assert join_names(list("abcdefg")) == "a, b, c, and 4 more"


def test_long_text_is_cut_in_the_middle_and_control_characters_are_escaped() -> None:
    assert escape_name("plain é 漢") == "plain é 漢"
    assert escape_name("a\x00\n\u202e\ud800") == "a\\x00\\n\\u202e\\ud800"
    assert escape_name("a" * 500 + "b" * 500) == "a" * 53 + "…" + "b" * 25
