"""Writes the job directory: its folders, a file per minute and node, and the mark of its end."""

from __future__ import annotations

import gzip
import io
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from generator.record import minutes_us, record
from generator.system_metrics import format_minute

if TYPE_CHECKING:
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
    system = job_dir / "system"
    if system.exists():
        raise FileExistsError(f"{system} exists already: name a folder without a job in it, or remove it.")
    lines = files = size_bytes = 0
    for minute_us in minutes_us(spec):
        minute_s = minute_us // 1_000_000
        hour = system / "incremental" / datetime.fromtimestamp(minute_s, UTC).strftime("%Y%m%d%H")
        for node in range(1, spec.nodes + 1):
            text = format_minute(record(spec, minute_us, node), node).encode("ascii")
            if not text:
                continue
            hour.mkdir(parents=True, exist_ok=True)
            content = compress(text) if gzipped else text
            (hour / f"{minute_s}.algo-{node}.json{'.gz' if gzipped else ''}").write_bytes(content)
            lines += text.count(b"\n")
            files += 1
            size_bytes += len(content)
    system.mkdir(parents=True, exist_ok=True)
    (system / "training_job_end.ts").touch()
    return Written(lines=lines, files=files, size_bytes=size_bytes)


def compress(text: bytes) -> bytes:
    """Gzip without a time or a name, so that equal content gives equal bytes.

    Not ``gzip.compress``: the header it writes differs between versions of Python.
    """
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as stream:
        stream.write(text)
    return buffer.getvalue()
