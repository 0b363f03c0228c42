"""Numbers in words."""

from __future__ import annotations

import pytest

from jobreport.comparison import words
from jobreport.comparison.document import Change, Word
from jobreport.cost.words import money, price


@pytest.mark.parametrize(
    ("amount", "unit", "text"),
    [
        (0.0, "s", "0.0 s"),
        (0.0459, "s", "45.9 ms"),
        (503.0, "s", "503.0 s"),
        (45.04, "%", "45.0%"),
        (None, "%", "–"),
        (5577.1, "samples/s", "5,577 samples/s"),
        (0.2789, "GPU-h", "0.279 GPU-h"),
        (3 * 1024.0**3, "B", "3.0 GiB"),
    ],
)
def test_values_have_their_unit(amount: float | None, unit: str, text: str) -> None:
    assert words.value(amount, unit).replace("\u00a0", " ") == text


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        (6.15672, "USD", "$6.16"),
        (-0.852, "EUR", "−€0.852"),
        (0.01234, "GBP", "£0.0123"),
        (1234.5, "CHF", "1,234.50 CHF"),
    ],
)
def test_money_has_two_digits_and_more_below_one(amount: float, currency: str, text: str) -> None:
    assert money(amount, currency).replace("\u00a0", " ") == text
    assert price(14.688, "USD") == "$14.688"
    assert price(3.1, "USD") == "$3.10"


@pytest.mark.parametrize(
    ("found", "change", "interval"),
    [
        (Change(word=Word.NOT_TESTED, change=-82.67), "−82.7%", ""),
        (Change(word=Word.WORSE, change=5.0, low=-3.04, high=9.11), "+5.0%", "−3.0 to +9.1%"),
        # A change of a percentage is never in percent.
        (Change(word=Word.HIGHER, points=32.5, low=30.0, high=35.0), "+32.5 points", "+30.0 to +35.0 points"),
        (Change(word=Word.WORSE, change=4900.0, low=4000.0, high=6000.0), "× 50", "× 41 to 61"),
        (Change(word=Word.NOT_MEASURED), "–", ""),
        (Change(word=Word.SAME, change=-0.04, low=-0.04, high=0.04), "0.0%", "0.0 to 0.0%"),
    ],
)
def test_changes_have_a_sign(found: Change, change: str, interval: str) -> None:
    assert words.change(found).replace("\u00a0", " ") == change
    assert words.interval(found).replace("\u00a0", " ") == interval


def test_numbers_of_a_pair_have_one_unit() -> None:
    def plain(texts: list[str]) -> list[str]:
        return [text.replace("\u00a0", " ") for text in texts]

    assert plain(words.times(461.7e-6, 47.3e-3)) == ["0.462 ms", "47.3 ms"]
    assert plain(words.times(2e-8, 47.3e-3, 0.0)) == ["under 0.001 ms", "47.3 ms", "0.0 ms"]
    assert plain(words.durations(0.02, 2.5)) == ["0.020 s", "2.50 s"]
    assert plain(words.durations(70, 503)) == ["70 s", "503 s"]
    assert plain(words.values([2.0 * 1024**2, None, 3.0 * 1024**3], "B")) == ["0.0 GiB", "–", "3.0 GiB"]
    assert plain(words.stretches(0.0, 0.8)) == ["less than 1 ms", "800.0 ms"]
