"""Where the parts of a job are made, kept and asked: in this process, or in several on this machine.

An engine runs functions and keeps the large things they answer, in memory or on disk; what comes back
is small. It knows nothing of jobs. ``jobreport.tables.cluster`` has one for other machines.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import pickle
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from jobreport import progress
from jobreport.errors import JobReportError
from jobreport.scratch import Scratch
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from types import TracebackType
    from typing import Self

#: A thing that an engine keeps, as its owner names it.
Handle = Any
#: What a function that makes things answers: the things, and what is told of them.
Made = tuple[list[Any], Any]
#: Handles of things that a function is given as a list, and what else it is given.
Question = tuple["Sequence[Handle]", tuple[Any, ...]]


class Task(Struct, frozen=True, kw_only=True):
    """A question whose answer makes things."""

    handles: Sequence[Handle] = ()
    given: tuple[Any, ...] = ()
    #: Bytes that it is expected to take while it runs.
    memory: float = 0.0
    #: Things of tasks that name the same are asked about together.
    beside: str = ""


#: Things of so many bytes stay in memory, all others go to disk.
_IN_MEMORY = 250 << 20
#: Tasks that need less memory together are done in one process: they take about a second and a half.
_WORTH_PROCESSES = 150 << 20
#: What all processes may take together, and what the first and each of the others take besides their tasks.
_MEMORY, _FIRST_PROCESS, _PROCESS = 1000 << 20, 170 << 20, 130 << 20
#: Buffers begin at multiples of it, as arrays like it.
_ALIGNED = 64
#: Seconds between two looks whether the process that started this one is still there.
_LOOKS_S = 1.0


class Engine(Protocol):
    """Makes and keeps things, and asks about them."""

    def keep(
        self,
        function: Callable[..., Made],
        tasks: Sequence[Task],
        done: Callable[[int], None],
    ) -> list[tuple[list[Handle], Any]]:
        """Handles of what ``function(things, *given)`` makes, and what it tells, in the order of the tasks.

        ``done`` hears of the number of each task that is finished, in any order.
        """

    def ask(self, function: Callable[..., Any], questions: Sequence[Question]) -> list[Any]:
        """``function(things, *given)`` for each question."""

    def fetch(self, handles: Sequence[Handle]) -> list[Any]:
        """The things themselves, in this process."""


class Here:
    """In this process, one after the other; what does not fit into memory lies on disk."""

    def __init__(self, in_memory: int = _IN_MEMORY) -> None:
        self._left = in_memory
        self._folder: Scratch | None = None
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder:
            self._folder.cleanup()

    def keep(
        self,
        function: Callable[..., Made],
        tasks: Sequence[Task],
        done: Callable[[int], None],
    ) -> list[tuple[list[Handle], Any]]:
        """As ``Engine.keep``."""
        found = []
        for number, task in enumerate(tasks):
            things, told = function(_things(task.handles), *task.given)
            handles = []
            while things:  # each is let go of before the next one is written
                handles.append(self._kept(things.pop(0)))
            found.append((handles, told))
            done(number)
        return found

    def ask(self, function: Callable[..., Any], questions: Sequence[Question]) -> list[Any]:
        """As ``Engine.ask``."""
        return [function(_things(handles), *given) for handles, given in questions]

    def fetch(self, handles: Sequence[Handle]) -> list[Any]:
        """As ``Engine.fetch``."""
        return _fetched(handles)

    def _kept(self, thing: Any) -> Handle:
        packed = _Packed.of(thing)
        if packed.size <= self._left:
            self._left -= packed.size
            return thing
        if self._folder is None:
            self._folder = Scratch()
        return packed.written(Path(self._folder.name) / f"{next(self._numbers)}")


class Local:
    """On this machine: in this process, or in several where there is much to read and that can be split.

    All together take about 1 GB at most, as far as the tables of one node fit into that.
    """

    def __init__(self) -> None:
        self._chosen: Here | Cores | None = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def keep(
        self,
        function: Callable[..., Made],
        tasks: Sequence[Task],
        done: Callable[[int], None],
    ) -> list[tuple[list[Handle], Any]]:
        """As ``Engine.keep``; the first tasks decide in how many processes."""
        chosen = self._chosen
        if chosen is None:
            many = _processes([task.memory for task in tasks])
            chosen = self._opened(many)
            self._open.enter_context(chosen)
            self._chosen = chosen
        return chosen.keep(function, tasks, done)

    def _opened(self, many: int) -> Here | Cores:
        if many > 1:
            # Some machines have no semaphores, which processes need.
            with contextlib.suppress(OSError, ImportError):
                return Cores(many)
        return Here()

    def ask(self, function: Callable[..., Any], questions: Sequence[Question]) -> list[Any]:
        """As ``Engine.ask``."""
        return self._chosen.ask(function, questions) if self._chosen else []

    def fetch(self, handles: Sequence[Handle]) -> list[Any]:
        """As ``Engine.fetch``."""
        return _fetched(handles)


def _processes(needs: Sequence[float]) -> int:
    if sum(needs) < _WORTH_PROCESSES:
        return 1
    fitting = int((_MEMORY - _FIRST_PROCESS) // (_PROCESS + max(needs)))
    # While the largest task runs, others can that are as large together.
    useful = round(sum(needs) / max(needs))
    return max(1, min(os.cpu_count() or 1, fitting, useful))


class Cores:
    """In several processes; everything lies on disk. Raises ``JobReportError`` where one of them is killed."""

    def __init__(self, processes: int) -> None:
        self._folder = Scratch()
        self._pool = ProcessPoolExecutor(processes, initializer=partial(_begin, os.getpid()))
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # Nobody wants what they are at; it may take minutes. There is no public way before Python 3.14.
            for process in list((getattr(self._pool, "_processes", None) or {}).values()):
                process.kill()
        self._pool.shutdown(cancel_futures=True)
        self._folder.cleanup()

    def keep(
        self,
        function: Callable[..., Made],
        tasks: Sequence[Task],
        done: Callable[[int], None],
    ) -> list[tuple[list[Handle], Any]]:
        """As ``Engine.keep``."""
        folder = Path(self._folder.name)
        with _told_if_killed():
            running = [
                self._pool.submit(_keep, function, task, folder / f"{next(self._numbers)}") for task in tasks
            ]
            for number, one in enumerate(running):
                one.add_done_callback(partial(_pass_on, done, number))
            return [one.result() for one in running]

    def ask(self, function: Callable[..., Any], questions: Sequence[Question]) -> list[Any]:
        """As ``Engine.ask``."""
        with _told_if_killed():
            running = [self._pool.submit(_ask, function, handles, given) for handles, given in questions]
            return [one.result() for one in running]

    def fetch(self, handles: Sequence[Handle]) -> list[Any]:
        """As ``Engine.fetch``."""
        return _fetched(handles)


@contextlib.contextmanager
def _told_if_killed() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise JobReportError(
            "A process that reads or judges was killed, perhaps for want of memory. No report was written."
        ) from error


def _begin(parent: int) -> None:
    # A copy of the process that started this one would go on telling of its progress.
    progress.silence()
    # Ctrl-C goes to all processes: this one ends without a word, the first one says what there is to say.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: int) -> None:
    """Nobody else ends this process where the one that started it was killed."""
    while os.getppid() == parent:
        time.sleep(_LOOKS_S)
    os._exit(1)


def _keep(function: Callable[..., Made], task: Task, path: Path) -> tuple[list[Handle], Any]:
    things, told = function(_things(task.handles), *task.given)
    handles: list[Handle] = []
    for number in range(len(things)):
        handles.append(_Packed.of(things[number]).written(path.with_suffix(f".{number}")))
        things[number] = None
    return handles, told


def _pass_on(done: Callable[[int], None], number: int, _: Future[Any]) -> None:
    done(number)


def _ask(function: Callable[..., Any], handles: Sequence[Handle], given: tuple[Any, ...]) -> Any:
    return function(_things(handles), *given)


class _OnDisk(Struct, frozen=True):
    """A thing in a file, whose arrays are read when they are used, and can be forgotten by the system at any time."""

    path: Path
    head: int
    buffers: tuple[tuple[int, int], ...]

    def mapped(self) -> Any:
        """With arrays that are read when they are used."""
        with self.path.open("rb") as file:
            return self._from(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))

    def read(self) -> Any:
        """In memory: a map takes a file descriptor as long as it lives, and there are few."""
        return self._from(memoryview(self.path.read_bytes()))

    def _from(self, view: memoryview) -> Any:
        buffers = [view[start : start + size] for start, size in self.buffers]
        return pickle.loads(view[: self.head], buffers=buffers)  # noqa: S301 - written by this run


def _things(handles: Sequence[Handle]) -> list[Any]:
    return [one.mapped() if isinstance(one, _OnDisk) else one for one in handles]


def _fetched(handles: Sequence[Handle]) -> list[Any]:
    return [one.read() if isinstance(one, _OnDisk) else one for one in handles]


class _Packed(Struct, frozen=True):
    """A thing as bytes, with its arrays as they lie in memory."""

    head: bytes
    buffers: list[memoryview]

    @classmethod
    def of(cls, thing: Any) -> _Packed:
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
        return cls(head, [one.raw() for one in buffers])

    @property
    def size(self) -> int:
        return len(self.head) + sum(one.nbytes for one in self.buffers)

    def written(self, path: Path) -> _OnDisk:
        places = []
        try:
            with path.open("xb") as file:
                file.write(self.head)
                for buffer in self.buffers:
                    file.write(b"\0" * (-file.tell() % _ALIGNED))
                    places.append((file.tell(), buffer.nbytes))
                    file.write(buffer)
        except OSError as error:
            place = escape_name(str(path.parent.parent), 200)
            raise JobReportError(
                f"Tables cannot be kept in {place}: {error.strerror}. Set TMPDIR to another folder."
            ) from error
        return _OnDisk(path, len(self.head), tuple(places))
