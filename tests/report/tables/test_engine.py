"""Engines keep tables in memory, on disk or in other processes, and give the same report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from jobreport.errors import JobReportError
from jobreport.options import Options
from jobreport.pipeline import make_report
from jobreport.readers.registry import read_directory, read_job
from jobreport.tables.engine import LocalEngine, Task, _process_count
from tests.once import slow_but
from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jobreport.tables.engine import Made
    from jobrules.model import Job

A = Task(args=(3, "a"))
SAMPLES = sorted(path.parent for path in (ROOT / "sample_data").glob("*/system"))


def make(tables: Sequence[Any], size: int, text: str) -> Made:
    """Two arrays, and a summary of them."""
    base = sum(int(one.sum()) for one in tables)
    return [np.arange(size) + base, np.array([text] * size)], (size, text)


def asked(tables: Sequence[Any], factor: int) -> tuple[Any, ...]:
    """What stands in the arrays."""
    return tuple(one.tolist() * factor for one in tables)


def in_memory() -> LocalEngine:
    """In this process."""
    return LocalEngine(1)


def on_disk() -> LocalEngine:
    """In this process, with nothing in memory."""
    return LocalEngine(1, in_memory=0)


def processes() -> LocalEngine:
    """In two processes."""
    return LocalEngine(2)


ENGINES = (in_memory, on_disk, processes)


@pytest.mark.parametrize("opened", ENGINES)
def test_kept_tables_can_be_read_and_made_into_more(opened: Callable[[], LocalEngine]) -> None:
    finished: list[int] = []
    with opened() as engine:
        made = engine.keep(make, [A, Task(args=(2, "b"))], finished.append)
        assert [summary for _, summary in made] == [(3, "a"), (2, "b")]
        assert sorted(finished) == [0, 1]
        (numbers, _), _ = made[0]
        more = engine.keep(make, [Task(handles=[numbers], args=(2, "c"))], finished.append)
        calls = [(handles, (2,)) for handles, _ in (*made, *more)]
        assert engine.ask(asked, calls) == [
            ([0, 1, 2] * 2, ["a"] * 6),
            ([0, 1] * 2, ["b"] * 4),
            ([3, 4] * 2, ["c"] * 4),
        ]


def first_snapshot(part: Job) -> tuple[str, int]:
    """A question of a user's own, whose module no other process needs to know."""
    return part.nodes[0], min(int(panel.time_us[0]) for panel in part.panels)


@pytest.mark.parametrize("opened", ENGINES)
def test_a_user_asks_for_whole_tables_and_for_parts(opened: Callable[[], LocalEngine]) -> None:
    here = read_job(SAMPLES[0])[0]
    with opened() as engine:
        job = read_directory(SAMPLES[0], engine=engine).job
        assert job.each(first_snapshot) == here.each(first_snapshot)
        assert job.each(lambda part: len(part.panels)) == [len(here.panels)]
        assert job.gathered(lambda part: part.nodes) == list(here.nodes)
        for mine, theirs in zip(job.panels, here.panels, strict=True):
            assert (mine.node, mine.metric, mine.devices) == (theirs.node, theirs.metric, theirs.devices)
            np.testing.assert_array_equal(mine.values, theirs.values)
        assert len(job.steps) == len(here.steps)
        assert len(job.events) == len(here.events)
        del job, mine


def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def interrupted(_: int) -> None:
        assert list(tmp_path.iterdir())
        raise KeyboardInterrupt

    for opened in ENGINES[1:]:
        with opened() as engine:
            engine.keep(make, [A], print)
            assert list(tmp_path.iterdir())
        assert not list(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt), on_disk() as engine:
        engine.keep(make, [A], interrupted)
    assert not list(tmp_path.iterdir())


def sleep(_: Sequence[Any], seconds: float) -> Made:
    """Something that takes long."""
    time.sleep(seconds)
    return [], None


SCRIPT = """
import signal
import sys
from jobreport.cli import _interrupt
from jobreport.tables.engine import LocalEngine, Task
signal.signal(signal.SIGTERM, _interrupt)
from tests.report.tables.test_engine import A, make, sleep
with LocalEngine(2) as engine:
    engine.keep(make, [A] * 2, [].append)
    print("ready", flush=True)
    engine.keep(sleep, [Task(args=(600.0,))] * 2, [].append)
"""


def _lives(group: int) -> bool:
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="groups of processes are different there")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_the_one_that_started_them(tmp_path: Path, sent: signal.Signals) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    assert run.stdout is not None
    while run.stdout.readline().strip() != "ready":
        assert run.poll() is None
    assert list(tmp_path.iterdir())
    if sent == signal.SIGINT:  # as a terminal sends it
        os.killpg(run.pid, sent)
    else:
        os.kill(run.pid, sent)
    assert run.wait(60)
    deadline = time.monotonic() + 60
    while _lives(run.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _lives(run.pid)
    run.stdout.close()
    if sent != signal.SIGKILL:
        assert not list(tmp_path.iterdir())


def die(_: Sequence[Any]) -> Made:
    """As when the system takes a process for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return [], None


def test_a_killed_process_is_an_error() -> None:
    with LocalEngine(2) as engine:
        with pytest.raises(JobReportError, match="was killed, perhaps for lack of memory"):
            engine.keep(die, [Task()], print)
        with pytest.raises(JobReportError, match="was killed"):
            engine.ask(asked, [((), (1,))])


def test_a_full_disk_is_an_error_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    with on_disk() as engine:
        engine.keep(make, [A], print)
        monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
        with pytest.raises(JobReportError, match=r"No space left on device\. Set TMPDIR") as error:
            engine.keep(make, [A], print)
        monkeypatch.undo()
    assert str(tmp_path) in str(error.value)


def test_little_is_read_here_and_much_in_as_many_processes_as_memory_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    mib = 1 << 20
    assert _process_count([]) == 1
    assert _process_count([30 * mib] * 4) == 1
    assert _process_count([900 * mib]) == 1
    assert _process_count([75 * mib] * 4) == 4
    assert _process_count([200 * mib, 20 * mib]) == 1
    assert _process_count([200 * mib] * 32) == 2
    assert _process_count([500 * mib] * 32) == 1
    assert _process_count([10_000 * mib] * 32) == 1


@pytest.mark.parametrize("job", slow_but({*SAMPLES[:2]}, SAMPLES), ids=lambda path: path.name)
def test_the_report_is_the_same_from_memory_from_disk_and_from_processes(job: Path, tmp_path: Path) -> None:
    made = []
    for number, opened in enumerate(ENGINES):
        with opened() as engine:
            make_report(job, tmp_path / f"{number}", Options(formats=("json",), strict=True), engine=engine)
        made.append((tmp_path / f"{number}" / "report.json").read_bytes())
    assert made[1] == made[0]
    assert made[2] == made[0]
