"""A watch beside the job: what it asks for is done, and whatever happens to it, the job goes on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from jobrecord.watcher import Watcher
from jobreport.watching import watch
from tests.paths import ROOT
from tests.record.fake_nvml import gpu
from tests.record.recordings import facts, record, start, wait_for
from tests.record.reports import report

URL = "https://example.com/hush"
#: In the place of make-report: tells what it was given, then does as it is told.
STUB = """
import json, os, signal, sys, time
from pathlib import Path
here = Path(__file__).parent.parent
mode = (here / "mode").read_text()
own = [name for name in os.environ if name.startswith("JOBRECORD_")]
facts = [sys.argv[1:], os.environ["JOBREPORT_NOTIFY"], os.nice(0), os.getsid(0) == os.getpid(), own]
(here / "given").write_text(json.dumps(facts))
if mode == "refuses":
    sys.exit("make-report: no such rule") if 0 else os.write(2, b"make-report: no such rule\\n") and sys.exit(2)
if mode == "crashes":
    sys.exit(1)
print("ready", flush=True)
if mode == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
if mode == "chatters":
    for _ in range(9999):
        print("stop", "\\0" * 99, flush=True)
if mode == "stops":
    while not (here / "started").exists():
        time.sleep(0.01)
    print("stop 1 UnusedGPU", flush=True)
    os.kill(os.getppid(), signal.SIGCHLD)
sys.stdin.read()
(here / "ended").touch()
if mode == "hangs":
    time.sleep(600)
"""


@pytest.fixture
def stub(tmp_path: Path) -> dict[str, Any]:
    """Variables with which the stub is make-report."""
    (tmp_path / "jobreport").mkdir()
    (tmp_path / "jobreport/__init__.py").touch()
    (tmp_path / "jobreport/__main__.py").write_text(STUB)
    (tmp_path / "mode").write_text("stops")
    return {"PYTHONPATH": str(tmp_path), "JOBRECORD_NOTIFY": URL, "JOBRECORD_STOP_ON": "UnusedGPU"}


def script(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(["import signal, sys, time", "from pathlib import Path", *lines])]


SAVES = """
import signal, time
from pathlib import Path
def save(*_):
    time.sleep(0.3)
    Path("saved").touch()
    raise SystemExit
signal.signal(15, save)
Path("ready").touch()
time.sleep(60)
"""
STARTED = 'Path("started").touch(); time.sleep(60)'


@pytest.mark.parametrize(
    ("lines", "ended_by", "seconds"),
    [
        # A checkpoint in the time that is left.
        (
            [
                "def save(*_): time.sleep(0.3); Path('saved').touch(); sys.exit()",
                "signal.signal(15, save)",
                STARTED,
            ],
            "exit",
            (0.25, 0.9),
        ),
        (["signal.signal(15, signal.SIG_IGN)", STARTED], "signal:9", (0.9, 10)),
        # A launcher that ends at once, while its process saves.
        (
            [
                "import subprocess",
                f"subprocess.Popen([sys.executable, '-c', {SAVES!r}])",
                "while not Path('ready').exists(): time.sleep(0.01)",
                STARTED,
            ],
            "signal:15",
            (0.25, 0.9),
        ),
    ],
    ids=["saves", "ignores", "launcher"],
)
def test_a_job_that_a_rule_stops_has_its_time(
    lines: list[str], ended_by: str, seconds: tuple[float, float], stub: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "job"
    began_s = time.monotonic()
    running = start(out, "--quiet", command=script(*lines), **stub)
    wait_for((tmp_path / "started").exists)
    began_s = time.monotonic()
    wait_for(lambda: facts(out)["ended_us"])
    took_s = time.monotonic() - began_s
    printed, told = running.communicate(timeout=60)

    assert (running.returncode, printed, told) == (4, "", "record-job: stopped by rule UnusedGPU.\n")
    assert (facts(out)["ended_by"], facts(out)["stopped_by"]) == (ended_by, "UnusedGPU")
    assert (tmp_path / "saved").exists() == (seconds[1] < 2)
    assert seconds[0] <= took_s <= 30
    given = json.loads((tmp_path / "given").read_text())
    assert given[1:] == [URL, min(19, os.nice(0) + 10), True, []]
    assert URL not in given[0]
    assert (tmp_path / "ended").exists()
    if ended_by == "signal:9":
        assert report(out)["ended"]["how"] == "rule"


@pytest.mark.parametrize(("rule", "grace_s"), [("UnusedGPU", 0.001), ("Ungenützt", 14 * 86400.0)])
def test_a_wish_to_stop_is_understood_whatever_the_time_and_the_rule_are(
    rule: str, grace_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[bytes]()
    acting: Any = SimpleNamespace(step=lambda: False, stop=lambda: (rule, grace_s))
    watcher: Any = Watcher.__new__(Watcher)
    watcher._read, watcher.stopped_by = lambda _: None, ""
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda _, line: written.append(line))
        patch.setattr(os, "kill", lambda *_: None)
        watch._Rounds(
            watch.Watching(job_dir=Path(), folder=Path(), arguments=()), acting, print, print
        )._act()
    (watcher._text,) = written

    assert (watcher.asked_to_stop(), watcher.stopped_by) == (grace_s, rule)


@pytest.mark.parametrize("mode", ["crashes", "dies", "chatters", "refuses"])
def test_a_watch_in_trouble_is_not_the_trouble_of_the_job(
    mode: str, stub: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "mode").write_text(mode)

    done = record(tmp_path / "job", "--quiet", command=script("print('done')", "sys.exit(3)"), **stub)

    if mode == "refuses":
        assert (done.returncode, done.stdout, done.stderr) == (2, "", "make-report: no such rule\n")
        assert not (tmp_path / "job").exists()
    else:
        said = {
            "crashes": "record-job: findings are not watched: make-report does not start.\n",
            "dies": "record-job: findings were not watched to the end of the job.\n",
        }.get(mode, "")
        assert (done.returncode, done.stdout, done.stderr) == (3, "done\n", said)
        assert facts(tmp_path / "job")["stopped_by"] is None


@pytest.mark.parametrize(
    ("moment", "status"), [("ended", 0), pytest.param("started", 143, marks=pytest.mark.slow)]
)
def test_a_signal_ends_the_wait_for_a_last_look(
    moment: str, status: int, stub: dict[str, Any], tmp_path: Path
) -> None:
    """After the job's end at once, and soon if it is the job's as well."""
    (tmp_path / "mode").write_text("hangs")
    command = script(STARTED) if moment == "started" else script()
    running = start(tmp_path / "job", "--quiet", command=command, **stub)
    wait_for((tmp_path / moment).exists)
    began_s = time.monotonic()

    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)

    assert running.returncode == status
    assert time.monotonic() - began_s < 30


def test_a_watch_outlives_a_killed_recorder_for_a_last_look_only(
    stub: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "mode").write_text("looks")
    running = start(tmp_path / "job", "--quiet", command=script(STARTED), **stub)
    wait_for((tmp_path / "started").exists)
    children = psutil.Process(running.pid).children()

    running.kill()

    wait_for((tmp_path / "ended").exists)
    for one in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    running.communicate(timeout=60)


@pytest.mark.slow
def test_a_job_that_leaves_a_gpu_unused_is_stopped(tmp_path: Path) -> None:
    """With the real watch, of which two rounds have to see it."""
    fake = tmp_path / "fake"
    fake.mkdir()
    shutil.copy(Path(__file__).with_name("fake_nvml.py"), fake)
    gpus = {"gpus": [gpu("GPU-a"), gpu("GPU-b", utilization=[[0, 0]])]}
    (fake / "pynvml.py").write_text(
        f"import sys, json\nimport fake_nvml\nsys.modules['pynvml'] = fake_nvml.FakeNVML(json.loads({json.dumps(gpus)!r}))\n"
    )
    config = tmp_path / "config.toml"
    config.write_text(
        '[UnusedGPU]\npatience = 0.1\n[[action]]\non = ["UnusedGPU"]\ndo = "stop"\nafter = "5s"\ngrace = "5s"\n'
        '[[action]]\non = ["UnusedGPU"]\ndo = "command"\nargv = ["touch", "told"]\nafter = "5s"\n'
    )
    path = ":".join(map(str, (fake, ROOT / "report", ROOT / "rules")))

    done = record(
        tmp_path / "job",
        *("--config", str(config), "--interval", "100ms"),
        command=script("time.sleep(300)"),
        PYTHONPATH=path,
    )

    assert done.returncode == 4, done.stderr
    assert "stopped by rule UnusedGPU" in done.stderr
    assert (tmp_path / "job-report/told").exists()
    made: dict[str, Any] = json.loads((tmp_path / "job-report/report.json").read_bytes())
    assert (made["ended"]["how"], "made_us" in made) == ("rule", False)
