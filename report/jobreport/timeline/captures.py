"""Rows of PyTorch's profiler: operators, marks, and calls of each thread, kernels and copies of each stream."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.timeline.rows import (
    CATEGORIES,
    CPU,
    GPU,
    NODES,
    PROCESSES,
    LaneRows,
    Name,
    Rows,
    head_of,
    named_rows,
    touches,
)
from jobrules.captures.capture import span_ns
from jobrules.captures.trace import HostCalls
from jobrules.verdict.profiled import NEAR_US

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jobreport.timeline.rows import Chosen, LeftOut
    from jobrules.captures.trace import DeviceEvents, Trace
    from jobrules.measures.clock_offsets import Clocks
    from jobrules.model import CodeArray, IntArray, Job
    from jobrules.model.captures import Capture

    #: The events of a capture, whose file is read once more; None if it is gone.
    Read = Callable[[Capture], Trace | None]

#: Lanes of the threads of a process, and of its streams; the last one holds all the rest.
_MOST = 100
#: What may be left out, and why.
NO_EPOCH = "PyTorch trace", "whose clock does not count from the epoch"
ANOTHER_TIME = "PyTorch trace", "recorded at another time"
NO_PLACE = "PyTorch trace", "of more nodes or processes than a file can tell apart"
GONE = "PyTorch trace", "moved or changed after the job was opened"


class Placed(Struct, frozen=True, kw_only=True):
    """A capture on the clock of the job."""

    capture: Capture
    #: Its node, or its machine where the job has no such node, and the number of that one.
    node: str
    number: int
    late_us: int

    @property
    def span_us(self) -> tuple[int, int]:
        """From its first event to its last."""
        start_us, end_us = self.capture.span_us or (0, 0)
        return start_us - self.late_us, end_us - self.late_us


def placed(job: Job, clocks: Clocks) -> tuple[list[Placed], LeftOut]:
    """The captures near the records of the job, on the clocks of their nodes; and why others are left out."""
    captures = [one for one in job.captures if not one.copy_of]
    hosts = dict.fromkeys(one.host for one in captures)
    nodes = list(dict.fromkeys((*job.nodes, *hosts)))
    # As the verdict of the page: those of one machine are of the only one that was sampled.
    only = job.nodes[0] if len(job.nodes) == len(hosts) == 1 else None
    found: list[Placed] = []
    left_out: LeftOut = Counter()
    for one in captures:
        node = only or one.host
        placed = Placed(capture=one, node=node, number=nodes.index(node), late_us=clocks.late_us(node))
        start_us, end_us = placed.span_us
        near = start_us - NEAR_US <= clocks.end_us and end_us + NEAR_US >= clocks.start_us
        if one.base_ns is None:
            left_out[NO_EPOCH] += 1
        elif job.facts and not near:
            left_out[ANOTHER_TIME] += 1
        elif placed.number >= NODES // PROCESSES - 1:
            left_out[NO_PLACE] += 1
        else:
            found.append(placed)
    return found, left_out


def of_captures(
    captures: Sequence[Placed], read: Read, chosen: Chosen, names: list[Name], left_out: LeftOut
) -> Iterator[Rows]:
    """The rows of captures; ``names`` gains those of their processes and lanes.

    A capture is in the process of its rank, or in one of its own if that has operators already.
    """
    processes = Counter(node for node, _ in chosen.pids)
    known = {one.pid for one in names if one.tid is None}
    full = {one.pid for one in names if one.tid is not None and CPU <= one.tid < GPU + _MOST}
    for one in captures:
        start_us, end_us = one.span_us
        if end_us < chosen.start_us or start_us >= chosen.end_us:
            continue
        rank = "" if one.capture.rank is None else str(one.capture.rank)
        pid = chosen.pids.get((one.node, rank), -1)
        if pid < 0 or pid in full:
            pid = PROCESSES * (one.number + 1) + processes[one.node]
            processes[one.node] += 1
        has_place = pid < PROCESSES * (one.number + 2)
        trace = read(one.capture) if has_place else None
        if trace is None or span_ns(trace) != (one.capture.start_ns, one.capture.end_ns):
            left_out[GONE if has_place else NO_PLACE] += 1
            continue
        full.add(pid)
        if pid not in known:
            name = f"{one.node} rank {rank or '?'} ({one.capture.file})"
            names.append(Name(pid=pid, name=name.strip(), sort=pid))
        window = (chosen.start_us + one.late_us, chosen.end_us + one.late_us)
        for lane in _lanes(trace, one.capture.base_ns or 0, window, chosen):
            yield from named_rows(lane, pid, one.late_us, names)


def _lanes(trace: Trace, base_ns: int, window: tuple[int, int], chosen: Chosen) -> Iterator[LaneRows]:
    calls, events = (trace.operators, trace.marks, trace.launches), trace.device_events
    host = HostCalls(
        **{
            name: np.concatenate([getattr(one, name) for one in calls])
            for name in ("name", "thread", "start_ns", "end_ns")
        }
    )
    threads = [f"thread {number}" for _, number in trace.threads]
    yield from _of_kind(CPU, trace, host, host.thread, threads, base_ns, window, chosen)
    known, stream = np.unique(np.stack([events.device, events.stream]), axis=1, return_inverse=True)
    streams = [f"GPU {device} stream {trace.streams[number]}" for device, number in known.T.tolist()]
    yield from _of_kind(GPU, trace, events, stream.ravel(), streams, base_ns, window, chosen)


def _of_kind(
    first: int,
    trace: Trace,
    events: HostCalls | DeviceEvents,
    place: CodeArray | IntArray,
    titles: Sequence[str],
    base_ns: int,
    window: tuple[int, int],
    chosen: Chosen,
) -> Iterator[LaneRows]:
    """A lane for each of the ``titles`` with events in the window; ``place`` (n,) is the title of each event."""
    base_us, rest_ns = divmod(base_ns, 1000)
    # Rounded down, so that what lies within another still does.
    start_us, end_us = (base_us + (ns + rest_ns) // 1000 for ns in (events.start_ns, events.end_ns))
    inside = np.flatnonzero(touches(start_us, end_us, window))
    if not chosen.allows(len(inside)):
        return
    used, lane = np.unique(place[inside], return_inverse=True)
    lane = np.minimum(lane, _MOST - 1)
    for number in range(min(len(used), _MOST)):
        rows = inside[lane == number]
        codes, head = np.unique(events.name[rows], return_inverse=True)
        is_rest = number == _MOST - 1 and len(used) > _MOST
        yield LaneRows(
            tid=first + number,
            title="others" if is_rest else titles[used[number]],
            start_us=start_us[rows],
            end_us=end_us[rows],
            process=np.broadcast_to(np.int64(-1), len(rows)),
            heads=[head_of(trace.names[code], CATEGORIES[first]) for code in codes.tolist()],
            head=head.astype(np.int32),
            tails=(),
            tail=np.broadcast_to(np.int32(-1), len(rows)),
        )
