"""Reports on recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pipeline = pytest.importorskip("jobreport.pipeline", reason="the report's dependencies are not installed")


def report(out: Path, *formats: str) -> dict[str, Any]:
    """``report.json`` of a recording, made with ``--strict`` into the folder ``report`` next to it."""
    folder = out.with_name("report")
    chosen = pipeline.Options(formats=["json", *formats], strict=True, force=True)
    pipeline.make_report(out, folder, chosen)
    found: dict[str, Any] = json.loads((folder / "report.json").read_bytes())
    return found


def remarks(found: dict[str, Any]) -> set[str]:
    """Codes of all remarks."""
    return {remark["code"] for source in found["quality"]["sources"] for remark in source["remarks"]}
