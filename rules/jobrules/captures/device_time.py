"""The time of a device as a partition: computing, exposed communication, exposed copies, idle.

Each moment of the window belongs to the first of these that holds it, so the parts add up to the window in whole
nanoseconds. Unions are measured, never sums of durations: kernels of several streams overlap.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from jobrules.captures.kinds import COMMUNICATION, COMPUTE, COPY, are_pageable, classes
from jobrules.captures.trace import NO_CORRELATION, NOT_GIVEN, DeviceEvents, HostCalls
from jobrules.measures.intervals import Intervals, difference, joined, outside, union, within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.captures.steps import HostSteps
    from jobrules.captures.trace import Trace
    from jobrules.model import BoolArray, CodeArray


class DeviceTime(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The events of one device, sorted by start, with the calls that launched them, and the window that is judged."""

    device: int
    events: DeviceEvents
    #: (events,) ``COMPUTE``, ``COMMUNICATION``, or ``COPY``; and row of the launch in ``Trace.launches``, or ``NOT_GIVEN``.
    kind: CodeArray
    launch: CodeArray
    #: (events,) whether each is a copy from or to pageable host memory.
    pageable: BoolArray
    #: (events,) position of the step that launched each; ``NOT_GIVEN`` for none.
    step: CodeArray
    #: Where the steps begin on the host, and the window, which begins there or later.
    steps_start_ns: int
    start_ns: int
    end_ns: int

    @cached_property
    def window(self) -> Intervals:
        """All of it as one interval, or none."""
        return union(np.array([self.start_ns]), np.array([self.end_ns]))

    @cached_property
    def computing(self) -> Intervals:
        """Union of computing kernels in the window."""
        return self._within(self.kind == COMPUTE)

    @cached_property
    def communication(self) -> Intervals:
        """Union of communication."""
        return self._within(self.kind == COMMUNICATION)

    @cached_property
    def copies(self) -> Intervals:
        """Union of copies."""
        return self._within(self.kind == COPY)

    @cached_property
    def kernels(self) -> Intervals:
        """Union of computing and communication."""
        return joined((self.computing, self.communication))

    @cached_property
    def busy(self) -> Intervals:
        """Union of all events."""
        return joined((self.kernels, self.copies))

    @cached_property
    def exposed_communication(self) -> Intervals:
        """Communication that no computing hides."""
        return difference(self.communication, self.computing)

    @cached_property
    def exposed_copies(self) -> Intervals:
        """Copies that neither computing nor communication hides."""
        return difference(self.copies, self.kernels)

    @cached_property
    def idle(self) -> Intervals:
        """Time in the window without any event."""
        return outside(self.busy, self.start_ns, self.end_ns)

    @property
    def exposed_pageable_ns(self) -> int:
        """Exposed copies from or to pageable host memory."""
        return self._within(self.pageable).shared(self.exposed_copies)

    def _within(self, rows: BoolArray) -> Intervals:
        return within(self.events.start_ns[rows], self.events.end_ns[rows], self.start_ns, self.end_ns)


def device_times(trace: Trace, steps: HostSteps) -> list[DeviceTime]:
    """The devices of a trace that have events, by number."""
    events = trace.device_events
    kinds = np.where(events.copy, COPY, classes(trace.names, events.name)[events.name]).astype(np.int32)
    launch = launches_of(events, trace.launches)
    pageable = _pageable(events, kinds, trace.names)
    found = []
    for device in np.unique(events.device).tolist():
        rows = slice(*np.searchsorted(events.device, (device, device + 1)).tolist())
        own = replace(events, **{key: column[rows] for key, column in asdict(events).items()})
        of_step = np.full(len(own), NOT_GIVEN, np.int32)
        linked = launch[rows] != NOT_GIVEN
        of_step[linked] = steps.of(trace.launches.start_ns[launch[rows][linked]])
        start_ns, end_ns = _window(own, of_step, steps)
        found.append(
            DeviceTime(
                device=device,
                events=own,
                kind=kinds[rows],
                launch=launch[rows],
                pageable=pageable[rows],
                step=of_step,
                steps_start_ns=steps.start_ns if len(steps) else start_ns,
                start_ns=start_ns,
                end_ns=end_ns,
            )
        )
    return found


def _pageable(events: DeviceEvents, kinds: CodeArray, names: Sequence[str]) -> BoolArray:
    """(events,) which are copies from or to pageable host memory."""
    copies = kinds == COPY
    return np.asarray(copies & are_pageable(names, events.name[copies])[events.name])


def launches_of(events: DeviceEvents, launches: HostCalls) -> CodeArray:
    """(events,) row of the call that launched each: of several with its correlation the first by start."""
    order = np.lexsort((launches.start_ns, launches.correlation))
    sorted_ids = launches.correlation[order]
    at = np.searchsorted(sorted_ids, events.correlation)
    found = np.full(len(events), NOT_GIVEN, np.int32)
    if len(order):
        inside = np.minimum(at, len(order) - 1)
        known = (sorted_ids[inside] == events.correlation) & (events.correlation != NO_CORRELATION)
        found[known] = order[inside[known]]
    return found


def _window(events: DeviceEvents, step: CodeArray, steps: HostSteps) -> tuple[int, int]:
    """From the first event of the steps to the end of the last step and of all that the steps launched.

    Without steps, from the first start to the last end. Of no length if no event ends after the first step's start.
    """
    if not len(steps):
        return int(events.start_ns.min()), int(events.end_ns.max())
    after = events.end_ns > steps.start_ns
    if not after.any():
        return steps.start_ns, steps.start_ns
    start_ns = max(steps.start_ns, int(events.start_ns[after].min()))
    return start_ns, max(start_ns, int(events.end_ns[step != NOT_GIVEN].max(initial=steps.end_ns)))
