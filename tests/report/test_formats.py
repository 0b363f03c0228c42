"""Numbers in words."""

from __future__ import annotations

import pytest

from jobreport import formats


@pytest.mark.parametrize(
    ("largest", "unit"),
    [(0, "B/s"), (999, "B/s"), (1000, "kB/s"), (4.1e7, "MB/s"), (2e9, "GB/s"), (3e13, "TB/s")],
)
def test_bytes_per_second_get_a_prefix_and_other_units_stay(largest: float, unit: str) -> None:
    assert formats.rate_scale((0.0, largest)).unit == unit
    assert formats.rate_scale((0.0, largest), "%") == formats.Scale(factor=1.0, unit="%")


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5"), (12_000, "12,000"), (None, "none"), ("GLOBAL", "GLOBAL")]
)
def test_parameters_are_printed_as_they_were_given(value: float | str | None, text: str) -> None:
    assert formats.plain_number(value) == text


def test_all_of_a_count_are_named() -> None:
    assert [formats.every(n, "GPU") for n in (1, 2, 8)] == ["The GPU", "Both GPUs", "All 8\u00a0GPUs"]
