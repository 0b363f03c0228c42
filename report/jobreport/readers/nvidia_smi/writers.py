"""Machines that append to one file which names none of them: who wrote which row.

GPUs of one number with two UUIDs, or with two bus ids, are of two machines. Without either, loops of several machines
show by more rows of a GPU than one in each interval; where the rows of each keep a phase of their own, that separates
them.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport.readers.nvidia_smi.rows import count_of, joined
from jobrules.measures.snapshots import TOLERANCE_US
from jobrules.model import SECOND_US
from jobrules.text import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jobreport.readers.nvidia_smi.rows import Rows
    from jobrules.model import IntArray

#: More UUIDs of GPUs of one number are damage or malice.
_MAX_MACHINES = 512
#: What identifies a GPU, in the order of trust.
_IDENTIFIERS = ("uuid", "bus")
#: Rows of a GPU in which loops are looked for, how often in a log, and loops that are looked for.
_WINDOW, _MAX_WINDOWS, _MAX_LOOPS = 32, 4096, 8
#: Rows of a loop of which fewer show none.
_MIN_ROWS = 10
#: Share of windows in which several loops are found, and of rows that fit no loop.
_MIN_SHARE, _MAX_LOST = 0.1, 0.05
#: Share of rows with the time of the row before where each time comes twice, or nearly. Nearly are times as near as those
#: of a moment, and nearer than this share of their mean distance.
_EQUAL, _NEAR = 0.4, 0.1
#: Share of rows that are earlier than the row before in a log that is in no order.
_UNSORTED = 0.1
#: How exactly a loop keeps its interval, as a share of it, and in how many of its rows: all but those next to rows that
#: are missing.
_EXACT, _MANY_ROWS = 0.02, 0.85
#: Next to one another, two pauses of a single loop differ by less than this factor.
_UNEVEN = 0.7
#: So even are the times of a single loop, as a share of their distance.
_EVEN = 0.005
#: Times in whole seconds, and in Excel's days with five or six decimals.
_COARSE_US = SECOND_US, 864_000, 86_400
#: A clock is set back by less than this share of the time before and after; more is another log behind the first.
_MAX_SET_BACK = 0.1
#: How many times their jitter the times of several loops are uneven, and apart. No jitter is below that of the clock.
_JITTERS, _CLOCK_US = 4, 500


class MixedError(Exception):
    """Rows of several machines that cannot be separated."""


def with_sound_identifiers(gpus: Sequence[Rows]) -> list[Rows]:
    """The rows of each GPU without identifiers that identify none.

    Such are those of several numbers at once, as in logs that were made anonymous, and damaged ones: those in a single
    row, where the GPU has another one in more rows. Where a GPU is lost, the driver numbers those behind it anew: an
    identifier has the number that it had first.
    """
    for kind in _IDENTIFIERS:
        gpus = joined([*_sound(gpus, kind)])
    return [*gpus]


def _sound(gpus: Sequence[Rows], kind: str) -> Iterator[Rows]:
    identified = [rows for rows in gpus if rows.gpu.name and getattr(rows.gpu, kind)]
    of_identifier = _by(identified, kind)
    of_number = _by(identified, "name")
    for rows in gpus:
        gpu = rows.gpu
        same = sorted(of_identifier.get(getattr(gpu, kind), []), key=lambda one: one.time_us.min())
        others = count_of(of_number.get(gpu.name, [])) - len(rows.time_us)
        if gpu.name and len(rows.time_us) == 1 and others > 1:
            gpu = replace(gpu, **{kind: ""})
        elif len({one.gpu.name for one in same}) > 1:
            in_turn = all(one.time_us.max() < other.time_us.min() for one, other in pairwise(same))
            gpu = replace(gpu, name=same[0].gpu.name) if in_turn else replace(gpu, **{kind: ""})
        yield replace(rows, gpu=gpu)


def _by(gpus: Sequence[Rows], kind: str) -> dict[str, list[Rows]]:
    """The rows by one of the names of their GPU; without those that do not have it."""
    found: defaultdict[str, list[Rows]] = defaultdict(list)
    for rows in gpus:
        if name := getattr(rows.gpu, kind):
            found[name].append(rows)
    return found


def by_writer(gpus: Sequence[Rows], note: Callable[..., None]) -> list[list[Rows]]:
    """The rows of each machine that wrote a file which names none, in the order of their first rows."""
    try:
        writers, code = _by_identifier(gpus), "nvidia_smi.writers_by_identifier"
        if len(writers) < 2 and not any(rows.gpu.uuid for rows in gpus):
            writers, code = _by_phase(gpus), "nvidia_smi.writers"
            note("nvidia_smi.uneven", count=int(len(writers) < 2 and _is_uneven(_times_us(gpus))))
    except MixedError:
        _note_mixed(gpus, note)
        return []
    if len(writers) > 1:
        note(code, machines=len(writers))
        note("nvidia_smi.no_writer", count=count_of(gpus) - sum(map(count_of, writers)))
    return sorted(writers, key=lambda mine: min((rows.line, rows.time_us[0]) for rows in mine))


def _note_mixed(gpus: Sequence[Rows], note: Callable[..., None]) -> None:
    """Say whether times with milliseconds would help, or else from when on rows come from several loops."""
    time_us = np.sort(_times_us(gpus))
    steps_us = np.diff(time_us)
    if not (time_us % SECOND_US).any():
        note("nvidia_smi.mixed", count=count_of(gpus))
        return
    is_short = steps_us < _UNEVEN * np.quantile(steps_us, _MANY_ROWS)
    first_us = int(time_us[np.argmax(is_short)])
    note("nvidia_smi.mixed_loops", count=count_of(gpus), since=clock(first_us))


def _by_identifier(gpus: Sequence[Rows]) -> list[list[Rows]]:
    """The GPUs of each machine by UUIDs or bus ids; a GPU that has none is of no machine where others do.

    Raises ``MixedError`` for more machines than append to one file.
    """
    for kind in _IDENTIFIERS:
        identified = [rows for rows in gpus if getattr(rows.gpu, kind)]
        # A bus id without a number is one.
        numbered = _by(identified, "name") or (_by(identified, "bus") if kind == "uuid" else {})
        same = max(numbered.values(), key=lambda some: len(_by(some, kind)), default=[])
        of_one_number = [*_by(same, kind)]
        if len(of_one_number) > _MAX_MACHINES:
            raise MixedError
        if len(of_one_number) > 1:
            return _machines(_by(identified, kind), of_one_number)
    return [[*gpus]]


def _machines(of_identifier: dict[str, list[Rows]], of_one_number: Sequence[str]) -> list[list[Rows]]:
    """The GPUs of each machine: with each GPU of one number those whose rows are nearest most of the time."""
    machines = [of_identifier.pop(identifier) for identifier in of_one_number]
    taken = [{_number(rows) for rows in some} for some in machines]
    base_us = np.concatenate([rows.time_us for some in machines for rows in some])
    machine_of = np.repeat(np.arange(len(machines)), [*map(count_of, machines)])
    order = np.argsort(base_us, kind="stable")
    base_us, machine_of = base_us[order], machine_of[order]
    for some in sorted(of_identifier.values(), key=lambda some: some[0].line):
        time_us = np.concatenate([rows.time_us for rows in some])
        nearest = machine_of[_nearest(base_us, time_us, np.searchsorted(base_us, time_us))]
        counts = np.bincount(nearest, minlength=len(machines))
        # A machine has one GPU of each number.
        for machine in np.argsort(-counts, kind="stable").tolist():
            if _number(some[0]) not in taken[machine]:
                machines[machine] += some
                taken[machine].add(_number(some[0]))
                break
    return machines


def _number(rows: Rows) -> str:
    return rows.gpu.name or rows.gpu.bus or rows.gpu.uuid


def _nearest(base_us: IntArray, time_us: IntArray, after: IntArray) -> IntArray:
    """(n,) the place in ``base_us`` of the time that is nearest: that ``after`` it, or the one before, if as near."""
    left, right = np.maximum(after - 1, 0), np.minimum(after, len(base_us) - 1)
    return np.where(np.abs(time_us - base_us[left]) <= np.abs(base_us[right] - time_us), left, right)


def _by_phase(gpus: Sequence[Rows]) -> list[list[Rows]]:
    """The rows of each loop; those that fit none are of none.

    Raises ``MixedError`` for several loops without phases of their own.
    """
    base_us, loop = _phases(_times_us(gpus))
    if loop.max() == 0:
        return [[*gpus]]
    apart_us = np.quantile(np.diff(base_us)[np.diff(loop) != 0], _MAX_LOST)
    found: list[list[Rows]] = [[] for _ in range(loop.max() + 1)]
    for rows in gpus:
        nearest = _nearest(base_us, rows.time_us, np.searchsorted(base_us, rows.time_us))
        is_near = 2 * np.abs(rows.time_us - base_us[nearest]) < apart_us
        mine = np.where(is_near, loop[nearest], -1)
        for one in np.unique(mine[mine >= 0]).tolist():
            found[one].append(rows.where(mine == one))
    if sum(map(count_of, found)) < (1 - _MAX_LOST) * count_of(gpus):
        raise MixedError
    return found


def _times_us(gpus: Sequence[Rows]) -> IntArray:
    """(n,) the times of one measure of a GPU: rows with another measure are of another loop on the same machine."""
    base = max(gpus, key=lambda rows: len(rows.time_us))
    measured = max((~np.isnan(some) for some in base.values.values()), key=np.count_nonzero)
    return base.time_us[measured]


def _phases(time_us: IntArray) -> tuple[IntArray, IntArray]:
    """(n,) the times of a GPU, ascending, and the loop of each, 0 for a single one."""
    base_us = np.unique(time_us)
    one_loop = np.zeros(len(base_us), np.int64)
    if len(time_us) < 2 * _MIN_ROWS:
        return base_us, one_loop
    steps_us = np.diff(time_us)
    if np.mean(steps_us < 0) > _UNSORTED:
        steps_us = np.diff(np.sort(time_us))
    if np.mean(steps_us == 0) > _EQUAL:
        raise MixedError
    # What a single loop would be, had its clock not been set back.
    passed_us = np.cumsum(np.maximum(steps_us, 0)) if _is_set_back(time_us) else base_us
    interval_us, jitter_us = _interval_and_jitter_us(passed_us)
    if interval_us:
        return base_us, _loops(base_us, interval_us, _JITTERS * jitter_us)
    apart_us = np.abs(steps_us)
    if np.mean(apart_us <= min(TOLERANCE_US, _NEAR * apart_us.mean())) > _EQUAL:
        raise MixedError
    return base_us, one_loop


def _is_set_back(time_us: IntArray) -> bool:
    """Whether times go back a little, and seldom."""
    parts = np.split(time_us, np.flatnonzero(np.diff(time_us) < 0) + 1)
    return 1 < len(parts) <= _MIN_ROWS and all(
        before[-1] - after[0] < _MAX_SET_BACK * min(np.ptp(before), np.ptp(after))
        for before, after in pairwise(parts)
    )


def _is_uneven(time_us: IntArray) -> bool:
    """Whether times are by turns nearer and farther apart: those of several machines, or of one whose pauses vary."""
    apart_us = np.diff(np.unique(time_us))
    shorter, longer = np.sort([apart_us[1:], apart_us[:-1]], axis=0)
    return len(apart_us) > _MIN_ROWS and float(np.mean(shorter < _UNEVEN * longer)) > _MIN_SHARE


def _interval_and_jitter_us(time_us: IntArray) -> tuple[int, int]:
    """The interval that several loops keep in most of their rows, and how exactly; 0 for a single loop.

    The times of two loops lie a varying pause from one another, but each is an interval after the last but one.
    """
    width = min(_WINDOW, len(time_us))
    windows = time_us[: len(time_us) // width * width].reshape(-1, width)
    windows = windows[:: 1 + len(windows) // _MAX_WINDOWS]
    resolution_us = next((one for one in _COARSE_US if not (time_us % one).any()), 1000)
    interval_us, jitter_us = np.zeros((2, len(windows)))
    undecided = np.ones(len(windows), np.bool_)
    for loops in range(1, min(_MAX_LOOPS, width // 2) + 1):
        lag_us = windows[:, loops:] - windows[:, :-loops]
        typical_us = np.median(lag_us, axis=1)
        spread_us = np.quantile(np.abs(lag_us - typical_us[:, None]), _MANY_ROWS, axis=1)
        uneven_us = np.median(np.abs(np.diff(windows, axis=1) - typical_us[:, None] / loops), axis=1)
        regular = spread_us <= _EXACT * typical_us
        # Over many jittery intervals the jitter evens out, and times that are cut differ by less than what is cut.
        several = undecided & regular & (uneven_us > np.maximum(_JITTERS * spread_us, resolution_us / 2))
        interval_us[several], jitter_us[several] = typical_us[several], spread_us[several]
        undecided &= ~several & (spread_us > _EVEN * typical_us)
    found = interval_us > 0
    if np.mean(found) < _MIN_SHARE:
        return 0, 0
    return int(np.median(interval_us[found])), max(int(np.median(jitter_us[found])), _CLOCK_US)


def _loops(time_us: IntArray, interval_us: int, near_us: int) -> IntArray:
    """(n,) the loop of each of ascending times, an interval after the one before; -1 for single ones."""
    last: dict[int, int] = {}
    rows: list[int] = []
    loop = []
    for at in time_us.tolist():
        # A single row out of turn begins no loop.
        last = {
            i: seen for i, seen in last.items() if rows[i] >= _MIN_ROWS or at - seen < _MIN_ROWS * interval_us
        }
        due = [i for i, seen in last.items() if _off_us(at - seen, interval_us) <= near_us]
        if len(due) > 1 or len(last) > _MIN_ROWS * _MAX_LOOPS:
            raise MixedError
        number = due[0] if due else len(rows)
        if not due:
            rows.append(0)
        rows[number] += 1
        last[number] = at
        loop.append(number)
    found = np.array(loop)
    counts = np.bincount(found)
    kept = np.flatnonzero(counts >= _MIN_ROWS)
    first = np.array([time_us[found == i][0] for i in kept])
    end = np.array([time_us[found == i][-1] for i in kept])
    if counts[kept].sum() < (1 - _MAX_LOST) * len(time_us) or first.max() > end.min():
        raise MixedError
    place = np.full(len(counts), -1)
    place[kept] = np.arange(len(kept))
    return np.asarray(place[found])


def _off_us(after_us: int, interval_us: int) -> int:
    """How far a time is from one of the next intervals after another."""
    if after_us < interval_us // 2:
        return interval_us
    return abs((after_us + interval_us // 2) % interval_us - interval_us // 2)
