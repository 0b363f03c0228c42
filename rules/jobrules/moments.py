"""Moments worth a close look: the first steps, the worst minute, the last steps, samples above events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobrules.job import Job


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A short stretch of one node in full detail."""

    #: ``first-steps``, ``worst-minute`` or ``last-steps``.
    key: str


def moments(job: Job) -> tuple[Moment, ...]:
    """The chosen stretches, at most three; none where neither steps nor events were recorded."""
    return ()
