"""Logs of ``nvidia-smi``: a loop of ``--query-gpu=… --format=csv``, ``dmon`` or ``pmon``, in one file or many.

Known by a line that names their columns, whatever the file is called. A row is what a log says of one GPU at one
moment.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import UTC
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport import progress
from jobreport.readers import text_files
from jobreport.readers.base import Found
from jobreport.readers.nvidia_smi.guess import UNKNOWN
from jobreport.readers.nvidia_smi.hosts import Log, hosts_of, words_of
from jobreport.readers.nvidia_smi.table import OTHER_TIMES, UNNUMBERED, Rows, rows_of
from jobreport.readers.nvidia_smi.text import SEPARATORS, Left, Table, decoded, header_of, is_log, tables
from jobreport.readers.nvidia_smi.times import CLOCK, LOCAL, ZONED, continued, in_zone, spread, unwrapped
from jobreport.readers.sensors import as_name
from jobreport.readers.tally import Tally
from jobreport.remarks import SourceQuality
from jobrules.measures.snapshots import TOLERANCE_US, Series, node_panels
from jobrules.model import SECOND_US, Metric, natural_sorted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set
    from datetime import tzinfo

    from jobreport.readers.base import SourceFile
    from jobreport.readers.nvidia_smi.text import Header
    from jobrules.model import FloatArray, IntArray, Panel

#: What is put behind the name of a log that is rotated: ``gpu.csv.1``, ``gpu.csv-20260103.gz``.
_PART = re.compile(r"(?:[.-][0-9]+)*(?:\.gz)?$", re.IGNORECASE)
_SUFFIXES = ("", ".csv", ".tsv", ".txt", ".log", ".out", ".dmon", ".pmon")
#: Bytes of a file in which a line must name the columns.
_BEGINNING = 1 << 16
#: A machine has fewer GPUs; more are damage or malice.
_MOST_GPUS = 1024
#: Machines of one file.
_MOST_HOSTS = 1024
#: GPUs that are told apart by the order of their rows are asked one after the other within this time, or within half
#: of the pause after all of them, which one of so many rows has before it at least.
_IN_TURN_US, _TURN = 100_000, 32
#: Rows of one moment lie no farther apart than half of nearly every interval, and than this.
_WIDEST_US, _SHORT = SECOND_US, 0.05
_GPU_IN_NAME = re.compile(r"(?:gpu|cuda)[_-]?([0-9]{1,2})(?![0-9a-z])", re.IGNORECASE)

_LOCAL = "no time zone in the log: its times are taken as {zone}"
_CHOOSE = " (--timezone names another)"
_RELATIVE = "no dates in the log: its times count from its start"
_ANEW = "its times begin anew, as those of another run: they go on where those before ended"
_SPREAD = "several rows of a GPU in a full second: taken as evenly apart within it"
_GUESSED = "no line names the columns: by their units and order they are taken as {}; others are not read"
_BORROWED = "no line names the columns: they are taken as those of another part of the log"
_IN_TURN = "no GPU is named: they are told apart by the order of the rows"
_TOO_MANY = f"more than {_MOST_HOSTS} machines in one file; those with most rows are in use"
_AGAIN = "repetition of another row"
_SECOND = "second row of a GPU at the same time; one is in use"
_UNDATED = (
    "no dates in logs of one name: taken as written at once on several machines; they may be parts of one log"
)
_JOINED = "row that tells more of a GPU at the same time, joined to the first"


class NvidiaSmi:
    """Reads logs of ``nvidia-smi``.

    Each line that is not blank and names no columns is a row: in use, or counted under the reason why it is not.
    """

    source = "nvidia-smi logs"
    looks_for = (
        "nvidia-smi logs (--query-gpu as CSV with a line that names the columns or with units, dmon, pmon)"
    )
    memory = 6.0
    rows = "rows"

    def __init__(self, zone: tzinfo | None = None) -> None:
        """``zone`` is that of times that name none; without one they are taken as UTC."""
        self._zone = zone

    def matches_name(self, _: SourceFile, /) -> bool:
        """No: such a log may be called anything."""
        return False

    def matches_content(self, file: SourceFile) -> bool:
        """By a line near the beginning that names its columns."""
        stem, dot, suffix = _PART.sub("", file.own_name.lower()).rpartition(".")
        return (f".{suffix}" if dot and stem else "") in _SUFFIXES and is_log(_beginning(file))

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """All together: only what is in them tells which are of one machine."""
        return {"": list(files)} if files else {}

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read all rows into panels; the order of the files does not matter."""
        tally = Tally()
        logs: list[Log] = []
        headers = _headers(files)
        for file in sorted(files):
            logs += _logs(file, headers.get(_PART.sub("", file.name), set()), self._zone, tally)
            progress.advance(file.size)
        panels, rows = _panels(logs, tally)
        quality = SourceQuality(
            source=self.source,
            files=len({log.file.name for log in logs}),
            rows=rows,
            remarks=tally.remarks(),
        )
        return Found(quality=quality, panels=panels)


def _headers(files: Sequence[SourceFile]) -> dict[str, set[Header]]:
    """Those of logs that lie there in several parts, by the name that the parts have in common."""
    parts: defaultdict[str, list[SourceFile]] = defaultdict(list)
    for file in files:
        parts[_PART.sub("", file.name)].append(file)
    return {
        name: {found for file in some if (found := header_of(_beginning(file)))}
        for name, some in parts.items()
        if len(some) > 1
    }


def _beginning(file: SourceFile) -> str:
    """The text of the first bytes, of a file that cannot be read none."""
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
        reason = "compressed data is cut short or damaged; what comes before is in use"
        tally.add("skipped", "files", reason, file=file.name)
    except OSError as error:
        tally.add("skipped", "files", f"cannot be read: {error.strerror}", file=file.name)
    return decoded(b"".join(found))


def _logs(file: SourceFile, headers: Set[Header], zone: tzinfo | None, tally: Tally) -> list[Log]:
    """What a file says, for each machine that it names, or as one log if it names none.

    ``headers`` are those of the other parts of the log.
    """
    read: list[Rows] = []
    for part in tables(_text(file, tally), headers):
        if isinstance(part, Table) and not part.line:
            read_as = ", ".join(name for name in part.names if name != UNKNOWN)
            borrowed = not headers.isdisjoint((part.names, separator) for separator in SEPARATORS)
            tally.add(
                "corrected", "files", _BORROWED if borrowed else _GUESSED.format(read_as), file=file.name
            )
        if isinstance(part, Left):
            tally.add("skipped", "rows", part.reason, count=part.count, file=file.name, line=part.line)
        elif rows := rows_of(part, file.name, tally):
            read.append(rows)
    if not read:
        return []
    kinds: Counter[str] = Counter()
    for one in read:
        kinds[one.kind] += len(one.time_us)
    (kind, of_kind), *_ = kinds.most_common(1)
    tally.add("skipped", "rows", OTHER_TIMES, count=kinds.total() - of_kind, file=file.name)
    rows = Rows.joined([one for one in read if one.kind == kind])
    full_us = _dated(file, rows, zone, tally)
    gpus, gpu = rows.gpus, rows.gpu
    if (gpu < 0).any():
        gpus, gpu = _in_turn(file, full_us, tally)
    time_us = spread(full_us, rows.host * (len(gpus) + 1) + gpu)
    if time_us is not full_us:
        tally.add("corrected", "files", _SPREAD, file=file.name)
    # Those of a file are not told apart by machine, and a machine with a name needs none.
    uuids = rows.uuids if len(rows.hosts) < 2 else frozenset[str]()
    log = Log(
        file=file,
        host="",
        uuids=uuids,
        gpus=gpus,
        gpu=gpu,
        time_us=time_us,
        values=rows.values,
        dated=rows.kind in (LOCAL, ZONED),
    )
    # Only machines that have rows, those with most first.
    order = np.argsort(rows.host, kind="stable")
    hosts, starts = np.unique(rows.host[order], return_index=True)
    of_host = sorted(
        zip(hosts.tolist(), np.split(order, starts[1:]), strict=True), key=lambda one: -len(one[1])
    )
    left = sum(len(mine) for _, mine in of_host[_MOST_HOSTS:])
    tally.add("dropped", "rows", _TOO_MANY, count=left, file=file.name)
    return [
        replace(log.where(mine), host=rows.hosts[host] if rows.hosts else "")
        for host, mine in of_host[:_MOST_HOSTS]
    ]


def _dated(file: SourceFile, rows: Rows, zone: tzinfo | None, tally: Tally) -> IntArray:
    """When the rows of a file were written, by their own times and their order."""
    series = rows.host * (len(rows.gpus) + 1) + rows.gpu
    if rows.kind == LOCAL:
        told = _LOCAL.format(zone=zone or UTC) + ("" if zone else _CHOOSE)
        tally.add("corrected", "files", told, file=file.name)
        return in_zone(rows.time_us, series, zone or UTC)
    if rows.kind == ZONED:
        return rows.time_us
    tally.add("corrected", "files", _RELATIVE, file=file.name)
    if rows.kind == CLOCK:
        return unwrapped(rows.time_us, series)
    time_us = continued(rows.time_us, series)
    if time_us is not rows.time_us:
        tally.add("corrected", "files", _ANEW, file=file.name)
    return time_us


def _in_turn(file: SourceFile, time_us: IntArray, tally: Tally) -> tuple[tuple[str, ...], IntArray]:
    """GPUs of rows that name none: numbered within each moment, in their order."""
    order = np.argsort(time_us, kind="stable")
    gaps = np.diff(time_us[order], prepend=time_us[order[:1]])
    pause_us = float(np.quantile(gaps, 1 - 1 / _TURN))
    moment = np.cumsum(gaps > min(max(pause_us, TOLERANCE_US) / 2, _IN_TURN_US))
    first = np.searchsorted(moment, moment)
    gpu = np.empty(len(order), np.int64)
    gpu[order] = np.arange(len(order)) - first
    most = int(gpu.max()) + 1
    usual = int(np.median(np.bincount(moment)))
    if most == 1 or usual == 1:
        number = int(match[1]) if (match := _GPU_IN_NAME.search(file.own_name)) else 0
        return (f"gpu{number}",), np.zeros(len(order), np.int64)
    tally.add("corrected", "files", _IN_TURN, file=file.name)
    return tuple(f"gpu{i}" for i in range(most)), gpu


def _panels(logs: Sequence[Log], tally: Tally) -> tuple[tuple[Panel, ...], int]:
    """The panels of all machines, and how many rows are in them."""
    of_host: dict[str, list[Log]] = {}
    undated: defaultdict[str, list[str]] = defaultdict(list)
    for log, host in zip(logs, hosts_of(logs, tally), strict=True):
        of_host.setdefault(host, []).append(log)
        if not (log.dated or log.host):
            undated[words_of(log.file)].append(host)
    unsure = sum(len(hosts) for hosts in undated.values() if len(set(hosts)) > 1)
    tally.add("corrected", "files", _UNDATED, count=unsure)
    panels: list[Panel] = []
    rows = 0
    for host in natural_sorted(set(of_host)):
        series: list[Series] = []
        of_gpu: dict[str, list[Log]] = {}
        for log in _numbered(of_host[host]):
            for name, own in log.by_gpu().items():
                of_gpu.setdefault(name, []).append(own)
        for number, name in enumerate(natural_sorted(set(of_gpu))):
            gpu = _once(_sorted(of_gpu[name]), tally)
            if number >= _MOST_GPUS:
                reason = f"more than {_MOST_GPUS} GPUs of one machine"
                tally.add("dropped", "rows", reason, count=len(gpu.time_us))
                continue
            rows += len(gpu.time_us)
            series += _series(name, gpu)
        intervals = np.concatenate([np.diff(one.time_us) for one in series])
        short_us = float(np.quantile(intervals, _SHORT)) if len(intervals) else 0.0
        tolerance_us = int(min(max(short_us / 2, TOLERANCE_US), _WIDEST_US))
        made = node_panels(as_name(host), series, tolerance_us)
        reason = "second value of a GPU in the same snapshot; one is in use"
        tally.add("dropped", "values", reason, count=made.surplus)
        panels += made.panels
    return tuple(panels), rows


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
    """One row of a GPU, in the order of time, for each time; what the others tell besides is joined to it.

    The others are counted, those that tell something else apart from those that do not.
    """
    first = np.diff(gpu.time_us, prepend=gpu.time_us[0] - 1) != 0
    if first.all():
        return gpu
    rows, starts, of = np.arange(len(first)), np.flatnonzero(first), np.cumsum(first) - 1
    values: dict[Metric, FloatArray] = {}
    differs, adds = np.zeros_like(first), np.zeros_like(first)
    for metric, told in gpu.values.items():
        there = ~np.isnan(told)
        # The first row of each time that has a value, or the number of all rows where none has.
        place = np.minimum.reduceat(np.where(there, rows, len(rows)), starts)
        values[metric] = np.append(told, np.nan)[place]
        differs |= there & (told != values[metric][of])
        adds |= place[of] == rows
    tally.add("dropped", "rows", _AGAIN, count=int(np.count_nonzero(~first & ~differs & ~adds)))
    tally.add("dropped", "rows", _SECOND, count=int(np.count_nonzero(differs)))
    tally.add("dropped", "rows", _JOINED, count=int(np.count_nonzero(~first & ~differs & adds)))
    return replace(gpu.where(first), values=values)


def _series(name: str, gpu: Log) -> Iterable[Series]:
    for metric, values in gpu.values.items():
        told = ~np.isnan(values)
        if told.all():
            yield Series(metric=metric, device=name, time_us=gpu.time_us, values=values)
        elif told.any():
            yield Series(metric=metric, device=name, time_us=gpu.time_us[told], values=values[told])
