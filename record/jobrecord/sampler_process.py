"""The sampler as a process of its own, seen from the process that owns the recording."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jobrecord import open_files

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Word to the sampler; the end of the pipe without it means that the owner was killed.
END = b"end"
#: Time for the last tick, files, and facts. A sampler that does nothing in the first of these times is stuck; one that
#: waits for a core of a busy machine, or for a disk, has the second.
STUCK_S, END_S = 2.0, 10.0
PROGRAM = Path(__file__).with_name("run_part.py")


class SamplerProcess:
    """Samples the machine until `stop`, or until this process is gone.

    `environment` holds the settings (`settings.for_processes`) and the variables that name the GPUs; `pid` is the
    process whose tree is recorded. Needs the facts that `facts.claim` made. Raises OSError.
    """

    def __init__(self, environment: Mapping[str, str], pid: int) -> None:
        receiver, self._pipe = os.pipe()
        self._identity = open_files.identity(self._pipe)
        try:
            # A session of its own: signals of the terminal and of the job's process group are not for it.
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), "sampler", str(pid)],
                stdin=receiver,
                stdout=subprocess.DEVNULL,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError:
            os.close(self._pipe)
            raise
        finally:
            os.close(receiver)
        if hasattr(os, "register_at_fork"):
            # A loader process that keeps the pipe open would keep the sampler alive.
            os.register_at_fork(after_in_child=self._close_pipe)

    def stop(self) -> str | None:
        """Let the sampler take its last tick and wait for it; it is killed if it is stuck, and after END_S.

        Returns how the sampler ended if it did before: ``exit`` or ``signal:<number>``.
        """
        ended = self._process.poll()
        before_s, _ = self._activity()
        if ended is None and open_files.is_open(self._pipe, self._identity):
            with contextlib.suppress(OSError):
                os.write(self._pipe, END)
        self._close_pipe()
        if ended is not None:
            return "exit" if ended >= 0 else f"signal:{-ended}"
        try:
            self._process.wait(STUCK_S)
        except subprocess.TimeoutExpired:
            spent_s, is_busy = self._activity()
            with contextlib.suppress(subprocess.TimeoutExpired):
                if is_busy or spent_s > before_s:
                    self._process.wait(END_S - STUCK_S)
            self._process.kill()
            self._process.wait()
        return None

    def _close_pipe(self) -> None:
        if open_files.is_open(self._pipe, self._identity):
            os.close(self._pipe)

    def _activity(self) -> tuple[float, bool]:
        """CPU time of the sampler, and whether it has a core, waits for one, waits for a disk, or nothing is known."""
        try:
            import psutil  # noqa: PLC0415 - the sampler imports this module, and not psutil

            process = psutil.Process(self._process.pid)
            times, status = process.cpu_times(), process.status()
        except Exception:  # noqa: BLE001 - a script that opened too many files can open no other
            return 0.0, True
        return times.user + times.system, status in {psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP}
