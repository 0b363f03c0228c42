"""Recordings as they lie on the disk, and commands to record."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

RECORD_JOB = (sys.executable, "-m", "jobrecord")
PYTHON = sys.executable
#: Time for what takes moments on a quiet machine.
LIMIT_S = 120


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.02)


def until_sampled(out: Path) -> str:
    """A command for ``sh`` that waits for the sampler to begin."""
    return f"until ls -d {out}/system/incremental/* > /dev/null 2>&1; do sleep 0.05; done"


def rows(out: Path) -> list[dict[str, Any]]:
    """Samples of all files; incomplete last lines are left out."""
    while True:
        try:
            return [
                row for path in sorted(out.glob("system/incremental/*/*.json*")) for row in _rows_of(path)
            ]
        except FileNotFoundError:
            # The sampler closed the file meanwhile.
            continue


def _rows_of(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".tmp":
        return []
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def facts(out: Path) -> dict[str, Any]:
    (file,) = (out / "jobrecord").glob("*.json")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def environment(**more: str) -> dict[str, str]:
    """Without variables of a recorder or a scheduler."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("JOBRECORD_", "SLURM_"))}
    path = os.pathsep.join(
        filter(None, (more.pop("PYTHONPATH", ""), str(Path(__file__).parents[2] / "record")))
    )
    return kept | {"PYTHONPATH": path} | more


def record(
    out: Path, *options: str, command: Sequence[str], cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """``record-job`` to its end."""
    return subprocess.run(
        [*RECORD_JOB, "--out", str(out), *options, "--", *command],
        env=environment(**variables),
        cwd=cwd or out.parent,
        capture_output=True,
        text=True,
        timeout=5 * LIMIT_S,
        check=False,
    )


def start(
    out: Path, *options: str, command: Sequence[str], stdin: int | None = None, **variables: str
) -> subprocess.Popen[str]:
    """``record-job`` in a session of its own."""
    return subprocess.Popen(
        [*RECORD_JOB, "--out", str(out), *options, "--", *command],
        env=environment(**variables),
        cwd=out.parent,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
