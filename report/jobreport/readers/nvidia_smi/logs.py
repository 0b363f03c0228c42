"""The rows of an nvidia-smi file as logs of machines: when they were written, and of which GPU they are."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers.nvidia_smi.rows import Rows
from jobreport.readers.nvidia_smi.times import CLOCK, LOCAL, ZONED, in_zone, unwrapped
from jobrules.measures.snapshots import TOLERANCE_US

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import tzinfo

    from jobreport.readers.base import SourceFile
    from jobrules.model import IntArray

#: GPUs that only the order of rows numbers are asked one after the other within this time, or within half of the pause
#: before the next moment. One of so many rows has such a pause before it.
_IN_TURN_US, _ROWS_PER_PAUSE = 100_000, 32
GPU_IN_NAME = re.compile(r"(?:gpu|cuda)[_-]?([0-9]{1,2})(?![0-9a-z])", re.IGNORECASE)

_Note: TypeAlias = "Callable[..., None]"


class Log(Struct, frozen=True, kw_only=True, eq=False):
    """The rows of one file, or those of one machine in it."""

    file: SourceFile
    #: The machine that it names; empty if it names none.
    host: str
    #: In the order of the file, each of a GPU, with times since the epoch or since a start.
    rows: Rows


def logs_of(file: SourceFile, parts: Sequence[Rows], zone: tzinfo, note: _Note) -> list[Log]:
    """The rows of a file as a log for each machine that it names, or as one log if it names none."""
    rows = _of_one_kind(parts, note)
    rows = replace(rows, time_us=_dated(rows, zone, note))
    if (rows.gpu < 0).any():
        gpus, gpu = _in_turn(file, rows.time_us, note)
        rows = replace(rows, gpus=gpus, gpu=gpu)
    if len(rows.hosts) < 2:
        return [Log(file=file, host="".join(rows.hosts), rows=rows)]
    # A UUID of a file with several machines does not say of which one it is.
    rows = replace(rows, uuids=frozenset())
    order = np.argsort(rows.host, kind="stable")
    hosts, starts = np.unique(rows.host[order], return_index=True)
    return [
        Log(file=file, host=rows.hosts[host], rows=rows.where(own))
        for host, own in zip(hosts.tolist(), np.split(order, starts[1:]), strict=True)
    ]


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
    series = rows.host * (len(rows.gpus) + 1) + rows.gpu
    if rows.kind == LOCAL:
        note("nvidia_smi.zone", zone=str(zone))
        return in_zone(rows.time_us, series, zone)
    if rows.kind != ZONED:
        note("nvidia_smi.no_dates")
    return unwrapped(rows.time_us, series) if rows.kind == CLOCK else rows.time_us


def _in_turn(file: SourceFile, time_us: IntArray, note: _Note) -> tuple[tuple[str, ...], IntArray]:
    """GPUs of rows that name none: numbered within each moment, in their order."""
    order = np.argsort(time_us, kind="stable")
    gaps = np.diff(time_us[order], prepend=time_us[order[:1]])
    pause_us = float(np.quantile(gaps, 1 - 1 / _ROWS_PER_PAUSE))
    moment = np.cumsum(gaps > min(max(pause_us, TOLERANCE_US) / 2, _IN_TURN_US))
    gpu = np.empty(len(order), np.int64)
    gpu[order] = np.arange(len(order)) - np.searchsorted(moment, moment)
    gpus = int(gpu.max()) + 1
    if gpus == 1 or np.median(np.bincount(moment)) == 1:
        number = int(match[1]) if (match := GPU_IN_NAME.search(file.own_name)) else 0
        return (f"gpu{number}",), np.zeros(len(order), np.int64)
    note("nvidia_smi.in_turn")
    return tuple(f"gpu{i}" for i in range(gpus)), gpu
