"""What a kill leaves: recordings that make-report reads, and no process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.record.recordings import PYTHON, environment, facts, record, rows

#: Ends by itself, so that a job whose recorder was killed ends too.
JOB = (PYTHON, "-c", "import time; time.sleep(2.5)")
#: The sampler with one pause: in `argv[1]`, ``tick``, ``minute``, or ``gzip``, in a file that says that it has begun.
PAUSING = """
import os, sys, time
from pathlib import Path
from jobrecord import files, sampler
where, mark = sys.argv.pop(1), Path(sys.argv.pop(1))
def pausing(function):
    def paused(*arguments):
        # Facts are replaced as well as closed minutes.
        if not mark.exists() and not str(arguments[0]).endswith(".json.tmp"):
            mark.touch()
            time.sleep(2)
        return function(*arguments)
    return paused
if where == "tick":
    files.SampleFiles.write = pausing(files.SampleFiles.write)
if where == "minute":
    files.MINUTE_S = 1
    files._MinuteFile.close = pausing(files._MinuteFile.close)
if where == "gzip":
    files.MINUTE_S = 1
    Path.replace = pausing(Path.replace)
sampler.main()
"""


class Recording:
    """A running ``record-job`` with its child and its sampler."""

    def __init__(self, out: Path, pause: str = "") -> None:
        self.out = out
        self.mark = out.with_name("mark")
        program = "from jobrecord.command import main; import sys; sys.exit(main())"
        if pause:
            sampler = out.with_name("sampler.py")
            sampler.write_text(
                f"import sys\nsys.argv[1:1] = [{pause!r}, {str(self.mark)!r}]\nsys.path[0] = ''\n{PAUSING}"
            )
            program = (
                "from jobrecord import sampler_process; from pathlib import Path; "
                f"sampler_process._PROGRAM = Path({str(sampler)!r}); {program}"
            )
        self.command = subprocess.Popen(
            [PYTHON, "-c", program, "--quiet", "--interval", "100ms", "--out", str(out), "--", *JOB],
            env=environment(),
            start_new_session=True,
        )
        self.recorder = psutil.Process(self.command.pid)
        end = time.monotonic() + 20
        while len(self.recorder.children()) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        #: In the order in which they were started.
        self.child, self.sampler = sorted(self.recorder.children(), key=lambda process: process.create_time())

    def wait_for(self, moment: str) -> None:
        end = time.monotonic() + 20
        while not (self.mark.exists() if moment == "pause" else moment == "start" or rows(self.out)):
            assert time.monotonic() < end
            time.sleep(0.01)

    def kill(self, target: str, number: int) -> None:
        if target == "group":
            os.killpg(self.command.pid, number)
        else:
            getattr(self, target).send_signal(number)

    def end(self) -> None:
        """Wait until the job, the recorder, and, 3 s later at most, the sampler have ended."""
        self.command.wait(20)
        psutil.wait_procs([self.child], 20)
        _, alive = psutil.wait_procs([self.sampler], 3)
        running = [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
        for process in running:
            process.kill()
        assert running == []


def report(out: Path) -> dict[str, Any]:
    """``report.json`` of a recording, made with ``--strict``."""
    folder = out.with_name("report")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "jobreport.cli",
            "--job-dir",
            out,
            "--out",
            folder,
            "--strict",
            "--formats",
            "json",
        ],
        cwd=out.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "report.json").read_bytes())
    return found


CASES = [
    (target, number, moment)
    for target in ("child", "sampler", "recorder", "group")
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
    for moment in ("start", "tick", "minute", "gzip", "running")
]
#: Each target and each moment once; the others are slow.
SHORT = {
    ("child", 9, "running"),
    ("sampler", 9, "gzip"),
    ("recorder", 9, "running"),
    ("group", 15, "start"),
}


@pytest.mark.parametrize(
    ("target", "number", "moment"),
    [
        pytest.param(
            *case, id=f"{case[0]}-{case[1].name}-{case[2]}", marks=[] if case in SHORT else [pytest.mark.slow]
        )
        for case in CASES
    ],
)
def test_a_kill(target: str, number: int, moment: str, tmp_path: Path) -> None:
    out = tmp_path / "job"
    recording = Recording(out, "" if moment in {"start", "running"} else moment)
    recording.wait_for("pause" if moment in {"tick", "minute", "gzip"} else moment)
    before = rows(out)

    recording.kill(target, number)
    recording.end()

    after = {tuple(row.values()) for row in rows(out)}
    assert {tuple(row.values()) for row in before} <= after
    if target == "child" and (facts(out)["ended_by"], number) != ("exit", signal.SIGINT):
        # An interpreter that is interrupted while it starts exits by itself.
        assert facts(out)["ended_by"] == f"signal:{number}"
        assert recording.command.returncode == 128 + number
    if after:
        report(out)


def test_a_job_goes_on_in_the_same_folder_after_a_kill(tmp_path: Path) -> None:
    out = tmp_path / "job"
    first = Recording(out)
    first.wait_for("running")
    for process in (first.recorder, first.sampler, first.child):
        process.kill()
    first.end()
    (open_file,) = out.glob("system/incremental/*/*.json")
    with open_file.open("a") as file:
        file.write('{"Type":"cpu","Na')
    before = len(rows(out))

    again = record(out, "--force", "--interval", "100ms", command=["sleep", "1"])

    assert again.returncode == 0
    damaged = sum(b'"Na\n' in path.read_bytes() for path in out.glob("system/incremental/*/*.json"))
    assert damaged <= 1
    report(out)
    assert before > 0
    assert facts(out)["ended_by"] == "exit"


HOSTILE = (
    "</script><img src=x>",
    "../../etc/passwd",
    "a\u202eb",
    "%s%n{}",
    "node\n2",
    "🤖",
    "'; drop table",
    "",
)


def test_a_recording_becomes_a_report_without_unexpected_remarks(tmp_path: Path) -> None:
    out = tmp_path / "job"
    labels = [
        part
        for number, name in enumerate(HOSTILE)
        for part in ("--label", f"l{number}={name}")
        if "\n" not in name
    ]
    done = record(out, "--node", HOSTILE[0], *labels, "--interval", "100ms", command=["sleep", "3"])

    found = report(out)

    assert done.returncode == 0
    assert facts(out)["labels"]["l1"] == HOSTILE[1]
    assert {row["NodeId"] for row in rows(out)} == {"--script--img-src-x-"}
    codes = {remark["code"] for source in found["quality"]["sources"] for remark in source["remarks"]}
    # Sensors that the report does not read yet.
    assert codes <= {"samples.unknown", "samples.unknown_rest"}
