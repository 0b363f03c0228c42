from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import jobrecord


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to record into, as ``record-job`` names it to the script: samples are taken elsewhere."""
    for name, text in {"DIR": str(tmp_path / "job"), "NODE": "node-1", "RUN": "r"}.items():
        monkeypatch.setenv(f"JOBRECORD_{name}", text)
    monkeypatch.delenv("RANK", raising=False)
    yield tmp_path / "job"
    jobrecord.stop()
