"""What steps spent their time on: the normal ones against the outliers, and the last ones one by one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from jobrules.framework import Kind, kind_of
from jobrules.intervals import Intervals, union
from jobrules.job import SECOND_US, natural_key
from jobrules.loading import FETCH, PIPELINE, SET_UP
from jobrules.overall_framework_metrics import STEP
from jobrules.rounding import apportion
from jobrules.step_outlier import PATIENCE, limits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jobrules.job import BoolArray, CodeArray, Events, IntArray, Lane, Steps
    from jobrules.step_outlier import StepOutlier

#: Classes that are compared, and of these the ones that differ most.
MOST_COMPARED = 24
MOST_SHOWN = 8
#: In fewer outliers a class tells nothing about them.
FEWEST_OUTLIERS = 5
#: Steps of the stacked bars, and classes of time in them besides what is unaccounted for.
LAST_STEPS = 30
MOST_CLASSES = 5
#: Phases without a class of their own that are told apart before the smallest are merged.
MOST_OTHERS = 24
#: The other definition of an outlier: longer than so many medians.
MEDIANS = 2

#: Names of the classes of time.
UNACCOUNTED, OTHER, LOADING = "Unaccounted", "Other", "Data loading"
IN_STEP, BETWEEN = "In the step", "To the next step"


@dataclass(frozen=True, kw_only=True)
class ClassShare:
    """In what part of the time of normal steps, and of outliers, a class of events was going on, in percent."""

    #: An event phase, or the name of an operator.
    name: str
    #: ``CPU`` or ``GPU`` for an operator, else empty.
    device: str
    normal_percent: float
    outlier_percent: float
    #: Outliers less normal steps, of both as they are printed, with one digit.
    points: float
    #: Steps of both kinds that are compared: those in which events of this kind were recorded.
    normal_steps: int
    outlier_steps: int


@dataclass(frozen=True, kw_only=True)
class StepContrast:
    """Normal steps against outliers, the class that differs most first."""

    classes: tuple[ClassShare, ...]
    #: Classes that were compared and are not in the list.
    left: int


@dataclass(frozen=True, kw_only=True)
class StepPart:
    """One class of time in the last steps."""

    name: str
    #: ``work``, ``other``, ``wait`` (for data, or between steps) or ``unknown`` (no event tells).
    role: str
    #: Microseconds in each step; the classes of a step add up to its bar.
    time_us: tuple[int, ...]
    #: Of the bars of all steps but the last, which no step follows; the classes add up to 100.0.
    percent: float


@dataclass(frozen=True, kw_only=True)
class LastSteps:
    """The last steps of one worker, each from its start to the start of the next."""

    node: str
    worker: str
    phase: str
    #: -1 where the source gave none.
    numbers: tuple[int, ...]
    #: From the bottom of the bar to its top.
    parts: tuple[StepPart, ...]
    #: Microseconds of each bar.
    total_us: tuple[int, ...]
    #: Whether events tell what the time went to; else only the step and what follows it are told apart.
    by_event: bool
    #: A class that was recorded for the worker only until before these steps or some of them, and until
    #: when: data loading if it is one of these, else the last one; empty and none for none.
    ended: str = ""
    ended_us: int | None = None


def seconds(us: float) -> float:
    """Microseconds as seconds, to the microsecond."""
    return round(float(us) / SECOND_US, 6)


@dataclass(frozen=True, kw_only=True, eq=False)
class Series:
    """The steps of one worker and one phase, by their end as StepOutlier has them."""

    node: str
    worker: str
    phase: str
    number: IntArray
    start_us: IntArray
    end_us: IntArray
    #: The longest whole time that is no outlier; none where the rule does not judge.
    limit_us: int | None
    stddev: float

    @classmethod
    def of(cls, steps: Steps, names: tuple[str, ...], rows: IntArray, rule: StepOutlier) -> Series:
        """The steps in some rows of the table, which have one node, worker and phase."""
        node, worker, phase = names
        rows = rows[np.argsort(steps.end_us[rows], kind="stable")]
        start_us, end_us = steps.start_us[rows], steps.end_us[rows]
        judged = len(rows) > PATIENCE and (rule.mode is None or (STEP + phase).endswith(rule.mode))
        ends = np.array([len(rows)] if judged else [], np.int64)
        limits = limits_of(end_us - start_us, ends, rule.stddev).tolist()
        return cls(
            node=node,
            worker=worker,
            phase=phase,
            number=steps.number[rows],
            start_us=start_us,
            end_us=end_us,
            limit_us=limits[0] if limits else None,
            stddev=rule.stddev,
        )

    def __len__(self) -> int:
        """Steps."""
        return len(self.start_us)

    @cached_property
    def lasted_us(self) -> IntArray:
        """(n,) durations."""
        return self.end_us - self.start_us

    @cached_property
    def total_us(self) -> int:
        """All durations together."""
        return int(self.lasted_us.sum())

    @cached_property
    def median_us(self) -> float:
        """The median duration."""
        return float(np.median(self.lasted_us))

    @cached_property
    def limit_s(self) -> float | None:
        """Mean plus ``stddev`` standard deviations; none where the rule does not judge."""
        if self.limit_us is None:
            return None
        return seconds(self.lasted_us.mean() + self.stddev * self.lasted_us.std())

    def slow(self, by: str) -> BoolArray:
        """(n,) which steps are outliers by the rule, or longer than two medians; none by neither."""
        limit_us = {"rule": self.limit_us, "median": MEDIANS * self.median_us}.get(by)
        if limit_us is None:
            return np.zeros(len(self), np.bool_)
        return np.asarray(self.lasted_us > limit_us)


#: Steps themselves, and lives of processes, which would drown what happens in them.
_APART = {Kind.STEP, Kind.LIFETIME}
_DEVICES = {Kind.CPU: "CPU", Kind.GPU: "GPU"}


def has_parts(events: Events) -> bool:
    """Whether any event tells what steps spent their time on."""
    return any(kind_of(lane) not in _APART for lane in events.lanes)


def contrast(events: Events, series: Sequence[Series], marked: str) -> StepContrast | None:
    """Shares of classes in outliers and in the other steps of the same workers and phases.

    A class is an event phase, all of Horovod, or an operator by its name. At each moment of a worker
    it is going on or not, however many of its events overlap; only the 24 classes with most time take
    part. Operators are often recorded for a few steps only: they are compared over the steps in which
    any operator was recorded, phases over the steps in which any phase was. A class is compared over
    the workers that recorded it, and only if these have normal steps and five outliers. Lanes without
    a worker are compared over the steps of their node's workers.
    """
    told = [one for one in series if one.slow(marked).any()]
    classes = _Classes.of(events, {one.node for one in told}, {(one.node, one.worker) for one in told})
    sums: dict[int, list[int]] = {}
    for (node, worker), groups in classes.by_worker():
        mine = [one for one in told if one.node == node and worker in {"", one.worker}]
        start, end = (np.concatenate([getattr(one, name) for one in mine]) for name in ("start_us", "end_us"))
        slow = np.concatenate([one.slow(marked) for one in mine])
        for own in groups:
            recorded = union(*(np.concatenate([getattr(c, n) for c in own.values()]) for n in _ENDS))
            seen = recorded.overlap_us(start, end) > 0
            outliers = union(start[seen & slow], end[seen & slow])
            every = union(start[seen], end[seen])
            amounts = [
                every.total_us - outliers.total_us,
                outliers.total_us,
                int(np.count_nonzero(seen & ~slow)),
                int(np.count_nonzero(seen & slow)),
            ]
            for number, busy in own.items():
                at_outliers = _shared_us(outliers, busy)
                added = (_shared_us(every, busy) - at_outliers, at_outliers, *amounts)
                sums[number] = [a + b for a, b in zip(sums.get(number, [0] * 6), added, strict=True)]
    shares = []
    for number, (normal, slow_us, normal_whole, slow_whole, normal_steps, slow_steps) in sums.items():
        if normal_whole > 0 and slow_whole > 0 and normal + slow_us > 0 and slow_steps >= FEWEST_OUTLIERS:
            name, device = classes.names[number]
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
    return StepContrast(classes=tuple(shares[:MOST_SHOWN]), left=len(shares[MOST_SHOWN:])) if shares else None


_ENDS = ("start_us", "end_us")


def _shared_us(one: Intervals, other: Intervals) -> int:
    """How much two unions have in common."""
    few, many = sorted((one, other), key=lambda intervals: len(intervals.start_us))
    return int(many.overlap_us(few.start_us, few.end_us).sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Classes:
    """Events by worker and class; those that are not compared are left out."""

    #: Class → its name, and the device of an operator.
    names: dict[int, tuple[str, str]]
    workers: tuple[tuple[str, str], ...]
    #: Per event, ascending: position in ``workers`` times ``MOST_COMPARED`` plus its class.
    key: CodeArray
    start_us: IntArray
    end_us: IntArray

    @classmethod
    def of(cls, events: Events, nodes: set[str], workers: set[tuple[str, str]]) -> _Classes:
        """The classes with most time in the lanes of some workers, and in lanes of their nodes without a worker."""
        every = tuple(sorted({*workers, *((node, "") for node in nodes)}))
        kinds = [kind_of(lane) for lane in events.lanes]
        places = {who: i for i, who in enumerate(every)}
        # Numbers of classes: phases, then operators on the CPU, then on the GPU.
        phases: dict[str, int] = {}
        for lane, kind in zip(events.lanes, kinds, strict=True):
            phases.setdefault(_phase_of(lane, kind), len(phases))
        base = {Kind.CPU: len(phases), Kind.GPU: len(phases) + len(events.names)}
        of_lane = [
            (
                -1 if kind in _APART else places.get((lane.node, lane.worker), -1),
                base.get(kind, phases[_phase_of(lane, kind)]),
                kind in base,
            )
            for lane, kind in zip(events.lanes, kinds, strict=True)
        ]
        # Columns of millions of rows: small numbers are moved and sorted much faster.
        worker, first, by_name = np.array(of_lane, np.int32).T
        rows = np.flatnonzero((worker >= 0)[events.lane])
        at = events.lane[rows]
        number = first[at] + by_name[at] * events.name[rows]
        total = np.bincount(number, weights=events.duration_us[rows])
        most = np.argsort(-total, kind="stable")[:MOST_COMPARED]
        place = np.full(len(total), -1, np.int32)
        place[most] = np.arange(len(most))
        number = place[number]
        key = worker[at] * np.int32(MOST_COMPARED) + number
        if len(most) < len(total):
            kept = number >= 0
            rows, key = rows[kept], key[kept]
        small = np.uint16 if len(every) * MOST_COMPARED < 1 << 16 else np.int32
        order = np.argsort(key.astype(small), kind="stable")
        rows, key = rows[order], key[order]
        labels = [(name, "") for name in phases]
        labels += [(name, device) for device in _DEVICES.values() for name in events.names]
        return cls(
            names={i: labels[one] for i, one in enumerate(most.tolist())},
            workers=every,
            key=key,
            start_us=events.start_us[rows],
            end_us=events.end_us[rows],
        )

    def by_worker(self) -> Iterator[tuple[tuple[str, str], list[dict[int, Intervals]]]]:
        """Each worker with its phases, and with its operators: class → when it was going on."""
        first = np.flatnonzero(np.diff(self.key, prepend=-1)).tolist()
        found: dict[int, tuple[dict[int, Intervals], dict[int, Intervals]]] = {}
        for i, stop in zip(first, [*first[1:], len(self.key)], strict=True):
            worker, number = divmod(int(self.key[i]), MOST_COMPARED)
            groups = found.setdefault(worker, ({}, {}))
            busy = union(self.start_us[i:stop], self.end_us[i:stop])
            groups[bool(self.names[number][1])][number] = busy
        for worker, groups in found.items():
            yield self.workers[worker], [one for one in groups if one]


def _phase_of(lane: Lane, kind: Kind) -> str:
    return "Horovod" if kind is Kind.HOROVOD else lane.phase


def last_steps(events: Events, series: Sequence[Series]) -> LastSteps:
    """What the last 30 steps of the first worker went to, of the phase that took most of its time.

    A bar lasts from the start of a step to the next start of any step of the worker at or after its
    end; the last bar to the end of its step. Each moment counts once: for the first of these classes
    that has an event then: forward pass, backward pass, operators on the GPU, on the CPU, Horovod,
    data loading, other phases from the one with least time on, as it may lie inside the others.
    Forward and backward come first because most others lie inside them or run beside them.
    """
    who = min(((one.node, one.worker) for one in series), key=lambda names: tuple(map(natural_key, names)))
    mine = [one for one in series if (one.node, one.worker) == who]
    main = max(mine, key=lambda one: one.total_us)
    rows = np.argsort(main.start_us, kind="stable")[-LAST_STEPS:]
    start, end = main.start_us[rows], main.end_us[rows]
    starts = np.sort(np.concatenate([one.start_us for one in mine]))
    following = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, end, side="left")]
    # A step without a duration is not followed by itself.
    after = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, start, side="right")]
    following = np.maximum(following, after)
    stop = np.where(following == np.iinfo(np.int64).max, end, np.maximum(following, end))
    classes = _classes_of(events, who)
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
        worker=main.worker,
        phase=main.phase,
        numbers=tuple(main.number[rows].tolist()),
        parts=tuple(
            StepPart(name=part.name, role=part.role, time_us=tuple(part.time_us.tolist()), percent=percent)
            for part, percent in zip(parts, percents, strict=True)
        ),
        total_us=tuple((stop - start).tolist()),
        by_event=by_event,
        ended=ended,
        ended_us=ended_us,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """A class of time in some stretches, as in ``StepPart``."""

    name: str
    role: str
    time_us: IntArray


#: What may be a forward or a backward pass.
_PASSES = {Kind.FORWARD, Kind.BACKWARD, Kind.GENERAL}
#: The first that holds decides. Name and role of a class; in this order its events take precedence.
_FIRST: tuple[tuple[Callable[[Lane, Kind], bool], str, str], ...] = (
    (lambda lane, kind: kind in _PASSES and lane.phase.startswith("Forward"), "Forward", "work"),
    (lambda lane, kind: kind in _PASSES and lane.phase.startswith("Backward"), "Backward", "work"),
    (lambda _, kind: kind is Kind.GPU, "GPU operators", "work"),
    (lambda _, kind: kind is Kind.CPU, "CPU operators", "work"),
    (lambda _, kind: kind is Kind.HOROVOD, "Horovod", "other"),
    (lambda lane, _: lane.phase in {FETCH, SET_UP, PIPELINE}, LOADING, "wait"),
)


def _classes_of(events: Events, who: tuple[str, str]) -> list[str]:
    """The class of each lane; empty for lanes that do not tell what a worker's time went to."""
    node, worker = who
    return [
        next((name for holds, name, _ in _FIRST if holds(lane, kind)), lane.phase)
        if kind not in _APART and lane.node == node and lane.worker in {"", worker}
        else ""
        for lane, kind in ((lane, kind_of(lane)) for lane in events.lanes)
    ]


def _ended(events: Events, classes: Sequence[str], before_us: int) -> tuple[str, int | None]:
    """A class of which the last event ended before a moment, and when, as ``LastSteps`` tells it."""
    found = []
    for _, name, role in _FIRST:
        own = np.array([one == name for one in classes], np.bool_)
        if role in {"work", "wait"} and own.any():
            ends = events.end_us[own[events.lane]]
            if len(ends) and ends.max() < before_us:
                found.append((role == "wait", int(ends.max()), name))
    return (max(found)[2], max(found)[1]) if found else ("", None)


def _parts_by_event(events: Events, classes: Sequence[str], start: IntArray, stop: IntArray) -> list[_Part]:
    """The classes of time with an event in some stretches, work first and waiting last."""
    known: dict[str, tuple[int, str]] = {name: (i, role) for i, (_, name, role) in enumerate(_FIRST)}
    codes = {name: i for i, name in enumerate(dict.fromkeys(filter(None, classes)))}
    if not codes:
        return []
    code = np.array([codes.get(name, -1) for name in classes])[events.lane]
    rows = np.flatnonzero(
        (code >= 0) & (events.start_us < int(stop.max())) & (events.end_us > int(start.min()))
    )
    rows = rows[np.argsort(code[rows], kind="stable")]
    sides = np.searchsorted(code[rows], np.arange(len(codes) + 1)).tolist()
    own = {
        name: union(events.start_us[rows[i:j]], events.end_us[rows[i:j]])
        for name, i, j in zip(codes, sides, sides[1:], strict=False)
        if j > i
    }
    others = sorted((name for name in own if name not in known), key=lambda name: own[name].total_us)
    # Of a thousand phases only the largest have a chance to be told; the others come first, as one.
    if small := others[:-MOST_OTHERS]:
        own[OTHER] = _joined([own.pop(name) for name in small])
    order = [
        *(name for _, name, _ in _FIRST if name in own),
        *([OTHER] if small else []),
        *others[len(small) :],
    ]
    covered, before = union(start[:0], start[:0]), np.zeros(len(start), np.int64)
    parts = []
    for name in order:
        covered = _joined([covered, own[name]])
        held = covered.overlap_us(start, stop)
        parts.append(_Part(name=name, role=known.get(name, (0, "other"))[1], time_us=held - before))
        before = held
    parts = [part for part in parts if part.time_us.any()]
    if len(parts) > MOST_CLASSES:
        ranked = sorted(
            parts, key=lambda one: (one.role != "other", one.name != OTHER, int(one.time_us.sum()))
        )
        merged = ranked[: len(parts) - MOST_CLASSES + 1]
        total = np.sum([part.time_us for part in merged], axis=0)
        parts = [part for part in parts if part not in merged]
        parts.append(_Part(name=OTHER, role="other", time_us=total))
    return sorted(parts, key=lambda part: ("work", "other", "wait").index(part.role))


def _joined(several: Sequence[Intervals]) -> Intervals:
    return union(*(np.concatenate([getattr(one, end) for one in several]) for end in _ENDS))
