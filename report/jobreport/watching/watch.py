"""One report after the other while a job runs, and the last one once it has ended.

Each round is a process of its own with the command line of the watch. Its memory goes with it, a signal ends it at any
time, and its CPU time sets the pause. All rounds make the whole report, so the last one is that of a plain run.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport import document, formats
from jobreport.errors import NOTHING_YET, NothingReadableError, UsageError
from jobreport.files import FILES
from jobreport.output.kernel import kernel_environment
from jobreport.output.publish import WATCH_LOCK, held
from jobreport.readers import archive
from jobreport.readers.listing import has_end_marker, job_name
from jobreport.redaction import pseudonyms
from jobreport.scratch import Scratch
from jobreport.sentences import recordings_of
from jobrules.model import SECOND_US
from jobrules.text import duration, escape_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobreport.actions.acting import Acting
    from jobreport.document import Report
    from jobreport.storage.urls import Url

#: Shortest time between two rounds, and how often a round's CPU time fits into the pause: 5% of a core at most.
MIN_S, TIMES_CPU = 15.0, 20
#: Exit status of wrong options, also of each round.
_USAGE = UsageError.exit_status
#: Rounds without a report after which a watch ends.
MAX_FAILED = 5
#: What comes just after the end, such as the facts of other nodes, belongs to the last report.
_LATE_S = 5.0
#: A longer pause is worth a line, and so is a longer time, also in sampling intervals, without a sample.
_LONG_S, _LONG_INTERVALS = 600.0, 100
#: How often a watch looks whether the job has ended, and whether a recorder's pipe or a round has.
_LOOK_S, _STEP_S = 5.0, 0.1
#: Bytes that a round may say.
_MAX_SAID = 64 << 10


class Watching(Struct, frozen=True, kw_only=True):
    """What is watched, and how."""

    job_dir: Path | Url
    folder: Path
    #: The command line of each round.
    arguments: tuple[str, ...]
    every_s: float = 60.0
    #: How long to wait for something readable, and for new samples; None for ever.
    timeout_s: float | None = None
    idle_exit_s: float | None = None
    #: Standard input is a pipe of record-job, which ends with the job.
    of_recorder: bool = False


def watch(watching: Watching, acting: Acting, say: Callable[[str], None], tell: Callable[[str], None]) -> int:
    """Make reports until the job ends; returns the exit status of the last one.

    ``say`` prints a line on what is wrong, ``tell`` one on what goes on.
    """
    # Unlike a single report, a watch may run for weeks.
    gc.enable()
    received = [signal.SIGINT]

    def stop(number: int, _frame: object) -> None:
        received.append(signal.Signals(number))
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with contextlib.ExitStack() as stack:
        stack.enter_context(held(watching.folder / WATCH_LOCK))
        if not isinstance(watching.job_dir, Path):
            # Each round fetches what is new; a --cache that is given comes later among the arguments, and counts.
            cache = stack.enter_context(Scratch())
            watching = replace(watching, arguments=("--cache", cache, *watching.arguments))
        rounds = _Rounds(watching, acting, say, tell)
        try:
            return rounds.run()
        except KeyboardInterrupt:
            rounds.cut()
            say("stopped; the last whole report stays.")
            return 128 + received[-1]
        finally:
            rounds.cut()
            acting.kill()


def folder_of(job_dir: Path | Url, out: Path | Url | None, *, redact: bool) -> Path:
    """The folder that each round writes to. Raises ``UsageError`` for an archive, which does not grow."""
    if out and not isinstance(out, Path):
        raise UsageError("--watch: reports of a job that runs are written to a folder. Choose another --out.")
    if job_dir.name.lower().endswith(archive.SUFFIXES) and (
        not isinstance(job_dir, Path) or job_dir.is_file()
    ):
        raise UsageError("--watch: an archive is of a job that has ended. Use make-report without --watch.")
    if redact:
        name = pseudonyms.JOB
    elif isinstance(job_dir, Path):
        with archive.unpacked(job_dir) as source:
            name = source.name or job_name(source.directory)
    else:
        from jobreport.storage.fetching import name_of  # noqa: PLC0415 - few watches need it

        name = name_of(job_dir)
    return Path(os.path.abspath(out or f"{name}-report"))  # noqa: PTH100 - Path.absolute keeps ".."


class _Round(Struct, frozen=True):
    status: int
    cpu_s: float = 0.0
    report: Report | None = None


class _Rounds:
    def __init__(
        self,
        watching: Watching,
        acting: Acting,
        say: Callable[[str], None],
        tell: Callable[[str], None],
    ) -> None:
        self._of, self._acting, self._say, self._tell = watching, acting, say, tell
        self._said: set[str] = set()
        self._has_report = False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Rounds until the end of the job, and one after it; a job that has ended before has that one only."""
        if not self._has_ended():
            status = self._until_end()
            if status is not None:
                return status
            if not self._of.of_recorder:
                time.sleep(_LATE_S)
        return self._last()

    def cut(self) -> None:
        """End the round that runs, if one does; the report before it stays."""
        if self._process and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_LATE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def _until_end(self) -> int | None:
        """The exit status; None once the job has ended."""
        of, began_s, pause_s, failed = self._of, time.monotonic(), self._of.every_s, 0
        while not self._has_ended():
            done = self._round(pause_s)
            cpu_pause_s = TIMES_CPU * done.cpu_s
            pause_s = max(of.every_s, cpu_pause_s)
            if done.report:
                failed = 0
                self._tell_how_it_goes(done.report, pause_s)
                # Of a report without a part that failed, a finding may be gone for that.
                if done.status == 0:
                    self._acting.judge(done.report)
                if _has_ended(done.report):
                    return None
                if of.idle_exit_s and _idle_s(done.report) >= of.idle_exit_s:
                    self._last()
                    return 0
            elif self._has_report or done.status not in (NOTHING_YET, _USAGE):
                failed += not self._has_ended()  # which cut the round
                if failed == MAX_FAILED:
                    self._say(f"{MAX_FAILED} rounds in a row made no report.")
                    return 1
            elif done.status == _USAGE or time.monotonic() - began_s >= (of.timeout_s or math.inf):
                return _USAGE
            else:
                self._tell_once(f"waiting for something readable in {escape_name(str(of.job_dir), 200)}.")
                pause_s = max(MIN_S, cpu_pause_s)
            self._pause(pause_s)
        return None

    def _last(self) -> int:
        done = self._round(0)
        if done.report:
            self._acting.judge(done.report, is_last=True)
        self._acting.finish()
        return done.status if done.status >= 0 else 1

    def _tell_how_it_goes(self, report: Report, pause_s: float) -> None:
        self._tell_once(f"the job is running; reports so far in {escape_name(str(self._of.folder), 200)}.")
        if pause_s > _LONG_S:
            self._tell_once(f"a look takes long; the next one follows after {duration(pause_s * SECOND_US)}.")
        long_s = [_LONG_INTERVALS * (one.interval_s or 0.0) for one in report.job.nodes]
        if _idle_s(report) > max([_LONG_S, *long_s]):
            self._tell_once(f"no data since {formats.date_time(report.job.end_us)}.")

    def _tell_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._tell(text)

    def _round(self, pause_s: float) -> _Round:
        """Make the report, for a page that is loaded again after the pause; 0 for the last one."""
        of, before, cpu_s = self._of, _identity(self._of.folder), _cpu_of_children_s()
        options = ["--round", f"{pause_s:g}", "--out", str(of.folder)]
        options += ["--force"] if self._has_report else []
        with tempfile.TemporaryFile() as said:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter
                [sys.executable, "-m", "jobreport", *options, *of.arguments],
                env=kernel_environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if pause_s else None,
                stderr=said if pause_s else None,
                # A signal of the terminal is for the watch, which ends the round.
                start_new_session=True,
            )
            while self._process.poll() is None:
                # Quick where something waits for the end of the round.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_STEP_S if self._act() or of.of_recorder else _LOOK_S)
                if pause_s and of.of_recorder and self._has_ended():
                    self.cut()
                    return _Round(NOTHING_YET)
            status = self._process.wait()
            said.seek(0)
            os.write(2, said.read(_MAX_SAID))
        cpu_s = _cpu_of_children_s() - cpu_s
        if _identity(of.folder) in (None, before):
            return _Round(status, cpu_s)
        self._has_report = True
        with contextlib.suppress(NothingReadableError):
            return _Round(status, cpu_s, document.load(of.folder / FILES["json"]))
        return _Round(status, cpu_s)

    def _pause(self, seconds: float) -> None:
        """Wait, at most to the end of the job."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            step_s = min(left_s, _STEP_S if self._act() else _LOOK_S)
            if self._has_ended(step_s):
                return

    def _has_ended(self, wait_s: float = 0.0) -> bool:
        """Whether the job has ended, for which it waits: with the pipe of record-job, or by its end marker."""
        if self._of.of_recorder:
            # Nothing is written to the pipe.
            return bool(select.select([0], [], [], wait_s)[0])
        time.sleep(wait_s)
        return isinstance(self._of.job_dir, Path) and has_end_marker(self._of.job_dir)

    def _act(self) -> bool:
        """Look after the actions; whether any is under way. What stops the job is record-job, its parent."""
        is_busy = self._acting.step()
        if stop := self._acting.stop():
            rule, grace_s = stop
            # Each of its children may wake it with this signal.
            os.write(1, f"stop {grace_s:.9g} {rule}\n".encode())
            os.kill(os.getppid(), signal.SIGCHLD)
        return is_busy


def _has_ended(report: Report) -> bool:
    """Whether the recording of every node has ended, or an end marker was found."""
    ended = [one.runs[-1].end_us is not None for one in recordings_of(report)]
    return all(ended) if ended else bool(report.job.finished)


def _idle_s(report: Report) -> float:
    return time.time() - report.job.end_us / SECOND_US


def _cpu_of_children_s() -> float:
    """CPU time of all processes that this one has waited for, and of those that they have."""
    times = os.times()
    return times.children_user + times.children_system


def _identity(folder: Path) -> tuple[int, int] | None:
    """What tells one report in the folder from the next."""
    with contextlib.suppress(OSError):
        found = (folder / FILES["json"]).stat()
        return found.st_ino, found.st_mtime_ns
    return None
