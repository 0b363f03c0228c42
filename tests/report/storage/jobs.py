"""Small jobs for buckets."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from tests.report.test_cli import make_report


def log(gpu: int = 0, rows: int = 90) -> bytes:
    """A log of a GPU, of a minute and a half."""
    lines = (f"{1_767_454_613 + i},GPU-{gpu:08x},{(i * 7 + gpu) % 100} %" for i in range(rows))
    return "\n".join(["timestamp,uuid,utilization.gpu", *lines, ""]).encode()


LOGS = {f"node-{i}/gpu.csv": log(i) for i in range(3)}
#: Of which one is less than a tenth.
MANY = {f"node-{i}/gpu.csv": log(i) for i in range(11)}


def report_of(
    url: str, folder: Path, *options: str | Path
) -> tuple[CompletedProcess[str], dict[str, Any] | None]:
    """The report of a job in its folder, and what was printed."""
    quick = ("--formats", "json", "--select", "IdleGaps", "--quiet", "--force")
    done = make_report("--job-dir", url, "--out", folder, *quick, *options)
    file = folder / "report.json"
    return done, json.loads(file.read_bytes()) if file.exists() else None


def remarks(report: dict[str, Any]) -> dict[str, int]:
    """How often each code of storage and of files as a whole is met."""
    return {
        one["code"]: one["count"]
        for one in report["quality"]["remarks"]
        if one["code"].startswith(("storage.", "directory.", "archive."))
    }


def gpus(report: dict[str, Any]) -> int:
    return sum(int(node["gpus"]) for node in report["job"]["nodes"])
