"""``make-report --watch`` as a process beside the job, for ``--notify``, ``--stop-on``, and ``--config``.

It is told the end of the job by the end of a pipe, and asks by another one to stop the job. Whatever happens to it, the job
goes on.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING

from jobrecord.settings import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobrecord.settings import Settings

_NICENESS = 10
#: For the check of its options, for the last look after the end of the job, also after SIGTERM, and for its end.
READY_S, LAST_S, _HURRIED_S, _TERM_S = 60.0, 60.0, 5.0, 5.0
_USAGE = 2
#: Signals that want an end of all.
_WISHES = {
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
}


class RefusedError(Exception):
    """make-report does not take the options; it has said why."""


def is_wanted(settings: Settings) -> bool:
    """Whether anything is to be done about findings while the job runs."""
    return bool(settings.notify or settings.stop_on or settings.config)


class Watcher:
    """A running watch. Raises OSError if it does not start, and RefusedError for options that are wrong."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        options = ["--job-dir", str(settings.out), "--out", str(settings.report_folder), "--force"]
        options += ["--watch", "--recorder", "--formats", "json", "--quiet"]
        options += ["--stop-on", settings.stop_on] if settings.stop_on else []
        options += ["--config", settings.config] if settings.config else []
        #: The rule for which it asked to stop the job.
        self.stopped_by = ""
        self._text, self._last_s = b"", LAST_S
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jobreport", *options],
            env=_environment(settings, environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A session of its own: signals of the terminal and of the job's process group are not for it.
            start_new_session=True,
            preexec_fn=_be_nice,  # noqa: PLW1509 - no threads
        )
        end_s = time.monotonic() + READY_S
        is_ready = has_ended = False
        while not (is_ready or has_ended) and time.monotonic() < end_s:
            has_ended = self._process.poll() is not None
            self._read(0.2)
            is_ready = b"ready" in self._text
        if not is_ready:
            if self._process.poll() == _USAGE:
                raise RefusedError
            self._kill()
            raise OSError("make-report does not start")

    def asked_to_stop(self) -> float | None:
        """The time from SIGTERM to SIGKILL, once, if the job is to be stopped; it wakes its parent by SIGCHLD then."""
        self._read(0)
        asked = re.search(rb"^stop ([0-9.]{1,12}) (\S{1,200})$", self._text, re.MULTILINE)
        if self.stopped_by or not asked:
            return None
        self.stopped_by = asked[2].decode("utf-8", "replace")
        return float(asked[1])

    def hurry(self) -> None:
        """Leave less time for the last look."""
        self._last_s = _HURRIED_S

    def finish(self, last_s: float | None = None) -> bool:
        """Let it look a last time, at all that was recorded, unless that takes long or somebody wants an end.

        Returns whether it had failed before.
        """
        had_failed = self._process.poll() not in (None, 0)
        with contextlib.suppress(OSError, KeyboardInterrupt):
            self._pipes[0].close()
            end_s = time.monotonic() + (self._last_s if last_s is None else last_s)
            while self._process.poll() is None and time.monotonic() < end_s:
                self._read(0.1)
                if signal.sigpending() & _WISHES:
                    break
        self._kill()
        return had_failed

    def _read(self, wait_s: float) -> None:
        """Read what it says, as far as that can be a wish."""
        with contextlib.suppress(OSError, ValueError):
            if select.select([self._pipes[1]], [], [], wait_s)[0]:
                text = os.read(self._pipes[1].fileno(), 4096)
                self._text = (self._text + text)[-4096:]
                if not text:
                    time.sleep(wait_s)

    @property
    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin and self._process.stdout  # noqa: PT018, S101 - they are pipes
        return self._process.stdin, self._process.stdout

    def _kill(self) -> None:
        """End it, with what it started: it does so itself if it is asked to."""
        with contextlib.suppress(OSError):
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_TERM_S)
        self._process.kill()
        self._process.wait()


def _environment(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """Without the run's name, by which the watch would be a process of the job.

    The URL is not for the list of processes. Modules in the working directory are the job's.
    """
    others = {name: text for name, text in environment.items() if not name.startswith(PREFIX)}
    return others | {"JOBREPORT_NOTIFY": settings.notify, "PYTHONSAFEPATH": "1"}


def _be_nice() -> None:
    os.nice(_NICENESS)
