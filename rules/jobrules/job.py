"""What a rule sees of a training job: samples, steps and when they happened.

Nothing here belongs to one vendor. A reader of any source fills the same tables; a job may have
no CPU samples, no GPU, or nothing but steps. All times are whole microseconds since the Unix
epoch (UTC).
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_P = ParamSpec("_P")
_R = TypeVar("_R")

IntArray = npt.NDArray[np.int64]
#: Numbers into a short list of names.
CodeArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
StrArray = npt.NDArray[np.str_]

SECOND_US = 1_000_000
#: Rows of a panel that are averaged together.
_ROWS = 4096


class Metric(StrEnum):
    """A sampled quantity, named for what it is and not for the tool that sampled it."""

    GPU_USE = "gpu_utilization"
    #: The share of time in which the GPU's memory was read or written, not how much of it is in use.
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
    #: Memory that is in use, and that there is.
    GPU_MEMORY_USED = "gpu_memory_used"
    GPU_MEMORY_TOTAL = "gpu_memory_total"
    GPU_POWER = "gpu_power"
    GPU_POWER_LIMIT = "gpu_power_limit"
    GPU_TEMPERATURE = "gpu_temperature"
    #: Of the processors that compute.
    GPU_CLOCK = "gpu_clock"
    #: Why it is low, 100 while the reason holds: heat, the power limit, the hardware (for heat or another reason).
    GPU_THERMAL_SLOWDOWN = "gpu_thermal_slowdown"
    GPU_POWER_CAP = "gpu_power_cap"
    GPU_HARDWARE_SLOWDOWN = "gpu_hardware_slowdown"
    #: Memory errors since a moment before the job.
    GPU_ECC_CORRECTED = "gpu_ecc_corrected"
    GPU_ECC_UNCORRECTED = "gpu_ecc_uncorrected"

    @property
    def label(self) -> str:
        """The name a reader sees."""
        return _LABELS[self]

    @property
    def of_gpus(self) -> bool:
        """Whether it is sampled of each GPU."""
        return self.name.startswith("GPU_")

    @property
    def unit(self) -> str:
        """``%`` (of one device, 0 to 100), ``B/s``, ``1/s``, ``B``, ``W``, ``°C``, ``MHz``; empty for a count."""
        return _UNITS.get(self, "%")


_LABELS = {
    Metric.GPU_USE: "GPU",
    Metric.GPU_MEMORY: "GPU memory utilisation",
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
    Metric.GPU_MEMORY_USED: "GPU memory in use",
    Metric.GPU_MEMORY_TOTAL: "GPU memory total",
    Metric.GPU_POWER: "GPU power",
    Metric.GPU_POWER_LIMIT: "GPU power limit",
    Metric.GPU_TEMPERATURE: "GPU temperature",
    Metric.GPU_CLOCK: "GPU clock",
    Metric.GPU_THERMAL_SLOWDOWN: "Thermal slowdown",
    Metric.GPU_POWER_CAP: "Held by the power limit",
    Metric.GPU_HARDWARE_SLOWDOWN: "Hardware slowdown",
    Metric.GPU_ECC_CORRECTED: "Corrected memory errors",
    Metric.GPU_ECC_UNCORRECTED: "Uncorrected memory errors",
}
_UNITS = {
    Metric.NETWORK_RECEIVE: "B/s",
    Metric.NETWORK_TRANSMIT: "B/s",
    Metric.PLATFORM_RECEIVE: "B/s",
    Metric.PLATFORM_TRANSMIT: "B/s",
    Metric.DISK_READ: "B/s",
    Metric.DISK_WRITE: "B/s",
    Metric.DISK_OPERATIONS: "1/s",
    Metric.GPU_MEMORY_USED: "B",
    Metric.GPU_MEMORY_TOTAL: "B",
    Metric.GPU_POWER: "W",
    Metric.GPU_POWER_LIMIT: "W",
    Metric.GPU_TEMPERATURE: "°C",
    Metric.GPU_CLOCK: "MHz",
    Metric.GPU_ECC_CORRECTED: "",
    Metric.GPU_ECC_UNCORRECTED: "",
}


class Panel(Struct, frozen=True, kw_only=True, eq=False, dict=True, weakref=True):
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
    #: Quickest where each column lies in one stretch of memory (Fortran's order); no result may depend on it.
    values: FloatArray
    #: Time of the last sample; a few milliseconds past ``time_us[-1]`` where devices are read in turn.
    last_us: int

    @cached_property
    def mean(self) -> FloatArray:
        """(n,) mean over the devices that were sampled in each snapshot."""
        if len(self.devices) == 1:
            return self.values[:, 0]
        mean = np.nanmean if np.isnan(self.values).any() else np.mean
        # Row after row, some rows at a time: the order of adding decides the last digit.
        portions = (self.values[i : i + _ROWS] for i in range(0, len(self.values), _ROWS))
        return np.concatenate([mean(np.ascontiguousarray(rows), axis=1) for rows in portions])

    def where(self, rows: BoolArray) -> Panel | None:
        """The snapshots that a mask chooses, with the devices that have samples in them; none without any."""
        if not rows.any():
            return None
        values = self.values[rows]
        there: BoolArray = np.asarray(~np.isnan(values).all(axis=0))
        time_us = self.time_us[rows]
        return replace(
            self,
            devices=tuple(device for device, kept in zip(self.devices, there.tolist(), strict=True) if kept),
            time_us=time_us,
            snapshot=self.snapshot[rows],
            values=values[:, there],
            last_us=self.last_us if rows[-1] else int(time_us[-1]),
        )

    def series(self, device: int) -> tuple[IntArray, FloatArray]:
        """Times and values of one device (a column number), without the snapshots that lack it."""
        column = self.values[:, device]
        measured = ~np.isnan(column)
        if measured.all():
            return self.time_us, column
        return self.time_us[measured], column[measured]

    @cached_property
    def interval_us(self) -> int:
        """Sampling interval: the median distance of two snapshots, 0 with fewer than two."""
        return int(np.median(np.diff(self.time_us))) if len(self.time_us) > 1 else 0


def _no_ints() -> IntArray:
    return np.empty(0, np.int64)


def _no_codes() -> CodeArray:
    return np.empty(0, np.int32)


#: The node, the training process (its rank or process id on the node) and the phase of steps: ``TRAIN``,
#: ``EVAL``, ``PREDICT`` or ``GLOBAL``.
StepSeries: TypeAlias = tuple[str, str, str]


class Steps(Struct, frozen=True, kw_only=True, eq=False, weakref=True, dict=True):
    """Training steps, one row each, every array of the same length; empty where none were recorded."""

    #: Each once, in natural order.
    series: tuple[StepSeries, ...] = ()
    #: (n,) position in ``series``.
    code: CodeArray = field(default_factory=_no_codes)
    #: (n,) step number, -1 where the source gave none.
    number: IntArray = field(default_factory=_no_ints)
    start_us: IntArray = field(default_factory=_no_ints)
    end_us: IntArray = field(default_factory=_no_ints)

    def __len__(self) -> int:
        return len(self.start_us)

    @cached_property
    def node(self) -> StrArray:
        """(n,) names of nodes."""
        return self._named(0)

    @cached_property
    def worker(self) -> StrArray:
        """(n,) names of training processes."""
        return self._named(1)

    @cached_property
    def phase(self) -> StrArray:
        """(n,) names of phases."""
        return self._named(2)

    def _named(self, part: int) -> StrArray:
        return np.array([one[part] for one in self.series], np.str_)[self.code]

    def where(self, rows: BoolArray) -> Steps:
        """The steps that a mask chooses."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _STEP_COLUMNS})

    def of_node(self, node: str) -> Steps:
        """The steps of one node, with its series."""
        mine = [i for i, (name, _, _) in enumerate(self.series) if name == node]
        found = self.where(np.isin(self.code, mine))
        return replace(found, series=tuple(self.series[i] for i in mine), code=_moved(mine, self)[found.code])

    @property
    def span_us(self) -> tuple[int, int] | None:
        """Earliest start and latest end over all workers; none without steps."""
        return (int(self.start_us.min()), int(self.end_us.max())) if len(self) else None

    @classmethod
    def joined(cls, tables: Sequence[Steps]) -> Steps:
        """The steps of several tables, by start and end."""
        tables = [table for table in tables if len(table)]
        if len(tables) < 2:
            return tables[0] if tables else cls()
        every = sorted({one for table in tables for one in table.series}, key=_series_key)
        place = {one: i for i, one in enumerate(every)}
        columns = {name: np.concatenate([getattr(t, name) for t in tables]) for name in _STEP_COLUMNS[1:]}
        columns["code"] = np.concatenate(
            [np.array([place[one] for one in table.series], np.int32)[table.code] for table in tables]
        )
        order = np.lexsort((columns["end_us"], columns["start_us"]))
        return cls(series=tuple(every), **{name: column[order] for name, column in columns.items()})

    @classmethod
    def of(cls, names: Sequence[StepSeries], code: CodeArray | IntArray, **columns: IntArray) -> Steps:
        """From names in any order, which may be there twice or without a step; ``code`` is a place among them."""
        used = set(np.flatnonzero(np.bincount(code, minlength=len(names))).tolist())
        series = sorted({names[i] for i in used}, key=_series_key)
        place = {one: i for i, one in enumerate(series)}
        moved = np.array([place.get(one, -1) for one in names], np.int32)
        return cls(series=tuple(series), code=moved[code] if len(code) else _no_codes(), **columns)


_STEP_COLUMNS = ("code", "number", "start_us", "end_us")


def _moved(kept: Sequence[int], steps: Steps) -> CodeArray:
    """The new place of each series, where only some are kept."""
    moved = np.full(len(steps.series), -1, np.int32)
    moved[kept] = np.arange(len(kept), dtype=np.int32)
    return moved


def _series_key(series: StepSeries) -> list[Any]:
    return [natural_key(name) for name in series]


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


class Lane(Struct, frozen=True, kw_only=True, order=True):
    """Where events happened: a process and one category of its work."""

    node: str
    #: The process: its rank or process id on the node; empty where the source names none.
    worker: str
    #: The category: ``Forward``, ``cpu_functions``, ``Step:ModeKeys.TRAIN``; for Horovod the tensor.
    phase: str
    source: EventSource


class Loader(Struct, frozen=True, kw_only=True):
    """A data loader as a training process set it up."""

    node: str
    worker: str
    #: Class of its iterator, as ``_MultiProcessingDataLoaderIter``.
    iterator: str
    start_us: int
    #: Loading processes; 0 loads in the training process; none where the source does not say.
    num_workers: int | None
    pin_memory: bool | None


class Events(Struct, frozen=True, kw_only=True, eq=False, dict=True, weakref=True):
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

    def of_node(self, node: str) -> Events:
        """The events of one node, with its lanes and all names."""
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


class Function(Struct, frozen=True, kw_only=True):
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


class Profile(Struct, frozen=True, kw_only=True):
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


class PanelFacts(Struct, frozen=True, kw_only=True):
    """What is known of a panel without its samples."""

    metric: Metric
    devices: tuple[str, ...]
    #: Its first and last sample, and the sampling interval.
    first_us: int
    last_us: int
    interval_us: int
    #: Rows.
    snapshots: int


class PartFacts(Struct, frozen=True, kw_only=True):
    """What is known of a node without its tables."""

    node: str
    #: In the order of ``Metric``.
    panels: tuple[PanelFacts, ...]
    #: How many, and their earliest start and latest end.
    steps: int
    steps_us: tuple[int, int] | None
    events: int
    events_us: tuple[int, int] | None

    @classmethod
    def of(cls, part: Job, node: str) -> PartFacts:
        """The facts of a job that has no other node."""
        return cls(
            node=node,
            panels=tuple(
                PanelFacts(
                    metric=p.metric,
                    devices=p.devices,
                    first_us=int(p.time_us[0]),
                    last_us=p.last_us,
                    interval_us=p.interval_us,
                    snapshots=len(p.time_us),
                )
                for p in part.panels
            ),
            steps=len(part.steps),
            steps_us=part.steps.span_us,
            events=len(part.events),
            events_us=part.events.span_us,
        )

    @property
    def gpus(self) -> frozenset[str]:
        """GPUs of which anything was sampled, their use or not."""
        return frozenset(device for panel in self.panels if panel.metric.of_gpus for device in panel.devices)

    @property
    def samples_us(self) -> tuple[int, int] | None:
        """Times of the first and the last sample; none without samples."""
        return span_of((panel.first_us, panel.last_us) for panel in self.panels)


class Frame(Struct, frozen=True, kw_only=True):
    """What one node's part of a job knows of the whole."""

    #: As of the whole ``Job``.
    name: str
    finished: bool | None
    span_us: tuple[int, int]
    steps_us: tuple[int, int] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """Everything the readers found in one job directory.

    A job is judged node by node: ``each`` hands a function the part of one node after the other, which
    is a ``Job`` too and knows when the whole job began and ended. The tables of a job may lie elsewhere,
    on disk or on other machines; then ``each`` goes there, and asking the whole job for ``panels``,
    ``steps`` or ``events`` brings all of them into memory.
    """

    name: str
    #: Sorted by node, then metric; at most one panel for each pair.
    panels: tuple[Panel, ...] = ()
    steps: Steps = dataclasses.field(default_factory=Steps)
    events: Events = dataclasses.field(default_factory=Events)
    #: Sorted by node, worker and start.
    profiles: tuple[Profile, ...] = ()
    #: What the profiler was told to record, in words, a line each; empty where no file says it.
    recorded: tuple[str, ...] = ()
    #: Whether the job said that it ended; none where its source has no way to say so.
    finished: bool | None = None
    #: Of the part of one node; none for a whole job.
    frame: Frame | None = None

    # Node by node

    @cached_property
    def facts(self) -> tuple[PartFacts, ...]:
        """What is known of every node without its tables, in natural order of their names."""
        return tuple(PartFacts.of(part, node) for node, part in self._by_node.items())

    @cached_property
    def parts(self) -> tuple[Job, ...]:
        """The part of each node, in the order of ``nodes``."""
        frame = Frame(name=self.name, finished=self.finished, span_us=self.span_us, steps_us=self.steps_us)
        return tuple(
            part.framed(frame, facts) for part, facts in zip(self._by_node.values(), self.facts, strict=True)
        )

    def framed(self, frame: Frame, facts: PartFacts) -> Job:
        """The same tables, of one node, as a part of a larger job."""
        part = dataclasses.replace(self, frame=frame, name=frame.name, finished=frame.finished)
        part.__dict__["facts"] = (facts,)
        return part

    def each(
        self, function: Callable[Concatenate[Job, _P], _R], /, *given: _P.args, **named: _P.kwargs
    ) -> list[_R]:
        """The function's answer for each node's part of the job, in the order of ``nodes``.

        The function may run in another process: it, what it is given and what it answers must be
        picklable, and small where that matters.
        """
        return [function(part, *given, **named) for part in self.parts]

    def gathered(
        self,
        function: Callable[Concatenate[Job, _P], Iterable[_R]],
        /,
        *given: _P.args,
        **named: _P.kwargs,
    ) -> list[_R]:
        """All that the function answers for the nodes' parts, as one list."""
        found: list[list[_R]] = self.each(_listed, function, *given, **named)
        return [one for part in found for one in part]

    @cached_property
    def _by_node(self) -> dict[str, Job]:
        nodes = {p.node for p in self.panels} | {lane.node for lane in self.events.lanes}
        nodes |= {node for node, _, _ in self.steps.series}
        if len(nodes) == 1:
            # Not this job itself: it would hold itself, and its tables, until garbage is collected.
            return dict.fromkeys(nodes, dataclasses.replace(self))
        panels: dict[str, list[Panel]] = {}
        for panel in self.panels:
            panels.setdefault(panel.node, []).append(panel)
        return {
            node: dataclasses.replace(
                self,
                panels=tuple(panels.get(node, ())),
                steps=self.steps.of_node(node),
                events=self.events.of_node(node),
                profiles=tuple(p for p in self.profiles if p.node == node),
            )
            for node in natural_sorted(nodes)
        }

    # Facts of the whole

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """All node names, in natural order."""
        return tuple(part.node for part in self.facts)

    def has(self, metric: Metric) -> bool:
        """Whether any node has samples of a metric."""
        return any(panel.metric == metric for part in self.facts for panel in part.panels)

    @property
    def step_count(self) -> int:
        """Recorded steps, of all workers."""
        return sum(part.steps for part in self.facts)

    @property
    def event_count(self) -> int:
        """Recorded events."""
        return sum(part.events for part in self.facts)

    @cached_property
    def samples_us(self) -> tuple[int, int] | None:
        """Times of the first and the last sample; none without samples."""
        return span_of(part.samples_us for part in self.facts)

    @cached_property
    def steps_us(self) -> tuple[int, int] | None:
        """Earliest start and latest end of all steps of the whole job; none without steps."""
        return self.frame.steps_us if self.frame else span_of(part.steps_us for part in self.facts)

    @property
    def events_us(self) -> tuple[int, int] | None:
        """Earliest start and latest end of all events; none without events."""
        return span_of(part.events_us for part in self.facts)

    @property
    def span_us(self) -> tuple[int, int]:
        """First and last moment that anything was recorded in the whole job; (0, 0) without any record."""
        if self.frame:
            return self.frame.span_us
        return span_of((self.samples_us, self.steps_us, self.events_us)) or (0, 0)

    @property
    def interval_us(self) -> float:
        """Median sampling interval of all panels; 0 without samples."""
        return float(np.median([p.interval_us for part in self.facts for p in part.panels] or [0]))

    @property
    def covers_time(self) -> bool:
        """Whether anything was recorded over time; a single snapshot covers none."""
        return any(
            part.steps or part.events or any(p.snapshots > 1 for p in part.panels) for part in self.facts
        )

    @property
    def gpu_count(self) -> int:
        """GPUs with at least one utilisation sample."""
        return sum(len(p.devices) for part in self.facts for p in part.panels if p.metric == Metric.GPU_USE)

    @property
    def gpus_unknown(self) -> int:
        """GPUs of which something was sampled, but never their use."""
        return sum(len(part.gpus) for part in self.facts) - self.gpu_count

    # Tables

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
    def _facts_by_node(self) -> dict[str, PartFacts]:
        return {part.node: part for part in self.facts}

    def loop_us(self, node: str) -> tuple[int, int] | None:
        """First start and last end of the steps of a node, on that node's own clock.

        Of all steps where the node recorded none and its samples cover them; else none: its clock may
        be another.
        """
        part = self._facts_by_node.get(node)
        if part is None or part.steps_us:
            return part.steps_us if part else None
        whole = self.steps_us
        covered = whole and any(p.first_us <= whole[0] and whole[1] <= p.last_us for p in part.panels)
        return whole if covered else None


def _listed(part: Job, function: Callable[..., Iterable[Any]], /, *given: Any, **named: Any) -> list[Any]:
    return list(function(part, *given, **named))


def span_of(spans: Iterable[tuple[int, int] | None]) -> tuple[int, int] | None:
    """From the earliest start to the latest end; none without any span."""
    known = [span for span in spans if span]
    return (min(start for start, _ in known), max(end for _, end in known)) if known else None


_DIGITS = re.compile(r"(\d+)")


def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts ``gpu2`` before ``gpu10``; a number of any length is compared as text."""
    parts = (part.lstrip("0") if i % 2 else part for i, part in enumerate(_DIGITS.split(name)))
    return (*((len(part) if i % 2 else 0, part) for i, part in enumerate(parts)), (0, name))


def natural_sorted(names: set[str] | Sequence[str]) -> tuple[str, ...]:
    """Names in natural order."""
    return tuple(sorted(names, key=natural_key))
