"""Where the tables of a job are made, kept and read: in this process or in several on this machine.

An engine runs functions and keeps the large results in memory or on disk; only small results come back. It knows
nothing of jobs. ``jobreport.tables.cluster`` has the engine for other machines.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from jobreport.errors import JobReportError
from jobreport.tables import forked
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from jobreport.tables.processes import Processes

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
#: Processes that share one task: memory for what each reads with does not grow with the task.
_MOST_FORKED = 4
#: Arrays in a file begin at multiples of it.
_ALIGNMENT = 64


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

    In one process, tables up to ``in_memory`` bytes together stay in memory, and a large task may share its work with
    others (``jobreport.tables.forked``). Several processes keep all tables on disk and need about 1 GB together, if the
    tables of one node fit into that. Raises ``JobReportError`` if one of several processes is killed.
    """

    def __init__(self, processes: int | None = None, in_memory: int = _IN_MEMORY) -> None:
        """Without ``processes``, the first tasks decide how many."""
        self._count = processes
        self._in_memory = in_memory
        self._processes: Processes | None = None
        self._store: _Disk | _Memory | None = None
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
        if self._store is None:
            self._start(self._count or _process_count([task.memory for task in tasks]))
        # Without processes of its own, a task may share its work. Elsewhere a copy of a process is not safe.
        is_alone = self._count is None and self._processes is None and sys.platform == "linux"
        with forked.allowed(min(os.cpu_count() or 1, _MOST_FORKED) if is_alone else 1):
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
                from jobreport.tables.processes import Processes  # noqa: PLC0415 - most jobs are read in this one

                self._processes = self._open.enter_context(Processes(processes))
                self._store = self._disk()
                return
        self._store = _Memory(self._in_memory, self._disk)

    def _disk(self) -> _Disk:
        from jobreport.scratch import Scratch  # noqa: PLC0415 - as above

        return _Disk(Path(self._open.enter_context(Scratch())))

    def _results(
        self, calls: Sequence[tuple[Any, ...]], done: Callable[[int], None] | None = None
    ) -> list[Any]:
        if self._processes:
            return self._processes.results(calls, done)
        found = []
        for number, (function, *args) in enumerate(calls):
            found.append(function(*args))
            if done:
                done(number)
        return found


def _process_count(needs: Sequence[float]) -> int:
    if sum(needs) < _WORTH_PROCESSES:
        return 1
    fitting = int((_MEMORY - _FIRST_PROCESS) // (_PROCESS + max(needs)))
    # While the largest task runs, others can that are as large together.
    useful = round(sum(needs) / max(needs))
    return max(1, min(os.cpu_count() or 1, fitting, useful))


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
        import tempfile  # noqa: PLC0415 - as above

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
