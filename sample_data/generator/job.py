"""What job to write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from generator.curves import Curves, Moment

__all__ = ["JobSpec", "Scenario"]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A way for a job to behave, and the machine it is typically run on."""

    summary: str
    curves: Callable[[Moment], Curves]
    gpus: int
    cores: int
    duration_s: float
    #: From when to when, in seconds since the start, no sample is taken.
    pauses_s: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A scenario on a machine, with a time and a seed."""

    scenario: Scenario
    nodes: int
    gpus: int
    cores: int
    duration_us: int
    interval_us: int
    start_us: int
    seed: int
