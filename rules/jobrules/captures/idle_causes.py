"""Why a device was idle: each idle nanosecond has one cause, found by the call that ended its gap.

A gap ends with a device event. If that was launched before the device ran dry, the device itself took the time: between
two kernels, or waiting for something that this device does not show. If it was launched later, the host came late, and
what its thread did meanwhile is the cause.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.captures.trace import NOT_GIVEN
from jobrules.measures.intervals import Intervals, difference, intersection, joined, union
from jobrules.model.captures import IDLE_CAUSES, IdleCause

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.captures.device_time import DeviceTime
    from jobrules.captures.steps import HostSteps
    from jobrules.captures.trace import HostCalls, Trace
    from jobrules.model import BoolArray, CodeArray, IntArray

#: Nanoseconds that a queued kernel takes to begin behind another one at most: 9 µs or less in 20 of 21 captures.
MAX_BETWEEN_NS = 10_000
#: What a launch call takes: 5 to 12 µs in the median.
MAX_CALL_NS = 50_000
#: From the end of a launch call to the kernel on an idle device: up to 24 µs on the slowest devices.
MAX_LATENCY_NS = 25_000
#: A blocking call that ends with the device's work may seem to end so much before it.
_TOLERANCE_NS = 2000
#: Above this share of the window, idle time without an explanation means that events are missing.
MAX_UNEXPLAINED = 0.05

_CODE: dict[IdleCause, int] = {cause: code for code, cause in enumerate(IDLE_CAUSES)}


class IdleParts(Struct, frozen=True, kw_only=True, eq=False):
    """The idle time of a device in parts with one cause each, sorted by start."""

    start_ns: IntArray
    end_ns: IntArray
    #: Position in ``IDLE_CAUSES``.
    cause: CodeArray
    #: Thread that launched what ended the gap; that of the steps at the end of the window; ``NOT_GIVEN`` for neither.
    thread: IntArray

    def by_cause(self, start_ns: IntArray, end_ns: IntArray) -> list[dict[IdleCause, int]]:
        """Nanoseconds of each cause in each of some windows."""
        times = np.zeros((len(start_ns), len(IDLE_CAUSES)), np.int64)
        for code in np.flatnonzero(np.bincount(self.cause)).tolist():
            rows = self.cause == code
            times[:, code] = union(self.start_ns[rows], self.end_ns[rows]).overlap(start_ns, end_ns)
        return [dict(zip(IDLE_CAUSES, row, strict=True)) for row in times.tolist()]


class _ByThread(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Calls in the order of their threads, so that those of a thread are found without a look at all."""

    start_ns: IntArray
    end_ns: IntArray
    thread: CodeArray
    #: Threads that any gap may ask: that of the steps, or, without steps, all that launched.
    common: frozenset[int]

    @classmethod
    def of(cls, common: frozenset[int], *wanted: tuple[HostCalls, BoolArray]) -> _ByThread:
        """The wanted rows of each table."""
        start_ns, end_ns, thread = (
            np.concatenate([getattr(calls, column)[rows] for calls, rows in wanted])
            for column in ("start_ns", "end_ns", "thread")
        )
        order = np.argsort(thread, kind="stable")
        return cls(start_ns=start_ns[order], end_ns=end_ns[order], thread=thread[order], common=common)

    def on(self, threads: frozenset[int]) -> _ByThread:
        """The calls of some threads."""
        first, last = (np.searchsorted(self.thread, sorted(threads), side) for side in ("left", "right"))
        count = last - first
        rows = np.repeat(last - np.cumsum(count), count) + np.arange(count.sum())
        return replace(self, start_ns=self.start_ns[rows], end_ns=self.end_ns[rows], thread=self.thread[rows])

    @cached_property
    def common_time(self) -> Intervals:
        """When any of the common threads ran a call."""
        calls = self.on(self.common)
        return union(calls.start_ns, calls.end_ns)


class HostActivity(Struct, frozen=True, kw_only=True, eq=False):
    """What threads of the host did that explains idle time."""

    loading: _ByThread
    allocation: _ByThread
    blocking: _ByThread
    profiler: Intervals

    @classmethod
    def of(cls, trace: Trace, steps: HostSteps, times: Sequence[DeviceTime]) -> HostActivity:
        """What stands in a trace; a copy from pageable memory blocks whatever its call is named."""
        calls = trace.launches
        blocks = trace.blocks[calls.name]
        for time in times:
            blocks[time.launch[time.pageable & (time.launch != NOT_GIVEN)]] = True
        common = trace.launching if steps.thread == NOT_GIVEN else frozenset({steps.thread})
        return cls(
            loading=_ByThread.of(
                common, *((table, trace.loads[table.name]) for table in (trace.marks, trace.operators))
            ),
            allocation=_ByThread.of(common, (calls, trace.allocates[calls.name])),
            blocking=_ByThread.of(common, (calls, blocks)),
            profiler=union(trace.overhead.start_ns, trace.overhead.end_ns),
        )


class _HostGaps(Struct, frozen=True, kw_only=True, eq=False):
    """Gaps in which the device waited for the host, by start; each asks its own thread, some the common ones too."""

    start_ns: IntArray
    end_ns: IntArray
    #: ``NOT_GIVEN`` for none.
    thread: IntArray
    asks_common: BoolArray

    def held(self, calls: _ByThread) -> Intervals:
        """The time in gaps in which a thread that the gap asks ran one of some calls."""
        asking = union(self.start_ns[self.asks_common], self.end_ns[self.asks_common])
        common = intersection(asking, calls.common_time)
        if not len(calls.thread):
            return common
        own = calls.on(frozenset(self.thread.tolist()))
        times, place = np.unique(
            np.concatenate([self.start_ns, own.start_ns, self.end_ns, own.end_ns]), return_inverse=True
        )
        # The places of each thread lie behind those of the one before it: no call meets the gap of another thread.
        thread = np.concatenate([self.thread, own.thread])
        start, end = place.reshape(2, -1) + len(times) * thread
        gaps = len(self.thread)
        met = intersection(union(start[:gaps], end[:gaps]), union(start[gaps:], end[gaps:]))
        return joined([common, union(times[met.start % len(times)], times[met.end % len(times)])])

    def longest_block(self, blocking: _ByThread) -> IntArray:
        """(gaps,) length of the longest blocking call that was running when each gap began, or had just ended."""
        calls = blocking.on(blocking.common.union(self.thread.tolist()))
        rows = np.argsort(calls.start_ns, kind="stable")
        columns = (column[rows].tolist() for column in (calls.start_ns, calls.end_ns, calls.thread))
        waiting = list(zip(*columns, strict=True))
        of_common, at = list[tuple[int, int]](), 0
        open_calls = defaultdict[int, list[tuple[int, int]]](list)
        found = np.zeros(len(self.start_ns), np.int64)
        asked = zip(self.start_ns.tolist(), self.thread.tolist(), self.asks_common.tolist(), strict=True)
        for gap, (begin, own, asks_common) in enumerate(asked):
            while at < len(waiting) and waiting[at][0] < begin:
                start, end, thread = waiting[at]
                heappush(open_calls[thread], (start - end, end))
                if thread in blocking.common:
                    heappush(of_common, (start - end, end))
                at += 1
            for heap in (open_calls[own], of_common) if asks_common else (open_calls[own],):
                while heap and heap[0][1] < begin - _TOLERANCE_NS:
                    heappop(heap)
                if heap:
                    found[gap] = max(found[gap], -heap[0][0])
        return found


def idle_parts(
    times: Sequence[DeviceTime], steps: HostSteps, launches: HostCalls, activity: HostActivity
) -> list[IdleParts]:
    """The causes of all idle time of each device."""
    if not times:
        return []
    start_ns, end_ns = (
        np.concatenate([getattr(time.idle, edge) for time in times]) for edge in ("start", "end")
    )
    device = np.repeat(np.arange(len(times)), [len(time.idle.start) for time in times])
    has_event = np.concatenate([_begins(time, time.idle.end) for time in times])
    ended_by = np.concatenate([_ending_launch(time, launches, time.idle.end) for time in times])
    parts: list[tuple[IntArray, IntArray, IdleCause, IntArray, IntArray]] = []
    call_start = np.where(ended_by >= 0, launches.start_ns[ended_by] if len(launches) else 0, 0)
    # A clock that is a little off may have the call begin behind its event.
    call_start = np.minimum(call_start, end_ns)
    call_end = np.where(ended_by >= 0, launches.end_ns[ended_by] if len(launches) else 0, 0)
    thread = np.where(ended_by >= 0, launches.thread[ended_by] if len(launches) else NOT_GIVEN, NOT_GIVEN)
    thread = np.where(has_event, thread, steps.thread).astype(np.int64)
    linked = ended_by != NOT_GIVEN

    def add(cause: IdleCause, rows: BoolArray, begin: IntArray, end: IntArray) -> None:
        some = rows & (end > begin)
        parts.append((begin[some], end[some], cause, thread[some], device[some]))

    add("unlinked", has_event & ~linked, start_ns, end_ns)

    queued = linked & (call_start < start_ns)
    short = end_ns - start_ns <= MAX_BETWEEN_NS
    add("between_kernels", queued & short, start_ns, end_ns)
    begun = np.clip(call_end + MAX_LATENCY_NS, start_ns, end_ns)
    add("launch_latency", queued & ~short, start_ns, begun)
    add("device_wait", queued & ~short, begun, end_ns)

    late = linked & (call_start >= start_ns)
    called = np.minimum(end_ns, call_start + MAX_CALL_NS)
    slow = np.maximum(called, np.minimum(end_ns, call_end))
    begun = np.maximum(slow, np.minimum(end_ns, call_end + MAX_LATENCY_NS))
    add("launch_latency", late, call_start, called)
    add("host", late, called, slow)
    add("launch_latency", late, slow, begun)
    add("device_wait", late, begun, end_ns)

    on_host = late | ~has_event
    host_end = np.where(late, call_start, end_ns)
    rows = np.flatnonzero(on_host & (host_end > start_ns))
    asks_common = (thread == NOT_GIVEN) | (steps.thread != NOT_GIVEN)
    for waiting, own in _by_device(device, rows):
        gaps = _HostGaps(
            start_ns=start_ns[own], end_ns=host_end[own], thread=thread[own], asks_common=asks_common[own]
        )
        for begin, end, cause in _host_parts(gaps, activity):
            of_gap = gaps.thread[np.searchsorted(gaps.start_ns, begin, side="right") - 1]
            parts.append((begin, end, cause, of_gap, np.full(len(begin), waiting)))
    begin, end, which, device = (np.concatenate([part[i] for part in parts]) for i in (0, 1, 3, 4))
    code = np.repeat(np.array([_CODE[part[2]] for part in parts], np.int32), [len(part[0]) for part in parts])
    order = np.lexsort((begin, device))
    found = dict(_by_device(device, order))
    return [
        IdleParts(start_ns=begin[own], end_ns=end[own], cause=code[own], thread=which[own])
        for own in (found.get(i, order[:0]) for i in range(len(times)))
    ]


def _by_device(device: IntArray, rows: IntArray) -> Iterator[tuple[int, IntArray]]:
    """The rows, which are sorted by device, of each device that has any."""
    own = device[rows]
    first = np.flatnonzero(np.diff(own, prepend=NOT_GIVEN)).tolist()
    for begin, end in pairwise([*first, len(rows)]):
        yield int(own[begin]), rows[begin:end]


def _begins(time: DeviceTime, moment_ns: IntArray) -> BoolArray:
    """(n,) whether an event begins at each moment."""
    starts = time.events.start_ns
    return np.asarray(starts[np.searchsorted(starts[:-1], moment_ns)] == moment_ns)


def _ending_launch(time: DeviceTime, launches: HostCalls, end_ns: IntArray) -> IntArray:
    """(gaps,) row of the earliest launch of the events with which each gap ends; ``NOT_GIVEN`` if none has one."""
    (rows,) = np.nonzero(time.launch != NOT_GIVEN)
    if not len(rows):
        return np.full(len(end_ns), NOT_GIVEN, np.int64)
    starts = time.events.start_ns[rows]
    order = np.lexsort((launches.start_ns[time.launch[rows]], starts))
    rows, starts = rows[order], starts[order]
    at = np.minimum(np.searchsorted(starts, end_ns), len(rows) - 1)
    return np.where(starts[at] == end_ns, time.launch[rows[at]], NOT_GIVEN)


def _host_parts(gaps: _HostGaps, activity: HostActivity) -> Iterator[tuple[IntArray, IntArray, IdleCause]]:
    """The parts of gaps in which the device waited for the host; each activity takes what those before it left."""
    left = union(gaps.start_ns, gaps.end_ns)
    layers: Sequence[tuple[IdleCause, Intervals]] = (
        ("data_loading", gaps.held(activity.loading)),
        ("profiler", activity.profiler),
        ("memory_allocation", gaps.held(activity.allocation)),
    )
    for cause, held in layers:
        taken = intersection(left, held)
        yield taken.start, taken.end, cause
        left = difference(left, held)
    begin, end = left.start, left.end
    gap = np.searchsorted(gaps.start_ns, begin, side="right") - 1
    blocked = gaps.longest_block(activity.blocking)
    before = np.cumsum(end - begin) - (end - begin)
    first = np.searchsorted(gap, gap)
    before -= before[first] if len(before) else 0
    until = np.clip(begin + blocked[gap] - before, begin, end)
    yield begin[until > begin], until[until > begin], "synchronisation"
    yield until[end > until], end[end > until], "host"
