"""``--progress`` and ``--report``."""

from __future__ import annotations

import os
import pty
import sys
import time
from pathlib import Path

import pytest

from jobrecord import progress, settings
from jobrecord.hooks.loading import FETCH_LANE
from jobrecord.traces import Trace, now
from tests.record.recordings import PYTHON, record

MS = 1_000_000


def test_line_is_of_what_was_added_since_the_last_look(tmp_path: Path) -> None:
    trace, rows = (
        Trace(tmp_path, "node-1"),
        progress.Tail(tmp_path / "framework", "*-node-1_pythontimeline.tmp"),
    )

    def steps(first: int, count: int, ms: int, fetch_ms: int) -> str:
        for number in range(first, first + count):
            begin = now()
            trace.add(FETCH_LANE, "fetch", begin, begin + fetch_ms * MS)
            trace.add("Step:ModeKeys.TRAIN", "step", begin, begin + ms * MS, number)
        trace.flush()
        return progress.line(list(rows.rows()), [])

    assert progress.line(list(rows.rows()), []) == ""
    assert steps(0, 4, 50, 10) == "step 3 · 50 ms a step · 20% waiting for data"
    assert steps(4, 3, 200, 0) == "step 6 · 200 ms a step"
    assert progress.line(list(rows.rows()), []) == ""
    trace.close()
    gpus = [{"Dimension": "GPUUtilization", "Value": value, "lane": ""} for value in (40.0, 60.0)]
    assert progress.line([], gpus) == "GPU 50%"


def test_line_is_renewed_on_a_terminal_and_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = settings.read({"JOBRECORD_DIR": str(tmp_path), "JOBRECORD_PROGRESS": "1"})
    (tmp_path / "system/incremental/1").mkdir(parents=True)
    (tmp_path / f"system/incremental/1/1.{chosen.node}.json").write_text(
        '{"Dimension":"GPUUtilization","Value":70}\n' * 3 + '{"Dimension":"GPUUtil'
    )
    ours, theirs = pty.openpty()
    monkeypatch.setattr(progress, "EVERY_S", 0.05)
    with os.fdopen(theirs, "w") as terminal, os.fdopen(ours, "rb", buffering=0) as screen:
        before = os.dup(2)
        os.dup2(terminal.fileno(), 2)
        try:
            monkeypatch.setattr(sys, "stderr", terminal)
            shown = progress.Progress(chosen)
            time.sleep(0.3)
            shown.stop()
        finally:
            os.dup2(before, 2)
            os.close(before)
        text = screen.read(1000).decode()

    assert "\r\x1b[KGPU 70%\r\x1b[K" in text
    assert text.endswith("\r\x1b[K")


@pytest.mark.parametrize("quiet", [True, False])
def test_report_is_made_at_the_end(tmp_path: Path, quiet: bool) -> None:
    pytest.importorskip("jobreport.pipeline", reason="the report's dependencies are not installed")
    out = tmp_path / "job"
    script = "import time; time.sleep(1.5); raise SystemExit(3)"
    (tmp_path / "jobreport.py").write_text("raise SystemExit('of the job')")
    run = record(out, "--report", *["--quiet"] * quiet, command=[PYTHON, "-c", script])

    page = tmp_path / "job-report" / "report.html"
    assert (run.returncode, run.stdout, page.exists()) == (3, "", True)
    assert run.stderr.endswith(f"record-job: report: {page}\n") or quiet
    assert not (quiet and run.stderr)
