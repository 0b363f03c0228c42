"""The end of a sampler that works, of one that waits for a disk, and of one that is stuck."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from pathlib import Path

import psutil
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
{}
(folder / "ended").touch()
"""
WORKS = "while time.process_time() < 1: pass"
#: Until the pipe has a writer, the kernel shows the process as one that waits for a disk.
WAITS = """
pipe = os.POSIX_SPAWN_OPEN, 0, str(folder / "pipe"), os.O_RDONLY, 0
os.posix_spawn(sys.executable, ["python", "-c", ""], os.environ, file_actions=[pipe])
"""


def started(folder: Path, monkeypatch: pytest.MonkeyPatch, ends: str = WORKS) -> SamplerProcess:
    (program := folder / "program.py").write_text(PROGRAM.format(ends))
    monkeypatch.setattr(sampler_process, "PROGRAM", program)
    sampler = SamplerProcess(environment(FOLDER=str(folder)), os.getpid())
    wait_for((folder / "started").exists)
    return sampler


def test_a_sampler_that_works_may_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_process, "STUCK_S", 0.5)
    monkeypatch.setattr(sampler_process, "END_S", LIMIT_S)
    sampler = started(tmp_path, monkeypatch)

    assert sampler.stop() is None

    assert (tmp_path / "ended").exists()


def test_a_script_with_too_many_files_lets_the_sampler_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_process, "STUCK_S", 0.5)
    monkeypatch.setattr(sampler_process, "END_S", LIMIT_S)
    sampler = started(tmp_path, monkeypatch)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        assert sampler.stop() is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert (tmp_path / "ended").exists()


@pytest.mark.slow
def test_a_sampler_that_waits_for_a_disk_may_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_process, "STUCK_S", 1)
    monkeypatch.setattr(sampler_process, "END_S", LIMIT_S)
    os.mkfifo(tmp_path / "pipe")
    sampler = started(tmp_path, monkeypatch, WAITS)
    process = psutil.Process(sampler._process.pid)

    def end_wait() -> None:
        wait_for(lambda: process.status() == psutil.STATUS_DISK_SLEEP)
        time.sleep(2 * sampler_process.STUCK_S)
        writers.append(os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK))

    writers: list[int] = []
    (disk := threading.Thread(target=end_wait)).start()
    assert sampler.stop() is None
    disk.join()
    os.close(*writers)

    assert (tmp_path / "ended").exists()


def test_a_sampler_that_is_stuck_delays_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_process, "STUCK_S", 0.2)
    monkeypatch.setattr(sampler_process, "END_S", 2 * LIMIT_S)
    sampler = started(tmp_path, monkeypatch)
    os.kill(sampler._process.pid, signal.SIGSTOP)
    began_s = time.monotonic()

    assert sampler.stop() is None

    assert time.monotonic() - began_s < LIMIT_S
    assert not (tmp_path / "ended").exists()


@pytest.mark.parametrize("has_ended", [True, False])
@pytest.mark.slow
def test_a_script_that_closes_all_files_keeps_its_own_and_ends_the_sampler(
    has_ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = started(tmp_path, monkeypatch)
    own = os.open(tmp_path / "own", os.O_WRONLY | os.O_CREAT)
    number = sampler._pipe
    os.dup2(own, number)
    os.close(own)
    if has_ended:
        wait_for(lambda: sampler._process.poll() is not None)

    if not (child := os.fork()):
        os._exit(os.write(number, b"child ") != len("child "))
    assert os.waitpid(child, 0)[1] == 0
    assert sampler.stop() in ({"exit"} if has_ended else {"exit", None})

    os.write(number, b"script")
    os.close(number)
    assert (tmp_path / "own").read_text() == "child script"
