"""Temporary folders of killed runs go with the next run, those of living ones stay."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobreport.scratch import Scratch

HOLD = "import time; from jobreport.scratch import Scratch; s = Scratch(); print(s.name, flush=True); time.sleep(60)"


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_folders_of_killed_runs_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    holders = [
        subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    names = [Path((one.stdout.readline() if one.stdout else "").strip()) for one in holders]
    (names[0] / "inner").mkdir()
    (names[0] / "inner" / "file").write_text("x")
    fresh, others = tmp_path / "jobreport-fresh", tmp_path / "mine"
    fresh.mkdir()
    others.mkdir()
    (tmp_path / "jobreport-link").symlink_to(others)
    long_ago = time.time() - 3600
    for folder in (*names, others):
        os.utime(folder, (long_ago, long_ago))
    holders[0].kill()
    holders[0].communicate()
    try:
        with Scratch() as own:
            assert Path(own).parent == tmp_path
            left = {path.name for path in tmp_path.iterdir()}
            assert left == {names[1].name, Path(own).name, "jobreport-fresh", "mine", "jobreport-link"}
        assert not Path(own).exists()
    finally:
        holders[1].kill()
        holders[1].communicate()
