"""The end of a sampler that works, and of one that is stuck."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from jobrecord import sampler_process
from jobrecord.sampler_process import SamplerProcess
from tests.record.recordings import LIMIT_S, environment, wait_for

PROGRAM = """
import os, sys, time
from pathlib import Path
folder = Path(os.environ["FOLDER"])
(folder / "started").touch()
sys.stdin.read()
while time.process_time() < 1:
    pass
(folder / "ended").touch()
"""


def started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SamplerProcess:
    (program := folder / "program.py").write_text(PROGRAM)
    monkeypatch.setattr(sampler_process, "_PROGRAM", program)
    sampler = SamplerProcess(environment(FOLDER=str(folder)), os.getpid())
    wait_for((folder / "started").exists)
    return sampler


def test_a_sampler_that_works_may_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_process, "STUCK_S", 0.5)
    monkeypatch.setattr(sampler_process, "END_S", LIMIT_S)
    sampler = started(tmp_path, monkeypatch)

    assert sampler.stop() is None

    assert (tmp_path / "ended").exists()


def test_a_sampler_that_is_stuck_delays_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_process, "END_S", 2 * LIMIT_S)
    sampler = started(tmp_path, monkeypatch)
    os.kill(sampler._process.pid, signal.SIGSTOP)
    began_s = time.monotonic()

    assert sampler.stop() is None

    assert time.monotonic() - began_s < LIMIT_S
    assert not (tmp_path / "ended").exists()


def test_a_script_that_closes_all_files_ends_the_sampler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = started(tmp_path, monkeypatch)
    os.close(sampler._pipe.fileno())
    wait_for((tmp_path / "ended").exists)
    wait_for(lambda: sampler._process.poll() is not None)

    assert sampler.stop() == "exit"
