"""Machines that append to one file which names none of them: who wrote which row.

GPUs of one number with two UUIDs, or with two bus ids, are of two machines. Without either, several rows of a GPU in
each interval show several writers, whose rows nothing separates: such a file is not read.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport.readers.nvidia_smi.rows import count_of, joined
from jobreport.readers.nvidia_smi.times import clock_change
from jobrules.measures.snapshots import TOLERANCE_US
from jobrules.model import SECOND_US
from jobrules.text import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jobreport.readers.nvidia_smi.rows import Rows
    from jobrules.model import FloatArray, IntArray

#: More UUIDs of GPUs of one number are damage or malice.
_MAX_MACHINES = 512
#: What identifies a GPU, in the order of trust.
_IDENTIFIERS = ("uuid", "bus")
#: Rows of a GPU that are looked at together, how often in a log, and writers that they may be of.
_WINDOW, _MAX_WINDOWS, _MAX_LOOPS = 32, 4096, 8
#: Rows of which fewer show no second writer.
_MIN_ROWS = 20
#: Share of windows that show several writers.
_MIN_SHARE = 0.1
#: Share of rows with the time of the row before, or nearly, where each time comes twice, and of those with other values.
#: Nearly are times as near as those of a moment, and nearer than this share of their mean distance.
_EQUAL, _OTHERS, _NEAR = 0.4, 0.01, 0.1
#: How exactly a loop keeps its interval, as a share of it, and in how many of its rows: all but those next to rows that
#: are missing.
_EXACT, _MANY_ROWS = 0.02, 0.85
#: Next to one another, two pauses of a single loop differ by less than this factor.
_UNEVEN = 0.7
#: So even are the times of a single loop, as a share of their distance; so many times more uneven those of several.
_EVEN, _JITTERS = 0.005, 4
#: Times in whole seconds, and in Excel's days with five or six decimals.
_COARSE_US = SECOND_US, 864_000, 86_400
#: A clock is set back seldom, and by less than this share of the time before and after; more is another log behind the
#: first.
_MAX_SET_BACK, _MAX_SETS = 0.1, 9


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
    """The rows of each machine that wrote a file which names none, in the order of their first rows.

    None if nothing separates them.
    """
    writers = _by_identifier(gpus)
    time_us, values = _series(gpus)
    has_uuid = any(rows.gpu.uuid for rows in gpus)
    if not writers or (len(writers) == 1 and not has_uuid and _is_of_several(time_us, values)):
        note("nvidia_smi.mixed", count=count_of(gpus), since=clock(_first_short_us(time_us)))
        return []
    if len(writers) == 1 and not has_uuid:
        note("nvidia_smi.uneven", count=int(_is_uneven(time_us)))
    if len(writers) > 1:
        note("nvidia_smi.writers_by_identifier", machines=len(writers))
        note("nvidia_smi.no_writer", count=count_of(gpus) - sum(map(count_of, writers)))
    return sorted(writers, key=lambda mine: min((rows.line, rows.time_us[0]) for rows in mine))


def _by_identifier(gpus: Sequence[Rows]) -> list[list[Rows]]:
    """The GPUs of each machine by UUIDs or bus ids; a GPU that has none is of no machine where others do.

    None for more machines than append to one file.
    """
    for kind in _IDENTIFIERS:
        identified = [rows for rows in gpus if getattr(rows.gpu, kind)]
        # A bus id without a number is one.
        numbered = _by(identified, "name") or (_by(identified, "bus") if kind == "uuid" else {})
        same = max(numbered.values(), key=lambda some: len(_by(some, kind)), default=[])
        of_one_number = [*_by(same, kind)]
        if len(of_one_number) > _MAX_MACHINES:
            return []
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


def _series(gpus: Sequence[Rows]) -> tuple[IntArray, FloatArray]:
    """(n,) the times and values of a measure of a GPU: rows with another measure are of another loop of the machine."""
    base = max(gpus, key=lambda rows: len(rows.time_us))
    values = max(base.values.values(), key=lambda some: np.count_nonzero(~np.isnan(some)))
    there = ~np.isnan(values)
    return base.time_us[there], values[there]


def _is_of_several(time_us: IntArray, values: FloatArray) -> bool:
    """Whether the rows of a GPU are such as one loop does not write."""
    if len(time_us) < _MIN_ROWS:
        return False
    # A local clock that was set back shows an hour twice, which may be most of the log.
    is_changed = clock_change(time_us) > 0
    if _comes_twice(time_us, values) and not is_changed:
        return True
    times_us = np.unique(time_us)
    if len(times_us) < _MIN_ROWS:
        return False
    steps_us = np.diff(times_us)
    if np.mean(steps_us <= min(TOLERANCE_US, _NEAR * steps_us.mean())) > _EQUAL:
        return True
    is_set_back = is_changed or _is_set_back(time_us)
    return _is_each_interval_divided(np.cumsum(np.maximum(np.diff(time_us), 0)) if is_set_back else times_us)


def _comes_twice(time_us: IntArray, values: FloatArray) -> bool:
    """Whether most times come twice, in turn or with other values: a log behind its copy has the same."""
    steps_us = np.diff(time_us)
    if (steps_us > 0).all():
        return False
    if np.mean(steps_us == 0) > _EQUAL:
        return True
    order = np.lexsort((values, time_us))
    at_once = np.diff(time_us[order]) == 0
    is_other = at_once & (np.diff(values[order]) != 0)
    return bool(at_once.mean() > _EQUAL and is_other.sum() > _OTHERS * at_once.sum())


def _is_set_back(time_us: IntArray) -> bool:
    """Whether times go back a little, and seldom."""
    parts = np.split(time_us, np.flatnonzero(np.diff(time_us) < 0) + 1)
    return 1 < len(parts) <= 1 + _MAX_SETS and all(
        before[-1] - after[0] < _MAX_SET_BACK * min(np.ptp(before), np.ptp(after))
        for before, after in pairwise(parts)
    )


def _is_each_interval_divided(time_us: IntArray) -> bool:
    """Whether each time lies an interval after the last but one, or an earlier one, and a varying pause after the last."""
    width = min(_WINDOW, len(time_us))
    windows = time_us[: len(time_us) // width * width].reshape(-1, width)
    windows = windows[:: 1 + len(windows) // _MAX_WINDOWS]
    # Times that are cut differ by less than what is cut.
    cut_us = next((one for one in _COARSE_US if not (time_us % one).any()), 1000) / 2
    is_divided, is_even = np.zeros((2, len(windows)), np.bool_)
    for loops in range(1, min(_MAX_LOOPS, width // 2) + 1):
        lag_us = windows[:, loops:] - windows[:, :-loops]
        typical_us = np.median(lag_us, axis=1)
        spread_us = np.quantile(np.abs(lag_us - typical_us[:, None]), _MANY_ROWS, axis=1)
        uneven_us = np.median(np.abs(np.diff(windows, axis=1) - typical_us[:, None] / loops), axis=1)
        # Over many jittery intervals the jitter evens out.
        is_uneven = uneven_us > np.maximum(_JITTERS * spread_us, cut_us)
        is_divided |= ~is_even & (spread_us <= _EXACT * typical_us) & is_uneven
        is_even |= spread_us <= _EVEN * typical_us
    return bool(np.mean(is_divided) >= _MIN_SHARE)


def _first_short_us(time_us: IntArray) -> int:
    """The time from which on rows come in shorter intervals than most."""
    time_us = np.sort(time_us)
    steps_us = np.diff(time_us, append=time_us[-1:])
    return int(time_us[np.argmax(steps_us < _UNEVEN * np.quantile(steps_us, _MANY_ROWS))])


def _is_uneven(time_us: IntArray) -> bool:
    """Whether times are by turns nearer and farther apart: those of several machines, or of one whose pauses vary."""
    apart_us = np.diff(np.unique(time_us))
    shorter, longer = np.sort([apart_us[1:], apart_us[:-1]], axis=0)
    return len(apart_us) > _MIN_ROWS // 2 and float(np.mean(shorter < _UNEVEN * longer)) > _MIN_SHARE
