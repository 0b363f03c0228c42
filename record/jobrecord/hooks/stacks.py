"""Samples of the stack of the thread that trains, or of a loader process: where the code waited.

A thread takes them at random times, on a schedule of due times. It can look only while it has the interpreter's lock,
which a thread that runs Python gives up when it waits, or an interval after it was asked to. So a sample of Python would
be one of what comes next. This one asks that interval before the due time, and looks again then:

| at the first look | at the due time | the sample |
|---|---|---|
| ran Python until the due time | | exact |
| waited, or began to | waits | exact |
| waited, or began to | runs Python, which ends within the interval | the caller of both |
| waited, or began to | runs Python on and on | the same Python, later |
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from _thread import allocate_lock, get_ident, start_new_thread
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from jobrecord import __version__
from jobrecord.clocks import read_both
from jobrecord.folder import Folder
from jobrecord.hooks.frames import Tree, caller_of_both, places_of, stack_of
from jobrecord.open_files import identity, is_open
from jobrecord.traces import FLUSH_NS, SECOND_NS, now, warn, write_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from jobrecord.settings import Settings

FOLDER = "framework/pythonstacks"
MAIN, LOADER = "main", "loader"
#: Loader processes of a loader that are sampled, at this share of the rate.
LOADERS, LOADER_SHARE = 2, 0.2
#: Files of a rank: loader processes may start anew in each epoch.
MAX_FILES = 64
#: Bytes of the first moments, and of each hour, at this many samples a second; and of a file.
HOUR_BYTES, USUAL_RATE, MAX_BYTES = 1 << 20, 10, 64 << 20
#: How long samples are taken before anything else is recorded, as in a launcher; then this is looked at now and then.
MAX_IDLE_NS, IDLE_NS = 600 * SECOND_NS, SECOND_NS
#: A sample that is later may have waited for the lock; and the longest interval after which it is given up.
PROMPT_NS, MAX_SWITCH_NS = SECOND_NS // 2000, SECOND_NS // 50
#: Due times of one call that holds the interpreter's lock.
MAX_MISSED = 600
#: How long the end of the process waits for the last write.
END_S = 1.0


class Plan(NamedTuple):
    """How the processes of a rank are sampled."""

    out: Path
    #: Samples a second.
    rate: float


def plan(settings: Settings) -> Plan | None:
    """How to sample; None if it is not asked for, or if no thread may look at the frames of another one here."""
    if not settings.stacks or not hasattr(sys, "_current_frames"):
        return None
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    return Plan(settings.out, settings.stacks)


def sample_loader(plan: Plan, worker: str, number: int) -> None:
    """Sample this loader process `number` of a rank, if it is one of the first, and there were not too many."""
    from multiprocessing.util import Finalize  # noqa: PLC0415 - not without loader processes

    with suppress(Exception):
        current = sys.modules.get("jobrecord.hooks.current")
        if current is not None and (recording := current.current()) is not None:
            # It imported what trainings import, as one that is not a fork does.
            recording.stop_stacks()
        if number >= LOADERS:
            return
        with Folder(plan.out, f"{FOLDER}/{worker}", make=True) as folder:
            if len(folder.names()) >= MAX_FILES:
                return
        thread = get_ident()
        plan = plan._replace(rate=plan.rate * LOADER_SHARE)
        # Such processes end without what `atexit` has.
        Finalize(None, Stacks(plan, LOADER, lambda: worker, lambda: thread).stop, exitpriority=0)


class Stacks:
    """Samples of one thread of this process, from now on until `stop`. Nothing here raises.

    `worker` gives the name of the folder: nothing as long as the process did nothing else that is recorded. `thread`
    gives the thread.
    """

    def __init__(self, plan: Plan, kind: str, worker: Callable[[], str], thread: Callable[[], int]) -> None:
        self._plan, self._kind, self._worker, self._thread = plan, kind, worker, thread
        self._interval_ns = int(SECOND_NS / plan.rate)
        self._hour_bytes = int(HOUR_BYTES * max(1, plan.rate / USUAL_RATE))
        #: Not that of the script, whose numbers stay what they are.
        self._random = random.Random()  # noqa: S311 - not for secrets
        self._tree = Tree()
        self._start_ns, wall_ns = read_both(now, time.time_ns)
        head = {
            "writer": f"jobrecord {__version__}",
            "pid": os.getpid(),
            "kind": kind,
            "interval_us": self._interval_ns // 1000,
            "started_us": wall_ns // 1000,
            "switch_us": round(sys.getswitchinterval() * 1e6),
        }
        #: Not yet written, and bytes of all lines.
        self._lines = [f"{json.dumps(['stacks', 1, head])}\n"]
        self._bytes = len(self._lines[0])
        self._is_gap = False
        self._name, self._inside, self._size = "", "", 0
        self._file, self._identity = -1, (0, 0)
        self._cpu_ns = 0
        self._asked, self._ended = allocate_lock(), allocate_lock()
        self._asked.acquire()
        self._ended.acquire()
        try:
            # One of `threading` would be counted by the script, and run its hooks for threads.
            start_new_thread(self._run, ())
        except RuntimeError as error:
            self._ended.release()
            self._say(error)

    def cpu_ns(self) -> int:
        """CPU time that it took."""
        return self._cpu_ns

    def stop(self) -> None:
        """Write what is left."""
        with suppress(RuntimeError):  # asked already
            self._asked.release()
        if self._ended.acquire(timeout=END_S):
            self._ended.release()

    def abandon(self) -> None:
        """Forget the file: this is the child of a fork, where the thread is not."""
        if self._has_file():
            with suppress(OSError):
                os.close(self._file)
        self._file = -1

    def _run(self) -> None:
        try:
            if hasattr(signal, "pthread_sigmask"):
                # Those that the script blocks are for it to wait for.
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            self._sample()
            self._write()
        except OSError as error:
            self._cut()
            self._say(error.strerror or error)
        except Exception as error:  # noqa: BLE001 - the training must go on, whatever it is
            self._say(f"{type(error).__name__}: {error}")
        finally:
            self.abandon()
            self._ended.release()

    def _sample(self) -> None:
        """Sample until `stop`."""
        written = now()
        due = written + self._between()
        while True:
            switch_ns = min(int(sys.getswitchinterval() * SECOND_NS), MAX_SWITCH_NS)
            if self._is_asked_before(due - switch_ns):
                return
            before = places_of(self._frame()) if not self._is_gap and now() < due else None
            # To sleep is less work than to wait for a lock; for no time, it would give up the interpreter's.
            if (left_ns := due - now()) > 0:
                time.sleep(left_ns / SECOND_NS)
            taken = now()
            if self._may_add(taken):
                if before is not None and PROMPT_NS < taken - due < switch_ns:
                    stack = stack_of(caller_of_both(before, self._frame()))
                else:
                    stack = stack_of(self._frame())
                node, lines = self._tree.add(stack)
                if lines:
                    self._add(lines)
                due = max(due, taken - MAX_MISSED * self._interval_ns)
                # A call that held the lock was there at all of them.
                while due <= taken and node >= 0:
                    self._add(f"[{self._us(taken)},{node},{(taken - due) // 1000}]\n")
                    due += self._between()
            if taken - written > FLUSH_NS:
                written = taken
                self._write()
                self._cpu_ns = time.thread_time_ns()
            if due <= (at_ns := now()):
                # Missed by this thread itself.
                due = at_ns + (self._between() if self._name or not self._is_gap else IDLE_NS)

    def _is_asked_before(self, at_ns: int) -> bool:
        return self._asked.acquire(timeout=max(0, at_ns - now()) / SECOND_NS)

    def _frame(self) -> FrameType | None:
        # Frames of all threads, of this one as well: no name here may hold them.
        return sys._current_frames().get(self._thread())

    def _between(self) -> int:
        return int(self._interval_ns * self._random.uniform(0.5, 1.5))

    def _us(self, at_ns: int) -> int:
        return (at_ns - self._start_ns) // 1000

    def _may_add(self, at_ns: int) -> bool:
        """Whether there is room for a sample now, and somebody who may read it."""
        passed_ns = at_ns - self._start_ns
        reason = ""
        if self._bytes > min(MAX_BYTES, self._hour_bytes * (1 + passed_ns / (3600 * SECOND_NS))):
            reason = "size limit"
        elif not self._name and passed_ns > MAX_IDLE_NS:
            reason = "nothing else was recorded"
        if reason and not self._is_gap:
            self._add(f'["gap",{self._us(at_ns)},"{reason}"]\n')
        self._is_gap = bool(reason)
        return not reason

    def _add(self, text: str) -> None:
        self._lines.append(text)
        self._bytes += len(text)

    def _write(self) -> None:
        """Write what is in memory, if anything else of this process was written. Raises OSError."""
        if not (self._name or self._create()):
            return
        if not self._has_file():
            with Folder(self._plan.out, self._inside) as folder:
                self._file = folder.reopen(self._name)
            self._identity = identity(self._file)
            os.lseek(self._file, 0, os.SEEK_END)
        lines, self._lines = self._lines, []
        self._size += write_all(self._file, "".join(lines).encode())

    def _create(self) -> bool:
        worker = self._worker()
        if not worker:
            return False
        self._inside = f"{FOLDER}/{worker}"
        with Folder(self._plan.out, self._inside, make=True) as folder:
            # One of this number may be of an earlier recording.
            self._name, self._file = folder.create_next(str(os.getpid()))
        self._identity = identity(self._file)
        return True

    def _has_file(self) -> bool:
        return self._file >= 0 and is_open(self._file, self._identity)

    def _cut(self) -> None:
        """Cut off what was written of a line."""
        if self._has_file():
            with suppress(OSError):
                os.ftruncate(self._file, self._size)

    def _say(self, reason: object) -> None:
        if self._kind == MAIN:
            warn(f"stacks are not written: {reason}")
