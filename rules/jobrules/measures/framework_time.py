"""Where the time of the framework went: by operator, event type, and step.

The total time of an operator includes that of the operators it calls, as in SageMaker Debugger's files; its
self time does not.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec import Struct

from jobrules.measures.data_loading import START_UP, WORKER
from jobrules.measures.intervals import union
from jobrules.measures.rows import TRAIN, rows_by_lane, series_of
from jobrules.model import EventSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from jobrules.measures.clock_offsets import Clocks
    from jobrules.measures.intervals import Intervals
    from jobrules.model import BoolArray, CodeArray, Events, IntArray, Job, Lane, Steps

_T = TypeVar("_T")

#: Event types, and the modes of steps, of each.
CHECKPOINT, EVALUATION = ("Checkpoint",), ("Evaluation", "Validation", "EVAL")
#: Steps of evaluation with less than so many times their median length between them are those of one.
SOON = 3.0
#: Operators in the table by own time.
MOST_OPERATORS = 25
#: Operators with no more than this share are left out, in percent.
CUT = 2.0
#: The one event type of all tensors that Horovod exchanged.
HOROVOD = "Horovod"


class Kind(Enum):
    """What the events of a lane are."""

    CPU = auto()
    GPU = auto()
    STEP = auto()
    FORWARD = auto()
    BACKWARD = auto()
    GENERAL = auto()
    #: Lives of loader processes, which would drown what happens in them.
    LIFETIME = auto()
    #: Steps once more, as the GPU sees them.
    DEVICE_STEP = auto()
    #: What comes before the steps, and is no part of training.
    START_UP = auto()
    HOROVOD = auto()


#: The first that holds decides. The source comes first: Horovod's lanes have the names of tensors.
_TESTS: tuple[tuple[Kind, Callable[[Lane], bool]], ...] = (
    (Kind.HOROVOD, lambda lane: lane.source is EventSource.HOROVOD),
    (Kind.GENERAL, lambda lane: lane.source is EventSource.SMDATAPARALLEL),
    (Kind.CPU, lambda lane: "cpu" in lane.event_type.lower()),
    (Kind.GPU, lambda lane: "gpu" in lane.event_type.lower()),
    (Kind.STEP, lambda lane: "Step" in lane.event_type),
    (Kind.FORWARD, lambda lane: lane.event_type == "Forward-SubModuleInternal"),
    (Kind.BACKWARD, lambda lane: lane.event_type == "Backward-SubModuleInternal"),
    (Kind.LIFETIME, lambda lane: lane.event_type == WORKER),
    (Kind.DEVICE_STEP, lambda lane: lane.event_type == "Device step"),
    (Kind.START_UP, lambda lane: lane.event_type == START_UP),
    (Kind.GENERAL, lambda _: True),
)


def kind_of(lane: Lane) -> Kind:
    """What the events of a lane are."""
    return next(kind for kind, holds in _TESTS if holds(lane))


def event_type_of(lane: Lane) -> str:
    """The event type of a lane; Horovod's lanes have the names of tensors and share one."""
    return HOROVOD if lane.source is EventSource.HOROVOD else lane.event_type


#: Kinds with a time per name.
_NAMED = (Kind.CPU, Kind.GPU, Kind.HOROVOD)


def rows_of(events: Events, kind: Kind) -> BoolArray:
    """(n,) which events are of one kind."""
    return events.in_lanes(lambda lane: kind_of(lane) is kind)


class Sums(Struct, frozen=True, kw_only=True):
    """Microseconds of the events of one node, added up."""

    #: Empty without events.
    node: str
    #: By event type of the lanes of each kind; without what lasted no time.
    event_types: dict[Kind, dict[str, int]]
    #: Operators on CPU and GPU, and Horovod's activities, by name: with what they call, without it, and
    #: how often; the latter two only of operators, and how often only of whole events.
    total: dict[Kind, dict[str, int]]
    own: dict[Kind, dict[str, int]]
    calls: dict[Kind, dict[str, int]]


def summed(events: Events, weight_us: IntArray | None = None) -> Sums:
    """What ``breakdown_of`` needs to know of the events of one node.

    An event counts as long as it lasted, or ``weight_us`` (n,), for instance the part of it that
    lies in chosen moments; one of weight 0 takes no part.
    """
    weight = events.duration_us if weight_us is None else weight_us
    event_types: dict[Kind, dict[str, int]] = {kind: {} for kind in Kind}
    for lane, us in zip(events.lanes, _sums(events.lane, weight, len(events.lanes)).tolist(), strict=True):
        if us:
            times = event_types[kind_of(lane)]
            times[lane.event_type] = times.get(lane.event_type, 0) + us
    total, own, calls = ({kind: dict[str, int]() for kind in _NAMED} for _ in range(3))
    for kind in _NAMED:
        if event_types[kind]:
            rows = rows_of(events, kind) & (weight > 0)
            part, weighed = events.where(rows), weight[rows]
            total[kind] = times_by_name(part, weighed)
            if kind is not Kind.HOROVOD:
                own[kind] = times_by_name(part, self_us(part, weighed))
                if weight_us is None:
                    calls[kind] = times_by_name(part, np.ones(len(part), np.int64))
    node = events.lanes[0].node if events.lanes else ""
    return Sums(node=node, event_types=event_types, total=total, own=own, calls=calls)


#: Keys of ``breakdown_of`` that SageMaker Debugger has.
DEBUGGER_KEYS = {
    *("ratio", "phase", "phase_time", "general", "forward_backward", "horovod"),
    *("CPU", "GPU", "CPU_total", "GPU_total"),
}


def breakdown_of(sums: Sequence[Sums], *, with_lifetimes: bool = False) -> dict[str, Any]:
    """SageMaker Debugger's framework block of several nodes, with extra keys; tables by size.

    ``ratio``
        Percent of the time of all CPU and GPU lanes, by lane; GPU lanes first.
    ``phase``, ``phase_time``
        Percent of the time of all steps, and microseconds, by mode.
    ``CPU``, ``GPU``, ``CPU_total``, ``GPU_total``
        Percent and microseconds by operator, with what it calls; without operators of 2% and
        less, the percentages of the others add up to 100.
    ``CPU_self_total``, ``GPU_self_total``
        Microseconds by operator, without what it calls; only operators with more than 2% of them.
    ``CPU_operators``, ``GPU_operators``
        The 25 operators with most time of their own (``rows``), and sums over all; whole events only.
    ``general``, ``general_time``
        Percent and microseconds by phase of what is None of these.
    ``lifetimes``
        Microseconds by lane of processes' lives, which are no part of ``general`` unless ``with_lifetimes``.
    ``forward_backward``
        Percent of forward and backward pass, where both were recorded.
    ``horovod``, ``horovod_time``
        Percent by activity, cut as the operators are, and microseconds of these.
    """
    sums = sorted(sums, key=lambda one: one.node)
    by_type = {kind: largest_first(added(one.event_types[kind] for one in sums)) for kind in Kind}
    total, own, calls = (
        {kind: dict(sorted(added(getattr(one, field)[kind] for one in sums).items())) for kind in _NAMED}
        for field in ("total", "own", "calls")
    )
    details: dict[str, Any] = {
        "ratio": shares(by_type[Kind.GPU] | by_type[Kind.CPU]),
        "phase": shares(by_type[Kind.STEP]),
        "phase_time": by_type[Kind.STEP],
    }
    for kind in (Kind.CPU, Kind.GPU):
        if by_type[kind]:
            kept = _above_cut(total[kind])
            details |= {
                kind.name: shares(kept),
                f"{kind.name}_total": kept,
                f"{kind.name}_self_total": _above_cut(own[kind]),
            }
            if calls[kind]:
                details[f"{kind.name}_operators"] = _operators(total[kind], own[kind], calls[kind])
    general = by_type[Kind.GENERAL]
    if with_lifetimes:
        general = largest_first(general | by_type[Kind.LIFETIME])
    if general:
        details |= {"general": shares(general), "general_time": general}
    if by_type[Kind.LIFETIME]:
        details["lifetimes"] = by_type[Kind.LIFETIME]
    passes = {"Forward pass": by_type[Kind.FORWARD], "Backward pass": by_type[Kind.BACKWARD]}
    if all(passes.values()):
        details["forward_backward"] = shares({name: sum(times.values()) for name, times in passes.items()})
    if by_type[Kind.HOROVOD]:
        kept = _above_cut(total[Kind.HOROVOD])
        details |= {"horovod": shares(kept), "horovod_time": kept}
    return details


def added(several: Iterable[Mapping[_T, int]]) -> dict[_T, int]:
    """The sum of each entry, in the order in which they come."""
    sums: dict[_T, int] = {}
    for one in several:
        for name, us in one.items():
            sums[name] = sums.get(name, 0) + us
    return sums


def _operators(total: Mapping[str, int], own: Mapping[str, int], calls: Mapping[str, int]) -> dict[str, Any]:
    first = list(largest_first({name: own.get(name, 0) for name in total}))[:MOST_OPERATORS]
    rows = [
        {"name": name, "self_us": own.get(name, 0), "total_us": total[name], "calls": calls[name]}
        for name in first
    ]
    return {"rows": rows, "names": len(total), "calls": sum(calls.values()), "self_us": sum(own.values())}


def shares(times: Mapping[str, int]) -> dict[str, float]:
    """Percent of the sum, 0 where that is 0."""
    whole = sum(times.values()) or 1
    return {name: 100 * us / whole for name, us in times.items()}


def largest_first(times: Mapping[str, int]) -> dict[str, int]:
    """The same, ordered by time."""
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def _above_cut(times: Mapping[str, int]) -> dict[str, int]:
    limit = CUT * sum(times.values()) / 100
    return largest_first({name: us for name, us in times.items() if us > limit})


def times_by_name(events: Events, weight: IntArray | None = None) -> dict[str, int]:
    """Microseconds, or the sum of ``weight``, of the events of each name; without names of which it is 0."""
    totals = _sums(events.name, events.duration_us if weight is None else weight, len(events.names))
    return {events.names[i]: int(totals[i]) for i in np.flatnonzero(totals).tolist()}


def _sums(code: CodeArray, weight: IntArray, codes: int) -> IntArray:
    return np.bincount(code, weights=weight, minlength=codes).astype(np.int64)


def weights_by_lane(events: Events, moments: Callable[[Lane], Intervals | None]) -> IntArray:
    """(n,) how long each event overlaps the moments of its lane, 0 where there are none."""
    weight = np.zeros(len(events), np.int64)
    for one, rows in rows_by_lane(events, moments).items():
        weight[rows] = one.overlap(events.start_us[rows], events.end_us[rows])
    return weight


def self_us(events: Events, weight: IntArray) -> IntArray:
    """(n,) what remains of each event's weight, its duration or a part of it, without the events inside it.

    At each moment the time of a thread, in one lane, belongs to the event that started last of
    those still open; of several that start together to the one that ends first, then to the later row.
    Where events of a thread overlap in part, the weight counts as spread evenly over the event.
    """
    own = weight.copy()
    rows = np.flatnonzero(events.duration_us > 0)
    if not len(rows):
        return own
    keys = (-events.end_us, events.start_us, events.thread, events.pid, events.lane)
    rows = rows[np.lexsort([key[rows] for key in keys])]
    fresh = np.zeros(len(rows), np.bool_)
    fresh[0] = True
    for key in keys[2:]:
        fresh[1:] |= np.diff(key[rows]) != 0
    start, end = events.start_us[rows], events.end_us[rows]
    first = np.flatnonzero(fresh)
    thread = np.cumsum(fresh) - 1
    child, parent = _nesting(start, end, first, thread)
    inside = np.bincount(parent, weights=weight[rows[child]], minlength=len(rows)).astype(np.int64)
    own[rows] -= inside
    tangled = np.unique(thread[child[end[child] > end[parent]]])
    stop = np.append(first[1:], len(rows))
    for i in tangled.tolist():
        part = slice(first[i], stop[i])
        seen = np.array(_uncovered(start[part].tolist(), end[part].tolist()), np.int64)
        own[rows[part]] = np.rint(seen * (weight[rows[part]] / (end[part] - start[part])))
    return own


def _nesting(start: IntArray, end: IntArray, first: IntArray, thread: IntArray) -> tuple[IntArray, IntArray]:
    """Events that start within another one, and the innermost one they start within.

    Events are sorted by thread, start and falling end, and none is empty. The answer is right for
    threads in which no event outlasts the one it starts within; in others some pair shows it.
    """
    # Each thread gets a time of its own, after all of the one before, so that one search serves all.
    span = np.maximum.reduceat(end, first) - start[first] + 1
    shift = (np.cumsum(span) - span - start[first])[thread]
    position = np.arange(len(start))
    depth = position - np.searchsorted(np.sort(end + shift), start + shift, side="right")
    child = np.flatnonzero(depth > 0)
    # The one around it is the last one before it that is one level up.
    levels = np.sort(depth * len(start) + position)
    above = np.searchsorted(levels, (depth[child] - 1) * len(start) + child) - 1
    return child, levels[above] % len(start)


def _uncovered(start: list[int], end: list[int]) -> list[int]:
    """How much of each interval no later one covers; starts ascend."""
    found = []
    # The union of the later ones as disjoint intervals, the earliest on top.
    cover: list[tuple[int, int]] = []
    for begin, stop in zip(reversed(start), reversed(end), strict=True):
        free, reach = stop - begin, stop
        while cover and cover[-1][0] < stop:
            low, high = cover.pop()
            free -= min(high, stop) - low
            reach = max(reach, high)
        cover.append((begin, reach))
        found.append(free)
    return found[::-1]


def phases_by_rank(events: Events) -> dict[str, dict[str, IntArray]]:
    """Rows of the phases of each rank by event type."""
    found: dict[str, dict[str, IntArray]] = {}
    lanes = rows_by_lane(
        events, lambda lane: (lane.rank, event_type_of(lane)) if kind_of(lane) is Kind.GENERAL else None
    )
    for (rank, event_type), rows in lanes.items():
        found.setdefault(rank, {})[event_type] = rows
    return found


def recorded_phases(job: Job, clocks: Clocks, names: tuple[str, ...]) -> Intervals:
    """When any process was in a phase of one of these names, on the common clock.

    Steps of such a mode that follow one another are one phase; those of a process that does not train, while others do, are
    none.
    """
    trains = any(job.gathered(_trains))
    found = job.gathered(_recorded, clocks, names, trains)
    starts, ends = np.array(found, np.int64).reshape(-1, 2).T
    return union(starts, ends)


def _trains(part: Job) -> list[bool]:
    return [mode == TRAIN for _, _, mode in part.steps.series]


def _recorded(part: Job, clocks: Clocks, names: tuple[str, ...], trains: bool) -> list[tuple[int, int]]:
    late_us = clocks.late_us(part.nodes[0])
    events = part.events.where(part.events.in_lanes(lambda lane: lane.event_type in names))
    held = [union(events.start_us - late_us, events.end_us - late_us)]
    series = series_of(part.steps)
    for (node, rank, mode), rows in series.items():
        training = series.get((node, rank, TRAIN))
        if mode in names and (training is not None or not trains):
            held.append(_joined_steps(part.steps, rows, training, late_us))
    return [span for one in held for span in zip(one.start.tolist(), one.end.tolist(), strict=True)]


def _joined_steps(steps: Steps, rows: IntArray, training: IntArray | None, late_us: int) -> Intervals:
    """Steps of one process, with short times between them unless it trains in these."""
    start_us, end_us = steps.start_us[rows], steps.end_us[rows]
    near = start_us[1:] - end_us[:-1] < SOON * np.median(end_us - start_us)
    if training is not None:
        begun = np.searchsorted(np.sort(steps.start_us[training]), start_us)
        near &= np.diff(begun) == 0
    end_us = np.append(np.where(near, start_us[1:], end_us[:-1]), end_us[-1])
    return union(start_us - late_us, np.maximum(end_us, steps.end_us[rows]) - late_us)
