"""One task in several processes of this machine, whose results come back to this one.

The processes of an engine keep the tables that they make. These end with their result, so that a job of one node lies
in this process when it is judged.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import time
from bisect import bisect_left
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Generic, TypeVar

from jobreport import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Bytes for each process; they are read in about a tenth of a second.
WORTH_PROCESS = 32 << 20
#: Seconds between two checks that the process that started this one still runs.
_PARENT_CHECK_S = 1.0

_allowed = 1


@contextlib.contextmanager
def allowed(processes: int) -> Iterator[None]:
    """Let ``shared`` use so many processes."""
    global _allowed  # noqa: PLW0603 - a reader does not know what else runs
    before, _allowed = _allowed, processes
    try:
        yield
    finally:
        _allowed = before


def shared(function: Callable[[Sequence[_T]], _R], items: Sequence[_T], sizes: Sequence[int]) -> list[_R]:
    """Results of the function for portions of the items, in their order, each in a process of its own.

    Items with few bytes, which are their ``sizes``, are one portion.
    """
    ends = [*accumulate(sizes)]
    count = max(1, min(_allowed, sum(sizes) // WORTH_PROCESS))
    bounds = [0, *(1 + bisect_left(ends, ends[-1] * i / count) for i in range(1, count)), len(items)]
    own, *others = (items[begin:end] for begin, end in pairwise(bounds))
    with contextlib.ExitStack() as stack:
        forked = [stack.enter_context(_Forked(partial(function, some))) for some in others if some]
        with progress.sharing(sum(sizes[: len(own)]) / ends[-1] if forked else 1.0):
            found = function(own)
        return [found, *(one.result() for one in forked)]


class _Forked(Generic[_R]):
    """A call in a copy of this process."""

    def __init__(self, call: Callable[[], _R]) -> None:
        self._call = call
        reading, writing = os.pipe()
        self._pipe = os.fdopen(reading, "rb")
        with os.fdopen(writing, "wb") as pipe:
            parent, self._process = os.getpid(), _fork()
            if self._process == 0:
                try:
                    begin(parent)
                    pickle.dump(call(), pipe, protocol=5)
                    pipe.flush()
                finally:
                    os._exit(0)

    def result(self) -> _R:
        """What the call returned; without that, because its process was killed or it raised, it is made here."""
        try:
            found: _R = pickle.load(self._pipe)  # noqa: S301 - written by this run
        except (EOFError, pickle.UnpicklingError):
            return self._call()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        # One that has ended is gone already where SIGCHLD is ignored, as some that start commands leave it.
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            if self._process and not os.waitpid(self._process, os.WNOHANG)[0]:
                os.kill(self._process, signal.SIGKILL)
                os.waitpid(self._process, 0)


def _fork() -> int | None:
    """As ``os.fork``; None if there can be no more processes."""
    try:
        return os.fork()
    except OSError:
        return None


def begin(parent: int) -> None:
    """Make this process one that prints nothing, and ends with the one that started it."""
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
