"""The slowest step of a capture as bars: what the thread of the steps did, its launches, and each stream below them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.captures.trace import NOT_GIVEN
from jobrules.measures.intervals import union
from jobrules.model import natural_key
from jobrules.model.captures import BAR_KINDS, StepLane, StepLines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.captures.device_time import DeviceTime
    from jobrules.captures.steps import HostSteps
    from jobrules.captures.trace import HostCalls, Trace
    from jobrules.model import BoolArray, CodeArray, IntArray

MAX_BARS, MAX_STREAMS = 2000, 16
#: Events of one kind that are shorter than one of so many equal parts of the stretch, and begin in it, are one bar.
_CELLS = 1000
_MAX_TICKS = 1 << 30
_KIND = {kind: code for code, kind in enumerate(BAR_KINDS)}


class _Lane(Struct, frozen=True, kw_only=True, eq=False):
    """Events of one line, sorted by start."""

    kind: str
    name: str
    start_ns: IntArray
    end_ns: IntArray
    what: CodeArray
    label: CodeArray


def step_lines(trace: Trace, steps: HostSteps, times: Sequence[DeviceTime], last_ns: int) -> StepLines | None:
    """The step that took longest on the host, to the end of the device events that it launched; None without steps.

    A last step that the capture cuts short ends at ``last_ns`` at the latest.
    """
    if not len(steps):
        return None
    slowest = int((steps.end - steps.start).argmax())
    start = int(steps.start[slowest])
    ends = [int(time.events.end_ns[time.step == slowest].max(initial=start)) for time in times]
    end = min(max(int(steps.end[slowest]), *ends, start + 1), max(last_ns, start + 1))
    lanes = [lane for lane in _lanes(trace, steps, times, start, end) if len(lane.start_ns)]
    tick_ns = (end - start) // _MAX_TICKS + 1
    cell_ns = (end - start) // _CELLS
    joined = [_joined(lane, start, cell_ns) for lane in lanes]
    while sum(map(len, joined)) > MAX_BARS:
        cell_ns = 2 * cell_ns + 2
        joined = [_joined(lane, start, cell_ns) for lane in lanes]
    used = {label for bars in joined for label in bars[:, 3].tolist()} - {NOT_GIVEN}
    # Codes of names depend on where the blocks of the file ended.
    labels = sorted(used, key=trace.names.__getitem__)
    place = np.full(len(trace.names) + 1, NOT_GIVEN)
    place[labels] = np.arange(len(labels))
    rows = []
    for position, bars in enumerate(joined):
        label = place[bars[:, 3]]
        begin = (bars[:, 0] - start) // tick_ns
        length = (bars[:, 1] - start) // tick_ns - begin
        rows.append(
            np.stack([np.full(len(bars), position), begin, length, bars[:, 2], label, bars[:, 4]], axis=1)
        )
    return StepLines(
        number=int(steps.number[slowest]),
        start_ns=start,
        end_ns=end,
        tick_ns=tick_ns,
        cell_ns=cell_ns,
        lanes=tuple(
            StepLane(
                kind=lane.kind,
                name=lane.name,
                events=len(lane.start_ns),
                covered_ns=union(lane.start_ns, lane.end_ns).total,
            )
            for lane in lanes
        ),
        names=tuple(trace.names[one] for one in labels),
        bars=np.concatenate(rows).astype("<i4").tobytes() if rows else b"",
    )


def _lanes(
    trace: Trace, steps: HostSteps, times: Sequence[DeviceTime], start: int, end: int
) -> Iterator[_Lane]:
    """Data loading, marks that lie in no other, calls of the runtime, and the streams with most time."""
    marks, calls = trace.marks, trace.launches
    for table in (marks, trace.operators):
        yield _of_host(
            "data_loading", table, trace.loads[table.name] & (table.thread == steps.thread), start, end
        )
    own = (marks.thread == steps.thread) & ~(trace.steps | trace.loads)[marks.name]
    lane = _of_host("marks", marks, own, start, end)
    outer = lane.start_ns >= np.maximum.accumulate(np.append(start, lane.end_ns))[:-1]
    yield _Lane(
        kind=lane.kind,
        name="",
        start_ns=lane.start_ns[outer],
        end_ns=lane.end_ns[outer],
        what=lane.what[outer],
        label=lane.label[outer],
    )
    what = np.full(len(trace.names), _KIND["launch"])
    what[trace.blocks] = _KIND["synchronization"]
    what[trace.allocates] = _KIND["allocation"]
    yield _of_host("launches", calls, np.ones(len(calls), np.bool_), start, end, what[calls.name])
    for time in times:
        events = time.events
        inside = (events.start_ns < end) & (events.end_ns > start)
        busy = np.bincount(events.stream[inside], (events.end_ns - events.start_ns)[inside])
        # By name, as codes of streams depend on blocks, too.
        streams = sorted(np.flatnonzero(busy).tolist(), key=lambda one: natural_key(trace.streams[one]))
        busiest = sorted(streams, key=lambda one: -busy[one])[:MAX_STREAMS]
        for stream in (one for one in streams if one in busiest):
            rows = np.flatnonzero(inside & (events.stream == stream))
            yield _Lane(
                kind=f"device {time.device}",
                name=trace.streams[stream],
                start_ns=np.maximum(events.start_ns[rows], start),
                end_ns=np.minimum(events.end_ns[rows], end),
                what=time.kind[rows],
                label=events.name[rows],
            )


def _of_host(
    kind: str, table: HostCalls, rows: BoolArray, start: int, end: int, what: IntArray | None = None
) -> _Lane:
    (own,) = np.nonzero(rows & (table.start_ns < end) & (table.end_ns > start))
    own = own[np.lexsort((-table.end_ns[own], table.start_ns[own]))]
    codes = np.full(len(own), _KIND[kind]) if what is None else what[own]
    return _Lane(
        kind=kind,
        name="",
        start_ns=np.maximum(table.start_ns[own], start),
        end_ns=np.minimum(table.end_ns[own], end),
        what=codes.astype(np.int32),
        label=table.name[own],
    )


def _joined(lane: _Lane, start_ns: int, cell_ns: int) -> IntArray:
    """(bars, 5) start, end, kind, name or ``NOT_GIVEN`` for several, and events of each bar."""
    position = np.arange(len(lane.start_ns))
    cell = (lane.start_ns - start_ns) // max(cell_ns, 1)
    is_short = lane.end_ns - lane.start_ns < cell_ns
    key = np.where(is_short, cell * len(BAR_KINDS) + lane.what, -1 - position)
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(key[order]) != 0))
    lowest, highest = (edge.reduceat(lane.label[order], first) for edge in (np.minimum, np.maximum))
    bars = np.stack(
        [
            lane.start_ns[order][first],
            np.maximum.reduceat(lane.end_ns[order], first),
            lane.what[order][first],
            np.where(lowest == highest, lowest, NOT_GIVEN),
            np.diff(np.append(first, len(order))),
        ],
        axis=1,
    )
    return np.asarray(bars[np.argsort(bars[:, 0], kind="stable")].astype(np.int64))
