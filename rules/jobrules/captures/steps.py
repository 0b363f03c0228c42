"""The steps of a capture: on the host as they were marked, on a device as windows that add up to its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.captures.trace import NOT_GIVEN

if TYPE_CHECKING:
    from jobrules.captures.device_time import DeviceTime
    from jobrules.captures.trace import Trace
    from jobrules.model import BoolArray, CodeArray, IntArray

#: Steps may overlap by this: marks of old writers are rounded to it.
_MAX_OVERLAP_NS = 1000
#: A last step with fewer device events than this share of the one before it is cut short.
_MIN_EVENTS = 0.8


class HostSteps(Struct, frozen=True, kw_only=True, eq=False):
    """The steps of one process, in the order of their starts."""

    number: IntArray
    start: IntArray
    end: IntArray
    #: The thread that marks them; ``NOT_GIVEN`` without steps.
    thread: int = NOT_GIVEN
    #: Why there are none: ``other_process``, ``overlapping``, or empty; and the marks of other processes.
    missing: str = ""
    elsewhere: int = 0

    def __len__(self) -> int:
        return len(self.number)

    @property
    def start_ns(self) -> int:
        """Start of the first."""
        return int(self.start[0])

    @property
    def end_ns(self) -> int:
        """End of the last."""
        return int(self.end.max())

    def of(self, time_ns: IntArray) -> IntArray:
        """(n,) position of the step in which each moment lies: from its start to that of the next, or to the last end."""
        if not len(self):
            return np.full(len(time_ns), NOT_GIVEN)
        at = np.searchsorted(self.start, time_ns, side="right") - 1
        return np.where((at >= 0) & (time_ns < self.end_ns), at, NOT_GIVEN)


def host_steps(trace: Trace) -> HostSteps:
    """The steps that the process with the launches marked; of several threads, those of the one with most.

    Of threads with equally many, the one that began first.
    """
    numbers = np.full(len(trace.names), NOT_GIVEN)
    for code in np.flatnonzero(trace.steps).tolist():
        numbers[code] = int(trace.names[code].rpartition("#")[2])
    tables = (trace.marks, trace.operators)
    rows = [np.flatnonzero(trace.steps[table.name]) for table in tables]
    name, thread, start, end = (
        np.concatenate([getattr(table, key)[some] for table, some in zip(tables, rows, strict=True)])
        for key in ("name", "thread", "start_ns", "end_ns")
    )
    number = numbers[name]
    own = _of_launching_process(trace, thread)
    elsewhere = int((~own).sum())
    number, thread, start, end = number[own], thread[own], start[own], end[own]
    if not len(number):
        return _none("other_process" if elsewhere else "", elsewhere)
    threads, counts = np.unique(thread, return_counts=True)
    most = np.isin(thread, threads[counts == counts.max()])
    marking = int(thread[most][start[most].argmin()])
    chosen = thread == marking
    number, start, end = number[chosen], start[chosen], end[chosen]
    # Of the same number the longer one.
    order = np.lexsort((start, start - end, number))
    first = np.append(True, np.diff(number[order]) != 0)
    order = order[first]
    order = order[np.argsort(start[order], kind="stable")]
    number, start, end = number[order], start[order], end[order]
    if (np.maximum.accumulate(end)[:-1] > start[1:] + _MAX_OVERLAP_NS).any():
        return _none("overlapping", elsewhere)
    return HostSteps(number=number, start=start, end=end, thread=marking, elsewhere=elsewhere)


def _none(missing: str, elsewhere: int) -> HostSteps:
    empty = np.empty(0, np.int64)
    return HostSteps(number=empty, start=empty, end=empty, missing=missing, elsewhere=elsewhere)


def _of_launching_process(trace: Trace, thread: CodeArray) -> BoolArray:
    """(n,) which threads belong to a process with launches; all if no process has any."""
    if not trace.launching:
        return np.ones(len(thread), np.bool_)
    processes = {trace.threads[one][0] for one in trace.launching}
    own = np.array([process in processes for process, _ in trace.threads], np.bool_)
    return np.asarray(own[thread])


def device_windows(time: DeviceTime, steps: HostSteps) -> IntArray:
    """(steps + 1,) borders of the steps' windows on a device: each ends with the step and all that it launched."""
    ends = steps.end.copy()
    linked = time.step != NOT_GIVEN
    np.maximum.at(ends, time.step[linked], time.events.end_ns[linked])
    borders = np.maximum.accumulate(np.append(time.start_ns, ends))
    borders[-1] = time.end_ns
    return np.asarray(np.minimum(borders, borders[-1]))


def incomplete_step(time: DeviceTime, steps: HostSteps) -> int | None:
    """Number of the last step if the capture ends within it."""
    if len(steps) < 2:
        return None
    counts = np.bincount(time.step[time.step != NOT_GIVEN], minlength=len(steps))
    return int(steps.number[-1]) if counts[-1] < _MIN_EVENTS * counts[-2] else None
