"""Reading and judging on the workers of a Dask cluster, which see the job directory under the same path.

What a worker reads stays in its memory; what is lost with a worker is read again by another one, and gives
the same.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import defaultdict
from functools import cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from jobreport import __version__
from jobreport.errors import JobReportError, UsageError
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from jobreport.tables.engine import Handle, Made, Question, Task

_CONNECT_S = 30
#: Of mallopt, and bytes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _KEPT = -1, -3, 512 << 20


class Cluster:
    """An ``Engine`` of the workers of a cluster.

    Raises ``UsageError`` where Dask is not installed or nobody answers at the address, or where a worker has
    another version of this package or none.
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
            self._client.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def keep(
        self,
        function: Callable[..., Made],
        tasks: Sequence[Task],
        done: Callable[[int], None],
    ) -> list[tuple[list[Handle], Any]]:
        """As ``Engine.keep``; a handle is a future of the thing."""
        places = self._places(tasks)
        made = [
            self._submit(place, _called, function, list(task.handles), task.given)
            for place, task in zip(places, tasks, strict=True)
        ]
        told = [self._submit(None, _told, one) for one in made]
        for number, one in enumerate(told):
            one.add_done_callback(partial(_pass_on, done, number))
        answers = self._results(told)
        return [
            ([self._submit(place, _thing, one, i) for i in range(many)], answer)
            for place, one, (many, answer) in zip(places, made, answers, strict=True)
        ]

    def ask(self, function: Callable[..., Any], questions: Sequence[Question]) -> list[Any]:
        """As ``Engine.ask``."""
        return self._results(
            [self._submit(None, _called, function, list(handles), given) for handles, given in questions]
        )

    def fetch(self, handles: Sequence[Handle]) -> list[Any]:
        """As ``Engine.fetch``: all of it comes over the network."""
        return self._results(handles)

    def _submit(self, place: str | None, *call: Any) -> Any:
        # Others may do it where that worker dies.
        return self._client.submit(*call, pure=False, workers=place, allow_other_workers=place is not None)

    def _places(self, tasks: Sequence[Task]) -> list[str | None]:
        """Worker for each task, so that things that are asked about together need not travel."""
        sizes: defaultdict[str, float] = defaultdict(float)
        for task in tasks:
            sizes[task.beside] += task.memory
        threads = self._client.nthreads()
        load = dict.fromkeys(threads, 0.0)
        place: dict[str, str | None] = {"": None}
        for beside in sorted(sizes.keys() - place, key=lambda one: (-sizes[one], one)):
            least = min(load, key=lambda one: (load[one] + sizes[beside]) / threads[one])
            load[least] += sizes[beside]
            place[beside] = least
        return [place[task.beside] for task in tasks]

    def _results(self, futures: Sequence[Any]) -> list[Any]:
        from distributed.scheduler import KilledWorker  # noqa: PLC0415 - as above

        try:
            return list(self._client.gather(futures))
        except KilledWorker as error:
            raise JobReportError(f"The cluster lost its workers again and again: {error}") from error

    def _check(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT_S)
        except TimeoutError as error:
            raise UsageError("The Dask scheduler has no workers.") from error
        try:
            versions = self._client.run(_version)
        except ImportError as error:
            raise UsageError(f"The workers need jobreport too: {error}.") from error
        others = {version for version in versions.values() if version != __version__}
        if others:
            raise UsageError(f"Workers have jobreport {', '.join(sorted(others))}, here is {__version__}.")


def _version() -> str:
    from jobreport import __version__ as version  # noqa: PLC0415 - that of the worker

    return version


def _called(function: Callable[..., Any], things: Sequence[Any], given: tuple[Any, ...]) -> Any:
    _keep_freed_memory()
    return function(things, *given)


@cache
def _keep_freed_memory() -> None:
    """Undo what Dask asks of glibc in its workers: to give back each array's memory as soon as it is freed.

    To ask for it again with the next array costs as much as all the rest (see mallopt(3)).
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another library, or another system
        for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            ctypes.CDLL(None).mallopt(parameter, _KEPT)


def _told(made: Made) -> tuple[int, Any]:
    things, told = made
    return len(things), told


def _thing(made: Made, number: int) -> Any:
    return itemgetter(number)(made[0])


def _pass_on(done: Callable[[int], None], number: int, _: Any) -> None:
    done(number)
