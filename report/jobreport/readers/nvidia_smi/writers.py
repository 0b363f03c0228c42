"""Machines that append to one file which names none of them: who wrote which row.

GPUs of one number with two UUIDs, or with two bus ids, are of two machines. Without either, loops of several machines
show by more rows of a GPU than one in each interval; where the rows of each keep a phase of their own, that separates
them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport.readers.connected import connected
from jobrules.model import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from jobreport.readers.nvidia_smi.rows import GPU, Places, Rows
    from jobrules.model import BoolArray, IntArray

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
#: Share of rows with the time of the row before where each time comes twice, or nearly.
_EQUAL = 0.4
#: Share of rows that are earlier than the row before in a log that is in no order.
_UNSORTED = 0.1
#: How exactly a loop keeps its interval, as a share of it, and in how many of its rows: all but those next to rows that
#: are missing, and so many that a single loop would not.
_EXACT, _MANY_ROWS, _MOST_ROWS = 0.02, 0.8, 0.9
#: So even are the times of a single loop, as a share of their distance.
_EVEN = 0.005
#: A clock is set back by less than this share of the time before and after; more is another log behind the first.
_MAX_SET_BACK = 0.1
#: How many times their jitter the times of several loops are uneven, and apart. No jitter is below that of the clock.
_JITTERS, _CLOCK_US = 4, 500


class MixedError(Exception):
    """Rows of several machines that cannot be separated."""


def with_sound_identifiers(rows: Rows) -> Rows:
    """The rows without identifiers of GPUs that identify none.

    Such are those of GPUs with several numbers at once, as in logs that were made anonymous, and damaged ones: those in a single
    row, where the GPU has another one in more rows.
    """
    for kind in _IDENTIFIERS:
        rows = rows.of_gpus(_with_first_numbers(rows, kind), rows.gpu)
    gpus = rows.gpus
    for kind in _IDENTIFIERS:
        found = _by_number(rows, kind)
        numbers = Counter(identifier for some in found.values() for identifier in some)
        sound = {
            identifier
            for some in found.values()
            for identifier, count in some.items()
            if numbers[identifier] == 1 and (count > 1 or len(some) == 1)
        }
        gpus = tuple(
            replace(gpu, **{kind: ""}) if gpu.name and getattr(gpu, kind) not in sound else gpu
            for gpu in gpus
        )
    return rows.of_gpus(gpus, rows.gpu)


def _with_first_numbers(rows: Rows, kind: str) -> tuple[GPU, ...]:
    """The GPUs, each with its first number: where one is lost, the driver numbers those behind it anew."""
    first_us, last_us = rows.spans_us()
    of_identifier: defaultdict[str, list[int]] = defaultdict(list)
    for place in np.argsort(first_us).tolist():
        if rows.gpus[place].name and (identifier := getattr(rows.gpus[place], kind)):
            of_identifier[identifier].append(place)
    gpus = [*rows.gpus]
    for some in of_identifier.values():
        if all(last_us[one] < first_us[other] for one, other in pairwise(some)):
            for place in some:
                gpus[place] = replace(gpus[place], name=gpus[some[0]].name)
    return tuple(gpus)


def by_identifier(rows: Rows) -> IntArray:
    """(n,) the machine of each row by UUIDs or bus ids: 0 for a single one, -1 where a row names none but others do.

    Raises ``MixedError`` for more machines than append to one file.
    """
    for kind in _IDENTIFIERS:
        of_one_number = max(_by_number(rows, kind).values(), key=len, default=Counter[str]())
        if len(of_one_number) > _MAX_MACHINES:
            raise MixedError
        if len(of_one_number) > 1:
            return _machines(rows, [getattr(gpu, kind) for gpu in rows.gpus], [*of_one_number])
    return np.zeros(len(rows.time_us), np.int64)


def _by_number(rows: Rows, kind: str) -> Mapping[str, Counter[str]]:
    """The identifiers of GPUs of one number, and the rows of each. A bus id without a number is one."""
    counts = np.bincount(rows.gpu, minlength=len(rows.gpus))
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for gpu, count in zip(rows.gpus, counts.tolist(), strict=True):
        number = gpu.name or (gpu.bus if kind == "uuid" else "")
        if number and count and (identifier := getattr(gpu, kind)):
            found[number][identifier] += count
    return found


def _machines(rows: Rows, names: list[str], of_one_number: list[str]) -> IntArray:
    """(n,) the machine of each row: GPUs of other numbers are of that one whose row is nearest most of the time."""
    place = {name: i for i, name in enumerate(dict.fromkeys(filter(None, [*of_one_number, *names])))}
    code = np.array([place.get(name, -1) for name in names], np.int64)[rows.gpu]
    _, when = np.unique(rows.time_us, return_inverse=True)
    # Of rows at the same time those are near which are so in the file.
    key = when * len(when) + np.arange(len(when))
    is_base = (code >= 0) & (code < len(of_one_number))
    base = np.flatnonzero(is_base)
    base = base[np.argsort(key[base])]
    others = np.flatnonzero((code >= 0) & ~is_base)
    nearest = base[
        _nearest(rows.time_us[base], rows.time_us[others], np.searchsorted(key[base], key[others]))
    ]
    pairs, counts = np.unique(code[others] * len(place) + code[nearest], return_counts=True)
    gpu_of = {
        place[name]: gpu.name or gpu.bus or name for gpu, name in zip(rows.gpus, names, strict=True) if name
    }
    keys: list[list[Hashable]] = [[i] for i in range(len(place))]
    free = {(gpu, base) for gpu in gpu_of.values() for base in range(len(of_one_number))}
    # A machine has one GPU of each number: the nearest first, and then those for which one machine is left.
    wanted = [divmod(pair, len(place)) for pair in pairs[np.argsort(-counts, kind="stable")].tolist()]
    for other, base in wanted + [(other, base) for other, _ in wanted for base in range(len(of_one_number))]:
        if len(keys[other]) == 1 and (gpu_of[other], base) in free:
            keys[other].append(base)
            free.remove((gpu_of[other], base))
    machine = np.full(len(place) + 1, -1)
    for number, some in enumerate(connected(keys)):
        machine[some] = number
    return machine[code]


def _nearest(base_us: IntArray, time_us: IntArray, after: IntArray) -> IntArray:
    """(n,) the place in ``base_us`` of the time that is nearest: that ``after`` it, or the one before, if as near."""
    left, right = np.maximum(after - 1, 0), np.minimum(after, len(base_us) - 1)
    return np.where(np.abs(time_us - base_us[left]) <= np.abs(base_us[right] - time_us), left, right)


def by_phase(time_us: IntArray, gpu: Places, measured: BoolArray) -> IntArray:
    """(n,) the loop of each row, 0 for a single one; -1 where it fits none.

    ``measured`` are the rows with the same measure: those of another one are of another loop on the same machine.
    Raises ``MixedError`` for several loops without phases of their own.
    """
    one_loop = np.zeros(len(time_us), np.int64)
    base = np.flatnonzero(measured & (gpu == np.bincount(gpu[measured]).argmax()))
    if len(base) < 2 * _MIN_ROWS:
        return one_loop
    in_turn_us = time_us[base]
    if np.mean(np.diff(in_turn_us) < 0) > _UNSORTED:
        in_turn_us = np.sort(in_turn_us)
    if np.mean(np.diff(in_turn_us) == 0) > _EQUAL:
        raise MixedError
    if _is_set_back(time_us[base]):
        return one_loop
    base_us = np.sort(time_us[base], kind="stable")
    base_us = base_us[np.diff(base_us, prepend=base_us[0] - 1) > 0]
    interval_us, jitter_us = _interval_and_jitter_us(base_us, _MANY_ROWS)
    if not interval_us:
        return one_loop
    try:
        loop = _loops(base_us, interval_us, _JITTERS * jitter_us)
    except MixedError:
        if any(_interval_and_jitter_us(base_us, _MOST_ROWS)):
            raise
        return one_loop
    if loop.max() == 0:
        return one_loop
    apart_us = np.quantile(np.diff(base_us)[np.diff(loop) != 0], _MAX_LOST)
    nearest = _nearest(base_us, time_us, np.searchsorted(base_us, time_us))
    is_near = 2 * np.abs(time_us - base_us[nearest]) < apart_us
    if np.mean(is_near) < 1 - _MAX_LOST:
        raise MixedError
    return np.where(is_near, loop[nearest], -1)


def _is_set_back(time_us: IntArray) -> bool:
    """Whether these are the times of one loop whose clock was set back a little."""
    back = np.flatnonzero(np.diff(time_us) < 0) + 1
    if not 0 < len(back) < _MIN_ROWS:
        return False
    parts = np.split(time_us, back)
    ascending = np.concatenate([[time_us[0]], np.maximum(np.diff(time_us), 0)]).cumsum()
    return all(
        before[-1] - after[0] < _MAX_SET_BACK * min(before[-1] - before[0], after[-1] - after[0])
        for before, after in pairwise(parts)
    ) and not any(_interval_and_jitter_us(ascending, _MANY_ROWS))


def _interval_and_jitter_us(time_us: IntArray, share: float) -> tuple[int, int]:
    """The interval that several loops keep in this share of their rows, and how exactly; 0 for a single loop.

    The times of two loops lie a varying pause from one another, but each is an interval after the last but one.
    """
    width = min(_WINDOW, len(time_us))
    windows = time_us[: len(time_us) // width * width].reshape(-1, width)
    windows = windows[:: 1 + len(windows) // _MAX_WINDOWS]
    resolution_us = 1000 if (time_us % SECOND_US).any() else SECOND_US
    interval_us, jitter_us = np.zeros((2, len(windows)))
    undecided = np.ones(len(windows), np.bool_)
    for loops in range(1, min(_MAX_LOOPS, width // 2) + 1):
        lag_us = windows[:, loops:] - windows[:, :-loops]
        typical_us = np.median(lag_us, axis=1)
        spread_us = np.quantile(np.abs(lag_us - typical_us[:, None]), share, axis=1)
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
