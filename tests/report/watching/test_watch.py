"""A watch: reports while a job runs, and the one of a plain run at its end."""

from __future__ import annotations

import gc
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from jobreport.errors import NOTHING_YET
from jobreport.output import export
from jobreport.output.publish import WATCH_LOCK, held
from jobreport.page.kit.fragment import Fragment
from jobreport.watching import watch
from jobrules.model import SECOND_US
from tests.once import slow_but
from tests.report.page.sections.html import notebook_of
from tests.report.test_cli import COMMAND, make_report, sample

#: Of the samples of a job, and of what marks its end.
MARKER = Path("system/training_job_end.ts")


@pytest.fixture(autouse=True)
def _untouched_process() -> Iterator[None]:
    """Signals and the garbage collector are those of before; no test waits for late data."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "_LATE_S", 0.01)
        yield
    for number, handler in before.items():
        signal.signal(number, handler)
    gc.enable()


class Replay:
    """A job whose files appear a part at each pause of a watch, the end marker with the last one.

    What the watch left behind is looked at before.
    """

    def __init__(self, of: Path, job: Path, parts: int, look: Callable[[], None] = lambda: None) -> None:
        self.job, self.pauses, self.look = job, list[float](), look
        files = [
            path.relative_to(of)
            for path in sorted(of.rglob("*"))
            if path.is_file() and path.name != MARKER.name
        ]
        files.sort(key=lambda path: path.name)
        self._of = of
        self._left = [files[number::parts] for number in range(parts)]
        job.mkdir()

    def pause(self, seconds: float = 0.0) -> None:
        self.pauses.append(seconds)
        self.look()
        files = self._left.pop() if self._left else []
        for file in files if self._left else [*files, MARKER]:
            (self.job / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self._of / file, self.job / file)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("formats", slow_but("json,md", ["json,md", "html,ipynb,json,md"]))
def test_the_last_report_of_a_watch_is_that_of_a_plain_run(
    formats: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, plain, seen = tmp_path / "watched", tmp_path / "plain", []

    def look() -> None:
        if (out / "report.json").exists():
            seen.append(json.loads((out / "report.json").read_bytes())["made_us"] > 0)
            assert "**So far: " in (out / "summary.md").read_text()

    replay = Replay(sample("fluctuating"), tmp_path / "job", 2, look)
    replay.pause()
    monkeypatch.setattr(watch._Rounds, "_pause", replay.pause)
    options = ("--formats", formats, "--quiet", "--fail-on", "warning")

    done = make_report("--job-dir", replay.job, "--out", out, "--watch", "15s", *options)
    fresh = make_report("--job-dir", replay.job, "--out", plain, *options)

    assert (done.returncode, fresh.returncode) == (3, 3), done.stderr
    assert seen == [True]
    assert files_of(out) == files_of(plain)
    assert done.stderr == ""


def test_a_page_loads_the_next_one_only_if_there_will_be_one() -> None:
    made = notebook_of([Fragment(name="head", html="<header>h</header>")])

    assert '<meta http-equiv="refresh" content="80">' in export.render_html(made, refresh_s=80.2)
    assert 'http-equiv="refresh"' not in export.render_html(made, refresh_s=0.0)


@pytest.mark.slow
def test_the_page_of_a_job_that_runs_says_so_and_loads_the_next(tmp_path: Path) -> None:
    make_report(
        "--job-dir", sample("fluctuating"), "--out", tmp_path, "--round", "80", "--watch", "--formats", "html"
    )

    page = (tmp_path / "report.html").read_text()
    assert '<meta http-equiv="refresh" content="80">' in page
    assert "<title>So far: " in page
    assert "The job is running" in page


@pytest.mark.parametrize(
    ("cpu_s", "pauses"),
    [
        ([0.1, 3.0, 0.5, 0.2, 1.0], [15.0, 60.0, 15.0, 15.0]),
        ([40.0, 31.0, 0.0, 5.0, 0.0], [800.0, 620.0, 15.0, 100.0]),
    ],
)
def test_rounds_take_a_twentieth_of_a_core_at_most_and_five_without_a_report_are_the_last(
    cpu_s: list[float], pauses: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay, taken = Replay(sample("fluctuating"), tmp_path / "job", 9), iter(cpu_s)
    monkeypatch.setattr(watch._Rounds, "_round", lambda *_: watch._Round(-9, next(taken)))
    monkeypatch.setattr(watch._Rounds, "_pause", replay.pause)

    done = make_report("--job-dir", replay.job, "--out", tmp_path / "o", "--watch", "15s")

    assert (done.returncode, replay.pauses) == (1, pauses)


def test_a_finished_job_has_one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch._Rounds, "_pause", lambda *_: pytest.fail("there is nothing to wait for"))

    done = make_report(
        "--job-dir", sample("fluctuating"), "--out", tmp_path / "o", "--watch", "--formats", "json"
    )

    assert done.returncode == 0
    assert "made_us" not in json.loads((tmp_path / "o/report.json").read_bytes())


def test_a_watch_waits_for_data_only_as_long_as_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("jobreport.watching.watch.time.monotonic", lambda: now[0])

    def pass_time(_rounds: Any, seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(watch._Rounds, "_round", lambda *_: watch._Round(NOTHING_YET, 0.1))
    monkeypatch.setattr(watch._Rounds, "_pause", pass_time)

    done = make_report(
        *("--job-dir", tmp_path / "later", "--out", tmp_path / "o", "--watch", "--watch-timeout", "40s")
    )

    assert (done.returncode, now) == (2, [45.0])
    assert done.stderr.count("waiting for something readable") == 1
    assert not (tmp_path / "o").exists()


def test_a_watch_of_a_job_that_fell_silent_ends_if_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, pauses = [1.7e9], list[float]()
    # Of traces alone: of no node is an interval known.
    job = SimpleNamespace(nodes=(), end_us=round(now[0]) * SECOND_US, finished=None)
    seen: Any = SimpleNamespace(job=job, quality=SimpleNamespace(sources=()))

    def make(_rounds: Any, pause_s: float) -> watch._Round:
        pauses.append(pause_s)
        return watch._Round(3, 0.1, seen)  # with --fail-on, of the last one

    def pass_time(_rounds: Any, seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("jobreport.watching.watch.time.time", lambda: now[0])
    monkeypatch.setattr(watch._Rounds, "_round", make)
    monkeypatch.setattr(watch._Rounds, "_pause", pass_time)

    done = make_report(
        *("--job-dir", tmp_path, "--out", tmp_path / "o", "--watch", "5min", "--watch-idle-exit", "30min")
    )

    assert done.returncode == 0
    assert pauses == [300.0] * 7 + [0]
    assert done.stderr.splitlines()[1:] == [
        "make-report: no data since 2023-11-14 22:13:20\N{NO-BREAK SPACE}UTC."
    ]


@pytest.mark.parametrize(
    ("number", "moment"),
    slow_but((signal.SIGTERM, "pause"), [(signal.SIGTERM, "pause"), (signal.SIGINT, "round")]),
)
def test_a_signal_leaves_the_last_whole_report(number: signal.Signals, moment: str, tmp_path: Path) -> None:
    out = tmp_path / "o"
    replay = Replay(sample("fluctuating"), tmp_path / "job", 2)
    replay.pause()
    running = subprocess.Popen(
        [*COMMAND, "--job-dir", str(replay.job), "--out", str(out), "--watch", "15s", "--formats", "json"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr
    if moment == "pause":
        for line in running.stderr:
            if "reports so far" in line:
                break
    else:
        while not psutil.Process(running.pid).children():
            time.sleep(0.01)
    running.send_signal(number)
    _, told = running.communicate(timeout=60)

    assert running.returncode == 128 + number
    assert told.rstrip().splitlines()[-1] == "make-report: stopped; the last whole report stays."
    if moment == "pause":
        json.loads((out / "report.json").read_bytes())
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--watch", "5s"], "--watch 5s: expected a time of at least 15s"),
        (["--watch", "--watch-idle-exit", "soon"], "--watch-idle-exit soon: expected a time"),
        (["--watch-timeout", "1h"], "need --watch"),
        (["--notify", "https://example.com"], "need --watch"),
        (["--watch", "--formats", "html"], "already contains a report"),
        (["--watch", "--stop-on", "UnusedGPU"], "record-job --stop-on RULE"),
    ],
)
def test_options_that_cannot_be(
    arguments: list[str], reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").write_text('{"schema_version": 3, "rules": []}')

    done = make_report("--job-dir", tmp_path / "job", "--out", tmp_path, *arguments)

    told = done.stderr + capfd.readouterr().err
    assert (done.returncode, reason in told) == (2, True), told


def test_neither_an_archive_nor_a_folder_with_another_watch_is_watched(tmp_path: Path) -> None:
    (tmp_path / "job.zip").write_bytes(b"PK")
    archive = make_report("--job-dir", tmp_path / "job.zip", "--watch", cwd=tmp_path)
    with held(tmp_path / "o" / WATCH_LOCK):
        second = make_report("--job-dir", sample("fluctuating"), "--out", tmp_path / "o", "--watch")

    assert (archive.returncode, second.returncode) == (2, 2)
    assert "archive" in archive.stderr
    assert "Another run writes to" in second.stderr
