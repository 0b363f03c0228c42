"""A recording whose processes are killed and whose disk is full for a while."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.record.recordings import PYTHON


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to make a small disk")
def test_a_recording_survives_kills_and_a_full_disk(tmp_path: Path) -> None:
    done = subprocess.run(
        [PYTHON, "-m", "fuzz.outages", "--seconds", "60", "--out", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
