"""What steps spent their time on: outliers compared with normal steps, and the last steps one by one."""

from __future__ import annotations

import itertools
from operator import add
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

from jobrules.measures.data_loading import FETCH, PIPELINE, SET_UP
from jobrules.measures.framework_time import Kind, added, event_type_of, kind_of, rows_of
from jobrules.measures.intervals import joined, time_of, union
from jobrules.measures.rows import by_code, rows_by_lane, series_of
from jobrules.model import SECOND_US
from jobrules.model.names import EventName, NodeName, OperatorName, OwnText, RankName, ShownName
from jobrules.model.time_parts import Role, named
from jobrules.text import apportion

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from jobrules.measures.intervals import Intervals
    from jobrules.model import BoolArray, Events, IntArray, Lane, Steps

#: Node, rank, and mode.
Names: TypeAlias = tuple[str, str, str]
#: A class of events: event type and empty text, or name of an operator and its device, ``CPU`` or ``GPU``.
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
#: Keys of parts of time: an event type without a class of its own, and several of them.
EVENT_TYPE, OTHER = "event-type", "other-events"


class ClassShare(Struct, frozen=True, kw_only=True):
    """Percent of the time of normal steps, and of outliers, in which a class of events ran."""

    #: An event type, or the name of an operator.
    name: OperatorName
    #: ``CPU`` or ``GPU`` for an operator, otherwise empty.
    device: OwnText
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

    #: Of ``TIME_PARTS``.
    key: OwnText
    #: Its title, or the event type.
    label: ShownName
    role: Role
    #: Microseconds in each step; the classes of a step add up to its bar.
    time_us: tuple[int, ...]
    #: Of all bars except the last, which no step follows; the classes add up to 100.0.
    percent: float


class LastSteps(Struct, frozen=True, kw_only=True):
    """The last steps of one rank, each from its start to the start of the next."""

    node: NodeName
    rank: RankName
    mode: EventName
    #: -1 where the source gave none.
    numbers: tuple[int, ...]
    #: From the bottom of the bar to its top.
    parts: tuple[StepPart, ...]
    #: Microseconds of each bar.
    total_us: tuple[int, ...]
    #: Whether events cover the steps; otherwise the parts are the step and the time to the next.
    by_event: bool
    #: Key of a class whose recording ended before the last of these steps, and when: data loading if it is one of
    #: them, otherwise the last one to end. Empty and None if there is none.
    ended: OwnText = ""
    ended_us: int | None = None


def seconds(us: float) -> float:
    """Microseconds as seconds, to the microsecond."""
    return round(float(us) / SECOND_US, 6)


class Series(Struct, frozen=True, kw_only=True, eq=False):
    """The steps of one rank and mode, ordered by their end as in StepOutlier; (n,) arrays."""

    names: Names
    number: IntArray
    start_us: IntArray
    end_us: IntArray
    lasted_us: IntArray

    @classmethod
    def all_of(cls, steps: Steps) -> list[Series]:
        """The series of a node, in natural order."""
        found = []
        for names, unordered in series_of(steps).items():
            rows = unordered[np.argsort(steps.end_us[unordered], kind="stable")]
            one = cls(
                names=names,
                number=steps.number[rows],
                start_us=steps.start_us[rows],
                end_us=steps.end_us[rows],
                lasted_us=steps.duration_us[rows],
            )
            found.append(one)
        return found

    @property
    def rank(self) -> str:
        """Name of the rank."""
        return self.names[1]

    @property
    def mode(self) -> str:
        """Name of the mode."""
        return self.names[2]

    def slow(self, limits_us: Mapping[Names, float]) -> BoolArray:
        """(n,) True for steps longer than the limit of their series, if it has one."""
        return np.asarray(self.lasted_us > limits_us.get(self.names, np.inf))


#: Steps and lifetimes of processes, which contain all other events.
_CONTAINERS = {Kind.STEP, Kind.LIFETIME, Kind.DEVICE_STEP}
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
        (lane, (event_type_of(lane), ""), int(us))
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
            seen = joined(list(own.values())).overlap(start, end) > 0
            outliers = union(start[seen & slow], end[seen & slow])
            every = union(start[seen], end[seen])
            steps = (
                every.total - outliers.total,
                outliers.total,
                int(np.count_nonzero(seen & ~slow)),
                int(np.count_nonzero(seen & slow)),
            )
            for name, busy in own.items():
                at_outliers = outliers.shared(busy)
                found = (every.shared(busy) - at_outliers, at_outliers, *steps)
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


def _running(
    events: Events, ranks: Collection[str], classes: Sequence[Class]
) -> Iterator[tuple[str, list[dict[Class, Intervals]]]]:
    """Each rank that has events: its event types, and its operators, with the times in which each ran."""
    places = {rank: i for i, rank in enumerate(sorted(ranks))}
    numbers = {one: i for i, one in enumerate(classes)}
    place = np.array([places.get(lane.rank, -1) for lane in events.lanes], np.int32)[events.lane]
    event_types = [numbers.get((event_type_of(lane), ""), -1) for lane in events.lanes]
    number = np.array(event_types, np.int32)[events.lane]
    for kind in _CONTAINERS:
        number[rows_of(events, kind)] = -1
    for kind, device in _DEVICES.items():
        rows = rows_of(events, kind)
        by_name = np.array([numbers.get((name, device), -1) for name in events.names], np.int32)
        number[rows] = by_name[events.name[rows]]
    key = np.where((place >= 0) & (number >= 0), place * np.int32(len(classes)) + number, -1)
    order, edges = by_code(key, len(places) * len(classes))
    sides = itertools.pairwise(edges)
    for rank in places:
        groups: tuple[dict[Class, Intervals], dict[Class, Intervals]] = ({}, {})
        for one, (first, stop) in zip(classes, sides, strict=False):
            if stop > first:
                groups[bool(one[1])][one] = time_of(events, order[first:stop])
        if any(groups):
            yield rank, [group for group in groups if group]


def last_steps(events: Events, series: Sequence[Series], starts_us: IntArray) -> LastSteps:
    """The parts of the last 30 steps of a rank, of the mode that took most of its time.

    ``series`` are all of the rank, ``starts_us`` ascend and are of all its steps, ``events`` those of its node.

    A bar lasts from the start of a step to the next start of any step of the rank at or after its
    end; the last bar to the end of its step. Each moment counts once, for the first of these classes
    with an event at that time: forward pass, backward pass, operators on the GPU, on the CPU, Horovod,
    data loading, other event types from the one with least time on, as it may be inside the others.
    Forward and backward come first because most others run inside or parallel to them.
    """
    main = max(series, key=lambda one: int(one.lasted_us.sum()))
    rows = np.argsort(main.start_us, kind="stable")[-LAST_STEPS:]
    start, end = main.start_us[rows], main.end_us[rows]
    stop = _ends_of_bars(start, end, starts_us)
    by_class = rows_by_lane(events, lambda lane: _class_of(lane, main.rank))
    parts = _parts_by_event(events, by_class, start, stop)
    by_event = bool(parts)
    if by_event:
        rest = stop - start - np.sum([part.time_us for part in parts], axis=0)
        parts.append(_Part(key="no-event", time_us=rest))
    else:
        parts = [
            _Part(key="in-steps", time_us=end - start),
            _Part(key="outside-steps", time_us=stop - end),
        ]
    percents = apportion([int(part.time_us[:-1].sum()) for part in parts], 100.0, 1)
    ended, ended_us = _ended(events, by_class, int(start[-2:][0]))
    node, rank, mode = main.names
    return LastSteps(
        node=node,
        rank=rank,
        mode=mode,
        numbers=tuple(main.number[rows].tolist()),
        parts=tuple(
            StepPart(
                key=part.key,
                label=part.event_type or named(part.key).title,
                role=part.role,
                time_us=tuple(part.time_us.tolist()),
                percent=percent,
            )
            for part, percent in zip(parts, percents, strict=True)
        ),
        total_us=tuple((stop - start).tolist()),
        by_event=by_event,
        ended=ended,
        ended_us=ended_us,
    )


def _ends_of_bars(start: IntArray, end: IntArray, starts: IntArray) -> IntArray:
    """The first of the ascending ``starts`` at or after the end of each step; its end if there is none."""
    never = np.iinfo(np.int64).max
    starts = np.append(starts, never)
    # A step without a duration is not followed by itself.
    following = np.maximum(np.searchsorted(starts, end), np.searchsorted(starts, start, side="right"))
    return np.where(starts[following] == never, end, starts[following])


class _Part(Struct, frozen=True, kw_only=True, eq=False):
    """A class of time in the bars, as in ``StepPart``."""

    key: str
    event_type: str = ""
    time_us: IntArray

    @property
    def role(self) -> Role:
        """As of the key."""
        return named(self.key).role


#: Kinds that may be a forward or a backward pass.
_PASSES = {Kind.FORWARD, Kind.BACKWARD, Kind.GENERAL}
#: Key and condition of a class, in the order in which its events take precedence.
_FIRST: dict[str, Callable[[Lane, Kind], bool]] = {
    "forward": lambda lane, kind: kind in _PASSES and lane.event_type.startswith("Forward"),
    "backward": lambda lane, kind: kind in _PASSES and lane.event_type.startswith("Backward"),
    "gpu-operators": lambda _, kind: kind is Kind.GPU,
    "cpu-operators": lambda _, kind: kind is Kind.CPU,
    "horovod": lambda _, kind: kind is Kind.HOROVOD,
    "data-loading": lambda lane, _: lane.event_type in {FETCH, SET_UP, PIPELINE},
}
#: Key of a class, and the event type of one that has no other.
_ClassOfTime: TypeAlias = tuple[str, str]


def _class_of(lane: Lane, rank: str) -> _ClassOfTime | None:
    """The class of a lane; None for containers and for lanes of other ranks."""
    kind = kind_of(lane)
    if kind in _CONTAINERS or lane.rank not in {"", rank}:
        return None
    own = next((key for key, holds in _FIRST.items() if holds(lane, kind)), "")
    return (own, "") if own else (EVENT_TYPE, lane.event_type)


def _ended(
    events: Events, by_class: Mapping[_ClassOfTime, IntArray], before_us: int
) -> tuple[str, int | None]:
    """Key of a class whose last event ended before a time, and when, as in ``LastSteps``."""
    last_us = {key: int(events.end_us[rows].max()) for (key, _), rows in by_class.items()}
    found = [
        (named(key).role == "lost", last_us[key], key)
        for key in _FIRST
        if named(key).role != "outside" and key in last_us and last_us[key] < before_us
    ]
    return (max(found)[2], max(found)[1]) if found else ("", None)


def _parts_by_event(
    events: Events, by_class: Mapping[_ClassOfTime, IntArray], start: IntArray, stop: IntArray
) -> list[_Part]:
    """The classes of time with an event in the bars, work first and waiting last."""
    ran = {}
    for one, rows in by_class.items():
        near = rows[(events.end_us[rows] > start.min()) & (events.start_us[rows] < stop.max())]
        if len(near):
            ran[one] = time_of(events, near)
    others = sorted((one for one in ran if one[0] == EVENT_TYPE), key=lambda one: ran[one].total)
    # Only the largest event types can get a class of their own; the others come first, as one.
    small, large = others[:-MAX_OTHERS], others[-MAX_OTHERS:]
    if small:
        ran[OTHER, ""] = joined([ran.pop(one) for one in small])
        large = [(OTHER, ""), *large]
    covered, before = union(start[:0], start[:0]), np.zeros(len(start), np.int64)
    parts = []
    for key, event_type in [*((key, "") for key in _FIRST if (key, "") in ran), *large]:
        covered = joined([covered, ran[key, event_type]])
        by_now = covered.overlap(start, stop)
        parts.append(_Part(key=key, event_type=event_type, time_us=by_now - before))
        before = by_now
    few = _few([part for part in parts if part.time_us.any()])
    return sorted(few, key=lambda part: ("used", "outside", "lost").index(part.role))


def _few(parts: list[_Part]) -> list[_Part]:
    """At most ``MAX_CLASSES`` classes: of more, the smallest others are one."""
    if len(parts) <= MAX_CLASSES:
        return parts
    ranked = sorted(parts, key=lambda one: (one.role != "outside", one.key != OTHER, int(one.time_us.sum())))
    merged = ranked[: len(parts) - MAX_CLASSES + 1]
    total = np.sum([part.time_us for part in merged], axis=0)
    kept = [part for part in parts if part not in merged]
    return [*kept, _Part(key=OTHER, time_us=total)]
