"""A program that an action started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Bytes of the output that are kept; time between SIGTERM and SIGKILL.
MAX_OUTPUT, _KILL_S = 64 << 10, 5.0


class Program:
    """Runs beside the watch in a process group of its own, which is ended after a time. Raises OSError, ValueError."""

    def __init__(self, argv: Sequence[str], given: bytes, folder: Path, timeout_s: float) -> None:
        """``given`` is its standard input."""
        self.output = b""
        self._timeout_s, self._began_s = timeout_s, time.monotonic()
        self._asked = False
        with tempfile.TemporaryFile() as stdin:
            stdin.write(given)
            stdin.seek(0)
            self._process = subprocess.Popen(  # noqa: S603 - of the user, without a shell
                argv,
                cwd=folder,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        os.set_blocking(self._stdout.fileno(), False)

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout  # noqa: S101 - it is a pipe
        return self._process.stdout

    def step(self) -> str | None:
        """What went wrong, empty for nothing; None while it runs. To be asked again and again."""
        status, late_s = self._process.poll(), time.monotonic() - self._began_s - self._timeout_s
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._stdout.fileno(), MAX_OUTPUT):
                self.output += chunk[: MAX_OUTPUT - len(self.output)]
        if status is None:
            if late_s >= _KILL_S:
                self.kill()
            elif late_s >= 0 and not self._asked:
                self._asked = True
                self._signal(signal.SIGTERM)
            return None
        self._stdout.close()
        if self._asked:
            # Others of its group may be left.
            self._signal(signal.SIGKILL)
            return f"not done within {self._timeout_s:g} s"
        return f"exit status {status}" if status > 0 else f"killed by signal {-status}" if status else ""

    def kill(self) -> None:
        """End it and its group at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
