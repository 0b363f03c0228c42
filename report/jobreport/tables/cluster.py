"""An engine on the workers of a Dask cluster, which see the job directory under the same path.

What a worker reads stays in its memory. If a worker is lost, another one reads its files again, with the same result.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING, Any

from jobreport import __version__
from jobreport.errors import JobReportError, UsageError
from jobreport.tables.engine import run
from jobreport.tables.processes import report_done
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from jobreport.tables.engine import Call, Handle, Made, Task

_CONNECT_S = 30
_LOST = "The scheduler or all workers of the Dask cluster are gone. No report was written."
_CLOSE_S = 2
#: Seconds between two looks for workers while results are awaited.
_CHECK_S = 1.0


class DaskEngine:
    """An ``Engine`` on the workers of a cluster; a handle is a future of the table.

    Raises ``UsageError`` if Dask is not installed, no scheduler answers at the address, or a worker lacks this
    version of jobreport.
    """

    def __init__(self, address: str) -> None:
        try:
            import distributed  # noqa: PLC0415 - an extra
            from distributed.comm.addressing import (  # noqa: PLC0415
                get_address_host_port,
                normalize_address,
            )
        except ImportError as error:
            raise UsageError("--dask needs the extra: pip install 'jobreport[dask]'.") from error
        # What is lost is said in one sentence, not in the tracebacks of their tasks.
        for name in ("asyncio", "distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        connect: Any = distributed.Client
        try:
            # A client that finds this out by itself waits a minute when it is deleted, and complains.
            get_address_host_port(normalize_address(address))
            self._client = connect(address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"No Dask scheduler answers at {escape_name(address)}: {escape_name(str(error))}."
            ) from error
        try:
            self._check()
        except BaseException:
            self._client.close(timeout=_CLOSE_S)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close(timeout=_CLOSE_S)

    def keep(
        self,
        function: Callable[..., Made],
        tasks: Sequence[Task],
        done: Callable[[int], None],
    ) -> list[tuple[list[Handle], Any]]:
        """As ``Engine.keep``."""
        with self._guarded():
            places = self._places(tasks)
            made = [
                self._submit(place, run, function, list(task.handles), task.args)
                for place, task in zip(places, tasks, strict=True)
            ]
            counted = [self._submit(None, _summary, one) for one in made]
            for number, one in enumerate(counted):
                one.add_done_callback(partial(report_done, done, number))
            return [
                ([self._submit(place, _table, one, i) for i in range(count)], summary)
                for place, one, (count, summary) in zip(places, made, self._results(counted), strict=True)
            ]

    def ask(self, function: Callable[..., Any], calls: Sequence[Call]) -> list[Any]:
        """As ``Engine.ask``."""
        with self._guarded():
            return self._results(
                [self._submit(None, run, function, list(handles), args) for handles, args in calls]
            )

    def fetch(self, handles: Sequence[Handle]) -> list[Any]:
        """As ``Engine.fetch``, over the network."""
        with self._guarded():
            return self._results(handles)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Raise ``JobReportError`` if the cluster is gone."""
        from distributed.client import FutureCancelledError  # noqa: PLC0415 - as above
        from distributed.comm.core import CommClosedError  # noqa: PLC0415
        from distributed.scheduler import KilledWorker  # noqa: PLC0415

        try:
            yield
        except KilledWorker as error:
            raise JobReportError(f"The cluster lost its workers several times: {error}") from error
        except (FutureCancelledError, CommClosedError) as error:
            raise JobReportError(_LOST) from error
        except Exception as error:
            # A client that has lost its scheduler closes itself, and then raises errors of any kind.
            if self._client.status == "running":
                raise
            raise JobReportError(_LOST) from error

    def _submit(self, place: str | None, *call: Any) -> Any:
        # Another worker may run it if that one dies.
        return self._client.submit(*call, pure=False, workers=place, allow_other_workers=place is not None)

    def _places(self, tasks: Sequence[Task]) -> list[str | None]:
        """Worker for each task: one for all tasks of a machine, so that its tables need not travel."""
        sizes: defaultdict[str, float] = defaultdict(float)
        for task in tasks:
            sizes[task.machine] += task.memory
        threads = self._client.nthreads()
        load = dict.fromkeys(threads, 0.0)
        place: dict[str, str | None] = {"": None}
        for machine in sorted(sizes.keys() - place, key=lambda one: (-sizes[one], one)):
            if not load:
                break  # lost by now; ``_results`` waits for new ones
            worker = min(load, key=lambda one: (load[one] + sizes[machine]) / threads[one])
            load[worker] += sizes[machine]
            place[machine] = worker
        return [place.get(task.machine) for task in tasks]

    def _results(self, futures: Sequence[Any]) -> list[Any]:
        gathering = asyncio.run_coroutine_threadsafe(
            self._client.gather(futures, asynchronous=True), self._client.loop.asyncio_loop
        )
        last_seen = time.monotonic()
        try:
            while not wait([gathering], _CHECK_S).done:
                # Without workers, a scheduler waits for new ones without end.
                if self._client.nthreads():
                    last_seen = time.monotonic()
                elif time.monotonic() - last_seen > _CONNECT_S / 2:
                    raise JobReportError(_LOST)
            return list(gathering.result())
        finally:
            gathering.cancel()

    def _check(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT_S)
        except TimeoutError as error:
            raise UsageError("The Dask scheduler has no workers.") from error
        try:
            versions = self._client.run(_version)
        except ImportError as error:
            raise UsageError(f"jobreport is not installed on the workers: {error}.") from error
        others = {version for version in versions.values() if version != __version__}
        if others:
            raise UsageError(
                f"The workers have jobreport {', '.join(sorted(others))}, this machine has {__version__}."
            )


def _version() -> str:
    from jobreport import __version__ as version  # noqa: PLC0415 - that of the worker

    return version


def _summary(made: Made) -> tuple[int, Any]:
    tables, summary = made
    return len(tables), summary


def _table(made: Made, number: int) -> Any:
    return made[0][number]
