"""Logs of ``nvidia-smi``: a loop of ``--query-gpu=… --format=csv``, ``dmon`` or ``pmon``, in one file or many.

Known by a line that names their columns, whatever the file is called. A row is what a log says of one GPU at one
moment.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import UTC
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec.structs import replace

from jobreport import progress
from jobreport.readers import text_files
from jobreport.readers.base import Found
from jobreport.readers.nvidia_smi.hosts import Log, logs_by_host
from jobreport.readers.nvidia_smi.table import UNNUMBERED, Rows, rows_of
from jobreport.readers.nvidia_smi.text import NO_HEADER, Table, decoded, is_log, tables
from jobreport.readers.nvidia_smi.times import CLOCK, LOCAL, ZONED, continued, in_zone, spread, unwrapped
from jobreport.readers.sensors import as_name
from jobreport.readers.tally import Tally
from jobreport.remarks import SourceQuality
from jobrules.measures.snapshots import TOLERANCE_US, Series, node_panels
from jobrules.model import SECOND_US, Metric, natural_sorted
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import tzinfo

    from jobreport.readers.base import SourceFile
    from jobreport.readers.nvidia_smi.text import Skipped
    from jobrules.model import FloatArray, IntArray, Panel

#: What is put behind the name of a log that is rotated: ``gpu.csv.1``, ``gpu.csv-20260103.gz``.
_PART = re.compile(r"(?:[.-][0-9]+)*(?:\.gz)?$", re.IGNORECASE)
_SUFFIXES = ("", ".csv", ".tsv", ".txt", ".log", ".out", ".dmon", ".pmon")
#: Bytes of a file in which a line must name the columns.
_BEGINNING = 1 << 16
#: A machine has fewer GPUs, and a file fewer machines; more are damage or malice.
MAX_GPUS = MAX_HOSTS = 1024
#: GPUs that only the order of rows numbers are asked one after the other within this time, or within half of the pause
#: before the next moment. One of so many rows has such a pause before it.
_IN_TURN_US, _ROWS_PER_PAUSE = 100_000, 32
#: Rows of one moment lie within half of nearly every interval: all but this share, and within a second.
_SHORT_INTERVALS = 0.05
_GPU_IN_NAME = re.compile(r"(?:gpu|cuda)[_-]?([0-9]{1,2})(?![0-9a-z])", re.IGNORECASE)

_Note: TypeAlias = "Callable[..., None]"


class NvidiaSmi:
    """Reads logs of ``nvidia-smi``.

    Each line that is not blank and names no columns is a row: in use, or counted under the reason why it is not.
    """

    source = "nvidia-smi logs"
    looks_for = "nvidia-smi logs (--query-gpu as CSV with a header line, dmon, pmon)"
    memory = 6.0
    rows = "rows"

    def __init__(self, zone: tzinfo = UTC, columns: Sequence[str] = ()) -> None:
        """``zone`` is that of times without one, ``columns`` are the names of those of logs without a header line."""
        self._zone = zone
        self._columns = columns

    def matches_name(self, _: SourceFile, /) -> bool:
        """No: such a log may be called anything."""
        return False

    def matches_content(self, file: SourceFile) -> bool:
        """By a line near the beginning that names its columns, or by its first row."""
        stem, dot, suffix = _PART.sub("", file.own_name.lower()).rpartition(".")
        return (f".{suffix}" if dot and stem else "") in _SUFFIXES and is_log(_beginning(file), self._columns)

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """All together: only their content says which are of one machine."""
        return {"": list(files)} if files else {}

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read all rows into panels; the order of the files does not matter."""
        tally = Tally()
        logs: list[Log] = []
        headerless: list[tuple[SourceFile, Skipped]] = []
        for file in sorted(files):
            if parts := self._parts(file, headerless, tally):
                logs += _logs(file, parts, self._zone, partial(tally.note, file=file.name))
            progress.advance(file.size)
        for file, first in headerless[:1]:
            rows = sum(part.count for _, part in headerless)
            row = escape_name(first.text, 80)
            tally.note(NO_HEADER, count=rows, file=file.name, line=first.line, row=row)
        panels, rows = _panels(logs, tally)
        quality = SourceQuality(
            source=self.source,
            files=len({log.file.name for log in logs}),
            rows=rows,
            remarks=tally.remarks(),
        )
        return Found(quality=quality, panels=panels)

    def _parts(
        self, file: SourceFile, headerless: list[tuple[SourceFile, Skipped]], tally: Tally
    ) -> list[Rows]:
        """The rows under each header; those without one are added to ``headerless``."""
        found = []
        for part in tables(_text(file, tally), self._columns):
            note = partial(tally.note, file=file.name, line=part.line)
            if isinstance(part, Table):
                found.append(rows_of(part, note))
            elif part.code == NO_HEADER:
                headerless.append((file, part))
            else:
                note(part.code, count=part.count)
        return [rows for rows in found if rows]


def _beginning(file: SourceFile) -> str:
    """The text of the first bytes; empty for a file that cannot be read."""
    data = b""
    try:
        for chunk in text_files.chunks(file.path):
            data += chunk
            if len(data) >= _BEGINNING:
                break
    except text_files.DamagedError:
        pass
    except OSError:
        return ""
    return decoded(data[:_BEGINNING])


def _text(file: SourceFile, tally: Tally) -> str:
    found: list[bytes] = []
    try:
        found.extend(text_files.chunks(file.path))
    except text_files.DamagedError:
        tally.note("nvidia_smi.cut_short", file=file.name)
    except OSError as error:
        tally.note("nvidia_smi.unreadable", file=file.name, error=str(error.strerror))
    return decoded(b"".join(found))


# The logs of a file


def _logs(file: SourceFile, parts: Sequence[Rows], zone: tzinfo, note: _Note) -> list[Log]:
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
        number = int(match[1]) if (match := _GPU_IN_NAME.search(file.own_name)) else 0
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


# The panels of all machines


def _panels(logs: Sequence[Log], tally: Tally) -> tuple[tuple[Panel, ...], int]:
    """The panels of all machines, and how many rows are in them."""
    panels: list[Panel] = []
    rows = 0
    by_host = logs_by_host(logs, tally)
    for host in natural_sorted(set(by_host)):
        gpus = _by_gpu(by_host[host], tally)
        rows += sum(len(gpu.time_us) for gpu in gpus.values())
        series = [one for name, gpu in gpus.items() for one in _series(name, gpu)]
        made = node_panels(as_name(host), series, _tolerance_us(series))
        tally.note("nvidia_smi.second_value", count=made.surplus)
        panels += made.panels
    return tuple(panels), rows


def _by_gpu(logs: Sequence[Log], tally: Tally) -> dict[str, Log]:
    """The rows of each GPU of one machine, in the order of time, each time once."""
    parts: defaultdict[str, list[Log]] = defaultdict(list)
    for log in _numbered(logs):
        for name, own in log.by_gpu().items():
            parts[name].append(own)
    gpus = {name: _once(_sorted(parts[name]), tally) for name in natural_sorted(set(parts))}
    surplus = [gpus.pop(name) for name in list(gpus)[MAX_GPUS:]]
    tally.note("nvidia_smi.many_gpus", count=sum(len(gpu.time_us) for gpu in surplus), gpus=MAX_GPUS)
    return gpus


def _tolerance_us(series: Sequence[Series]) -> int:
    """Width of a snapshot."""
    intervals = np.concatenate([np.diff(one.time_us) for one in series])
    short_us = float(np.quantile(intervals, _SHORT_INTERVALS)) if len(intervals) else 0.0
    return int(min(max(short_us / 2, TOLERANCE_US), SECOND_US))


def _numbered(logs: Sequence[Log]) -> Sequence[Log]:
    """The logs of one machine, each GPU with a number: that in the name of its file, or as its rows come in turn."""
    taken = {name for log in logs for name in log.gpus}
    found: dict[str, str] = {}
    free = (gpu for i in count() if (gpu := f"gpu{i}") not in taken)
    for log in sorted(logs, key=lambda log: (int(log.time_us[0]), log.file)):
        gpus, first = np.unique(log.gpu, return_index=True)
        in_turn = [log.gpus[i] for i in gpus[np.argsort(first)].tolist()]
        match = _GPU_IN_NAME.search(log.file.own_name) if len(in_turn) == 1 else None
        for name in in_turn:
            if name.startswith(UNNUMBERED) and name not in found:
                own = f"gpu{int(match[1])}" if match else ""
                found[name] = own if own and own not in taken else next(free)
                taken.add(found[name])
    return [replace(log, gpus=tuple(found.get(name, name) for name in log.gpus)) for log in logs]


def _sorted(logs: Sequence[Log]) -> Log:
    """The rows of one GPU from several files, in the order of time."""
    metrics = natural_sorted({metric for log in logs for metric in log.values})
    time_us = np.concatenate([log.time_us for log in logs])
    order = np.argsort(time_us, kind="stable")
    values = {
        Metric(metric): np.concatenate(
            [log.values.get(Metric(metric), np.full(len(log.time_us), np.nan)) for log in logs]
        )[order]
        for metric in metrics
    }
    return replace(logs[0], time_us=time_us[order], gpu=np.zeros(len(order), np.int64), values=values)


def _once(gpu: Log, tally: Tally) -> Log:
    """One row of a GPU, in the order of time, for each time; other values of the same time are joined to it.

    The others are counted, those with different values apart from those without.
    """
    first = np.diff(gpu.time_us, prepend=gpu.time_us[0] - 1) != 0
    if first.all():
        return gpu
    rows, starts, group = np.arange(len(first)), np.flatnonzero(first), np.cumsum(first) - 1
    values: dict[Metric, FloatArray] = {}
    differs, adds = np.zeros_like(first), np.zeros_like(first)
    for metric, measured in gpu.values.items():
        there = ~np.isnan(measured)
        # The first row of each time that has a value, or the number of all rows where none has.
        place = np.minimum.reduceat(np.where(there, rows, len(rows)), starts)
        values[metric] = np.append(measured, np.nan)[place]
        differs |= there & (measured != values[metric][group])
        adds |= place[group] == rows
    tally.note("nvidia_smi.repeated_row", count=int(np.count_nonzero(~first & ~differs & ~adds)))
    tally.note("nvidia_smi.second_row", count=int(np.count_nonzero(differs)))
    tally.note("nvidia_smi.joined_row", count=int(np.count_nonzero(~first & ~differs & adds)))
    return replace(gpu.where(first), values=values)


def _series(name: str, gpu: Log) -> Iterable[Series]:
    for metric, values in gpu.values.items():
        there = ~np.isnan(values)
        if there.all():
            yield Series(metric=metric, device=name, time_us=gpu.time_us, values=values)
        elif there.any():
            yield Series(metric=metric, device=name, time_us=gpu.time_us[there], values=values[there])
