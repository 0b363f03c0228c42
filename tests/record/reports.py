"""Reports on recordings, made as a user makes them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.record.recordings import LIMIT_S


def report(out: Path, formats: str = "json") -> dict[str, Any]:
    """``report.json`` of a recording, made with ``--strict`` into the folder ``report`` next to it."""
    folder = out.with_name("report")
    options: list[str | Path] = [
        "--job-dir",
        out,
        "--out",
        folder,
        "--strict",
        "--force",
        "--formats",
        formats,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "jobreport.cli", *options],
        cwd=out.parent,
        capture_output=True,
        text=True,
        timeout=5 * LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "report.json").read_bytes())
    return found


def remarks(found: dict[str, Any]) -> set[str]:
    """Codes of all remarks."""
    return {remark["code"] for source in found["quality"]["sources"] for remark in source["remarks"]}
