"""Writes the job directory: samples in a file per minute and node, traces per process, logs of nvidia-smi."""

from __future__ import annotations

import gzip
import io
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING

from generator.events import trace_files
from generator.record import minutes_us, record
from generator.smi_log import DIALECTS, log_files
from generator.system_metrics import format_minute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from generator.job import JobSpec
    from generator.smi_log import Dialect

#: How the names of logs begin.
LOG = "nvidia-smi"


@dataclass(frozen=True, kw_only=True)
class LogSpec:
    """What logs of nvidia-smi to write."""

    dialect: Dialect = DIALECTS["csv"]
    #: A file for each GPU instead of each node.
    each_gpu: bool = False
    #: How far the clock of the logs is ahead of that of the samples.
    ahead_us: int = 0
    #: Name of the zone of times that name none.
    zone: str = "UTC"


@dataclass(frozen=True, kw_only=True)
class Written:
    """What came out."""

    lines: int
    files: int
    size_bytes: int


def write_job(
    spec: JobSpec, job_dir: Path, *, gzipped: bool, samples: bool | None = None, log: LogSpec | None = None
) -> Written:
    """Write the job directory and return what was written.

    With neither ``samples`` nor ``log`` asked for, what the scenario is meant to be written as.
    """
    if samples is None:
        samples = log is None and not spec.scenario.logged
        log = log or (None if samples else LogSpec())
    present = [part for part in (job_dir / "system", job_dir / "framework") if part.exists()]
    for part in (*present, *job_dir.glob(f"{LOG}*")):
        raise FileExistsError(f"{part} exists already: name a folder without a job in it, or remove it.")
    contents = chain(sample_files(spec) if samples else (), logs(spec, log) if log else ())
    written = write_files(contents, job_dir, gzipped=gzipped)
    if samples:
        for folder in ("system", "framework") if spec.steps else ("system",):
            (job_dir / folder).mkdir(parents=True, exist_ok=True)
            (job_dir / folder / "training_job_end.ts").touch()
    return written


def write_files(contents: Iterable[tuple[str, bytes]], job_dir: Path, *, gzipped: bool) -> Written:
    """Write files by path and content."""
    lines = files = size_bytes = 0
    for path, content in contents:
        target = job_dir / path
        target.parent.mkdir(parents=True, exist_ok=True)
        stored = compress(content) if gzipped else content
        target.with_name(target.name + (".gz" if gzipped else "")).write_bytes(stored)
        lines += content.count(b"\n")
        files += 1
        size_bytes += len(stored)
    return Written(lines=lines, files=files, size_bytes=size_bytes)


def sample_files(spec: JobSpec) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of every file of samples and traces."""
    for name, text in minute_files(spec):
        yield f"system/incremental/{name}", text.encode("ascii")
    for name, text in trace_files(spec):
        yield f"framework/pevents/{name}", text.encode("ascii")


def logs(spec: JobSpec, log: LogSpec) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every log of nvidia-smi."""
    for name, content in log_files(
        spec, log.dialect, each_gpu=log.each_gpu, ahead_us=log.ahead_us, zone=log.zone
    ):
        yield f"{LOG}{name}", content


def minute_files(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield path below ``system/incremental`` and text of every file of samples."""
    for minute_us in minutes_us(spec):
        minute_s = minute_us // 1_000_000
        hour = datetime.fromtimestamp(minute_s, UTC).strftime("%Y%m%d%H")
        for node in range(1, spec.nodes + 1):
            if text := format_minute(record(spec, minute_us, node), node):
                yield f"{hour}/{minute_s}.algo-{node}.json", text


def compress(text: bytes) -> bytes:
    """Gzip without a time or a name, so that equal content gives equal bytes.

    Not ``gzip.compress``: the header it writes differs between versions of Python.
    """
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as stream:
        stream.write(text)
    return buffer.getvalue()
