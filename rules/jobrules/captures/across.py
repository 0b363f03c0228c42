"""Captures of several ranks: the same collective found on each, who waited, and for whom.

The clocks of two ranks may differ by anything. A collective that synchronizes ends on all ranks at once, so its shortest
duration is the transfer, what it lasts beyond that on a rank is waiting, and the rank with the shortest one came last.
This assumes that a kernel begins when its rank arrives, and that the last rank did not wait.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.captures.collectives import UNEVEN, Collective, Communication
from jobrules.captures.detail import MAX_STEPS, with_detail
from jobrules.captures.own_times import own_times, steps_of_ranks
from jobrules.captures.trace import NOT_GIVEN
from jobrules.measures.collective_kinds import SYNCHRONIZING
from jobrules.measures.intervals import Intervals, difference, intersection, union
from jobrules.model.captures import (
    AcrossRanks,
    Capture,
    CollectiveTable,
    DeviceCapture,
    RankWaiting,
    Skew,
    SkewColumn,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jobrules.model import IntArray, StrArray

#: A rank came last if a collective's longest duration is longer than its shortest by more than this, and than this share.
MIN_SKEW_NS, MIN_SKEW = 10_000, 0.05
MAX_TABLE_ROWS = 40
MAX_SKEW_COLUMNS = 100

#: What tells a group from others: its name, ranks, and size; or the stream, if no call names a group.
_Group: TypeAlias = tuple[str, str, int]
#: What tells one collective of a group from others on every rank.
_Key: TypeAlias = tuple[object, ...]
_NO_GROUP: _Group = ("", "", 0)


class _Member(Struct, frozen=True, eq=False):
    """A rank of a round, with the communication of one of its devices."""

    rank: int
    calls: Communication


class _Matched(Struct, frozen=True, kw_only=True, eq=False):
    """A collective that was found on all its ranks that have a capture: position of its call by member."""

    what: Collective
    calls: Mapping[int, int]
    #: Start by the clock of the first member, from the start of its window.
    start_ns: int
    transfer_ns: int
    skew_ns: int
    #: What all members waited together.
    waited_ns: int
    last: int


def joined(
    captures: Sequence[Capture], communication: Iterable[Communication]
) -> tuple[tuple[Capture, ...], AcrossRanks | None]:
    """The captures in order, with their waiting, and what their ranks say together; None without captures.

    Copies of another file take no part.
    """
    ordered = _without_copies(captures)
    if not ordered:
        return (), None
    calls: defaultdict[str, list[Communication]] = defaultdict(list)
    for one in communication:
        calls[one.file].append(one)
    rounds = list(_rounds([one for one in ordered if not one.copy_of and one.rank is not None]))
    waits = _Waits.of([some for some in rounds if len(some) > 1], calls)
    waiting = [_with_waiting(one, waits.of_devices) for one in ordered]
    stepped = [one for one in waiting if one.step_times and not one.copy_of]
    times = own_times(stepped)
    across = replace(
        _across_ranks(rounds or [ordered], calls, waits),
        steps=steps_of_ranks(stepped, times, MAX_STEPS) if len(stepped) > 1 else (),
    )
    return with_detail(waiting, stepped, times, waits.caused), across


def _across_ranks(
    rounds: Sequence[Sequence[Capture]], calls_of: Mapping[str, Sequence[Communication]], waits: _Waits
) -> AcrossRanks:
    """What the ranks say together, without their steps; captures alone in their round only speak if all are."""
    several = [some for some in rounds if len(some) > 1]
    used = [one for some in several or rounds for one in some]
    calls = [own for one in used for own in calls_of[one.file]]
    ranks = sorted({one.rank for one in used if one.rank is not None})
    last = Counter(
        one.last for one in waits.matched if one.skew_ns > max(MIN_SKEW_NS, MIN_SKEW * one.transfer_ns)
    )
    return AcrossRanks(
        ranks=tuple(ranks),
        world_size=max((one.world_size for one in used if one.world_size is not None), default=None),
        alone=tuple(some[0].file for some in rounds if several and len(some) == 1),
        matched=len(waits.matched),
        not_matched=sum(map(len, calls)) - sum(len(one.calls) for one in waits.matched),
        reason=_reason(waits.matched, calls, ranks),
        window_ns=sum(device.window_ns for one in used for device in one.devices),
        waiting=tuple(
            RankWaiting(
                rank=rank, suffered_ns=waits.suffered[rank], caused_ns=waits.caused[rank], last=last[rank]
            )
            for rank in ranks
            if waits.matched
        ),
        collectives=_table(waits.matched, calls),
        skew=_skew(waits.matched),
    )


def _reason(found: Sequence[_Matched], calls: Sequence[Communication], ranks: Sequence[int]) -> str:
    """Why no collective is matched; empty if some are."""
    if found:
        return ""
    if len(ranks) < 2:
        return "one_rank"
    kinds = {one.kind for own in calls for one in own.collectives}
    return "counts" if kinds & SYNCHRONIZING else "not_synchronizing"


def _without_copies(captures: Sequence[Capture]) -> list[Capture]:
    """The captures by rank and time; one with the rank and the events of another is marked as its copy."""
    ordered = sorted(
        captures, key=lambda one: (one.rank is None, one.rank or 0, one.base_ns or 0, one.start_ns, one.file)
    )
    first: dict[object, str] = {}
    found = []
    for one in ordered:
        devices = tuple((own.device, own.events, own.start_ns, own.window_ns) for own in one.devices)
        same = one.rank, one.base_ns, one.start_ns, one.end_ns, one.operator_calls, devices
        original = first.setdefault(same, one.file)
        found.append(one if original == one.file else replace(one, copy_of=original))
    return found


def _rounds(captures: Sequence[Capture]) -> Iterator[list[Capture]]:
    """The captures of different ranks that were recorded together, in order.

    By the time of day where all clocks count from it, else the first of each rank, the second, and so on.
    """
    if all(one.span_us is not None for one in captures):
        some: list[Capture] = []
        until = 0
        for one in sorted(captures, key=lambda one: one.span_us or (0, 0)):
            start, end = one.span_us or (0, 0)
            if some and (start > until or any(one.rank == other.rank for other in some)):
                yield some
                some = []
            some.append(one)
            until = max(until, end) if len(some) > 1 else end
        if some:
            yield some
        return
    of_ranks: defaultdict[int | None, list[Capture]] = defaultdict(list)
    for one in captures:
        of_ranks[one.rank].append(one)
    for number in range(max(map(len, of_ranks.values()), default=0)):
        yield [some[number] for some in of_ranks.values() if number < len(some)]


def _matched(members: Sequence[_Member]) -> list[_Matched]:
    """The collectives that all members of their group have wholly within their windows."""
    groups: defaultdict[_Group, dict[int, IntArray]] = defaultdict(dict)
    for position, member in enumerate(members):
        for group, rows in _by_group(member.calls).items():
            groups[group][position] = rows
    if _NO_GROUP in groups and len(groups) > 1:
        del groups[_NO_GROUP]
    found = []
    for group, of_members in groups.items():
        if 2 <= len(of_members) <= (group[2] or len(members)):
            found += _matched_in(members, of_members)
    return found


def _by_group(calls: Communication) -> dict[_Group, IntArray]:
    """Rows of the calls of each group; without any group, of the only stream."""
    groups = [one.in_group for one in calls.collectives]
    if not any(groups):
        alone = len(np.unique(calls.stream)) == 1
        return {_NO_GROUP: np.arange(len(calls))} if alone else {}
    codes = {group: code for code, group in enumerate(dict.fromkeys(filter(None, groups)))}
    code = np.array([codes.get(group, NOT_GIVEN) if group else NOT_GIVEN for group in groups])[calls.what]
    return {group: np.flatnonzero(code == one) for group, one in codes.items()}


def _matched_in(members: Sequence[_Member], rows: Mapping[int, IntArray]) -> list[_Matched]:
    """The collectives of a group by the first kind of key that all its members can give."""
    own = {position: members[position].calls for position in rows}
    if all((one.communicator[rows[position]] != NOT_GIVEN).all() for position, one in own.items()):
        keys = {position: _counted(_texts(one)[rows[position]]) for position, one in own.items()}
        return _rows_of(members, rows, keys)
    if all((one.sequence[rows[position]] != NOT_GIVEN).all() for position, one in own.items()):
        keys = {
            position: _counted(one.sequence[rows[position]], _point_to_point(one)[rows[position]])
            for position, one in own.items()
        }
        if _agree(members, rows, keys):
            return _rows_of(members, rows, keys)
    if all((one.step != NOT_GIVEN).any() for one in own.values()):
        return _rows_of(members, rows, _by_step(own, rows))
    sequences = {tuple(_sizes(one)[code] for code in one.what[rows[p]].tolist()) for p, one in own.items()}
    if len(sequences) == 1:
        return _rows_of(
            members, rows, {position: [(n,) for n in range(len(some))] for position, some in rows.items()}
        )
    return []


def _counted(*columns: IntArray | StrArray) -> list[_Key]:
    """A key for each row: its values, and how many rows before it have the same."""
    seen: Counter[_Key] = Counter()
    found: list[_Key] = []
    for values in zip(*(column.tolist() for column in columns), strict=True):
        found.append((*values, seen[values]))
        seen[values] += 1
    return found


def _by_step(own: Mapping[int, Communication], rows: Mapping[int, IntArray]) -> dict[int, list[_Key]]:
    """Number of the step and place in it; none for steps that have other numbers of calls on another member."""
    steps = {position: one.step[rows[position]] for position, one in own.items()}
    counts = [Counter(some.tolist()) for some in steps.values()]
    equal = {step for step in counts[0] if step != NOT_GIVEN and len({one[step] for one in counts}) == 1}
    return {
        position: [key if key[0] in equal else () for key in _counted(some)]
        for position, some in steps.items()
    }


def _texts(calls: Communication) -> StrArray:
    """(calls,) the communicator of each: its position differs from file to file."""
    return np.array([*calls.communicators, ""])[calls.communicator]


def _point_to_point(calls: Communication) -> IntArray:
    return np.array([one.kind == "p2p" for one in calls.collectives], np.int64)[calls.what]


def _sizes(calls: Communication) -> list[tuple[object, ...]]:
    """What must be equal on all ranks of a collective."""
    return [
        (one.kind, one.dtype, *(() if one.kind == UNEVEN else (one.in_elements, one.out_elements)))
        for one in calls.collectives
    ]


def _agree(members: Sequence[_Member], rows: Mapping[int, IntArray], keys: Mapping[int, list[_Key]]) -> bool:
    """Whether equal keys stand for equal collectives on all members."""
    known: dict[_Key, tuple[object, ...]] = {}
    for position, some in keys.items():
        calls = members[position].calls
        sizes = _sizes(calls)
        for key, code in zip(some, calls.what[rows[position]].tolist(), strict=True):
            if known.setdefault(key, sizes[code]) != sizes[code]:
                return False
    return True


def _rows_of(
    members: Sequence[_Member], rows: Mapping[int, IntArray], keys: Mapping[int, list[_Key]]
) -> list[_Matched]:
    """The collectives that synchronize, are equal on all members, and lie in the windows of all."""
    calls_of: defaultdict[_Key, dict[int, int]] = defaultdict(dict)
    for position, some in keys.items():
        for key, row in zip(some, rows[position].tolist(), strict=True):
            if key:
                calls_of[key][position] = row
    inside = {position: _inside(members[position].calls) for position in rows}
    sizes = {position: _sizes(members[position].calls) for position in rows}
    found = []
    for calls in calls_of.values():
        if len(calls) < len(rows) or not all(inside[position][row] for position, row in calls.items()):
            continue
        first = next(iter(calls))
        own = members[first].calls
        what = own.collectives[int(own.what[calls[first]])]
        equal = {sizes[position][int(members[position].calls.what[row])] for position, row in calls.items()}
        if what.kind not in SYNCHRONIZING or len(equal) > 1:
            continue
        length = {
            position: int(members[position].calls.end_ns[row] - members[position].calls.start_ns[row])
            for position, row in calls.items()
        }
        shortest = min(length.values())
        found.append(
            _Matched(
                what=what,
                calls=calls,
                start_ns=int(own.start_ns[calls[first]] - own.window.start[0]),
                transfer_ns=shortest,
                skew_ns=max(length.values()) - shortest,
                waited_ns=sum(length.values()) - shortest * len(length),
                last=min(members[position].rank for position, ns in length.items() if ns == shortest),
            )
        )
    return found


def _inside(calls: Communication) -> list[bool]:
    if not len(calls.window.start):
        return [False] * len(calls)
    begin, end = calls.window.start[0], calls.window.end[0]
    return ((calls.start_ns >= begin) & (calls.end_ns <= end)).tolist()  # type: ignore[no-any-return]


class _Waiting(Struct, frozen=True, kw_only=True, eq=False):
    """What the matched collectives of one device make of its exposed communication."""

    transfer_ns: int
    exposed: Intervals
    #: (steps,) of it in the window of each step.
    by_step: tuple[int, ...]
    #: Nanoseconds by the rank that was waited for.
    caused: Mapping[int, int]

    @classmethod
    def of(cls, position: int, members: Sequence[_Member], matched: Sequence[_Matched]) -> _Waiting | None:
        """None for a device without any matched collective."""
        own = [(one.calls[position], one) for one in matched if position in one.calls]
        if not own:
            return None
        calls = members[position].calls
        own.sort(key=lambda one: one[0])  # calls are sorted by start
        rows = np.array([row for row, _ in own])
        start, end = calls.start_ns[rows], calls.end_ns[rows]
        arrived = end - np.array([one.transfer_ns for _, one in own])
        transfer = difference(intersection(union(arrived, end), calls.window), calls.hidden)
        waited = difference(intersection(union(start, arrived), calls.window), calls.hidden)
        exposed = difference(waited, union(arrived, end))
        # Each takes what those before it left.
        begun = np.maximum(start, np.append(start[0], np.maximum.accumulate(arrived)[:-1]))
        taken = exposed.overlap(begun, np.maximum(begun, arrived))
        caused: Counter[int] = Counter()
        for (_, one), ns in zip(own, taken.tolist(), strict=True):
            caused[one.last] += ns
        return cls(
            transfer_ns=transfer.total,
            exposed=exposed,
            by_step=tuple(exposed.overlap(calls.borders[:-1], calls.borders[1:]).tolist()),
            caused=caused,
        )


class _Waits(Struct, frozen=True, kw_only=True, eq=False):
    """The matched collectives of captures that were recorded together, and the waiting in them."""

    matched: list[_Matched]
    #: By file and device.
    of_devices: dict[tuple[str, int], _Waiting]
    #: Nanoseconds by the rank that waited, and by the rank that was waited for.
    suffered: Counter[int]
    caused: Counter[int]

    @classmethod
    def of(cls, rounds: Iterable[Sequence[Capture]], calls: Mapping[str, Sequence[Communication]]) -> _Waits:
        """Of rounds of several ranks, and the calls of each file."""
        found = cls(matched=[], of_devices={}, suffered=Counter(), caused=Counter())
        for some in rounds:
            members = [_Member(one.rank or 0, own) for one in some for own in calls[one.file]]
            matched = _matched(members)
            found.matched.extend(matched)
            for position, member in enumerate(members):
                if own := _Waiting.of(position, members, matched):
                    found.of_devices[member.calls.file, member.calls.device] = own
                    found.suffered[member.rank] += own.exposed.total
                    found.caused.update(own.caused)
        return found


def _with_waiting(capture: Capture, waiting: Mapping[tuple[str, int], _Waiting]) -> Capture:
    devices = tuple(_device(one, waiting.get((capture.file, one.device))) for one in capture.devices)
    return replace(capture, devices=devices)


def _device(device: DeviceCapture, own: _Waiting | None) -> DeviceCapture:
    if own is None:
        return device
    waited = own.exposed.total
    return replace(
        device,
        exposed_transfer_ns=own.transfer_ns,
        exposed_waiting_ns=waited,
        not_matched_ns=device.exposed_communication_ns - own.transfer_ns - waited,
        steps=tuple(
            replace(step, exposed_waiting_ns=ns) for step, ns in zip(device.steps, own.by_step, strict=True)
        ),
    )


def _skew(matched: Sequence[_Matched]) -> Skew | None:
    """Skew over time, of the group that waited most."""
    groups: defaultdict[tuple[str, ...], list[_Matched]] = defaultdict(list)
    for one in matched:
        groups[*one.what.group, one.what.description].append(one)
    if not groups:
        return None
    most = max(groups.values(), key=lambda some: sum(one.waited_ns for one in some))
    column_ns = max(one.start_ns for one in most) // MAX_SKEW_COLUMNS + 1
    columns: defaultdict[int, list[_Matched]] = defaultdict(list)
    for one in most:
        columns[one.start_ns // column_ns].append(one)
    what = most[0].what
    return Skew(
        group=what.description or what.group[0],
        ranks=len(most[0].calls),
        column_ns=column_ns,
        columns=tuple(
            SkewColumn(
                start_ns=number * column_ns,
                calls=len(some),
                median_ns=float(np.median([one.skew_ns for one in some])),
                longest_ns=max(one.skew_ns for one in some),
                last=max(some, key=lambda one: one.skew_ns).last,
            )
            for number, some in sorted(columns.items())
        ),
    )


def _table(matched: Sequence[_Matched], alone: Sequence[Communication]) -> tuple[CollectiveTable, ...]:
    """The collectives with most transfer time; those that were matched nowhere as one rank saw them."""
    skews: defaultdict[Collective, list[tuple[int, int | None]]] = defaultdict(list)
    for one in matched:
        skews[one.what].append((one.transfer_ns, one.skew_ns))
    for calls in alone:
        inside = np.array(_inside(calls), np.bool_)
        length = (calls.end_ns - calls.start_ns)[inside]
        what = calls.what[inside]
        for code, collective in enumerate(calls.collectives):
            if collective.kind and collective not in skews and (what == code).any():
                skews[collective] = [(ns, None) for ns in length[what == code].tolist()]
    ordered = sorted(skews.items(), key=lambda one: -sum(transfer for transfer, _ in one[1]))
    return tuple(_row(what, rows) for what, rows in ordered[:MAX_TABLE_ROWS])


def _row(what: Collective, rows: Sequence[tuple[int, int | None]]) -> CollectiveTable:
    transfer = float(np.median([ns for ns, _ in rows]))
    skews = [skew for _, skew in rows if skew is not None]
    size, ranks = what.bytes, what.group_size
    rate = size / transfer if size is not None and transfer else None
    factor = _bus_factor(what.kind, ranks)
    return CollectiveTable(
        kind=what.kind,
        dtype=what.dtype,
        bytes=size,
        group_size=ranks,
        group=what.description or what.group[0],
        calls=len(rows),
        total_bytes=None if size is None else size * len(rows),
        median_transfer_ns=transfer,
        median_skew_ns=float(np.median(skews)) if skews else None,
        algorithm_bandwidth=rate,
        bus_bandwidth=rate * factor if rate is not None and factor is not None else None,
    )


def _bus_factor(kind: str, ranks: int | None) -> float | None:
    """By which the algorithm's bandwidth becomes that of the links, as in nccl-tests."""
    if kind in ("broadcast", "reduce"):
        return 1.0
    if not ranks or kind not in ("allreduce", "reducescatter", "allgather", "alltoall"):
        return None
    return (2 if kind == "allreduce" else 1) * (ranks - 1) / ranks
