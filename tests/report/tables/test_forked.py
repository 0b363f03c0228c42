"""A task in several processes gives what it gives in one, whatever becomes of the processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobreport import progress
from jobreport.options import Options
from jobreport.pipeline import make_report
from jobreport.tables import forked
from jobreport.tables.engine import LocalEngine
from jobreport.tables.forked import allowed, shared
from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="used on Linux only")


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A few bytes are worth a process; these are those that were started."""
    monkeypatch.setattr(forked, "WORTH_PROCESS", 10)
    processes: list[int] = []
    fork = os.fork

    def noted() -> int:
        process = fork()
        processes.append(process)
        return process

    monkeypatch.setattr(os, "fork", noted)
    return processes


def whose(items: Sequence[str]) -> tuple[int, list[str]]:
    """The process, and the items that it was given."""
    return os.getpid(), [*items]


def are_over(processes: Sequence[int]) -> bool:
    """Whether all of these have ended, and nothing of them is left to be waited for."""
    return not any(Path(f"/proc/{process}").exists() for process in processes)


def test_portions_of_about_equal_size_are_each_in_a_process_of_its_own(started: list[int]) -> None:
    with allowed(3):
        found = shared(whose, "abcdef", [10, 10, 10, 5, 20, 5])

    processes, items = zip(*found, strict=True)
    assert items == (["a", "b"], ["c", "d", "e"], ["f"])
    assert processes[0] == os.getpid()
    assert [*processes[1:]] == started
    assert are_over(started)


@pytest.mark.parametrize(("processes", "sizes"), [(1, [20, 20]), (4, [9, 10]), (4, [0, 0])])
def test_few_bytes_and_no_leave_stay_in_this_process(processes: int, sizes: list[int]) -> None:
    with allowed(processes):
        assert shared(whose, "ab", sizes) == [whose("ab")]
    assert shared(whose, "", []) == [whose("")]


@pytest.mark.parametrize("end", ["killed", "raises", "never starts"])
def test_a_process_without_a_result_costs_time_only(
    end: str, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = os.getpid()

    def ending(items: Sequence[str]) -> tuple[int, list[str]]:
        if os.getpid() != here and end == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if os.getpid() != here:
            raise MemoryError
        return whose(items)

    def full() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    if end == "never starts":
        monkeypatch.setattr(os, "fork", full)
    with allowed(2):
        assert shared(ending, "ab", [10, 10]) == [(here, ["a"]), (here, ["b"])]
    assert are_over(started)


def test_an_error_is_raised_here_and_ends_the_others(started: list[int]) -> None:
    def failing(items: Sequence[float]) -> None:
        if items[0]:
            time.sleep(items[0])
        raise ValueError("here")

    began = time.monotonic()
    with allowed(2), pytest.raises(ValueError, match="here"):
        shared(failing, [0.0, 600.0], [10, 10])
    assert time.monotonic() - began < 60
    assert are_over(started)


def test_processes_that_the_system_forgets_at_once_cost_nothing(started: list[int]) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with allowed(2):
            found = shared(whose, "ab", [10, 10])
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert [items for _, items in found] == [["a"], ["b"]]
    assert are_over(started)


def test_progress_is_that_of_all_portions() -> None:
    seen = progress.Progress()
    seen.stage("Reading", 40)

    def reading(items: Sequence[int]) -> int:
        progress.advance(sum(items))
        return seen.done

    with progress.showing(seen), allowed(2):
        assert shared(reading, [10, 10, 20], [10, 10, 20])[0] == 40
        seen.stage("Reading again", 40)
        assert shared(reading, [5, 4], [5, 4]) == [9]


SCRIPT = """
import time
from jobreport.tables import forked
forked.WORTH_PROCESS = 1
def sleep(_):
    print("ready", flush=True)
    time.sleep(600)
with forked.allowed(2):
    forked.shared(sleep, [1, 2], [1, 1])
"""


@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them() -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    with run:
        assert run.stdout is not None
        assert run.stdout.readline() == run.stdout.readline() == "ready\n"
        os.kill(run.pid, signal.SIGKILL)
        # The end of the pipe: none is left that could write into it.
        assert run.stdout.read() == ""


@pytest.mark.parametrize("name", ["healthy-8gpu", "throttled-4gpu"])
def test_the_report_is_the_same_from_one_process_and_from_several(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    job = ROOT / "sample_data" / name
    for number, engine in enumerate((LocalEngine(1), LocalEngine())):
        with engine:
            make_report(job, tmp_path / f"{number}", Options(formats=("json",), strict=True), engine=engine)

    one, several = (tmp_path / f"{number}" / "report.json" for number in range(2))
    assert one.read_bytes() == several.read_bytes()
