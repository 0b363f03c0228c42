"""Writes the job directory: its folders, a file per minute and node or process, and the marks of its end."""

from __future__ import annotations

import gzip
import io
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING

from generator.events import trace_files
from generator.record import minutes_us, record
from generator.system_metrics import format_minute

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from generator.job import JobSpec

__all__ = ["Written", "write_job"]


@dataclass(frozen=True, kw_only=True)
class Written:
    """What came out."""

    lines: int
    files: int
    size_bytes: int


def write_job(spec: JobSpec, job_dir: Path, *, gzipped: bool) -> Written:
    """Write the job directory and return what was written."""
    for part in (system := job_dir / "system", framework := job_dir / "framework"):
        if part.exists():
            raise FileExistsError(f"{part} exists already: name a folder without a job in it, or remove it.")
    lines = files = size_bytes = 0
    for path, text in chain(
        ((system / "incremental" / name, text) for name, text in minute_files(spec)),
        ((framework / "pevents" / name, text) for name, text in trace_files(spec)),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        content = text.encode("ascii")
        if gzipped:
            content = compress(content)
        path.with_name(path.name + (".gz" if gzipped else "")).write_bytes(content)
        lines += text.count("\n")
        files += 1
        size_bytes += len(content)
    for part in (system, framework) if spec.steps else (system,):
        part.mkdir(parents=True, exist_ok=True)
        (part / "training_job_end.ts").touch()
    return Written(lines=lines, files=files, size_bytes=size_bytes)


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
