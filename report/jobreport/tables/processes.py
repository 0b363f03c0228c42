"""Processes on this machine that run the calls of an engine."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import TYPE_CHECKING, Any

from jobreport.errors import JobReportError
from jobreport.tables.forked import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType


class Processes(ProcessPoolExecutor):
    """Processes that end with the one that started them, and at once if it fails."""

    def __init__(self, processes: int) -> None:
        super().__init__(processes, initializer=partial(begin, os.getpid()))

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
