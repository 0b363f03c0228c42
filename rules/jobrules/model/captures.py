"""Captures: what PyTorch's profiler recorded of one process and its devices during a few steps.

A capture is a file. Its times are whole nanoseconds on a clock of its own, so nothing compares those of two captures.
A capture is evidence about its own stretch of time, and no part of the job's tables.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from msgspec import Struct

from jobrules.model.names import CaptureName, GroupName, KernelName, Name, NodeName, OperatorName, OwnText
from jobrules.model.types import Count

#: Why a device was idle, in the order in which causes are drawn.
IdleCause = Literal[
    "between_kernels",
    "launch_latency",
    "host",
    "data_loading",
    "synchronisation",
    "memory_allocation",
    "profiler",
    "device_wait",
    "unlinked",
]
IDLE_CAUSES: tuple[IdleCause, ...] = get_args(IdleCause)
#: The causes that only the host's launching explains, and those that no event of the trace explains.
LAUNCH_BOUND: tuple[IdleCause, ...] = ("host", "launch_latency", "between_kernels")
NOT_EXPLAINED: tuple[IdleCause, ...] = ("device_wait", "unlinked")

#: What a kernel or copy does.
EventClass = Literal["compute", "communication", "copy"]


class Partition(Struct, frozen=True, kw_only=True):
    """The time of a device in parts that add up to the window; each moment is in the first part that holds it."""

    window_ns: Count
    compute_ns: Count
    #: Communication that no computing hides.
    exposed_communication_ns: Count
    #: Copies that neither computing nor communication hides.
    exposed_copies_ns: Count
    idle_ns: Count
    #: By ``IDLE_CAUSES``, of a step without those that are 0; adds up to ``idle_ns``.
    idle_by_cause_ns: dict[IdleCause, Count]


class CaptureStep(Struct, frozen=True, kw_only=True):
    """A step as the host saw it."""

    number: int
    start_ns: int
    end_ns: int

    @property
    def host_ns(self) -> int:
        """Its time, by which steps are compared."""
        return self.end_ns - self.start_ns


class DeviceStep(Partition, frozen=True, kw_only=True):
    """The window of a device that belongs to a step; the windows of all steps add up to that of the device."""

    number: int
    start_ns: int
    #: Device events that the step launched.
    events: Count
    #: Exposed communication in which the rank waited for others; None if its collectives were not matched.
    exposed_waiting_ns: int | None = None


class Kernels(Struct, frozen=True, kw_only=True):
    """All kernels of one name on a device."""

    name: KernelName
    kind: EventClass
    calls: Count
    total_ns: Count
    median_ns: float
    max_ns: int
    #: Whether it uses tensor cores; None if its name does not tell.
    tensor_cores: bool | None
    #: Mean thread blocks per multiprocessor; None where not recorded.
    blocks_per_sm: float | None
    #: Operators that launched most of them, at most two; empty for none.
    operators: tuple[OperatorName, ...] = ()


#: Upper ends of the bins of ``Launches.kernel_bins`` and ``call_bins``, in nanoseconds; the last bin has none.
BIN_ENDS_NS = tuple(one * 10**power for power in range(3, 9) for one in (1, 2, 5))


class Launches(Struct, frozen=True, kw_only=True):
    """Kernels with the calls that launched them."""

    #: Kernels with a launch call and without; copies are in neither.
    linked: int
    unlinked: int
    #: Kernels shorter than their call, and shorter than 10 µs.
    shorter_than_call: int
    below_10_us: int
    #: Medians and 95th percentiles of the kernel, of its call, and of the time from the end of the call to the kernel.
    kernel_ns: tuple[float, float]
    call_ns: tuple[float, float]
    delay_ns: tuple[float, float]
    #: Kernels and copies in the queue of a stream: mean and highest.
    queued_mean: float
    queued_max: int
    #: (19,) kernels by their length, and by that of their calls; of many captures as ``DeviceCapture.kernels``.
    kernel_bins: tuple[int, ...] = ()
    call_bins: tuple[int, ...] = ()


class DeviceCapture(Partition, frozen=True, kw_only=True):
    """One device during a capture; what an aim of the profiler did not record is None."""

    device: int
    #: As the driver names it; empty if the trace does not.
    name: Annotated[str, Name("model")] = ""
    #: Before the first recorded device event of the steps: not judged, because what was launched before is missing.
    lead_in_ns: int
    #: Of the lead-in, what the thread of the steps spent on fetching data.
    lead_in_loading_ns: int
    #: Of the window, on the clock of the capture.
    start_ns: int
    #: Kernels and copies of the device in all the file.
    events: int
    #: Unions within the window: communication, copies, all events, and kernels alone (what nvidia-smi calls utilization).
    communication_ns: int
    copies_ns: int
    busy_ns: int
    kernel_busy_ns: int
    #: Exposed copies from or to pageable host memory.
    exposed_pageable_ns: int = 0
    #: Idle time during memory allocation after the first step; without steps, of waits that begin in a tenth
    #: of the window at most what the median tenth has.
    late_allocation_ns: int = 0
    #: Whether idle causes can be told: False if too many launches are missing.
    complete: bool
    #: The first 200; of many captures as ``Capture.step_times``.
    steps: tuple[DeviceStep, ...] = ()
    #: Number of the last step if it is cut short; it takes no part in statistics.
    incomplete_step: int | None = None
    launches: Launches | None = None
    #: The names with most time, at most 25, and number, calls, and time of all names.
    kernels: tuple[Kernels, ...] = ()
    kernel_names: int = 0
    kernel_calls: int = 0
    kernel_total_ns: int = 0
    #: Sums over computing kernels: all, those with tensor cores, and those known to have none.
    compute_total_ns: int = 0
    tensor_core_ns: int = 0
    no_tensor_core_ns: int = 0
    #: Estimates of the profiler over the window; None where not recorded.
    sm_efficiency_percent: float | None = None
    occupancy_percent: float | None = None
    #: Exposed communication in parts, if collectives of several ranks were matched: transferring, waiting for other
    #: ranks, and not matched.
    exposed_transfer_ns: int | None = None
    exposed_waiting_ns: Count | None = None
    not_matched_ns: int | None = None

    @property
    def first_allocation_ns(self) -> int:
        """Idle time during memory allocation that does not recur."""
        return self.idle_by_cause_ns.get("memory_allocation", 0) - self.late_allocation_ns

    @property
    def overlap_percent(self) -> float | None:
        """The share of communication that computing hides; None without communication."""
        hidden = self.communication_ns - self.exposed_communication_ns
        return 100 * hidden / self.communication_ns if self.communication_ns else None


class Operators(Struct, frozen=True, kw_only=True):
    """All calls of one operator, or of one mark, on the host."""

    name: OperatorName
    calls: Count
    #: Its time without and with what it calls.
    self_ns: Count
    total_ns: Count
    #: Device events launched in it, without and with what it calls.
    device_self_ns: int
    device_total_ns: int


class HostPart(Struct, frozen=True, kw_only=True):
    """Idle time of devices that the host spent in one operator or mark; an empty name is outside of all (Python)."""

    name: OperatorName
    time_ns: int


class MemoryCurve(Struct, frozen=True, kw_only=True):
    """Memory of one device that PyTorch's allocator gave out, over the capture."""

    device: int
    #: Whether all that was allocated is known; if not, ``allocated`` counts from the start of the capture.
    has_totals: bool
    #: Bytes: highest, and when.
    allocated_peak: int
    allocated_peak_ns: int
    #: None where not recorded.
    reserved_peak: int | None
    reserved_peak_ns: int | None
    #: Percent of the reserved memory that was not allocated, when most was reserved.
    fragmentation_percent: float | None
    #: Size of the memory; None if the trace does not say.
    total: int | None
    #: At most 200 columns of equal time: lowest and highest value of each; empty but for the fullest devices.
    start_ns: int
    end_ns: int
    allocated: tuple[tuple[int, int], ...]
    reserved: tuple[tuple[int, int], ...]


#: What a bar of ``StepLines`` is.
BAR_KINDS = (
    "compute",
    "communication",
    "copy",
    "data_loading",
    "marks",
    "launch",
    "synchronization",
    "allocation",
)


class StepLane(Struct, frozen=True, kw_only=True):
    """One line of ``StepLines``."""

    #: ``data_loading``, ``marks`` (those of the user's program that lie in no other), ``launches`` (calls of the runtime),
    #: or ``device 0`` and so on for a stream.
    kind: OwnText
    #: Of the stream; empty for others.
    name: Annotated[str, Name("stream")]
    events: int
    #: Time in which any of them ran.
    covered_ns: int


class StepLines(Struct, frozen=True, kw_only=True):
    """The slowest step of a capture in full detail."""

    number: int
    start_ns: int
    end_ns: int
    #: Unit of the bars.
    tick_ns: int
    #: Events of one kind that are shorter than this, and begin in the same stretch of that length, are one bar.
    cell_ns: int
    #: From top to bottom.
    lanes: tuple[StepLane, ...]
    #: Names of bars.
    names: tuple[KernelName, ...]
    #: (n, 6) int32, little endian: position in ``lanes``, start and length in ticks, position in ``BAR_KINDS`` and in
    #: ``names`` (-1 for several names), events. At most 2,000 rows.
    bars: bytes


class Capture(Struct, frozen=True, kw_only=True):
    """What one file recorded.

    Of more than 64 captures, only 64 have tables by name (operators, marks, kernels with lengths of launches, parts of the
    host), memory, and times of steps: those whose devices computed least or most, those with most memory, and those whose
    own time per step differs most from that of the others, with 32 that are spread over the others.
    """

    file: CaptureName
    #: None if the trace does not say.
    rank: int | None
    world_size: int | None
    host: NodeName
    #: Nanoseconds since the epoch of time 0; None if the clock does not count from it.
    base_ns: int | None
    #: First and last moment of any event that is in use.
    start_ns: int
    end_ns: int
    #: Number of recorded steps; without any, why: ``other_process`` or ``overlapping``, or empty.
    steps: Count
    no_steps: OwnText = ""
    #: Marks of steps that processes without launches made; not in use.
    steps_elsewhere: int = 0
    #: The first 200; empty for most of many captures.
    step_times: tuple[CaptureStep, ...] = ()
    devices: tuple[DeviceCapture, ...] = ()
    #: The 25 names with most time of their own on the host and the 25 on devices, by the first; and the number of names
    #: and calls of all.
    operators: tuple[Operators, ...] = ()
    operator_names: int = 0
    operator_calls: int = 0
    #: Marks of the user's program with most time, at most 25.
    marks: tuple[Operators, ...] = ()
    #: Device events launched outside of all operators; those without a launch are in no operator and not here.
    no_operator_ns: int = 0
    #: What the host did while devices were idle for it, most time first, at most 10.
    host_parts: tuple[HostPart, ...] = ()
    #: Fetching of batches by PyTorch's loader: calls, their time, and the names of the marks.
    loader_calls: int = 0
    loader_ns: int = 0
    loader_names: tuple[OperatorName, ...] = ()
    #: Blocking calls: name and number, most frequent first.
    blocking_calls: tuple[tuple[OwnText, int], ...] = ()
    memory: tuple[MemoryCurve, ...] = ()
    #: Time of the profiler itself, and whether it recorded any of it.
    overhead_ns: int = 0
    has_overhead: bool = False
    #: Settings of the profiler: ``record_shapes``, ``with_stack``, …; and calls of Python functions.
    recorded: tuple[OwnText, ...] = ()
    python_calls: int = 0
    versions: dict[OwnText, OwnText] = {}
    #: From CUDA's properties of the first device in use; None where not recorded.
    compute_major: int | None = None
    memory_bytes: int | None = None
    #: Its slowest step; None without steps, and for most of many captures.
    step_lines: StepLines | None = None
    #: Another file of the same rank and the same events: this one takes no part in anything.
    copy_of: CaptureName = ""

    @property
    def span_us(self) -> tuple[int, int] | None:
        """Its time since the epoch; None if its clock does not count from it."""
        if self.base_ns is None:
            return None
        return (self.base_ns + self.start_ns) // 1000, (self.base_ns + self.end_ns) // 1000


class CollectiveTable(Struct, frozen=True, kw_only=True):
    """All collectives of one kind, type, size, and group."""

    #: ``allreduce``, ``reducescatter``, ``allgather``, ``alltoall``, ``broadcast``, ``reduce``, ``p2p``, …
    kind: OwnText
    dtype: Annotated[str, Name("type")]
    #: Bytes of each; None where the trace does not say.
    bytes: int | None
    #: Ranks that take part; None where the trace does not say.
    group_size: int | None
    group: GroupName
    #: Those of all ranks, or of one rank if they are not matched.
    calls: int
    total_bytes: int | None
    #: Time without waiting: the shortest of all ranks. With one rank an upper bound.
    median_transfer_ns: float
    #: Longest minus shortest duration; None with one rank.
    median_skew_ns: float | None
    #: Gigabytes (10^9) per second, by the medians; a lower bound with one rank.
    algorithm_bandwidth: float | None
    bus_bandwidth: float | None


class RankWaiting(Struct, frozen=True, kw_only=True):
    """What one rank has to do with the waiting of all."""

    rank: int
    #: Exposed waiting of this rank for others, and of others for it.
    suffered_ns: int
    caused_ns: Count
    #: Matched collectives that it was the last to join, by more than 10 µs and 5% of the transfer.
    last: int


class StepOfRanks(Struct, frozen=True, kw_only=True):
    """One step of all captures by own time: the step without exposed waiting for other ranks."""

    number: int
    #: Captures that recorded it.
    captures: int
    shortest_ns: int
    median_ns: float
    longest_ns: int
    #: None if the trace does not say.
    longest_on: int | None


class SkewColumn(Struct, frozen=True, kw_only=True):
    """Collectives that began in one of equal stretches of time: longest minus shortest duration over the ranks."""

    #: From the start of the window of the first rank.
    start_ns: int
    calls: int
    median_ns: float
    longest_ns: int
    #: The rank that arrived last in the one with the longest.
    last: int


class Skew(Struct, frozen=True, kw_only=True):
    """Skew over the capture, of the group whose ranks waited most."""

    group: GroupName
    ranks: int
    column_ns: int
    #: At most 100, without those that hold no collective.
    columns: tuple[SkewColumn, ...]


class AcrossRanks(Struct, frozen=True, kw_only=True):
    """What captures of several ranks say together, without comparing their clocks.

    A collective's transfer is its shortest duration over the ranks; what it lasts beyond that on a rank is waiting, and
    the rank with the shortest one arrived last.
    """

    #: Ranks with a capture that takes part; and ranks of the job, None if no capture says it.
    ranks: tuple[int, ...]
    world_size: int | None
    #: Files of captures that were recorded at other times than those of all other ranks, and take no part.
    alone: tuple[CaptureName, ...]
    #: Collectives that were found on all ranks at hand; and calls, each on one rank, that belong to none of these.
    matched: int
    not_matched: int
    #: Why nothing is matched: ``one_rank``, ``not_synchronizing`` (no kind of collective that makes ranks wait),
    #: ``counts`` (the ranks have other numbers of collectives); else empty.
    reason: OwnText
    #: Time of all windows together.
    window_ns: int
    waiting: tuple[RankWaiting, ...]
    collectives: tuple[CollectiveTable, ...]
    #: None if nothing is matched.
    skew: Skew | None = None
    #: The first 200 that more than one capture recorded.
    steps: tuple[StepOfRanks, ...] = ()
