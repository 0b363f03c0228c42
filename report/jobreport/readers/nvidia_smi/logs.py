"""The rows of an nvidia-smi file as logs of machines: when they were written, and of which GPU they are."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers.nvidia_smi.table import Rows
from jobreport.readers.nvidia_smi.times import CLOCK, LOCAL, ZONED, continued, in_zone, spread, unwrapped
from jobrules.measures.snapshots import TOLERANCE_US

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import tzinfo

    from jobreport.readers.base import SourceFile
    from jobrules.model import BoolArray, FloatArray, IntArray, Metric

#: A file has fewer machines; more are damage or malice.
MAX_HOSTS = 1024
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
    uuids: frozenset[str]
    #: Names of GPUs, and (n,) a position among them.
    gpus: tuple[str, ...]
    gpu: IntArray
    #: (n,) in the order of the file.
    time_us: IntArray
    #: (n,) each, NaN where there is no value.
    values: dict[Metric, FloatArray]

    def where(self, rows: BoolArray | IntArray) -> Log:
        """The rows of a mask, or at these places, with the GPUs in them."""
        gpu = self.gpu[rows]
        there = np.unique(gpu)
        return replace(
            self,
            gpus=tuple(self.gpus[i] for i in there.tolist()),
            gpu=np.searchsorted(there, gpu),
            time_us=self.time_us[rows],
            values={metric: values[rows] for metric, values in self.values.items()},
        )

    def by_gpu(self) -> dict[str, Log]:
        """The rows of each GPU."""
        order = np.argsort(self.gpu, kind="stable")
        ends = np.searchsorted(self.gpu[order], np.arange(1, len(self.gpus)))
        rows = np.split(order, ends)
        return {name: self.where(mine) for name, mine in zip(self.gpus, rows, strict=True)}


def logs_of(file: SourceFile, parts: Sequence[Rows], zone: tzinfo, note: _Note) -> list[Log]:
    """The rows of a file as a log for each machine that it names, or as one log if it names none."""
    rows = _of_one_kind(parts, note)
    time_us = _dated(rows, zone, note)
    gpus, gpu = rows.gpus, rows.gpu
    if (gpu < 0).any():
        gpus, gpu = _in_turn(file, time_us, note)
    spread_us = spread(time_us, rows.host * (len(gpus) + 1) + gpu)
    if spread_us is not time_us:
        note("nvidia_smi.full_seconds")
    log = Log(
        file=file,
        host="",
        # A UUID of a file with several machines does not say of which one it is.
        uuids=rows.uuids if len(rows.hosts) < 2 else frozenset[str](),
        gpus=gpus,
        gpu=gpu,
        time_us=spread_us,
        values=rows.values,
    )
    return _by_host(log, rows, note)


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
    if rows.kind == ZONED:
        return rows.time_us
    series = rows.host * (len(rows.gpus) + 1) + rows.gpu
    if rows.kind == LOCAL:
        if zone == UTC:
            note("nvidia_smi.assumed_utc")
        else:
            note("nvidia_smi.zone", zone=str(zone))
        return in_zone(rows.time_us, series, zone)
    note("nvidia_smi.no_dates")
    if rows.kind == CLOCK:
        return unwrapped(rows.time_us, series)
    time_us = continued(rows.time_us, series)
    if time_us is not rows.time_us:
        note("nvidia_smi.restarted")
    return time_us


def _in_turn(file: SourceFile, time_us: IntArray, note: _Note) -> tuple[tuple[str, ...], IntArray]:
    """GPUs of rows that name none: numbered within each moment, in their order."""
    order = np.argsort(time_us, kind="stable")
    gaps = np.diff(time_us[order], prepend=time_us[order[:1]])
    pause_us = float(np.quantile(gaps, 1 - 1 / _ROWS_PER_PAUSE))
    moment = np.cumsum(gaps > min(max(pause_us, TOLERANCE_US) / 2, _IN_TURN_US))
    first = np.searchsorted(moment, moment)
    gpu = np.empty(len(order), np.int64)
    gpu[order] = np.arange(len(order)) - first
    gpus = int(gpu.max()) + 1
    usual = int(np.median(np.bincount(moment)))
    if gpus == 1 or usual == 1:
        number = int(match[1]) if (match := GPU_IN_NAME.search(file.own_name)) else 0
        return (f"gpu{number}",), np.zeros(len(order), np.int64)
    note("nvidia_smi.in_turn")
    return tuple(f"gpu{i}" for i in range(gpus)), gpu


def _by_host(log: Log, rows: Rows, note: _Note) -> list[Log]:
    """A log for each machine of a file, those with most rows first."""
    order = np.argsort(rows.host, kind="stable")
    hosts, starts = np.unique(rows.host[order], return_index=True)
    of_host = zip(hosts.tolist(), np.split(order, starts[1:]), strict=True)
    by_size = sorted(of_host, key=lambda one: -len(one[1]))
    left = sum(len(mine) for _, mine in by_size[MAX_HOSTS:])
    note("nvidia_smi.many_hosts", count=left, machines=MAX_HOSTS)
    return [
        replace(log.where(mine), host=rows.hosts[host] if rows.hosts else "")
        for host, mine in by_size[:MAX_HOSTS]
    ]
