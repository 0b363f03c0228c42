"""What steps spent their time on: outliers compared with normal steps, and the last steps one by one."""

from __future__ import annotations

import itertools
from functools import cached_property
from operator import add
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

from jobrules.measures.data_loading import FETCH, PIPELINE, SET_UP
from jobrules.measures.framework_time import Kind, added, kind_of
from jobrules.measures.intervals import joined, union
from jobrules.measures.rows import by_code, series_of
from jobrules.model import SECOND_US
from jobrules.text import apportion

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from jobrules.measures.intervals import Intervals
    from jobrules.model import BoolArray, Events, IntArray, Lane, Steps

#: Node, rank, and mode.
Names: TypeAlias = tuple[str, str, str]
#: A class of events: an event type and an empty text, or the name of an operator and its device, ``CPU`` or ``GPU``.
Class: TypeAlias = tuple[str, str]

#: Classes that are compared, and those of them that are listed.
MAX_COMPARED = 24
MAX_LISTED = 8
#: Outliers in which a class must have been recorded to be compared.
MIN_OUTLIERS = 5
#: Steps of the stacked bars, and classes of time in them without counting unaccounted time.
LAST_STEPS = 30
MAX_CLASSES = 5
#: Event types without a class of their own that are kept before the smallest are merged.
MAX_OTHERS = 24
#: Names of the classes of time.
UNACCOUNTED, OTHER, LOADING = "Unaccounted", "Other", "Data loading"
IN_STEP, BETWEEN = "In the step", "To the next step"


class ClassShare(Struct, frozen=True, kw_only=True):
    """Percent of the time of normal steps, and of outliers, in which a class of events ran."""

    #: An event type, or the name of an operator.
    name: str
    #: ``CPU`` or ``GPU`` for an operator, otherwise empty.
    device: str
    normal_percent: float
    outlier_percent: float
    #: Outliers minus normal steps, both rounded to one digit.
    points: float
    #: Compared steps of both kinds: those in which events of this kind were recorded.
    normal_steps: int
    outlier_steps: int


class StepContrast(Struct, frozen=True, kw_only=True):
    """Normal steps and outliers, the class that differs most first."""

    classes: tuple[ClassShare, ...]
    #: Classes that were compared and are not in the list.
    left: int


class StepPart(Struct, frozen=True, kw_only=True):
    """One class of time in the last steps."""

    name: str
    #: ``work``, ``other``, ``wait`` (for data, or between steps), or ``unknown`` (no event).
    role: str
    #: Microseconds in each step; the classes of a step add up to its bar.
    time_us: tuple[int, ...]
    #: Of all bars except the last, which no step follows; the classes add up to 100.0.
    percent: float


class LastSteps(Struct, frozen=True, kw_only=True):
    """The last steps of one rank, each from its start to the start of the next."""

    node: str
    rank: str
    mode: str
    #: -1 where the source gave none.
    numbers: tuple[int, ...]
    #: From the bottom of the bar to its top.
    parts: tuple[StepPart, ...]
    #: Microseconds of each bar.
    total_us: tuple[int, ...]
    #: Whether events cover the steps; otherwise the parts are the step and the time to the next.
    by_event: bool
    #: A class whose recording ended before the last of these steps, and when: data loading if it is one of them,
    #: otherwise the last one to end. Empty and None if there is none.
    ended: str = ""
    ended_us: int | None = None


def seconds(us: float) -> float:
    """Microseconds as seconds, to the microsecond."""
    return round(float(us) / SECOND_US, 6)


class Series(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The steps of one rank and mode, ordered by their end as in StepOutlier."""

    node: str
    rank: str
    mode: str
    steps: Steps
    #: (n,) rows of ``steps``.
    rows: IntArray

    @classmethod
    def all_of(cls, steps: Steps) -> list[Series]:
        """The series of a node, in natural order."""
        return [
            cls(
                node=node,
                rank=rank,
                mode=mode,
                steps=steps,
                rows=rows[np.argsort(steps.end_us[rows], kind="stable")],
            )
            for (node, rank, mode), rows in series_of(steps).items()
        ]

    def __len__(self) -> int:
        """Steps."""
        return len(self.rows)

    @cached_property
    def start_us(self) -> IntArray:
        """(n,) starts."""
        return self.steps.start_us[self.rows]

    @cached_property
    def end_us(self) -> IntArray:
        """(n,) ends, ascending."""
        return self.steps.end_us[self.rows]

    @cached_property
    def lasted_us(self) -> IntArray:
        """(n,) durations."""
        return self.end_us - self.start_us

    @property
    def names(self) -> Names:
        """Node, rank, and mode."""
        return self.node, self.rank, self.mode

    def slow(self, limits_us: Mapping[Names, float]) -> BoolArray:
        """(n,) True for steps longer than the limit of their series, if it has one."""
        limit_us = limits_us.get(self.names)
        if limit_us is None:
            return np.zeros(len(self), np.bool_)
        return np.asarray(self.lasted_us > limit_us)


#: Steps and lifetimes of processes, which contain all other events.
_CONTAINERS = {Kind.STEP, Kind.LIFETIME}
_DEVICES = {Kind.CPU: "CPU", Kind.GPU: "GPU"}
#: Cells of a dense table of sums by lane and name.
_CELLS = 1 << 20


def has_parts(events: Events) -> bool:
    """Whether any event can be part of a step."""
    return any(kind_of(lane) not in _CONTAINERS for lane in events.lanes)


def class_times(events: Events) -> dict[tuple[str, str], dict[Class, int]]:
    """Microseconds of the events of each class, by node and rank (empty for lanes without a rank)."""
    kinds = [kind_of(lane) for lane in events.lanes]
    in_lane = np.bincount(events.lane, weights=events.duration_us, minlength=len(kinds)).tolist()
    found = [
        (lane, (_event_type(lane, kind), ""), int(us))
        for lane, kind, us in zip(events.lanes, kinds, in_lane, strict=True)
        if us and kind not in _CONTAINERS and kind not in _DEVICES
    ]
    operators = [i for i, kind in enumerate(kinds) if kind in _DEVICES and in_lane[i]]
    if operators:
        place = np.full(len(kinds), -1, np.int64)
        place[operators] = np.arange(len(operators))
        rows = np.flatnonzero((place >= 0)[events.lane])
        key = place[events.lane[rows]] * len(events.names) + events.name[rows]
        held: IntArray | None = None
        if len(operators) * len(events.names) > max(_CELLS, len(rows)):
            # A dense table of all lanes by all names would be large and mostly empty.
            held, key = np.unique(key, return_inverse=True)
        by_name = np.bincount(key, weights=events.duration_us[rows])
        at = np.flatnonzero(by_name)
        for i, us in zip((at if held is None else held[at]).tolist(), by_name[at].tolist(), strict=True):
            lane, name = divmod(i, len(events.names))
            device = _DEVICES[kinds[operators[lane]]]
            found.append((events.lanes[operators[lane]], (events.names[name], device), int(us)))
    times: dict[tuple[str, str], dict[Class, int]] = {}
    for lane, one, us in found:
        mine = times.setdefault((lane.node, lane.rank), {})
        mine[one] = mine.get(one, 0) + us
    return times


def compared(times: Iterable[Mapping[Class, int]]) -> tuple[Class, ...]:
    """The 24 classes with most time."""
    total = added(times)
    return tuple(sorted(total, key=lambda one: (-total[one], one[::-1]))[:MAX_COMPARED])


def amounts(
    events: Events, series: Sequence[Series], limits_us: Mapping[Names, float], classes: Sequence[Class]
) -> dict[Class, tuple[int, ...]]:
    """The sums of one node that ``contrast`` compares; lanes without a rank belong to every rank.

    Class → microseconds in which it ran in normal steps and in outliers, microseconds of these steps, and
    their numbers.
    """
    compared_series = [(one, one.slow(limits_us)) for one in series if one.names in limits_us]
    sums: dict[Class, tuple[int, ...]] = {}
    if not compared_series or not classes:
        return sums
    for rank, groups in _running(events, {"", *(one.rank for one, _ in compared_series)}, classes):
        mine = [(one, slow) for one, slow in compared_series if rank in {"", one.rank}]
        start, end = (np.concatenate([getattr(one, name) for one, _ in mine]) for name in _ENDS)
        slow = np.concatenate([slow for _, slow in mine])
        for own in groups:
            seen = joined(list(own.values())).overlap_us(start, end) > 0
            outliers = union(start[seen & slow], end[seen & slow])
            every = union(start[seen], end[seen])
            steps = (
                every.total_us - outliers.total_us,
                outliers.total_us,
                int(np.count_nonzero(seen & ~slow)),
                int(np.count_nonzero(seen & slow)),
            )
            for name, busy in own.items():
                at_outliers = _shared_us(outliers, busy)
                found = (_shared_us(every, busy) - at_outliers, at_outliers, *steps)
                sums[name] = tuple(map(add, sums.get(name, _NONE), found))
    return sums


def contrast(nodes: Sequence[Mapping[Class, tuple[int, ...]]]) -> StepContrast | None:
    """Shares of classes in outliers and in normal steps of the same ranks and modes, from ``amounts``.

    A class is an event type, all of Horovod, or an operator by its name. At each moment of a rank it runs
    or not, however many of its events overlap; only the 24 classes with most time are compared. Operators
    are often recorded for a few steps only: they are compared over the steps in which any operator was
    recorded, event types over the steps in which any event type was. A class is compared over the ranks
    that recorded it, and only if these have normal steps and five outliers. Lanes without a rank are
    compared over the steps of their node's ranks.
    """
    sums: dict[Class, tuple[int, ...]] = {}
    for node in nodes:
        for one, found in node.items():
            sums[one] = tuple(map(add, sums.get(one, _NONE), found))
    shares = []
    for (name, device), amount in sums.items():
        normal, slow_us, normal_whole, slow_whole, normal_steps, slow_steps = amount
        if normal_whole > 0 and slow_whole > 0 and normal + slow_us > 0 and slow_steps >= MIN_OUTLIERS:
            of_normal, of_slow = 100 * normal / normal_whole, 100 * slow_us / slow_whole
            share = ClassShare(
                name=name,
                device=device,
                normal_percent=round(of_normal, 3),
                outlier_percent=round(of_slow, 3),
                points=round(round(of_slow, 1) - round(of_normal, 1), 1),
                normal_steps=normal_steps,
                outlier_steps=slow_steps,
            )
            shares.append(share)
    shares.sort(key=lambda one: (-abs(one.outlier_percent - one.normal_percent), one.device, one.name))
    return StepContrast(classes=tuple(shares[:MAX_LISTED]), left=len(shares[MAX_LISTED:])) if shares else None


_NONE = (0,) * 6
_ENDS = ("start_us", "end_us")


def _shared_us(one: Intervals, other: Intervals) -> int:
    """Overlap of two unions, in microseconds."""
    few, many = sorted((one, other), key=lambda intervals: len(intervals.start_us))
    return int(many.overlap_us(few.start_us, few.end_us).sum())


def _running(
    events: Events, ranks: Collection[str], classes: Sequence[Class]
) -> Iterator[tuple[str, list[dict[Class, Intervals]]]]:
    """Each rank that has events: its event types, and its operators, with the times in which each ran."""
    places = {rank: i for i, rank in enumerate(sorted(ranks))}
    code = {one: i for i, one in enumerate(classes)}
    kinds = [kind_of(lane) for lane in events.lanes]
    place = np.array([places.get(lane.rank, -1) for lane in events.lanes], np.int32)
    number = np.array(
        [
            -1 if kind in _DEVICES else code.get((_event_type(lane, kind), ""), -1)
            for lane, kind in zip(events.lanes, kinds, strict=True)
        ],
        np.int32,
    )
    by_name = np.array([kind in _DEVICES for kind in kinds], np.bool_)
    container = np.array([kind in _CONTAINERS for kind in kinds], np.bool_)
    rows = np.flatnonzero(((place >= 0) & ~container & (by_name | (number >= 0)))[events.lane])
    at = events.lane[rows]
    found = number[at]
    for kind, device in _DEVICES.items():
        mine = np.flatnonzero(np.array([one is kind for one in kinds], np.bool_)[at])
        if len(mine):
            of_name = np.array([code.get((name, device), -1) for name in events.names], np.int32)
            found[mine] = of_name[events.name[rows[mine]]]
    key = np.where(found >= 0, place[at] * np.int32(len(classes)) + found, -1)
    order, edges = by_code(key, len(places) * len(classes))
    rows = rows[order]
    sides = itertools.pairwise(edges)
    for rank in places:
        groups: tuple[dict[Class, Intervals], dict[Class, Intervals]] = ({}, {})
        for one, (first, stop) in zip(classes, sides, strict=False):
            if stop > first:
                some = rows[first:stop]
                groups[bool(one[1])][one] = union(events.start_us[some], events.end_us[some])
        if any(groups):
            yield rank, [group for group in groups if group]


def _event_type(lane: Lane, kind: Kind) -> str:
    return "Horovod" if kind is Kind.HOROVOD else lane.event_type


def last_steps(events: Events, series: Sequence[Series]) -> LastSteps:
    """The parts of the last 30 steps of a rank, of the mode that took most of its time.

    ``series`` are all of the rank, ``events`` those of its node.

    A bar lasts from the start of a step to the next start of any step of the rank at or after its
    end; the last bar to the end of its step. Each moment counts once, for the first of these classes
    with an event at that time: forward pass, backward pass, operators on the GPU, on the CPU, Horovod,
    data loading, other event types from the one with least time on, as it may be inside the others.
    Forward and backward come first because most others run inside or parallel to them.
    """
    main = max(series, key=lambda one: int(one.lasted_us.sum()))
    rows = np.argsort(main.start_us, kind="stable")[-LAST_STEPS:]
    start, end = main.start_us[rows], main.end_us[rows]
    starts = np.sort(np.concatenate([one.start_us for one in series]))
    following = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, end, side="left")]
    # A step without a duration is not followed by itself.
    after = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, start, side="right")]
    following = np.maximum(following, after)
    stop = np.where(following == np.iinfo(np.int64).max, end, np.maximum(following, end))
    classes = _classes_of(events, main.rank)
    parts = _parts_by_event(events, classes, start, stop)
    ended, ended_us = _ended(events, classes, int(start[-2:][0]))
    by_event = any(part.time_us.any() for part in parts)
    if not by_event:
        parts = [
            _Part(name=IN_STEP, role="work", time_us=end - start),
            _Part(name=BETWEEN, role="wait", time_us=stop - end),
        ]
    else:
        rest = stop - start - np.sum([part.time_us for part in parts], axis=0)
        parts.append(_Part(name=UNACCOUNTED, role="unknown", time_us=rest))
    percents = apportion([int(part.time_us[:-1].sum()) for part in parts], 100.0, 1)
    return LastSteps(
        node=main.node,
        rank=main.rank,
        mode=main.mode,
        numbers=tuple(main.steps.number[main.rows[rows]].tolist()),
        parts=tuple(
            StepPart(name=part.name, role=part.role, time_us=tuple(part.time_us.tolist()), percent=percent)
            for part, percent in zip(parts, percents, strict=True)
        ),
        total_us=tuple((stop - start).tolist()),
        by_event=by_event,
        ended=ended,
        ended_us=ended_us,
    )


class _Part(Struct, frozen=True, kw_only=True, eq=False):
    """A class of time in the bars, as in ``StepPart``."""

    name: str
    role: str
    time_us: IntArray


#: Kinds that may be a forward or a backward pass.
_PASSES = {Kind.FORWARD, Kind.BACKWARD, Kind.GENERAL}
#: Condition, name, and role of a class, in the order in which its events take precedence.
_FIRST: tuple[tuple[Callable[[Lane, Kind], bool], str, str], ...] = (
    (lambda lane, kind: kind in _PASSES and lane.event_type.startswith("Forward"), "Forward", "work"),
    (lambda lane, kind: kind in _PASSES and lane.event_type.startswith("Backward"), "Backward", "work"),
    (lambda _, kind: kind is Kind.GPU, "GPU operators", "work"),
    (lambda _, kind: kind is Kind.CPU, "CPU operators", "work"),
    (lambda _, kind: kind is Kind.HOROVOD, "Horovod", "other"),
    (lambda lane, _: lane.event_type in {FETCH, SET_UP, PIPELINE}, LOADING, "wait"),
)


def _classes_of(events: Events, rank: str) -> list[str]:
    """The class of each lane; empty for containers and for lanes of other ranks."""
    return [
        next((name for holds, name, _ in _FIRST if holds(lane, kind)), lane.event_type)
        if kind not in _CONTAINERS and lane.rank in {"", rank}
        else ""
        for lane, kind in ((lane, kind_of(lane)) for lane in events.lanes)
    ]


def _ended(events: Events, classes: Sequence[str], before_us: int) -> tuple[str, int | None]:
    """A class whose last event ended before a time, and when, as in ``LastSteps``."""
    found = []
    for _, name, role in _FIRST:
        own = np.array([one == name for one in classes], np.bool_)
        if role in {"work", "wait"} and own.any():
            ends = events.end_us[own[events.lane]]
            if len(ends) and ends.max() < before_us:
                found.append((role == "wait", int(ends.max()), name))
    return (max(found)[2], max(found)[1]) if found else ("", None)


def _parts_by_event(events: Events, classes: Sequence[str], start: IntArray, stop: IntArray) -> list[_Part]:
    """The classes of time with an event in the bars, work first and waiting last."""
    known: dict[str, tuple[int, str]] = {name: (i, role) for i, (_, name, role) in enumerate(_FIRST)}
    codes = {name: i for i, name in enumerate(dict.fromkeys(filter(None, classes)))}
    if not codes:
        return []
    # Events are in order of their starts.
    begun = int(np.searchsorted(events.start_us, stop.max()))
    rows = np.flatnonzero(events.end_us[:begun] > int(start.min()))
    code = np.array([codes.get(name, -1) for name in classes])[events.lane[rows]]
    by_class, sides = by_code(code, len(codes))
    rows = rows[by_class]
    own = {
        name: union(events.start_us[rows[i:j]], events.end_us[rows[i:j]])
        for name, i, j in zip(codes, sides, sides[1:], strict=False)
        if j > i
    }
    others = sorted((name for name in own if name not in known), key=lambda name: own[name].total_us)
    # Only the largest event types can get a class of their own; the others come first, as one.
    if small := others[:-MAX_OTHERS]:
        own[OTHER] = joined([own.pop(name) for name in small])
    order = [
        *(name for _, name, _ in _FIRST if name in own),
        *([OTHER] if small else []),
        *others[len(small) :],
    ]
    covered, before = union(start[:0], start[:0]), np.zeros(len(start), np.int64)
    parts = []
    for name in order:
        covered = joined([covered, own[name]])
        held = covered.overlap_us(start, stop)
        parts.append(_Part(name=name, role=known.get(name, (0, "other"))[1], time_us=held - before))
        before = held
    parts = [part for part in parts if part.time_us.any()]
    if len(parts) > MAX_CLASSES:
        ranked = sorted(
            parts, key=lambda one: (one.role != "other", one.name != OTHER, int(one.time_us.sum()))
        )
        merged = ranked[: len(parts) - MAX_CLASSES + 1]
        total = np.sum([part.time_us for part in merged], axis=0)
        parts = [part for part in parts if part not in merged]
        parts.append(_Part(name=OTHER, role="other", time_us=total))
    return sorted(parts, key=lambda part: ("work", "other", "wait").index(part.role))
