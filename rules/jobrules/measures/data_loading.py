"""Data loading from events: batch fetches, loader processes, and how many were active when."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.measures.rows import by_code, narrow
from jobrules.model import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import BoolArray, CodeArray, Events, IntArray, Loader

FETCH, WORKER, SET_UP = "DataLoaderIter", "DataLoaderWorker", "DataLoaderIterInitialize"
#: Of what a training process does before its first step.
START_UP = "Start-up"
#: The lane of TensorFlow's data iterators.
PIPELINE = "DataIterator"
#: Loading processes that are enough unless another limit is set, in percent of the cores.
ENOUGH_PERCENT = 70.0
#: No setting of more loading processes is believed.
_MOST = 1 << 20


class Busy(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Stretches of whole seconds with the same number of loaders, ascending; none of them is 0."""

    #: (n,) seconds since the epoch: from, and the first one after.
    start_s: IntArray
    stop_s: IntArray
    #: (n,) loaders at work, at least 1.
    loaders: IntArray

    @classmethod
    def joined(cls, several: Sequence[Busy]) -> Busy:
        """The active loader processes of several nodes together."""
        columns = ("start_s", "stop_s", "loaders")
        first, stop, loaders = (np.concatenate([getattr(one, name) for one in several]) for name in columns)
        return _busy((first, stop, loaders))

    @cached_property
    def seconds(self) -> int:
        """Seconds with a known number of loaders."""
        return int((self.stop_s - self.start_s).sum())

    @property
    def mean(self) -> float:
        """Mean number of loaders in these seconds."""
        return float((self.loaders * (self.stop_s - self.start_s)).sum() / self.seconds)

    @property
    def median(self) -> int:
        """Median number of loaders in these seconds, rounded down."""
        order = np.argsort(self.loaders)
        ranks = np.cumsum((self.stop_s - self.start_s)[order])
        middle = np.searchsorted(ranks, [(ranks[-1] - 1) // 2, ranks[-1] // 2], side="right")
        return int(self.loaders[order][middle].sum() // 2)

    def in_columns(self, start_s: int, width_s: int) -> tuple[IntArray, IntArray, IntArray]:
        """Stretches cut where a column of time ends: (m,) column, ascending; seconds; and loaders."""
        first, last = (self.start_s - start_s) // width_s, (self.stop_s - 1 - start_s) // width_s
        parts = last - first + 1
        stretch = np.repeat(np.arange(len(parts)), parts)
        column = first[stretch] + np.arange(len(stretch)) - np.repeat(np.cumsum(parts) - parts, parts)
        begin = np.maximum(self.start_s[stretch], start_s + column * width_s)
        end = np.minimum(self.stop_s[stretch], start_s + (column + 1) * width_s)
        return column, end - begin, self.loaders[stretch]


class Loading(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The loading events of one node: of PyTorch's loaders, or else of TensorFlow's data pipeline."""

    #: Batches handed to the training process, an event each.
    fetches: Events
    #: What loads: the lives of loading processes; for TensorFlow the work of its threads.
    workers: Events
    #: The setting up of iterators (PyTorch).
    set_up: Events
    #: What was set up (PyTorch).
    loaders: tuple[Loader, ...]
    #: Whether these are TensorFlow's, and whether its pipeline fetched ahead.
    pipeline: bool
    prefetch: bool = False

    @classmethod
    def of(cls, events: Events, node: str) -> Loading | None:
        """What a node recorded; None if it recorded no fetch and no loader process."""

        def rows(phase: str) -> BoolArray:
            return events.in_lanes(lambda lane: lane.node == node and lane.event_type == phase)

        fetches, workers, set_up = rows(FETCH), rows(WORKER), rows(SET_UP)
        loaders = tuple(loader for loader in events.loaders if loader.node == node)
        pipeline, prefetch = not fetches.any() and not workers.any(), False
        if pipeline:
            own = events.in_lanes(lambda lane: lane.node == node) & ~set_up
            workers = rows(PIPELINE) | (own & events.named(lambda name: "GetNext" in name))
            if not workers.any():
                return None
            # Iterators call one another; what the training waits for is the outermost call.
            outermost = workers & events.named(lambda name: name.startswith("IteratorGetNext"))
            fetches = outermost if outermost.any() else workers
            prefetch = bool((own & events.named(lambda name: "Prefetch" in name)).any())
        return cls(
            fetches=events.where(fetches),
            workers=events.where(workers),
            set_up=events.where(set_up),
            loaders=() if pipeline else loaders,
            pipeline=pipeline,
            prefetch=prefetch,
        )

    @cached_property
    def loader_of_fetch(self) -> IntArray:
        """(fetches,) position in ``loaders`` of the last one of its process and class by then, or -1.

        The name of a fetch begins with the class of its iterator, before ``::``.
        """
        events, loaders = self.fetches, self.loaders
        found = np.full(len(events), -1, np.int64)
        if not loaders or not len(events):
            return found
        by_kind: dict[tuple[str, str], list[int]] = {}
        for i in np.argsort([one.start_us for one in loaders], kind="stable").tolist():
            by_kind.setdefault((loaders[i].rank, loaders[i].iterator), []).append(i)
        workers = {worker: i for i, worker in enumerate({worker for worker, _ in by_kind})}
        kinds = {kind: i for i, kind in enumerate({kind for _, kind in by_kind})}
        # The last row and column are of what no loader has.
        table = np.full((len(workers) + 1, len(kinds) + 1), -1, np.int32)
        for i, (worker, kind) in enumerate(by_kind):
            table[workers[worker], kinds[kind]] = i
        by_lane = np.array([workers.get(lane.rank, -1) for lane in events.lanes])
        by_name = np.array([kinds.get(name.partition("::")[0], -1) for name in events.names])
        code = table[by_lane[events.lane], by_name[events.name]]
        order, edges = by_code(code, len(by_kind))
        for own, first, stop in zip(by_kind.values(), edges, edges[1:], strict=False):
            rows = order[first:stop]
            begun = np.searchsorted([loaders[i].start_us for i in own], events.start_us[rows], side="right")
            found[rows] = np.array([-1, *own])[begun]
        return found

    @cached_property
    def settings(self) -> list[tuple[str, int | None, bool | None, int]]:
        """Class, number of processes, and pinning of loaders, with the fetches of each; most first."""
        of_fetch = self.loader_of_fetch
        fetches = np.bincount(of_fetch[of_fetch >= 0], minlength=len(self.loaders)).tolist()
        found: dict[tuple[str, int | None, bool | None], int] = {}
        for one, n in zip(self.loaders, fetches, strict=True):
            setting = one.iterator, one.num_workers, one.pin_memory
            found[setting] = found.get(setting, 0) + n
        return sorted(((*setting, n) for setting, n in found.items()), key=lambda one: -one[-1])

    @cached_property
    def busy(self) -> Busy:
        """How many loaders were active in which seconds.

        In a second within the life of loader processes: their number. In any other second with a batch fetch:
        the number that its loader was set up with, where 0 is 1, the training process itself; without that
        number, the second is left out. For TensorFlow: the active threads, if the events name threads.
        """
        workers, fetches = self.workers, self.fetches
        if self.pipeline:
            named = workers.where(workers.thread >= 0)
            first, stop, _ = _stretches(named, (named.lane, named.thread))
            return _busy((first, stop, np.ones_like(first)))
        # A process without a number is known by its lane.
        unnamed = np.where(workers.pid >= 0, -1, workers.lane)
        first, stop, _ = _stretches(workers, (workers.pid, unnamed))
        living = first, stop, np.ones_like(first)
        loading = self._processes_of_fetch
        known = loading > 0
        # What one process fetches from loaders of one number is fetched from the same loaders.
        first, stop, row = _stretches(fetches.where(known), (fetches.lane[known], loading[known]))
        return _busy(living, (first, stop, loading[known][row]))

    @property
    def _processes_of_fetch(self) -> IntArray:
        """(fetches,) processes that load for it by its loader's setting, 0 if not known."""
        alone = np.array(["SingleProcess" in name for name in self.fetches.names], np.int64)
        found = alone[self.fetches.name] if len(self.fetches) else np.empty(0, np.int64)
        given = np.array([_processes(one.num_workers) for one in self.loaders], np.int64)
        known = self.loader_of_fetch >= 0
        setting = given[self.loader_of_fetch[known]]
        found[known] = np.where(setting > 0, setting, found[known])
        return found


def _processes(num_workers: int | None) -> int:
    return 0 if num_workers is None or num_workers < 0 else min(max(1, num_workers), _MOST)


def _stretches(events: Events, keys: Sequence[IntArray | CodeArray]) -> tuple[IntArray, IntArray, IntArray]:
    """Seconds that the events of one key touch: the first, the first one after, and a row of the key."""
    if not len(events):
        return (np.empty(0, np.int64),) * 3
    first = events.start_us // SECOND_US
    stop = np.maximum(events.end_us - 1, events.start_us) // SECOND_US + 1
    # Events of one key stay in the order of their starts.
    order = np.lexsort([narrow(key) for key in keys])
    fresh = np.arange(len(order)) == 0
    for key in keys:
        fresh[1:] |= np.diff(key[order]) != 0
    # Each key gets a time of its own, after all of the one before, so that one running maximum serves all.
    base = first.min()
    own = np.cumsum(fresh) * (stop.max() - base + 1) - base
    begin, reach = first[order] + own, np.maximum.accumulate(stop[order] + own)
    fresh[1:] |= begin[1:] > reach[:-1]
    at = np.flatnonzero(fresh)
    end = np.append(at[1:], len(order)) - 1
    return begin[at] - own[at], reach[end] - own[end], order[at]


def _busy(*layers: tuple[IntArray, IntArray, IntArray]) -> Busy:
    """Sums of each layer's (from, to, how many); a layer counts where the ones before it are 0."""
    edges = np.unique(np.concatenate([side for first, stop, _ in layers for side in (first, stop)]))
    loaders = np.zeros(max(0, len(edges) - 1), np.int64)
    for first, stop, many in layers:
        change = np.zeros(len(edges), np.int64)
        np.add.at(change, np.searchsorted(edges, first), many)
        np.subtract.at(change, np.searchsorted(edges, stop), many)
        loaders = np.where(loaders > 0, loaders, np.cumsum(change)[:-1])
    some = loaders > 0
    return Busy(start_s=edges[:-1][some], stop_s=edges[1:][some], loaders=loaders[some])
