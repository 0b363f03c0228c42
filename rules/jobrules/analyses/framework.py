"""The framework's time: the figures of OverallFrameworkMetrics, typed and rounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from jobrules.measures.framework_time import (
    MOST_OPERATORS,
    Kind,
    added,
    kind_of,
    largest_first,
    rows_of,
    times_by_name,
)
from jobrules.measures.intervals import Intervals, time_of, union
from jobrules.measures.rows import rows_by_lane, rows_by_rank
from jobrules.model import SECOND_US, IntArray, Job, Lane, Steps
from jobrules.model.names import EventName, NodeName, OperatorName, OwnText, RankName, ShownName
from jobrules.model.time_parts import named
from jobrules.rules.overall_framework_metrics import OTHERS, STEP, RankSteps, rank_steps
from jobrules.text import apportion


class Slice(Struct, frozen=True, kw_only=True):
    """One part of a time."""

    #: Of ``TIME_PARTS``; empty for a name from data.
    key: OwnText = ""
    name: ShownName
    seconds: float
    #: Rounded so that the parts add up to 100.0.
    percent: float
    #: Number of parts that it stands for; more than 1 in the last one, which joins the smallest.
    count: int = 1


class Operator(Struct, frozen=True, kw_only=True):
    """An operator of the framework, on CPU or GPU."""

    name: OperatorName
    calls: int
    #: Seconds without and with the operators that it calls.
    self_s: float
    total_s: float
    #: Of the self time of all operators of the device.
    percent: float
    #: Self seconds per call.
    call_s: float


class Operators(Struct, frozen=True, kw_only=True):
    """The operators of one device."""

    #: ``CPU`` or ``GPU``.
    device: OwnText
    #: Most self time first, 25 at most.
    rows: tuple[Operator, ...]
    #: Number of other operators, their calls, and their self time in seconds and percent.
    others: int
    others_calls: int
    others_s: float
    others_percent: float
    #: Self time of all in seconds, and in percent of both devices; and their calls.
    self_s: float
    self_percent: float
    calls: int
    #: Seconds of the job in which any of them ran; None if unknown.
    ran_s: float | None = None


class RankTime(Struct, frozen=True, kw_only=True):
    """Shares of one rank's time from its first to its last step."""

    node: NodeName
    rank: RankName
    seconds: float
    #: For each of ``FrameworkTime.kinds``, rounded so that they add up to 100.0.
    percents: tuple[float, ...]


class EventTypeTime(Struct, frozen=True, kw_only=True):
    """An event type other than steps and operators, over the time in which it was recorded.

    The recorded time of a rank is between its first and its last event of the type. Shares are of the
    recorded time of all ranks with at least three such events; None if there is no such rank.
    """

    #: Empty for the rest, which ``count`` event types share.
    name: EventName
    count: int = 1
    events: int
    #: Of all events together.
    seconds: float
    #: First start and last end, over all ranks.
    first_us: int
    last_us: int
    #: Steps that began in a rank's recorded time, of the rank with most of them.
    steps: int
    #: Percent of the recorded time in which it ran.
    percent: float | None = None
    #: Percent of the recorded time between steps in which it ran.
    outside_percent: float | None = None


class FrameworkTime(Struct, frozen=True, kw_only=True):
    """Time of the framework."""

    #: Steps by mode and the time outside steps, over all ranks, from the first to the last step of each.
    steps: tuple[Slice, ...]
    #: Time by event type, such as Forward; often of a few profiled steps.
    general: tuple[Slice, ...]
    operators: tuple[Operators, ...]
    horovod: tuple[Slice, ...]
    #: First and last step in which operators were recorded; None if their events name no step.
    first_step: int | None
    last_step: int | None
    #: Whether a forward pass was recorded but no backward pass: then steps end with the forward pass.
    forward_only: bool
    #: Whether steps hold everything but evaluation and checkpoints, such as data loading.
    whole_steps: bool = False
    #: Forward and backward pass, the longer first; empty if one of them was not recorded.
    passes: tuple[Slice, ...] = ()
    #: Seconds of the job in which any of ``general`` ran; and its event types, the largest share first.
    general_s: float | None = None
    event_types: tuple[EventTypeTime, ...] = ()
    #: Kinds of the ranks' time: the time outside steps first, then modes.
    kinds: tuple[ShownName, ...] = ()
    #: 16 at most; of more, those whose time outside steps differs most from the median, most different first.
    ranks: tuple[RankTime, ...] = ()
    #: Number of other ranks, and the mean of their percents.
    other_ranks: int = 0
    other_percents: tuple[float, ...] = ()
    #: Median time outside steps, in percent; None without ranks.
    outside_median: float | None = None


#: Names of the time between the steps of a rank, and of the modes that are joined.
OUTSIDE, FORWARD, BACKWARD = (named(key).title for key in ("outside-steps", "forward", "backward"))
OTHER_MODES = "Other modes"
_KEYS = {OUTSIDE: "outside-steps", FORWARD: "forward", BACKWARD: "backward"}

#: Ranks with shares of their own, and kinds of time.
MAX_RANKS, MAX_KINDS = 16, 6

#: Events of a rank from which its recorded time of an event type is known.
ENOUGH_EVENTS = 3

_DEVICES = ("GPU", "CPU")

#: Well-known modes in their usual order.
_MODES = ("TRAIN", "EVAL", "PREDICT", "GLOBAL")


def framework(details: Mapping[str, Any], job: Job) -> FrameworkTime | None:
    """The time in the details of OverallFrameworkMetrics and in their job; None if they hold no time."""
    steps = {
        OUTSIDE if name == OTHERS else name.removeprefix(STEP): us
        for name, us in details.get("phase_time", {}).items()
    }
    general = details.get("general_time", {})
    operators = [(device, table) for device in _DEVICES if (table := details.get(f"{device}_operators"))]
    basis = details.get("basis", {})
    profiled = [basis[device] for device in _DEVICES if device in basis]
    first = [one["first_step"] for one in profiled if "first_step" in one]
    last = [one["last_step"] for one in profiled if "last_step" in one]
    # Event types with numbers of their own; the rest is one.
    kept = tuple(general)[:MOST_OPERATORS]
    nodes = job.each(_of_node, kept, frozenset(general))
    whole = any(one.whole for one in nodes)
    passes = _passes([one.passes_us for one in nodes], general)
    forward = any(name.startswith("Forward") for name in general)
    kinds, ranks = _ranks([rank for one in nodes for rank in one.ranks])
    first_ranks, rest = _most_different_first(ranks)
    parts = apportion([table["self_us"] for _, table in operators], 100.0, 1)
    time = FrameworkTime(
        steps=_slices(steps),
        general=_slices(general),
        operators=tuple(
            _operators(device, table, part, basis.get(device, {}).get("seconds"))
            for (device, table), part in zip(operators, parts, strict=True)
        ),
        horovod=_slices(largest_first(dict(sorted(added(one.horovod for one in nodes).items())))),
        first_step=min(first, default=None),
        last_step=max(last, default=None),
        forward_only=forward and not passes and not whole,
        whole_steps=whole,
        passes=_slices(passes),
        general_s=basis.get("general", {}).get("seconds"),
        event_types=_event_types(kept, [one.recorded for one in nodes], general),
        kinds=kinds,
        ranks=tuple(first_ranks),
        other_ranks=len(rest),
        other_percents=_mean(rest),
        outside_median=_median_outside(ranks) if ranks else None,
    )
    return time if any((time.steps, time.general, time.operators, time.horovod)) else None


def _slices(times_us: Mapping[str, int]) -> tuple[Slice, ...]:
    """Parts with their shares, the largest first; the smallest of many are one. Empty without time."""
    rows = [(name, us, 1) for name, us in times_us.items()]
    if rest := rows[MOST_OPERATORS:]:
        rows[MOST_OPERATORS:] = [("", sum(us for _, us, _ in rest), len(rest))]
    if not any(us for _, us, _ in rows):
        return ()
    percents = apportion([us for _, us, _ in rows], 100.0, 1)
    return tuple(
        Slice(key=_KEYS.get(name, ""), name=name, seconds=us / SECOND_US, percent=percent, count=count)
        for (name, us, count), percent in zip(rows, percents, strict=True)
    )


def _operators(device: str, table: Mapping[str, Any], part: float, ran_s: float | None) -> Operators:
    rows, whole_us = table["rows"], table["self_us"]
    rest_us = whole_us - sum(row["self_us"] for row in rows)
    *percents, rest = apportion([*(row["self_us"] for row in rows), rest_us], 100.0, 1)
    return Operators(
        device=device,
        rows=tuple(
            Operator(
                name=row["name"],
                calls=row["calls"],
                self_s=row["self_us"] / SECOND_US,
                total_s=row["total_us"] / SECOND_US,
                percent=percent,
                call_s=round(row["self_us"] / row["calls"] / SECOND_US, 9),
            )
            for row, percent in zip(rows, percents, strict=True)
        ),
        others=table["names"] - len(rows),
        others_calls=table["calls"] - sum(row["calls"] for row in rows),
        others_s=rest_us / SECOND_US,
        others_percent=rest,
        self_s=whole_us / SECOND_US,
        self_percent=part,
        calls=table["calls"],
        ran_s=ran_s,
    )


class _Node(Struct, frozen=True, kw_only=True):
    """The times of a node, in microseconds."""

    #: Of the modules of the forward and of the backward pass.
    passes_us: list[int]
    #: By activity; all of them, so that the shares are of the whole.
    horovod: dict[str, int]
    #: By event type, the empty name for those that are not kept and lasted some time: one entry per rank.
    recorded: dict[str, list[_Recorded]]
    ranks: list[RankSteps]
    whole: bool


def _of_node(part: Job, kept: Sequence[str], lasting: frozenset[str]) -> _Node:
    events = part.events
    return _Node(
        passes_us=[
            int(events.duration_us[rows_of(events, kind)].sum()) for kind in (Kind.FORWARD, Kind.BACKWARD)
        ],
        horovod=times_by_name(events.where(rows_of(events, Kind.HOROVOD))),
        recorded=_recorded(part, lasting.difference(kept)),
        ranks=rank_steps(part),
        whole=part.steps.whole,
    )


def _recorded(part: Job, rest: frozenset[str]) -> dict[str, list[_Recorded]]:
    """The events of each type and rank, as in ``_Node``."""

    def type_and_rank(lane: Lane) -> tuple[str, str] | None:
        name = "" if lane.event_type in rest else lane.event_type
        return (name, lane.rank) if kind_of(lane) is Kind.GENERAL else None

    between = {rank: _Between.of(part.steps, rows) for rank, rows in rows_by_rank(part.steps).items()}
    found: dict[str, list[_Recorded]] = {}
    for (event_type, rank), rows in rows_by_lane(part.events, type_and_rank).items():
        recorded = _Recorded.of(
            part.events.start_us[rows], part.events.end_us[rows], between.get(rank, _NEVER)
        )
        found.setdefault(event_type, []).append(recorded)
    return found


def _event_types(
    kept: Sequence[str], nodes: Sequence[Mapping[str, list[_Recorded]]], general: Mapping[str, int]
) -> tuple[EventTypeTime, ...]:
    """Times of the kept event types, of some of those that mark moments, and of the rest as one."""
    found: dict[str, list[_Recorded]] = {}
    for one in nodes:
        for name, ranks in one.items():
            found.setdefault(name, []).extend(ranks)
    moments = sorted(name for name in found if name and name not in general)
    named = [*(name for name in kept if name in found), *moments[:MOST_OPERATORS]]
    times = [_event_type_time(name, 1, found[name], general.get(name, 0)) for name in named]
    times.sort(key=lambda one: (one.percent is None, -(one.percent or 0), -one.seconds))
    others = [*(name for name in general if name not in kept), *moments[MOST_OPERATORS:]]
    if others:
        ranks = [one for name in ("", *moments[MOST_OPERATORS:]) for one in found.get(name, [])]
        times.append(_event_type_time("", len(others), ranks, sum(general.get(name, 0) for name in others)))
    return tuple(times)


class _Between(Struct, frozen=True, kw_only=True, eq=False):
    """The time between the steps of a rank."""

    #: (n,) starts of steps, ascending.
    begun_us: IntArray
    steps: Intervals
    start_us: int
    end_us: int

    @classmethod
    def of(cls, steps: Steps, rows: IntArray) -> _Between:
        """From the steps of a rank, by start."""
        return cls(
            begun_us=steps.start_us[rows],
            steps=time_of(steps, rows),
            start_us=int(steps.start_us[rows[0]]),
            end_us=int(steps.end_us[rows].max()),
        )

    def outside_us(self, start_us: IntArray, end_us: IntArray) -> int:
        """Time of disjoint intervals after the first start, before the last end, and in no step."""
        start_us, end_us = np.clip(start_us, self.start_us, None), np.clip(end_us, None, self.end_us)
        some = end_us > start_us
        start_us, end_us = start_us[some], end_us[some]
        return int((end_us - start_us - self.steps.overlap(start_us, end_us)).sum())


#: Of a rank without steps.
_NEVER = _Between(
    begun_us=np.empty(0, np.int64),
    steps=union(np.empty(0, np.int64), np.empty(0, np.int64)),
    start_us=0,
    end_us=0,
)


class _Recorded(Struct, frozen=True, kw_only=True):
    """The events of one type and rank; times in microseconds."""

    events: int
    first_us: int
    last_us: int
    ran_us: int
    steps: int
    #: Between steps: the recorded time, and the part of it in which the event type ran.
    outside_us: int
    ran_outside_us: int

    @classmethod
    def of(cls, start_us: IntArray, end_us: IntArray, between: _Between) -> _Recorded:
        first, last = start_us.min(), end_us.max()
        ran = union(start_us, end_us)
        return cls(
            events=len(start_us),
            first_us=int(first),
            last_us=int(last),
            ran_us=ran.total,
            steps=int(np.diff(np.searchsorted(between.begun_us, (first, last)))[0]),
            outside_us=between.outside_us(np.array([first]), np.array([last])),
            ran_outside_us=between.outside_us(ran.start, ran.end),
        )


def _event_type_time(name: str, count: int, ranks: Sequence[_Recorded], us: int) -> EventTypeTime:
    known = [one for one in ranks if one.events >= ENOUGH_EVENTS] if name else []

    def share(part: int, whole: int) -> float | None:
        return round(100 * part / whole, 1) if whole else None

    return EventTypeTime(
        name=name,
        count=count,
        events=sum(one.events for one in ranks),
        seconds=us / SECOND_US,
        first_us=min(one.first_us for one in ranks),
        last_us=max(one.last_us for one in ranks),
        steps=max(one.steps for one in ranks),
        percent=share(sum(one.ran_us for one in known), sum(one.last_us - one.first_us for one in known)),
        outside_percent=share(sum(one.ran_outside_us for one in known), sum(one.outside_us for one in known)),
    )


def _passes(modules_us: Sequence[Sequence[int]], general: Mapping[str, int]) -> dict[str, int]:
    """Microseconds of forward and backward pass, of their modules if recorded; empty without both."""
    times = {name: sum(us[i] for us in modules_us) for i, name in enumerate((FORWARD, BACKWARD))}
    if not all(times.values()):
        times = {
            whole: sum(us for name, us in general.items() if name.startswith(part))
            for whole, part in ((FORWARD, "Forward"), (BACKWARD, "Backward"))
        }
    return largest_first(times) if all(times.values()) else {}


def _ranks(ranks: Sequence[RankSteps]) -> tuple[tuple[str, ...], list[RankTime]]:
    """Kinds of time, outside steps first, and the shares of each rank's time.

    As in OverallFrameworkMetrics: steps count with their whole duration; the time outside steps is what no
    step covers between the rank's first start and its last end.
    """
    whole = added(one.modes for one in ranks)
    known = [mode for mode in _MODES if mode in whole]
    modes = (known + [name for name in largest_first(whole) if name not in known])[: MAX_KINDS - 1]
    if len(whole) > len(modes):
        modes = [*modes[:-1], OTHER_MODES]
    found = []
    for one in ranks:
        times = dict.fromkeys(modes, 0)
        for mode, us in one.modes.items():
            times[mode if mode in times else OTHER_MODES] += us
        shares = [one.span_us - one.inside_us, *times.values()]
        if sum(shares):
            percents = apportion(shares, 100.0, 1)
            time = RankTime(node=one.node, rank=one.rank, seconds=one.span_us / SECOND_US, percents=percents)
            found.append(time)
    return (OUTSIDE, *modes) if found else (), found


def _most_different_first(ranks: list[RankTime]) -> tuple[list[RankTime], list[RankTime]]:
    """Ranks with shares of their own, and the others; of too many, those that differ most come first."""
    if len(ranks) <= MAX_RANKS:
        return ranks, []
    median = _median_outside(ranks)
    ordered = sorted(ranks, key=lambda one: -abs(one.percents[0] - median))
    return ordered[: MAX_RANKS - 1], ordered[MAX_RANKS - 1 :]


def _median_outside(ranks: Sequence[RankTime]) -> float:
    """Median time outside steps, in percent."""
    return round(float(np.median([one.percents[0] for one in ranks])), 2)


def _mean(ranks: Sequence[RankTime]) -> tuple[float, ...]:
    if not ranks:
        return ()
    columns = zip(*(one.percents for one in ranks), strict=True)
    return apportion([sum(column) for column in columns], 100.0, 1)
