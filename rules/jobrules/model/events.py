"""The table of events: what processes did from when to when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Annotated, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from jobrules.model.names import IteratorName, Name, NodeName, OperatorName, RankName
from jobrules.model.types import BoolArray, CodeArray, IntArray, _no_codes, _no_ints


class EventSource(StrEnum):
    """What wrote an event."""

    #: The training script's own process: steps, forward and backward, operators, data loading.
    PYTHON = "python"
    #: The framework's core: data iterators, collective operations.
    MODEL = "model"
    #: The framework's profiler: operators on host and devices.
    PROFILER = "profiler"
    HOROVOD = "horovod"
    SMDATAPARALLEL = "smdataparallel"
    OTHER = "other"


_EventType: TypeAlias = Annotated[
    str, Name(lambda lane: "tensor" if lane.source is EventSource.HOROVOD else "event")
]


class Lane(Struct, frozen=True, kw_only=True, order=True):
    """Where events happened: a process and one category of its work."""

    node: NodeName
    #: The process: its rank or process id on the node; empty where the source names none.
    rank: RankName
    #: The category: ``Forward``, ``cpu_functions``, ``Step:ModeKeys.TRAIN``; for Horovod the tensor.
    event_type: _EventType
    source: EventSource


class Loader(Struct, frozen=True, kw_only=True):
    """A data loader as a training process set it up."""

    node: NodeName
    rank: RankName
    #: Class of its iterator, as ``_MultiProcessingDataLoaderIter``.
    iterator: IteratorName
    start_us: int
    #: Loading processes; 0 loads in the training process; None where the source does not say.
    num_workers: int | None
    pin_memory: bool | None


class Events(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Recorded activity of processes: one row per event, sorted by start, then end.

    Steps are events too, and are also in ``Job.steps``.
    """

    lanes: tuple[Lane, ...] = ()
    #: Names of operators, functions, modules.
    names: tuple[OperatorName, ...] = ()
    #: (n,) position in ``lanes`` and in ``names``.
    lane: CodeArray = field(default_factory=_no_codes)
    name: CodeArray = field(default_factory=_no_codes)
    start_us: IntArray = field(default_factory=_no_ints)
    #: (n,) never before the start.
    end_us: IntArray = field(default_factory=_no_ints)
    #: (n,) step number, process id of the operating system, and thread; -1 if not given.
    step: IntArray = field(default_factory=_no_ints)
    pid: IntArray = field(default_factory=_no_ints)
    thread: IntArray = field(default_factory=_no_ints)
    loaders: tuple[Loader, ...] = ()

    def __len__(self) -> int:
        return len(self.start_us)

    @cached_property
    def duration_us(self) -> IntArray:
        """(n,) duration of each event."""
        return self.end_us - self.start_us

    @property
    def span_us(self) -> tuple[int, int] | None:
        """Earliest start and latest end; None without events."""
        return (int(self.start_us[0]), int(self.end_us.max())) if len(self) else None

    def in_lanes(self, wanted: Callable[[Lane], bool]) -> BoolArray:
        """(n,) True for events in a wanted lane."""
        if not self.lanes:
            return np.zeros(0, np.bool_)
        return np.array([wanted(lane) for lane in self.lanes], np.bool_)[self.lane]

    def named(self, wanted: Callable[[str], bool]) -> BoolArray:
        """(n,) True for events with a wanted name."""
        if not self.names:
            return np.zeros(0, np.bool_)
        return np.array([wanted(name) for name in self.names], np.bool_)[self.name]

    def of_node(self, node: str) -> Events:
        """Events of one node, with its lanes and all names."""
        mine = [i for i, lane in enumerate(self.lanes) if lane.node == node]
        if len(mine) == len(self.lanes):
            return self
        number = np.full(len(self.lanes), -1, np.int32)
        number[mine] = np.arange(len(mine), dtype=np.int32)
        found = self.where(number[self.lane] >= 0)
        return replace(
            found,
            lanes=tuple(self.lanes[i] for i in mine),
            lane=number[found.lane],
            loaders=tuple(loader for loader in self.loaders if loader.node == node),
        )

    def where(self, rows: BoolArray | slice) -> Events:
        """Events selected by a mask or a slice."""
        columns = {name: getattr(self, name)[rows] for name in _EVENT_COLUMNS}
        return replace(self, **columns)

    @classmethod
    def joined(cls, tables: Sequence[Events]) -> Events:
        """Events of several tables, with the lanes and names of all."""
        tables = [table for table in tables if len(table)]
        if len(tables) < 2:
            return tables[0] if tables else cls()
        lanes = {lane: i for i, lane in enumerate(dict.fromkeys(one for t in tables for one in t.lanes))}
        names = {name: i for i, name in enumerate(dict.fromkeys(one for t in tables for one in t.names))}
        columns = {
            name: np.concatenate([getattr(table, name) for table in tables]) for name in _EVENT_COLUMNS[2:]
        }
        columns["lane"] = np.concatenate(
            [np.array([lanes[one] for one in t.lanes], np.int32)[t.lane] for t in tables]
        )
        columns["name"] = np.concatenate(
            [np.array([names[one] for one in t.names], np.int32)[t.name] for t in tables]
        )
        order = np.lexsort((columns["end_us"], columns["start_us"]))
        return cls(
            lanes=tuple(lanes),
            names=tuple(names),
            loaders=tuple(loader for table in tables for loader in table.loaders),
            **{name: column[order] for name, column in columns.items()},
        )


_EVENT_COLUMNS = ("lane", "name", "start_us", "end_us", "step", "pid", "thread")
