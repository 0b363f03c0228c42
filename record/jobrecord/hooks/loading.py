"""Data loading: the time of each fetch, and the lives of loader processes."""

from __future__ import annotations

import copy
import fnmatch
import itertools
import json
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from jobrecord.folder import Folder
from jobrecord.hooks import stacks
from jobrecord.hooks.inferred import Loop
from jobrecord.traces import now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jobrecord.hooks.stacks import Plan
    from jobrecord.traces import Trace

FETCH_LANE, SETUP_LANE, WORKER_LANE = "DataLoaderIter", "DataLoaderIterInitialize", "DataLoaderWorker"
#: Readers find the loader by the text in front of the first ``::``.
FETCH_SUFFIX = "::DataLoaderIter::GetNext"

_NOTES = "jobrecord/workers"

_numbers = itertools.count()


class Recording(Protocol):
    """What a recorder is told of fetches."""

    trace: Trace
    is_open: bool
    plan: Plan | None

    def is_elsewhere(self) -> bool:
        """Whether this is no thread that trains, or within a fetch."""

    def fetch_begins(self, loop: Loop, at_ns: int) -> None:
        """Begin a fetch of an iterator."""

    def fetch_ended(self) -> None:
        """End a fetch, whatever it gave."""

    def fetched(self, loop: Loop, name: str, start_ns: int, end_ns: int, batch: object) -> None:
        """Add a fetch that gave a batch."""

    def fetches_ended(self, loop: Loop, notes: str, exhausted: bool) -> None:
        """End the fetches of an iterator."""


class Loader:
    """A loader whose fetches are recorded; everything else is the loader's own."""

    def __init__(self, recording: Recording, loader: Any) -> None:
        self._recording, self._loader = recording, loader
        self._notes = note_workers(recording.trace, loader)

    def __iter__(self) -> Iterator[Any]:
        return recorded(self._recording, self._loader, iter, self._notes)

    def __len__(self) -> int:
        return len(self._loader)

    def __bool__(self) -> bool:
        return bool(self._loader)

    def __getitem__(self, index: Any) -> Any:
        return self._loader[index]

    def __copy__(self) -> Loader:
        return Loader(self._recording, copy.copy(self._loader))

    def __reduce__(self) -> tuple[Any, ...]:
        return _unrecorded, (self._loader,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def recorded(
    recording: Recording, loader: Any, begin: Callable[[Any], Iterator[Any]], notes: str
) -> Iterator[Any]:
    """What `begin` makes of a loader, with its fetches recorded. `notes` names those of its processes."""
    noted = getattr(loader, "worker_init_fn", None)
    if isinstance(noted, NotedWorker) and recording.plan is not None:
        trace = recording.trace
        noted.sampled = recording.plan, f"{trace.worker_or_name()}-{trace.node}"
    began = now()
    iterator = begin(loader)
    # A loader of PyTorch may be recorded by itself.
    if not recording.is_open or type(iterator) is _Fetches:
        return iterator
    kind = type(iterator).__name__
    recording.trace.add(SETUP_LANE, f"{kind}.__init__", began, now(), args=settings(loader))
    # Loader processes that live on are noted until the recording ends.
    notes = "" if getattr(loader, "persistent_workers", False) else notes
    return _Fetches(recording, iterator, kind + FETCH_SUFFIX, notes)


class _Fetches:
    """An iterator whose fetches are recorded."""

    def __init__(self, recording: Recording, iterator: Iterator[Any], name: str, notes: str) -> None:
        self._recording, self._iterator, self._name, self._notes = recording, iterator, name, notes
        self._loop = Loop()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The type of the iterator, for libraries that ask whether it is one of PyTorch's."""
        return type(self._iterator)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        recording = self._recording
        if recording.is_elsewhere():
            return next(self._iterator)
        start = now()
        recording.fetch_begins(self._loop, start)
        try:
            batch = next(self._iterator)
        except StopIteration:
            self._ended(exhausted=True)
            raise
        finally:
            recording.fetch_ended()
        recording.fetched(self._loop, self._name, start, now(), batch)
        return batch

    def __reduce__(self) -> tuple[Any, ...]:
        return _unrecorded, (self._iterator,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)

    def __del__(self) -> None:
        # A loop that is left early drops the iterator, which waits for its processes: then all notes are there.
        with suppress(Exception):
            del self._iterator
            self._ended(exhausted=False)

    def _ended(self, *, exhausted: bool) -> None:
        notes, self._notes = self._notes, ""
        self._recording.fetches_ended(self._loop, notes, exhausted)


def _unrecorded(loader: Any) -> Any:
    """What a deep copy is, and what another process gets: the loader itself."""
    return loader


def setting(loader: Any, name: str, kind: type) -> Any:
    """A setting of a loader; None if it has none of this type."""
    value = getattr(loader, name, None)
    return value if isinstance(value, kind) else None


def settings(loader: Any) -> dict[str, Any]:
    """Arguments of the row that sets a loader up."""
    batches = getattr(loader, "batch_sampler", None)
    known = {
        "num_workers": setting(loader, "num_workers", int),
        "pin_memory": setting(loader, "pin_memory", bool),
        "batch_size": setting(loader, "batch_size", int) or setting(batches, "batch_size", int),
    }
    return {name: value for name, value in known.items() if value is not None}


class NotedWorker:
    """``worker_init_fn`` that notes the loader process, then calls the user's own."""

    def __init__(self, out: Path, name: str, own: Callable[[int], object] | None) -> None:
        self.out, self.name, self.own = out, name, own
        #: How loader processes are sampled, and for whom.
        self.sampled: tuple[Plan, str] | None = None

    def __call__(self, worker_id: int) -> None:
        """Note this process, which is loader process `worker_id`."""
        note = {"worker_id": worker_id, "pid": os.getpid(), "start_us": time.time_ns() // 1000}
        with suppress(OSError), Folder(self.out, _NOTES, make=True) as folder:
            # One of the same number may be left of a job that was killed.
            folder.remove(file := f"{self.name}-{os.getpid()}.json")
            with os.fdopen(folder.create(file), "w") as stream:
                json.dump(note, stream)
        if self.sampled is not None:
            stacks.sample_loader(*self.sampled, worker_id)
        if self.own is not None:
            self.own(worker_id)


def note_workers(trace: Trace, loader: Any) -> str:
    """Let the loader's processes note when they start. Returns what their notes are named for; nothing without any."""
    if not setting(loader, "num_workers", int):
        return ""
    own = getattr(loader, "worker_init_fn", None)
    if isinstance(own, NotedWorker):
        if own.out == trace.out:
            return own.name
        own = own.own
    name = f"{notes_prefix(trace.node)}-{next(_numbers)}"
    try:
        loader.worker_init_fn = NotedWorker(trace.out, name, own)
    except (AttributeError, ValueError):
        return ""
    return name


def notes_prefix(node: str) -> str:
    """What all notes on the loader processes of this process are named for."""
    return f"{node}-{os.getpid()}"


def write_workers(trace: Trace, name: str, end_ns: int) -> None:
    """A row for each loader process with a note named for `name`; the notes are removed."""
    with suppress(OSError), Folder(trace.out, _NOTES) as folder:
        for note in fnmatch.filter(folder.names(), f"{name}-*.json"):
            with suppress(OSError, ValueError, KeyError, TypeError):
                worker = json.loads(folder.read(note))
                start_ns = trace.perf_ns(worker["start_us"])
                args = {"pid": worker["pid"], "worker_id": worker["worker_id"]}
                trace.add(WORKER_LANE, WORKER_LANE, start_ns, end_ns, args=args)
                folder.remove(note)
