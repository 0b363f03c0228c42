"""The uploader as a process of its own, seen from record-job."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING

from jobrecord.sampler_process import PROGRAM
from jobrecord.settings import PREFIX, SettingError, for_processes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobrecord.settings import Settings

#: For an answer before the job starts, and between two at the end; for all that is left, once somebody wants an end.
START_S, STUCK_S, HURRY_S = 30.0, 120.0, 20.0
_WISHES = {getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)}


class UploaderProcess:
    """A running uploader. Told the name of the node, it copies its files; told `end`, those that are left.

    Raises OSError, and SettingError if storage refuses what only the user can change.
    """

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        variables = {**environment, **for_processes(settings)}
        # By which it would be a process of the job.
        run = variables.pop(f"{PREFIX}RUN")
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), "uploader", run],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # What libraries print may hold addresses and keys.
            stderr=subprocess.DEVNULL,
            env=variables,
            # Signals of the terminal and of the job's process group are not for it.
            start_new_session=True,
        )
        self._text = b""
        self._is_hurried = False
        word, reason = self._answer(START_S)
        if word == "refused":
            raise SettingError(f"--out: {reason}")

    def hurry(self) -> None:
        """Let it copy all that is there, for the time may be short."""
        self._is_hurried = True
        self.tell("hurry")

    def finish(self) -> str:
        """Wait for it, after `end`. Returns why files are missing in storage; empty if none are."""
        end_s = time.monotonic() + (HURRY_S if self._is_hurried else STUCK_S)
        found = "There was no time left."
        while time.monotonic() < end_s:
            word = reason = ""
            try:
                word, reason = self._answer(0.2)
                # Those of the job are blocked, and seen here.
                is_asked = os.name == "posix" and bool(signal.sigpending() & _WISHES)
            except KeyboardInterrupt:
                is_asked = True
            if word in ("left", "refused"):
                found = reason
                break
            if is_asked and not self._is_hurried:
                self._is_hurried, end_s = True, time.monotonic() + HURRY_S
            elif word and not self._is_hurried:
                end_s = time.monotonic() + STUCK_S
        self._process.kill()
        self._process.wait()
        return found

    def tell(self, word: str) -> None:
        """Say a word to it, whether it still listens or not."""
        with contextlib.suppress(OSError):
            os.write(self._pipes[0].fileno(), f"{word}\n".encode())

    def _answer(self, limit_s: float) -> tuple[str, str]:
        """Its next answer, and what is said with it; empty if there is none by then."""
        end_s = time.monotonic() + limit_s
        while b"\n" not in self._text:
            left_s = max(0.0, end_s - time.monotonic())
            if os.name == "posix" and not select.select([self._pipes[1]], [], [], left_s)[0]:
                return "", ""
            data = os.read(self._pipes[1].fileno(), 4096)
            if not data:
                return "refused", "The uploader ended."
            self._text += data
        line, _, self._text = self._text.partition(b"\n")
        word, _, rest = line.decode("utf-8", "replace").partition(" ")
        return word, rest

    @property
    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin and self._process.stdout  # noqa: PT018, S101 - they are pipes
        return self._process.stdin, self._process.stdout
