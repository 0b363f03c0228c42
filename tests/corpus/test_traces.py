"""Captures that others published, in a trace for viewers."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobreport import open_job
from tests.corpus.test_kineto import EXPECTED, FOLDER
from tests.paths import needs_corpus
from tests.report.timeline.test_trace import checked, lasting

pytestmark = needs_corpus


@pytest.mark.parametrize("name", sorted(name for name in EXPECTED if "memory_timeline" not in name))
def test_every_event_of_a_device_is_there(name: str, tmp_path: Path) -> None:
    job = open_job(FOLDER / name)
    captures = [one for one in job._whole.job.captures if one.base_ns is not None and not one.copy_of]

    summary = job.trace(tmp_path / "trace.json")

    rows = lasting(checked((tmp_path / "trace.json").read_bytes()))
    assert len(rows) == summary.events
    assert sum(row["cat"] == "gpu" for row in rows) == sum(
        device.events for one in captures for device in one.devices
    )
    assert all(row["ts"] >= 0 for row in rows)
