"""Numbers for print: rounded once, so that every sum agrees with what stands beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def apportion(values: Sequence[float], total: float, digits: int) -> tuple[float, ...]:
    """Round non-negative values in proportion so that they add up to ``round(total, digits)``.

    Largest-remainder method: every value is rounded down, and the units that are left go to the
    largest remainders, the earlier value first. All zero stays all zero.
    """
    whole = sum(values)
    if whole <= 0:
        return tuple(0.0 for _ in values)
    scale = 10**digits
    units = round(total * scale)
    exact = [value / whole * units for value in values]
    floors = [math.floor(x) for x in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: floors[i] - exact[i])
    for i in by_remainder[: units - sum(floors)]:
        floors[i] += 1
    return tuple(round(n / scale, digits) for n in floors)


def digits_for(total: float, significant: int = 3) -> int:
    """Digits after the point that show ``total`` with ``significant`` digits, between 1 and 6."""
    if total <= 0:
        return 1
    return min(6, max(1, significant - 1 - math.floor(math.log10(total))))
