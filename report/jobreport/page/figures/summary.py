"""Places on a time axis, in percent."""

from __future__ import annotations

from msgspec import Struct


class Stretch(Struct, frozen=True, kw_only=True):
    """A part of the time axis, in percent."""

    at: float
    width: float


def stretch(start_us: int, end_us: int, axis: tuple[int, int]) -> Stretch:
    """The place of a time span on an axis, which must not be empty."""
    first, last = axis
    at = 100 * (max(start_us, first) - first) / (last - first)
    return Stretch(at=round(at, 2), width=round(100 * (min(end_us, last) - first) / (last - first) - at, 2))
