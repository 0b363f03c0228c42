"""What a rule sees of a training job: samples, steps and when they happened.

Nothing here belongs to one vendor. A reader of any source fills the same tables; a job may have
no CPU samples, no GPU, or nothing but steps. All times are whole microseconds since the Unix
epoch (UTC).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

IntArray = npt.NDArray[np.int64]
#: Numbers into a short list of names.
CodeArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
StrArray = npt.NDArray[np.str_]

SECOND_US = 1_000_000


class Metric(StrEnum):
    """A sampled quantity, named for what it is and not for the tool that sampled it."""

    GPU_USE = "gpu_utilization"
    GPU_MEMORY = "gpu_memory"
    CPU_USE = "cpu_utilization"
    IO_WAIT = "io_wait"
    MEMORY = "memory"
    NETWORK_RECEIVE = "network_receive"
    NETWORK_TRANSMIT = "network_transmit"
    PLATFORM_RECEIVE = "platform_receive"
    PLATFORM_TRANSMIT = "platform_transmit"
    DISK_READ = "disk_read"
    DISK_WRITE = "disk_write"
    DISK_OPERATIONS = "disk_operations"

    @property
    def label(self) -> str:
        """The name a reader sees."""
        return _LABELS[self]

    @property
    def unit(self) -> str:
        """``%`` (of one device, 0 to 100), ``B/s`` or ``1/s``."""
        return _UNITS.get(self, "%")


_LABELS = {
    Metric.GPU_USE: "GPU",
    Metric.GPU_MEMORY: "GPU memory",
    Metric.CPU_USE: "CPU",
    Metric.IO_WAIT: "I/O wait",
    Metric.MEMORY: "CPU memory",
    Metric.NETWORK_RECEIVE: "Network receive",
    Metric.NETWORK_TRANSMIT: "Network transmit",
    Metric.PLATFORM_RECEIVE: "Platform receive",
    Metric.PLATFORM_TRANSMIT: "Platform transmit",
    Metric.DISK_READ: "Disk read",
    Metric.DISK_WRITE: "Disk write",
    Metric.DISK_OPERATIONS: "Disk operations",
}
_UNITS = {
    Metric.NETWORK_RECEIVE: "B/s",
    Metric.NETWORK_TRANSMIT: "B/s",
    Metric.PLATFORM_RECEIVE: "B/s",
    Metric.PLATFORM_TRANSMIT: "B/s",
    Metric.DISK_READ: "B/s",
    Metric.DISK_WRITE: "B/s",
    Metric.DISK_OPERATIONS: "1/s",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """All samples of one metric on one node: a row a snapshot, a column a device.

    A snapshot is what a sampler read "at the same moment"; the reader says how close that is.
    """

    node: str
    metric: Metric
    #: Device names in natural order (``gpu0`` … ``gpu15``); one name for a metric of the whole node.
    devices: tuple[str, ...]
    #: (n,) time of the first sample of each snapshot, strictly ascending, n ≥ 1.
    time_us: IntArray
    #: (n,) number of the snapshot on this node, shared by all metrics of the node, strictly ascending.
    snapshot: IntArray
    #: (n, devices) in ``metric.unit``; NaN where a device gave no sample. No row and no column is all NaN.
    values: FloatArray
    #: Time of the last sample; a few milliseconds past ``time_us[-1]`` where devices are read in turn.
    last_us: int

    @cached_property
    def mean(self) -> FloatArray:
        """(n,) mean over the devices that were sampled in each snapshot."""
        if len(self.devices) == 1:
            return self.values[:, 0]
        if np.isnan(self.values).any():
            return np.asarray(np.nanmean(self.values, axis=1))
        return np.asarray(self.values.mean(axis=1))

    def series(self, device: int) -> tuple[IntArray, FloatArray]:
        """Times and values of one device (a column number), without the snapshots that lack it."""
        column = self.values[:, device]
        measured = ~np.isnan(column)
        if measured.all():
            return self.time_us, column
        return self.time_us[measured], column[measured]

    @property
    def interval_us(self) -> int:
        """Sampling interval: the median distance of two snapshots, 0 with fewer than two."""
        return int(np.median(np.diff(self.time_us))) if len(self.time_us) > 1 else 0


def _no_ints() -> IntArray:
    return np.empty(0, np.int64)


def _no_names() -> StrArray:
    return np.empty(0, np.str_)


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """Training steps, one row each, every array of the same length; empty where none were recorded."""

    node: StrArray = field(default_factory=_no_names)
    #: The training process: its rank or process id on the node.
    worker: StrArray = field(default_factory=_no_names)
    #: ``TRAIN``, ``EVAL``, ``PREDICT`` or ``GLOBAL``.
    phase: StrArray = field(default_factory=_no_names)
    #: Step number, -1 where the source gave none.
    number: IntArray = field(default_factory=_no_ints)
    start_us: IntArray = field(default_factory=_no_ints)
    end_us: IntArray = field(default_factory=_no_ints)

    def __len__(self) -> int:
        return len(self.start_us)

    def where(self, rows: BoolArray) -> Steps:
        """The steps that a mask chooses."""
        return replace(self, **{one.name: getattr(self, one.name)[rows] for one in fields(self)})

    @property
    def span_us(self) -> tuple[int, int] | None:
        """Earliest start and latest end over all workers; none without steps."""
        return (int(self.start_us.min()), int(self.end_us.max())) if len(self) else None


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


@dataclass(frozen=True, kw_only=True, order=True)
class Lane:
    """Where events happened: a process and one category of its work."""

    node: str
    #: The process: its rank or process id on the node; empty where the source names none.
    worker: str
    #: The category: ``Forward``, ``cpu_functions``, ``Step:ModeKeys.TRAIN``; for Horovod the tensor.
    phase: str
    source: EventSource


@dataclass(frozen=True, kw_only=True)
class Loader:
    """A data loader as a training process set it up."""

    node: str
    worker: str
    #: Class of its iterator, as ``_MultiProcessingDataLoaderIter``.
    iterator: str
    start_us: int
    #: Loading processes; 0 loads in the training process; none where the source does not say.
    num_workers: int | None
    pin_memory: bool | None


def _no_codes() -> CodeArray:
    return np.empty(0, np.int32)


@dataclass(frozen=True, kw_only=True, eq=False)
class Events:
    """What processes did from when to when, one row an event, each event once.

    Sorted by start, then end; every array has the same length. Steps are events too, and stand in
    ``Job.steps`` besides.
    """

    lanes: tuple[Lane, ...] = ()
    #: Names of operators, functions, modules.
    names: tuple[str, ...] = ()
    #: (n,) position in ``lanes`` and in ``names``.
    lane: CodeArray = field(default_factory=_no_codes)
    name: CodeArray = field(default_factory=_no_codes)
    start_us: IntArray = field(default_factory=_no_ints)
    #: (n,) never before the start.
    end_us: IntArray = field(default_factory=_no_ints)
    #: (n,) number of the step, process id of the operating system, and thread; -1 where not given.
    step: IntArray = field(default_factory=_no_ints)
    pid: IntArray = field(default_factory=_no_ints)
    thread: IntArray = field(default_factory=_no_ints)
    loaders: tuple[Loader, ...] = ()

    def __len__(self) -> int:
        return len(self.start_us)

    @cached_property
    def duration_us(self) -> IntArray:
        """(n,) how long each event lasted."""
        return self.end_us - self.start_us

    @property
    def span_us(self) -> tuple[int, int] | None:
        """Earliest start and latest end; none without events."""
        return (int(self.start_us[0]), int(self.end_us.max())) if len(self) else None

    def in_lanes(self, wanted: Callable[[Lane], bool]) -> BoolArray:
        """(n,) which events happened in a wanted lane."""
        if not self.lanes:
            return np.zeros(0, np.bool_)
        return np.array([wanted(lane) for lane in self.lanes], np.bool_)[self.lane]

    def named(self, wanted: Callable[[str], bool]) -> BoolArray:
        """(n,) which events have a wanted name."""
        if not self.names:
            return np.zeros(0, np.bool_)
        return np.array([wanted(name) for name in self.names], np.bool_)[self.name]

    def where(self, rows: BoolArray) -> Events:
        """The events that a mask chooses."""
        columns = {name: getattr(self, name)[rows] for name in _EVENT_COLUMNS}
        return replace(self, **columns)

    @classmethod
    def joined(cls, tables: Sequence[Events]) -> Events:
        """The events of several tables, each with its own lanes and names."""
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


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function in a profile of Python code."""

    #: Where it is defined; empty and 0 for what is built in.
    file: str
    line: int
    name: str
    #: None where the profiler takes samples and does not count.
    calls: int | None
    #: Seconds in the function itself, and with all it called.
    self_s: float
    total_s: float


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Where a process's Python code spent a stretch of time."""

    node: str
    worker: str
    #: ``cProfile`` or ``Pyinstrument``.
    profiler: str
    start_us: int
    end_us: int
    #: Where it began and ended in words: "train step 9, step start".
    begin: str
    end: str
    #: Most self time first, 25 at most.
    functions: tuple[Function, ...]
    #: Functions in the file, and their self time in all.
    count: int
    self_s: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """Everything the readers found in one job directory."""

    name: str
    #: Sorted by node, then metric; at most one panel for each pair.
    panels: tuple[Panel, ...] = ()
    steps: Steps = field(default_factory=Steps)
    events: Events = field(default_factory=Events)
    #: Sorted by node, worker and start.
    profiles: tuple[Profile, ...] = ()
    #: What the profiler was told to record, in words, a line each; empty where no file says it.
    recorded: tuple[str, ...] = ()
    #: Whether the job said that it ended; none where its source has no way to say so.
    finished: bool | None = None

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """All node names, in natural order."""
        others = set(np.unique(self.steps.node).tolist()) | {lane.node for lane in self.events.lanes}
        return natural_sorted({p.node for p in self.panels} | others)

    def panel(self, node: str, metric: Metric) -> Panel | None:
        """The samples of a metric on a node, or none if there are none."""
        return self._by_key.get((node, metric))

    def panels_of(self, metric: Metric) -> tuple[Panel, ...]:
        """The samples of a metric on every node that has them."""
        return tuple(p for p in self.panels if p.metric == metric)

    @cached_property
    def _by_key(self) -> dict[tuple[str, Metric], Panel]:
        return {(p.node, p.metric): p for p in self.panels}

    @cached_property
    def samples_us(self) -> tuple[int, int] | None:
        """Times of the first and the last sample; none without samples."""
        if not self.panels:
            return None
        return min(int(p.time_us[0]) for p in self.panels), max(p.last_us for p in self.panels)

    @cached_property
    def span_us(self) -> tuple[int, int]:
        """First and last moment that anything was recorded; (0, 0) for a job without any record."""
        spans = [span for span in (self.samples_us, self.steps.span_us, self.events.span_us) if span]
        if not spans:
            return 0, 0
        return min(start for start, _ in spans), max(end for _, end in spans)

    @property
    def covers_time(self) -> bool:
        """Whether anything was recorded over time; a single snapshot covers none."""
        return len(self.steps) + len(self.events) > 0 or any(len(p.time_us) > 1 for p in self.panels)

    def loop_us(self, node: str) -> tuple[int, int] | None:
        """First start and last end of the steps of a node, on that node's own clock.

        Of all steps where the node recorded none and its samples cover them; else none: its clock may
        be another.
        """
        mine = self.steps.node == node
        if not mine.any():
            whole = self.steps.span_us
            own = [p for p in self.panels if p.node == node]
            covered = whole and any(p.time_us[0] <= whole[0] and whole[1] <= p.last_us for p in own)
            return whole if covered else None
        return int(self.steps.start_us[mine].min()), int(self.steps.end_us[mine].max())

    @property
    def gpu_count(self) -> int:
        """GPUs with at least one utilisation sample."""
        return sum(len(p.devices) for p in self.panels_of(Metric.GPU_USE))


_DIGITS = re.compile(r"(\d+)")


def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts ``gpu2`` before ``gpu10``; a number of any length is compared as text."""
    parts = (part.lstrip("0") if i % 2 else part for i, part in enumerate(_DIGITS.split(name)))
    return (*((len(part) if i % 2 else 0, part) for i, part in enumerate(parts)), (0, name))


def natural_sorted(names: set[str] | Sequence[str]) -> tuple[str, ...]:
    """Names in natural order."""
    return tuple(sorted(names, key=natural_key))
