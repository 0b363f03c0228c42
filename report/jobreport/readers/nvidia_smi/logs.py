"""The rows of an nvidia-smi file as logs of machines: when they were written, and of which GPU they are."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers.nvidia_smi.rows import GPU, Rows
from jobreport.readers.nvidia_smi.times import CLOCK, LOCAL, ZONED, in_zone, unwrapped
from jobreport.readers.nvidia_smi.writers import MixedError, by_identifier, by_phase, with_sound_identifiers
from jobrules.measures.snapshots import TOLERANCE_US
from jobrules.text import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import tzinfo

    from jobreport.readers.base import SourceFile
    from jobrules.model import IntArray

#: GPUs that only the order of rows numbers are asked one after the other within this time, or within half of the pause
#: before the next moment. One of so many rows has such a pause before it.
_IN_TURN_US, _ROWS_PER_PAUSE = 100_000, 32
#: In so many of the moments, or in most of them, all GPUs have a row.
_USUAL = 0.25
GPU_IN_NAME = re.compile(r"(?:gpu|cuda)[_-]?([0-9]{1,2})(?![0-9a-z])", re.IGNORECASE)

_Note: TypeAlias = "Callable[..., None]"


class Log(Struct, frozen=True, kw_only=True, eq=False):
    """The rows of one file, or those of one machine in it."""

    file: SourceFile
    #: The machine that it names; empty if it names none.
    host: str
    #: Of several machines that wrote the file without their names, which one, from 1; 0 for a single one.
    writer: int = 0
    #: In the order of the file, each of a GPU, with times since the epoch or since a start.
    rows: Rows


def logs_of(file: SourceFile, parts: list[Rows], zone: tzinfo, note: _Note) -> list[Log]:
    """The rows of a file, which are used up, as a log for each machine that wrote it."""
    if not parts:
        return []
    rows = _of_one_kind(parts, note)
    parts.clear()
    rows = replace(rows, time_us=_dated(rows, zone, note))
    found = []
    are_in_turn = bool((rows.gpu < 0).any())
    for host, own in _by_host(rows):
        numbered = with_sound_identifiers(_numbered(file, own, note))
        found += [
            Log(file=file, host=host, writer=writer, rows=some)
            for writer, some in ([(0, numbered)] if host else _by_writer(numbered, note))
            if len(some.time_us)
        ]
    note("nvidia_smi.in_turn", count=int(are_in_turn and any(len(log.rows.gpus) > 1 for log in found)))
    return found


def _of_one_kind(parts: Sequence[Rows], note: _Note) -> Rows:
    """The rows with the commonest kind of times."""
    kinds: Counter[str] = Counter()
    for one in parts:
        kinds[one.kind] += len(one.time_us)
    ((kind, rows),) = kinds.most_common(1)
    note("nvidia_smi.other_time", count=kinds.total() - rows)
    return Rows.joined([one for one in parts if one.kind == kind])


def _dated(rows: Rows, zone: tzinfo, note: _Note) -> IntArray:
    """When the rows of a file were written, by their times and their order."""
    series = rows.host.astype(np.int64) * (len(rows.gpus) + 1) + rows.gpu if rows.hosts else rows.gpu
    if rows.kind == LOCAL:
        note("nvidia_smi.zone", zone=str(zone))
        return in_zone(rows.time_us, series, zone)
    if rows.kind != ZONED:
        note("nvidia_smi.no_dates")
    return unwrapped(rows.time_us, series) if rows.kind == CLOCK else rows.time_us


def _by_host(rows: Rows) -> Iterator[tuple[str, Rows]]:
    """The rows of each machine that is named; all of them under no name if none is."""
    if len(rows.hosts) < 2:
        yield "".join(rows.hosts), rows
        return
    order = np.argsort(rows.host, kind="stable")
    hosts, starts = np.unique(rows.host[order], return_index=True)
    for host, own in zip(hosts.tolist(), np.split(order, starts[1:]), strict=True):
        yield rows.hosts[host], rows.where(own)


def _by_writer(rows: Rows, note: _Note) -> Iterator[tuple[int, Rows]]:
    """The rows of each machine that wrote a file which names none, in the order of their first rows."""
    try:
        writer = by_identifier(rows)
        code = "nvidia_smi.writers_by_identifier"
        if not writer.any() and rows.values and not any(gpu.uuid for gpu in rows.gpus):
            measured = max((~np.isnan(some) for some in rows.values.values()), key=np.count_nonzero)
            writer = by_phase(rows.time_us, rows.gpu, measured)
            code = "nvidia_smi.writers"
    except MixedError:
        note("nvidia_smi.mixed", count=len(rows.time_us))
        return
    if not writer.any():
        yield 0, rows
        return
    note("nvidia_smi.no_writer", count=int(np.count_nonzero(writer < 0)))
    writers, first = np.unique(writer[writer >= 0], return_index=True)
    note(code, machines=len(writers))
    for place, one in enumerate(writers[np.argsort(first)].tolist(), start=1):
        yield place, rows.where(writer == one)


def _numbered(file: SourceFile, rows: Rows, note: _Note) -> Rows:
    """The rows, each of a GPU: those that name none by their order in each moment.

    The number in the name of a file is that of its only GPU.
    """
    unnamed = np.flatnonzero(rows.gpu < 0)
    if len(unnamed):
        place, usual = _in_turn(rows.time_us[unnamed], note)
        gpu = rows.gpu.copy()
        gpu[unnamed] = np.where(place < 0, -1, place + len(rows.gpus))
        rows = rows.of_gpus([*rows.gpus, *(GPU(name=f"gpu{i}") for i in range(usual))], gpu).where(gpu >= 0)
    if len(rows.gpus) == 1 and (match := GPU_IN_NAME.search(file.own_name)):
        (only,) = rows.gpus
        if len(unnamed) or not only.name:
            return replace(rows, gpus=(replace(only, name=f"gpu{int(match[1])}"),))
    return rows


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
    place[order] = np.arange(len(order)) - np.searchsorted(moment, moment)
    incomplete = np.empty(len(order), np.bool_)
    incomplete[order] = (rows != usual)[moment]
    place[incomplete] = -1
    since = 1 + int(np.flatnonzero(rows == usual)[-1])
    # A last moment alone may be one that the end of the log cut.
    lost = int(rows[since:].sum()) if len(rows) - since > 1 else 0
    first_us = int(time_us[order[np.searchsorted(moment, since)]]) if lost else 0
    note("nvidia_smi.lost_gpu", count=lost, usual=usual, since=clock(first_us))
    note("nvidia_smi.incomplete", count=int(np.count_nonzero(incomplete)) - lost, usual=usual)
    return place, usual
