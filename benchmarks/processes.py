"""What a process costs on Linux, with everything that it starts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

EVERY_S = 0.05
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, kw_only=True)
class Cost:
    """As the columns of ``results.Run``."""

    cpu_s: float
    wall_s: float
    peak_bytes: int
    read_bytes: int
    written_bytes: int


class FailedError(Exception):
    """A process that did not succeed; its message is fit for a document."""

    def __init__(self, sentence: str, last_line: str = "") -> None:
        super().__init__(sentence)
        self.last_line = last_line


def cost(command: Sequence[str], folder: Path) -> Cost:
    """Run a process in a folder to its end; raises ``FailedError`` where it does not exit with 0.

    CPU time and bytes are the kernel's own accounts. It adds a child's to its parent's when that waits for it;
    children that nobody waits for, as the workers of a fork server, become ours and are added here.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    cpu_s = wall_s = 0.0
    read_bytes = written_bytes = most_bytes = 0
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        # In a process group of its own, so that all of it can be waited for.
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=errors, process_group=0
        )
        watch = _Watch(process.pid)
        watch.start()
        try:
            while ended := _ended(process.pid):
                if ended == process.pid:
                    wall_s = time.perf_counter() - begin
                    watch.stop()
                counts = _counts(ended)
                read_bytes += counts["rchar"]
                written_bytes += counts["wchar"]
                _, status, used = os.wait4(ended, 0)
                if ended == process.pid:
                    process.returncode = os.waitstatus_to_exitcode(status)
                cpu_s += used.ru_utime + used.ru_stime
                most_bytes = max(most_bytes, used.ru_maxrss * 1024)
        except BaseException:
            watch.stop()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        if process.returncode:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").splitlines()
            raise FailedError(f"failed with exit status {process.returncode}", lines[-1] if lines else "")
    return Cost(
        cpu_s=cpu_s,
        wall_s=wall_s,
        # The largest single process is known at every moment, but a process begins with the memory of the one
        # that starts it: nothing large is imported here.
        peak_bytes=max(watch.peak_bytes, most_bytes),
        read_bytes=read_bytes,
        written_bytes=written_bytes,
    )


def _ended(group: int) -> int:
    """The next process of a group that ended, its accounts still there to be read; 0 after the last."""
    try:
        found = os.waitid(os.P_PGID, group, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return 0
    return found.si_pid if found else 0


def _counts(pid: int) -> dict[str, int]:
    """The kernel's counts of what a process and the children that it waited for have read and written."""
    lines = Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


class _Watch(threading.Thread):
    """Keeps the largest sum of resident memory over a process and its descendants, until it is stopped."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.root = psutil.Process(pid)
        self.over = threading.Event()
        self.peak_bytes = 0

    def stop(self) -> None:
        self.over.set()
        self.join()

    def run(self) -> None:
        while not self.over.wait(EVERY_S):
            total = 0
            for process in (self.root, *self.root.children(recursive=True)):
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.peak_bytes = max(self.peak_bytes, total)
