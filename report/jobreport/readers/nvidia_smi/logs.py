"""The rows of an nvidia-smi file as logs of machines: when they were written, and of which GPU they are."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers.nvidia_smi.rows import GPU, Rows, count_of, joined
from jobreport.readers.nvidia_smi.times import (
    CLOCK,
    DAY_FIRST,
    EITHER,
    LOCAL,
    MONTH_FIRST,
    RELATIVE,
    ZONED,
    clock_change,
    in_order,
    in_zone,
    unwrapped,
)
from jobreport.readers.nvidia_smi.writers import by_writer, with_sound_identifiers
from jobrules.measures.snapshots import TOLERANCE_US
from jobrules.model import SECOND_US
from jobrules.text import clock

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from jobreport.readers.base import SourceFile
    from jobreport.readers.nvidia_smi.row_reading import Part
    from jobrules.model import IntArray

#: GPUs that only the order of rows numbers are asked one after the other within this time, or within half of the pause
#: before the next moment. One of so many rows has such a pause before it.
_IN_TURN_US, _ROWS_PER_PAUSE = 100_000, 32
#: In so many of the moments, or in most of them, all GPUs have a row.
_USUAL = 0.25
#: Excel counts days since 1899-12-30: those of 1990 and 2100, and of the epoch.
_FIRST_EXCEL_DAY, _LAST_EXCEL_DAY, _EXCEL_EPOCH = 32_874, 73_051, 25_569
#: As seconds, days come faster than any loop. In so many rows that shows.
_FASTEST_LOOP_US, _SHOWN_ROWS, _DAY_S = 10_000, 1 << 16, 86_400
GPU_IN_NAME = re.compile(r"(?:gpu|cuda)[_-]?([0-9]{1,2})(?![0-9a-z])", re.IGNORECASE)

_Note: TypeAlias = "Callable[..., None]"


class Log(Struct, frozen=True, kw_only=True, eq=False):
    """The rows of one file, or those of one machine in it."""

    file: SourceFile
    #: The machine that it names; empty if it names none.
    host: str
    #: Of several machines that wrote the file without their names, which one, from 1; 0 for a single one.
    writer: int = 0
    #: Of each GPU, with times since the epoch or since a start.
    gpus: list[Rows]


def logs_of(file: SourceFile, parts: list[Part], date_order: str, zone: tzinfo, note: _Note) -> list[Log]:
    """The rows of a file, which are used up, as a log for each machine that wrote it."""
    if not parts:
        return []
    by_host: defaultdict[str, list[Rows]] = defaultdict(list)
    dated = _dated(parts, date_order, zone, note)
    hosts = {rows.host for rows in dated if rows.host}
    for rows in dated:
        # Rows under a header that names no machine are of the only one that is named.
        by_host[rows.host or ("".join(hosts) if len(hosts) == 1 else "")].append(rows)
    del dated
    found = []
    are_in_turn = False
    for host in [*by_host]:
        gpus = joined(by_host.pop(host))
        are_in_turn |= any(rows.gpu == GPU() for rows in gpus)
        gpus = with_sound_identifiers(_numbered(file, gpus, note))
        writers = [gpus] if host or not gpus else by_writer(gpus, note)
        found += [
            Log(file=file, host=host, writer=writer * (len(writers) > 1), gpus=mine)
            for writer, mine in enumerate(writers, start=1)
            if mine
        ]
    note("nvidia_smi.in_turn", count=int(are_in_turn and any(len(log.gpus) > 1 for log in found)))
    return found


def _dated(parts: list[Part], date_order: str, zone: tzinfo, note: _Note) -> list[Rows]:
    """The rows of the commonest kind of times, as times since the epoch or since a start."""
    kinds: Counter[str] = Counter()
    for kind, rows in [(part.kind, count_of(part.gpus)) for part in parts]:
        kinds[kind] += rows
    # Dates that do not show the order of day and month have that of the others, or the given one.
    order = max((DAY_FIRST, MONTH_FIRST), key=kinds.__getitem__)
    order = order if kinds[order] else date_order
    if order:
        kinds[order] += kinds.pop(EITHER, 0)
    kind, rows = kinds.most_common(1)[0]
    note("nvidia_smi.other_time", count=kinds.total() - rows)
    if kind == EITHER:
        note("nvidia_smi.date_order", count=rows)
        return []
    found = [
        replace(one, time_us=in_order(one.time_us, order)) if part.kind == EITHER else one
        for part in parts
        if part.kind == kind or (part.kind == EITHER and kind == order)
        for one in part.gpus
    ]
    parts.clear()
    if kind == RELATIVE and _are_days(max(found, key=lambda one: len(one.time_us)).time_us):
        note("nvidia_smi.excel_days")
        for i, one in enumerate(found):
            found[i] = replace(one, time_us=(one.time_us - _EXCEL_EPOCH * SECOND_US) * _DAY_S)
        kind = LOCAL
    if kind in (LOCAL, DAY_FIRST, MONTH_FIRST):
        note("nvidia_smi.zone", zone=str(zone))
        found = [replace(one, time_us=in_zone(one.time_us, zone)) for one in found]
        if change_us := clock_change(max((one.time_us for one in found), key=len)):
            note("nvidia_smi.clock_change", at=clock(change_us))
        return found
    if kind != ZONED:
        note("nvidia_smi.no_dates")
    if kind == CLOCK:
        first_us = int(min(found, key=lambda one: one.line).time_us[0])
        return [replace(one, time_us=unwrapped(one.time_us, first_us)) for one in found]
    return found


def _are_days(time_us: IntArray) -> bool:
    """Whether times since a start are dates of Excel."""
    times = np.unique(time_us[:_SHOWN_ROWS])
    is_fast = len(times) > 1 and np.median(np.diff(times)) < _FASTEST_LOOP_US
    return bool(is_fast and _FIRST_EXCEL_DAY < np.median(times) / SECOND_US < _LAST_EXCEL_DAY)


def _numbered(file: SourceFile, gpus: list[Rows], note: _Note) -> list[Rows]:
    """The rows, each of a GPU: those that name none by their order in each moment.

    The number in the name of a file is that of its only GPU.
    """
    named: list[Rows] = []
    for rows in gpus:
        if rows.gpu == GPU():
            place, usual = _in_turn(rows.time_us, note)
            named += [replace(rows.where(place == i), gpu=GPU(name=f"gpu{i}")) for i in range(usual)]
        else:
            named.append(rows)
    is_named = all(rows.gpu.name for rows in gpus)
    match = GPU_IN_NAME.search(file.own_name)
    found = joined(named)
    if len(found) == 1 and not is_named and match:
        (only,) = found
        return [replace(only, gpu=replace(only.gpu, name=f"gpu{int(match[1])}"))]
    return found


def _in_turn(time_us: IntArray, note: _Note) -> tuple[IntArray, int]:
    """(n,) the place of each row in its moment, and how many there are; -1 in moments of another number of rows."""
    order = np.argsort(time_us, kind="stable")
    gaps = np.diff(time_us[order], prepend=time_us[order[:1]])
    pause_us = float(np.quantile(gaps, 1 - 1 / _ROWS_PER_PAUSE))
    moment = np.cumsum(gaps > min(max(pause_us, TOLERANCE_US) / 2, _IN_TURN_US))
    rows = np.bincount(moment)
    sizes = np.bincount(rows)
    usual = int(np.flatnonzero(sizes >= min(_USUAL * len(rows), sizes.max())).max())
    if usual == 1:
        return np.zeros(len(order), np.int64), 1
    place = np.empty(len(order), np.int64)
    incomplete = (rows != usual)[moment]
    place[order] = np.where(incomplete, -1, np.arange(len(order)) - np.searchsorted(moment, moment))
    since = 1 + int(np.flatnonzero(rows == usual)[-1])
    # A last moment alone may be one that the end of the log cut.
    lost = int(rows[since:].sum()) if len(rows) - since > 1 else 0
    first_us = int(time_us[order[np.searchsorted(moment, since)]]) if lost else 0
    note("nvidia_smi.lost_gpu", count=lost, usual=usual, since=clock(first_us))
    note("nvidia_smi.incomplete", count=int(np.count_nonzero(incomplete)) - lost, usual=usual)
    return place, usual
