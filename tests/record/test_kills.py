"""What a kill leaves: recordings that make-report reads, and no process."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.once import slow_but
from tests.record.hooks.written import events
from tests.record.recordings import LIMIT_S, PYTHON, environment, facts, record, rows, wait_for
from tests.record.reports import remarks, report

#: Trains until the file `argv[1]` is there.
JOB = """
import os, sys, time
import jobrecord
jobrecord.start()
end = time.monotonic() + 300
while not os.path.exists(sys.argv[1]) and time.monotonic() < end:
    time.sleep(0.01)
    jobrecord.step()
"""
#: The sampler with one pause: in `argv[1]`, ``tick``, ``minute``, or ``gzip``, in a file that says that it has begun.
PAUSING = """
import os, runpy, sys, time
from pathlib import Path
from jobrecord import files, sampler_process
where, mark = sys.argv.pop(1), Path(sys.argv.pop(1))
def pausing(function):
    def paused(*arguments, **options):
        # Facts are replaced as well as closed minutes.
        if not mark.exists() and not str(arguments[0]).endswith(".json.tmp"):
            mark.touch()
            time.sleep(1)
        return function(*arguments, **options)
    return paused
if where == "tick":
    files.SampleFiles.write = pausing(files.SampleFiles.write)
if where == "minute":
    files.MINUTE_S = 1
    files._MinuteFile.close = pausing(files._MinuteFile.close)
if where == "gzip":
    files.MINUTE_S = 1
    os.replace = pausing(os.replace)
runpy.run_path(str(sampler_process.PROGRAM), run_name="__main__")
"""


class Recording:
    """A running ``record-job`` with its child and its sampler."""

    def __init__(self, out: Path, pause: str = "") -> None:
        self.out = out
        self.mark, self.stop = out.with_name("mark"), out.with_name("stop")
        program = "from jobrecord.command import main; import sys; sys.exit(main())"
        if pause:
            sampler = out.with_name("sampler.py")
            sampler.write_text(
                f"import sys\nsys.argv[1:1] = [{pause!r}, {str(self.mark)!r}]\nsys.path[0] = ''\n{PAUSING}"
            )
            program = (
                "from jobrecord import sampler_process; from pathlib import Path; "
                f"sampler_process.PROGRAM = Path({str(sampler)!r}); {program}"
            )
        self.command = subprocess.Popen(
            [
                PYTHON,
                "-c",
                program,
                "--quiet",
                "--interval",
                "100ms",
                "--out",
                str(out),
                "--",
                PYTHON,
                "-c",
                JOB,
                self.stop,
            ],
            env=environment(),
            start_new_session=True,
        )
        self.recorder = psutil.Process(self.command.pid)
        wait_for(lambda: len(self.recorder.children()) == 2)
        #: In the order in which they were started.
        self.child, self.sampler = sorted(self.recorder.children(), key=lambda process: process.create_time())

    def wait_for(self, moment: str) -> None:
        """Wait for a moment of the job, or of its sampler if that has a pause."""
        wait_for(lambda: self._is_at(moment))

    def _is_at(self, moment: str) -> bool:
        if moment == "running":
            return bool(rows(self.out) and written_events(self.out))
        return moment == "start" or self.mark.exists()

    def kill(self, target: str, number: int) -> None:
        """Send a signal; ``SIGKILL`` to the group is what a scheduler does, to each process at once."""
        if (target, number) == ("group", signal.SIGKILL):
            self.recorder.suspend()
            for process in (self.sampler, self.child, self.recorder):
                process.kill()
        elif target == "group":
            os.killpg(self.command.pid, number)
        else:
            getattr(self, target).send_signal(number)

    def end(self) -> None:
        """Wait until the job, the recorder, and the sampler have ended."""
        psutil.wait_procs([self.child], LIMIT_S)
        self.command.wait(LIMIT_S)
        _, alive = psutil.wait_procs([self.sampler], LIMIT_S)
        running = [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
        for process in running:
            process.kill()
        assert running == []


SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
#: What becomes of the job: the exit status of record-job, and ``ended_by`` in the facts.
OUTCOMES: dict[tuple[str, signal.Signals], tuple[int, str | None]] = {
    **{
        (target, number): (128 + number, f"signal:{number}")
        for target in ("child", "recorder", "group")
        for number in SIGNALS
    },
    **{("sampler", number): (0, "exit") for number in SIGNALS},
    # The job goes on without it.
    ("recorder", signal.SIGKILL): (-9, "parent gone"),
    ("group", signal.SIGKILL): (-9, None),
}
JOB_GOES_ON = {("sampler", number) for number in SIGNALS} | {("recorder", signal.SIGKILL)}
#: An interpreter that is interrupted while it starts may exit by itself.
INTERRUPTED = (1, "exit")
CASES = [
    (target, number, moment)
    for target, number in OUTCOMES
    for moment in ("start", "tick", "minute", "gzip", "running")
]


def sample(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.values())


def written_events(out: Path) -> set[tuple[str, int, int]]:
    """Lane, start, and end of all events but the recorder's own."""
    while True:
        try:
            return {(event.lane, event.start_us, event.end_us) for event in events(out)}
        except (FileNotFoundError, ValueError):
            # Closed meanwhile, or just made.
            continue


@pytest.mark.parametrize(
    ("target", "number", "moment"),
    slow_but(("recorder", signal.SIGKILL, "running"), CASES),
    ids=lambda one: getattr(one, "name", None),
)
def test_a_kill(target: str, number: signal.Signals, moment: str, tmp_path: Path) -> None:
    out = tmp_path / "job"
    recording = Recording(out, "" if moment in {"start", "running"} else moment)
    recording.wait_for(moment)
    before, trained = set(map(sample, rows(out))), written_events(out)

    recording.kill(target, number)
    if (target, number) in JOB_GOES_ON:
        recording.stop.touch()
    recording.end()

    outcome = recording.command.returncode, facts(out)["ended_by"]
    is_starting = number == signal.SIGINT and not trained
    assert outcome == OUTCOMES[target, number] or (is_starting and outcome == INTERRUPTED)
    if number == signal.SIGKILL:
        assert facts(out)["sampler_ended_by"] == ("signal:9" if target == "sampler" else None)
    assert before <= set(map(sample, rows(out)))
    assert trained <= written_events(out)
    # The sampler takes a last tick, and a process closes its trace, unless they are killed at once.
    assert rows(out) or (number == signal.SIGKILL and target in {"sampler", "group"})
    is_open = bool(list(out.glob("framework/*.tmp")))
    assert not is_open or (number != signal.SIGINT and (target, number) not in JOB_GOES_ON)
    if rows(out):
        assert remarks(report(out)) == ({"traces.growing"} if is_open else set())


@pytest.mark.slow
def test_a_job_goes_on_in_the_same_folder_after_a_kill(tmp_path: Path) -> None:
    out = tmp_path / "job"
    first = Recording(out)
    first.wait_for("running")
    # The sampler first: it would close its files once record-job is gone.
    for process in (first.sampler, first.recorder, first.child):
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
