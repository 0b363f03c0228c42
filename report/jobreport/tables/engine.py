"""Where the tables of a job are made, kept and read: in this process or in several on this machine.

An engine runs functions and keeps the large results in memory or on disk; only small results come back. It knows
nothing of jobs. ``jobreport.tables.cluster`` has the engine for other machines.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import signal
import tempfile
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from jobreport import progress
from jobreport.errors import JobReportError
from jobreport.scratch import Scratch
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

#: A table that an engine keeps, by the engine's own name for it.
Handle = Any
#: Result of a function that makes tables: the tables, and a small summary of them.
Made = tuple[list[Any], Any]
#: Handles of the tables that a function gets as a list, and its other arguments.
Call = tuple["Sequence[Handle]", tuple[Any, ...]]


class Task(Struct, frozen=True, kw_only=True):
    """A call that makes tables."""

    handles: Sequence[Handle] = ()
    args: tuple[Any, ...] = ()
    #: Bytes that the call is expected to need.
    memory: float = 0.0
    #: Tables of one machine are read together, so an engine keeps them in one place.
    machine: str = ""


#: Tables up to this size together stay in memory; all others go to disk.
_IN_MEMORY = 250 << 20
#: Tasks that need less memory together run in one process: they take about a second and a half.
_WORTH_PROCESSES = 150 << 20
#: Memory for all processes, and what the first and each of the others need in addition to their tasks.
_MEMORY, _FIRST_PROCESS, _PROCESS = 1000 << 20, 170 << 20, 130 << 20
#: Arrays in a file begin at multiples of it.
_ALIGNMENT = 64
#: Seconds between two checks that the process that started this one still runs.
_PARENT_CHECK_S = 1.0


class Engine(Protocol):
    """Makes tables, keeps them, and runs functions on them."""

    def keep(
        self,
        function: Callable[..., Made],
        tasks: Sequence[Task],
        done: Callable[[int], None],
    ) -> list[tuple[list[Handle], Any]]:
        """Run ``function(tables, *args)`` for each task and keep the tables it makes.

        Returns (handles, summary) in the order of the tasks; calls ``done(i)`` as task i finishes.
        """
        ...

    def ask(self, function: Callable[..., Any], calls: Sequence[Call]) -> list[Any]:
        """``function(tables, *args)`` for each call."""
        ...

    def fetch(self, handles: Sequence[Handle]) -> list[Any]:
        """The tables themselves, in this process."""
        ...


class LocalEngine:
    """An ``Engine`` in this process, or in several on this machine if there is much to read and it can be split.

    In one process, tables up to ``in_memory`` bytes together stay in memory. Several processes keep all tables on
    disk and need about 1 GB together, if the tables of one node fit into that. Raises ``JobReportError`` if a process
    is killed.
    """

    def __init__(self, processes: int | None = None, in_memory: int = _IN_MEMORY) -> None:
        """Without ``processes``, the first tasks decide how many."""
        self._processes = processes
        self._in_memory = in_memory
        self._executor: Executor | None = None
        self._store: _Disk | _Memory
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def keep(
        self,
        function: Callable[..., Made],
        tasks: Sequence[Task],
        done: Callable[[int], None],
    ) -> list[tuple[list[Handle], Any]]:
        """As ``Engine.keep``."""
        if self._executor is None:
            self._start(self._processes or _process_count([task.memory for task in tasks]))
        return self._results([(_keep, function, task, self._store) for task in tasks], done)

    def ask(self, function: Callable[..., Any], calls: Sequence[Call]) -> list[Any]:
        """As ``Engine.ask``."""
        return self._results([(run, function, handles, args) for handles, args in calls])

    def fetch(self, handles: Sequence[Handle]) -> list[Any]:
        """As ``Engine.fetch``."""
        return [one.read() if isinstance(one, _OnDisk) else one for one in handles]

    def _start(self, processes: int) -> None:
        if processes > 1:
            # Some machines have no semaphores, which processes need.
            with contextlib.suppress(OSError, ImportError):
                self._executor = self._open.enter_context(_Processes(processes))
                self._store = self._disk()
                return
        self._executor, self._store = _Serial(), _Memory(self._in_memory, self._disk)

    def _disk(self) -> _Disk:
        folder = self._open.enter_context(Scratch())
        return _Disk(Path(folder))

    def _results(
        self, calls: Sequence[tuple[Any, ...]], done: Callable[[int], None] | None = None
    ) -> list[Any]:
        executor, running = self._executor or _Serial(), []
        try:
            for number, call in enumerate(calls):
                future = executor.submit(*call)
                if done:
                    future.add_done_callback(partial(report_done, done, number))
                running.append(future)
            return [future.result() for future in running]
        except BrokenProcessPool as error:
            raise JobReportError(
                "A process was killed, perhaps for lack of memory. No report was written."
            ) from error


def _process_count(needs: Sequence[float]) -> int:
    if sum(needs) < _WORTH_PROCESSES:
        return 1
    fitting = int((_MEMORY - _FIRST_PROCESS) // (_PROCESS + max(needs)))
    # While the largest task runs, others can that are as large together.
    useful = round(sum(needs) / max(needs))
    return max(1, min(os.cpu_count() or 1, fitting, useful))


class _Serial(Executor):
    """Runs each call as it is submitted."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


class _Processes(ProcessPoolExecutor):
    """Processes that end with the one that started them, and at once if it fails."""

    def __init__(self, processes: int) -> None:
        super().__init__(processes, initializer=partial(_begin, os.getpid()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # Their results are no longer wanted, and may take minutes. No public way before Python 3.14.
            for process in list((getattr(self, "_processes", None) or {}).values()):
                process.kill()
        self.shutdown(cancel_futures=True)


def _begin(parent: int) -> None:
    # A copy of the process that started this one would go on printing its progress.
    progress.silence()
    # Ctrl-C goes to all processes: this one ends without a word, the first one prints the message.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process if the one that started it was killed: nothing else does."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_S)
    os._exit(1)


def _keep(function: Callable[..., Made], task: Task, store: _Disk | _Memory) -> tuple[list[Handle], Any]:
    tables, summary = function(_opened(task.handles), *task.args)
    handles = []
    while tables:  # each is released before the next one is written
        handles.append(store.keep(tables.pop(0)))
    return handles, summary


def run(function: Callable[..., Any], handles: Sequence[Handle], args: tuple[Any, ...]) -> Any:
    """``function(tables, *args)``; a handle that is not a file is its table."""
    return function(_opened(handles), *args)


def _opened(handles: Sequence[Handle]) -> list[Any]:
    return [one.mapped() if isinstance(one, _OnDisk) else one for one in handles]


def report_done(done: Callable[[int], None], number: int, _: Any) -> None:
    """Call ``done(number)`` for a future that is done."""
    done(number)


class _Memory:
    """Keeps tables in memory up to ``size`` bytes together, all others on disk."""

    def __init__(self, size: int, disk: Callable[[], _Disk]) -> None:
        self._left, self._open_disk = size, disk

    def keep(self, table: Any) -> Handle:
        packed = _Packed.of(table)
        if packed.size <= self._left:
            self._left -= packed.size
            return table
        return self._disk.write(packed)

    @cached_property
    def _disk(self) -> _Disk:
        return self._open_disk()


class _Disk(Struct, frozen=True):
    """Keeps tables in files of a folder."""

    folder: Path

    def keep(self, table: Any) -> Handle:
        return self.write(_Packed.of(table))

    def write(self, packed: _Packed) -> _OnDisk:
        places = []
        try:
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(packed.head)
                for buffer in packed.buffers:
                    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
                    places.append((file.tell(), buffer.nbytes))
                    file.write(buffer)
        except OSError as error:
            place = escape_name(str(self.folder.parent), 200)
            raise JobReportError(
                f"Cannot write temporary files to {place}: {error.strerror}. Set TMPDIR to another directory."
            ) from error
        return _OnDisk(Path(file.name), len(packed.head), tuple(places))


class _Packed(Struct, frozen=True):
    """A table as bytes, with its arrays as they lie in memory."""

    head: bytes
    buffers: list[memoryview]

    @classmethod
    def of(cls, table: Any) -> _Packed:
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(table, protocol=5, buffer_callback=buffers.append)
        return cls(head, [one.raw() for one in buffers])

    @property
    def size(self) -> int:
        return len(self.head) + sum(one.nbytes for one in self.buffers)


class _OnDisk(Struct, frozen=True):
    """A table in a file."""

    path: Path
    head: int
    #: Position and size of each array.
    buffers: tuple[tuple[int, int], ...]

    def mapped(self) -> Any:
        """With arrays that are read when they are used; the system can drop them from memory at any time."""
        with self.path.open("rb") as file:
            return self._from(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))

    def read(self) -> Any:
        """With arrays in memory: a map holds a file descriptor as long as it lives, and there are few."""
        return self._from(memoryview(self.path.read_bytes()))

    def _from(self, view: memoryview) -> Any:
        buffers = [view[start : start + size] for start, size in self.buffers]
        return pickle.loads(view[: self.head], buffers=buffers)  # noqa: S301 - written by this run
