"""The notebook's kernel: it starts early, takes nothing along, and never outlives the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import papermill
import pytest
from nbformat import NotebookNode

from jobreport import document
from jobreport.errors import JobReportError
from jobreport.output import kernel, notebook
from tests.paths import ROOT
from tests.report.page.sections import examples

posix = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are looked up in /proc")

WAITING = """
import time
from jobreport.output import kernel

with kernel.started() as running:
    print(running.work, flush=True)
    while True:  # a signal just before a long sleep would wait for its end
        time.sleep(0.1)
"""


def living(text: str) -> list[int]:
    """Processes whose command line holds a text; one that has ended has none."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if text.encode() in line:
            found.append(int(folder.name))
    return found


def in_time(wanted: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not wanted() and time.monotonic() < end:
        time.sleep(0.05)
    return wanted()


@contextmanager
def waiting(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has started a kernel and waits, and the kernel's folder."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("report", "rules"))
    with subprocess.Popen(
        [sys.executable, "-c", WAITING],
        env=os.environ | {"PYTHONPATH": paths, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip()).parent
        try:
            yield process, folder
        finally:
            process.kill()


@posix
def test_one_that_was_not_used_leaves_no_process_and_no_folder() -> None:
    with kernel.started() as running:
        assert running is not None
        folder = running.work.parent
        assert in_time(lambda: living(str(folder)) != [])

    assert not folder.exists()
    assert living(str(folder)) == []


@posix
@pytest.mark.slow
@pytest.mark.parametrize("later", [0, 1.5])
def test_one_of_an_interrupted_run_leaves_no_process_and_no_folder(later: float, tmp_path: Path) -> None:
    with waiting(tmp_path) as (process, folder):
        assert in_time(lambda: living(str(folder)) != [])
        time.sleep(later)  # while it starts, and when it answers
        process.send_signal(signal.SIGINT)
        printed = process.communicate(timeout=60)[1]

    assert printed.rstrip().endswith("KeyboardInterrupt")
    assert printed.count("Traceback") == 1  # the kernel has none of its own
    assert living(str(folder)) == []
    assert list(tmp_path.iterdir()) == []


@posix
@pytest.mark.slow
def test_one_of_a_killed_run_ends_by_itself(tmp_path: Path) -> None:
    with waiting(tmp_path) as (process, folder):
        assert in_time(lambda: living(str(folder)) != [])
        process.kill()

    assert in_time(lambda: living(str(folder)) == [])


@posix
def test_an_interrupted_notebook_leaves_no_process_and_no_folder(
    gpu_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with kernel.started() as running:
        assert running is not None
        monkeypatch.setattr(papermill, "execute_notebook", interrupted)
        with pytest.raises(KeyboardInterrupt):
            notebook.run_notebook((gpu_folder / "report.json").read_bytes(), running)

        assert living(str(running.work)) == []
        assert not running.work.parent.exists()


@pytest.mark.slow
def test_one_started_early_gives_the_same_notebook(gpu_notebook: NotebookNode, gpu_folder: Path) -> None:
    with kernel.started() as running:
        early = notebook.run_notebook((gpu_folder / "report.json").read_bytes(), running)

    assert running is not None
    assert not running.alive()
    assert notebook.to_text(early) == notebook.to_text(gpu_notebook)


@pytest.mark.slow
def test_without_short_paths_it_is_reached_through_ports_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.json").write_bytes(document.to_json(examples.empty_job()))
    private = notebook.run_notebook((tmp_path / "report.json").read_bytes())
    monkeypatch.setattr(kernel, "MAX_SOCKET_FOLDER", 0)

    with kernel.Kernel() as running:
        assert running.connection["transport"] == "tcp"
        assert running.connection["ip"] == "127.0.0.1"
        by_port = notebook.run_notebook((tmp_path / "report.json").read_bytes(), running)

    assert notebook.to_text(by_port) == notebook.to_text(private)


def test_only_this_user_reaches_it_and_its_folder_is_its_own() -> None:
    with kernel.Kernel() as running:
        assert running.work.parent.stat().st_mode & 0o077 == 0
        assert list(running.work.iterdir()) == []


def test_one_that_died_is_an_error(gpu_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with kernel.Kernel() as running:
        running._process.kill()
        running._process.wait()

        with pytest.raises(JobReportError, match=r"kernel did not run \(it died before it answered\)"):
            notebook.run_notebook((gpu_folder / "report.json").read_bytes(), running)


def test_one_that_cannot_start_is_an_error_when_it_is_needed(
    gpu_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with kernel.started() as running:
        assert running is None
        with pytest.raises(OSError, match="no more processes"):
            notebook.run_notebook((gpu_folder / "report.json").read_bytes(), running)

    assert list(tmp_path.iterdir()) == []


def test_the_kernel_finds_what_this_process_imports() -> None:
    environment = kernel.kernel_environment({"PYTHONPATH": "/a", "HOME": "/h"})

    paths = environment["PYTHONPATH"].split(os.pathsep)
    assert str(ROOT / "report") in paths
    assert str(ROOT / "rules") in paths
    assert paths[-1] == "/a"
    assert environment["HOME"] == "/h"


def test_starting_one_imports_nothing_slow() -> None:
    code = "import sys; from jobreport.output import kernel; kernel.started().__exit__(None, None, None); print(*sys.modules)"
    paths = os.pathsep.join(str(ROOT / name) for name in ("report", "rules"))

    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, check=True
    )

    slow = {"bokeh", "jinja2", "jupyter_client", "nbclient", "nbconvert", "numpy", "papermill", "zmq"}
    assert slow & set(done.stdout.decode().split()) == set()
