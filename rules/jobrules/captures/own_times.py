"""Own time of each step on each rank: what it took without waiting for other ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.model.captures import StepOfRanks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import FloatArray
    from jobrules.model.captures import Capture


class OwnTimes(Struct, frozen=True, kw_only=True, eq=False):
    """Time of each step of each capture that was no waiting for other ranks."""

    #: Of steps, in order.
    numbers: list[int]
    #: (captures, steps) nanoseconds, NaN where a capture does not hold a step.
    ns: FloatArray
    #: Whether waiting is known; if not, they are the times of steps.
    own: bool

    @property
    def medians_ns(self) -> FloatArray:
        """(captures,) median over steps."""
        return np.asarray(np.nanmedian(self.ns, axis=1))


def own_times(captures: Sequence[Capture]) -> OwnTimes:
    """Of each capture and step: its time on the host without exposed waiting for other ranks."""
    numbers = sorted({step.number for one in captures for step in one.step_times})
    place = {number: i for i, number in enumerate(numbers)}
    found = np.full((len(captures), len(numbers)), np.nan)
    known = False
    for own, capture in zip(found, captures, strict=True):
        waiting = _waiting(capture)
        known |= bool(waiting)
        for step in capture.step_times:
            own[place[step.number]] = step.host_ns - waiting.get(step.number, 0)
    return OwnTimes(numbers=numbers, ns=found, own=known)


def _waiting(capture: Capture) -> dict[int, int]:
    """Exposed waiting by number of the step, on the device that waited most."""
    found: dict[int, int] = {}
    for step in (step for device in capture.devices for step in device.steps):
        if step.exposed_waiting_ns is not None:
            found[step.number] = max(found.get(step.number, 0), step.exposed_waiting_ns)
    return found


def steps_of_ranks(captures: Sequence[Capture], own: OwnTimes, most: int) -> tuple[StepOfRanks, ...]:
    """The first steps over all captures."""
    found = []
    for number, times in zip(own.numbers[:most], own.ns.T, strict=False):
        longest = int(np.nanargmax(times))
        found.append(
            StepOfRanks(
                number=number,
                captures=int((~np.isnan(times)).sum()),
                shortest_ns=int(np.nanmin(times)),
                median_ns=float(np.nanmedian(times)),
                longest_ns=int(times[longest]),
                longest_on=captures[longest].rank,
            )
        )
    return tuple(found)
