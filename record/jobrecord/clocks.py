"""The wall clock and a clock that never steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Time = TypeVar("Time", int, float)


def read_both(steady: Callable[[], Time], wall: Callable[[], Time]) -> tuple[Time, Time]:
    """Both clocks at one moment.

    A process may be paused between two readings, which would look like a step of the wall clock: of three tries, the one
    that took the least time counts.
    """
    tries = [(steady(), wall(), steady()) for _ in range(3)]
    before, now, _ = min(tries, key=lambda one: one[2] - one[0])
    return before, now
