"""The text of an nvidia-smi log: a row for each GPU and moment, in the dialects that tools and scripts write."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np

from generator.hardware import MODEL, TOTAL_MIB, gauges
from generator.noise import Noise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import tzinfo

    from generator.arrays import IntArray
    from generator.hardware import Gauges
    from generator.job import JobSpec

EPOCH = datetime.fromtimestamp(0, UTC)
#: Names of columns: those of the tool, of its older versions, and of scripts that wrap it.
TOOL = {
    "time": "timestamp",
    "index": "index",
    "name": "name",
    "uuid": "uuid",
    "use": "utilization.gpu [%]",
    "memory_use": "utilization.memory [%]",
    "memory": "memory.used [MiB]",
    "total": "memory.total [MiB]",
    "temperature": "temperature.gpu",
    "power": "power.draw [W]",
    "limit": "power.limit [W]",
    "clock": "clocks.current.sm [MHz]",
    "reasons": "clocks_event_reasons.active",
    "corrected": "ecc.errors.corrected.volatile.total",
    "uncorrected": "ecc.errors.uncorrected.volatile.total",
}
OLD_TOOL = {**TOOL, "reasons": "clocks_throttle_reasons.active"}
SCRIPT = {
    "time": "timestamp",
    "index": "gpu_index",
    "use": "utilization_gpu_percent",
    "memory": "memory_used_MiB",
    "total": "memory_total_MiB",
    "temperature": "temperature_C",
    "power": "power_W",
}
UNITS = {
    "use": " %",
    "memory_use": " %",
    "memory": " MiB",
    "total": " MiB",
    "power": " W",
    "limit": " W",
    "clock": " MHz",
}
#: What ``dmon`` and ``pmon`` call their columns, and the units of the second line; the rest of a row is dashes.
DMON = (
    *(("gpu", "Idx", "index"), ("pwr", "W", "power"), ("gtemp", "C", "temperature"), ("mtemp", "C", "")),
    *(("sm", "%", "use"), ("mem", "%", "memory_use"), ("enc", "%", ""), ("dec", "%", "")),
    *(("mclk", "MHz", ""), ("pclk", "MHz", "clock"), ("fb", "MB", "memory"), ("bar1", "MB", "")),
)
PMON = (
    *(("gpu", "#", "index"), ("pid", "#", "pid"), ("type", "C/G", "type"), ("sm", "%", "use")),
    *(("mem", "%", "memory_use"), ("enc", "%", ""), ("dec", "%", ""), ("command", "name", "command")),
)
#: What stands among the rows when something goes wrong.
MESSAGES = (
    "Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error",
    "Failed to initialize NVML: Driver/library version mismatch",
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
    "timeout: sending signal TERM to command 'nvidia-smi'",
)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How a log is written."""

    summary: str
    names: Mapping[str, str]
    #: Columns that are there under none of these names are left out.
    without: tuple[str, ...] = ()
    units: bool = True
    separator: str = ", "
    #: ``local``, ``iso``, ``epoch``, ``elapsed``; of ``dmon`` and ``pmon`` ``date`` or ``none``.
    times: str = "local"
    #: Columns of ``dmon`` or ``pmon``; none for a query.
    monitor: tuple[tuple[str, str, str], ...] = ()
    #: Messages, empty lines and headers among the rows, and a last line that is cut.
    noisy: bool = False
    #: As PowerShell writes what it is told to keep in a file.
    wide: bool = False


QUERY = Dialect(summary="--query-gpu=... --format=csv", names=TOOL)
DIALECTS: dict[str, Dialect] = {
    "csv": QUERY,
    "nounits": replace(QUERY, summary="--format=csv,nounits", units=False),
    "old-driver": replace(
        QUERY, summary="names of columns that older drivers give", names=OLD_TOOL, without=("uuid",)
    ),
    "uuid": replace(QUERY, summary="GPUs told by UUID, without index", without=("index",)),
    "iso": replace(
        QUERY,
        summary="a script's names of columns and times with a zone",
        names=SCRIPT,
        units=False,
        times="iso",
    ),
    "epoch": replace(
        QUERY,
        summary="a script's, seconds since 1970",
        names=SCRIPT,
        units=False,
        separator=",",
        times="epoch",
    ),
    "elapsed": replace(
        QUERY,
        summary="a script's, seconds since its start",
        names={**SCRIPT, "time": "elapsed_sec"},
        units=False,
        separator=",",
        times="elapsed",
    ),
    "dmon": Dialect(summary="nvidia-smi dmon -s pucm -o DT", names=TOOL, monitor=DMON, times="date"),
    "dmon-no-times": Dialect(summary="nvidia-smi dmon -s pucm", names=TOOL, monitor=DMON, times="none"),
    "pmon": Dialect(summary="nvidia-smi pmon -o DT", names=TOOL, monitor=PMON, times="date"),
    "noisy": replace(QUERY, summary="messages and headers among the rows, cut at the end", noisy=True),
    "powershell": replace(QUERY, summary="UTF-16 with a byte order mark, CRLF", wide=True),
}
#: Rows of ``dmon`` and ``pmon`` from one header to the next.
_HEADER_EVERY = 32


def log_files(
    spec: JobSpec, dialect: Dialect, *, each_gpu: bool = False, ahead_us: int = 0, zone: str = "UTC"
) -> Iterator[tuple[str, bytes]]:
    """Yield how the name ends, and the content, of a log for every node, or every GPU.

    The clock of the log is ``ahead_us`` before that of the node's samples; ``zone`` is that of local times.
    """
    for node in range(1, spec.nodes + 1):
        seen = gauges(spec, node)
        seen = replace(seen, timestamp_us=seen.timestamp_us + ahead_us)
        host = f"-algo-{node}" if spec.nodes > 1 else ""
        suffix = "log" if dialect.monitor else "csv"
        for gpus in [(k,) for k in range(spec.gpus)] if each_gpu else [tuple(range(spec.gpus))]:
            part = f"-gpu{gpus[0]}" if each_gpu else ""
            noise = Noise(spec.seed, node)
            lines = list(_lines(seen, gpus, spec, node, dialect, ZoneInfo(zone)))
            if dialect.noisy:
                lines = list(_disturbed(lines, noise))
            text = "\n".join(lines) + "\n"
            if dialect.noisy:
                text = text[: -len(lines[-1]) // 2]
            content = text.encode("ascii")
            if dialect.wide:
                content = text.replace("\n", "\r\n").encode("utf-16-le")
                content = b"\xff\xfe" + content
            yield f"{host}{part}.{suffix}", content


def _lines(
    seen: Gauges, gpus: Sequence[int], spec: JobSpec, node: int, dialect: Dialect, zone: tzinfo
) -> Iterator[str]:
    if dialect.monitor:
        return _monitor_lines(seen, gpus, dialect, zone)
    cells = _cells(seen, gpus, spec, node)
    cells["time"] = [text for text in _times(seen.timestamp_us, dialect.times, zone) for _ in gpus]
    kept = [key for key in dialect.names if key not in dialect.without]
    columns = [
        [text + UNITS[key] for text in cells[key]] if dialect.units and key in UNITS else cells[key]
        for key in kept
    ]
    header = dialect.separator.join(dialect.names[key] for key in kept)
    return chain([header], map(dialect.separator.join, zip(*columns, strict=True)))


def _monitor_lines(seen: Gauges, gpus: Sequence[int], dialect: Dialect, zone: tzinfo) -> Iterator[str]:
    cells = _cells(seen, gpus, None, 0)
    cells["power"] = [f"{float(text):.0f}" for text in cells["power"]]
    if dialect.monitor is PMON:
        # A process that did nothing is shown without a number.
        for key in ("use", "memory_use"):
            cells[key] = ["-" if text == "0" else text for text in cells[key]]
        cells["pid"] = [str(4711 + k) for _ in seen.timestamp_us for k in gpus]
        cells["type"] = ["C"] * len(cells["pid"])
        cells["command"] = ["python train.py"] * len(cells["pid"])
    cells[""] = ["-"] * len(cells["use"])
    dated = dialect.times == "date"
    first = f"#{'Date':<11}{'Time':<10}" if dated else "#"
    second = f"#{'YYYYMMDD':<11}{'HH:MM:SS':<10}" if dated else "#"
    header = [
        first + "".join(f" {name:>6}" for name, _, _ in dialect.monitor),
        second + "".join(f" {unit:>6}" for _, unit, _ in dialect.monitor),
    ]
    stamps = [""] * len(seen.timestamp_us)
    if dated:
        stamps = [
            f" {when:%Y%m%d}   {when:%H:%M:%S}  "
            for when in (_moment(us, zone) for us in seen.timestamp_us.tolist())
        ]
    columns = [cells[key] for _, _, key in dialect.monitor]
    for i, row in enumerate(zip(*columns, strict=True)):
        if i % _HEADER_EVERY == 0:
            yield from header
        yield stamps[i // len(gpus)] + " " + "".join(f" {text:>6}" for text in row)


def _cells(seen: Gauges, gpus: Sequence[int], spec: JobSpec | None, node: int) -> dict[str, list[str]]:
    """The cells of each column without their units, moment after moment, in each the GPUs in order."""
    ticks = len(seen.timestamp_us)
    found = {
        key: list(map(form.__mod__, values[:, list(gpus)].ravel().tolist()))
        for key, form, values in (
            ("use", "%d", seen.use),
            ("memory_use", "%d", seen.memory_use),
            ("memory", "%d", seen.memory_mib),
            ("temperature", "%d", seen.temperature_c),
            ("power", "%.2f", seen.power_w),
            ("limit", "%.2f", seen.limit_w),
            ("clock", "%d", seen.clock_mhz),
            ("reasons", "0x%016x", seen.reasons),
            ("corrected", "%d", seen.corrected),
            ("uncorrected", "%d", seen.uncorrected),
        )
    }
    found["index"] = [str(k) for k in gpus] * ticks
    found["name"] = [MODEL] * len(gpus) * ticks
    found["total"] = [str(TOTAL_MIB)] * len(gpus) * ticks
    if spec:
        found["uuid"] = [_uuid(spec.seed, node, k) for k in gpus] * ticks
    return found


def _times(time_us: IntArray, kind: str, zone: tzinfo) -> list[str]:
    moments = time_us.tolist()
    if kind == "epoch":
        return [f"{us // 1_000_000}.{us % 1_000_000 // 1000:03}" for us in moments]
    if kind == "elapsed":
        return [f"{(us - moments[0]) // 1000 / 1000:.3f}" for us in moments]
    if kind == "iso":
        return [f"{_moment(us, UTC):%Y-%m-%dT%H:%M:%S}.{us % 1_000_000 // 1000:03}Z" for us in moments]
    return [f"{_moment(us, zone):%Y/%m/%d %H:%M:%S}.{us % 1_000_000 // 1000:03}" for us in moments]


def _moment(us: int, zone: tzinfo) -> datetime:
    return (EPOCH + timedelta(microseconds=us)).astimezone(zone)


def _uuid(seed: int, node: int, gpu: int) -> str:
    digest = hashlib.sha256(f"{seed}/{node}/{gpu}".encode()).hexdigest()
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def _disturbed(lines: Sequence[str], noise: Noise) -> Iterator[str]:
    """The header and the rows, with other things in between."""
    header, *rows = lines
    yield header
    what = noise.uniform("disturbance", np.arange(len(rows)), 2)
    for row, (when, which) in zip(rows, what.tolist(), strict=True):
        if when < 0.01:
            yield MESSAGES[int(which * len(MESSAGES))]
        elif when < 0.015:
            yield header
        elif when < 0.02:
            yield ""
        yield row
