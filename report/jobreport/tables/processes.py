"""Processes on this machine that run the calls of an engine."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import TYPE_CHECKING, Any

from jobreport import progress
from jobreport.errors import JobReportError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

#: Seconds between two checks that the process that started this one still runs.
_PARENT_CHECK_S = 1.0


class Processes(ProcessPoolExecutor):
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

    def results(self, calls: Sequence[tuple[Any, ...]], done: Callable[[int], None] | None) -> list[Any]:
        """The result of each call; ``done(number)`` is called as one finishes.

        Raises ``JobReportError`` if a process is killed.
        """
        running = []
        try:
            for number, call in enumerate(calls):
                future = self.submit(*call)
                if done:
                    future.add_done_callback(partial(report_done, done, number))
                running.append(future)
            return [future.result() for future in running]
        except BrokenProcessPool as error:
            raise JobReportError(
                "A process was killed, perhaps for lack of memory. No report was written."
            ) from error


def report_done(done: Callable[[int], None], number: int, _: Any) -> None:
    """Call ``done(number)`` for a future that is done."""
    done(number)


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
