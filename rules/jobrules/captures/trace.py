"""The events of one capture as columns: what a reader makes of a trace file, and ``capture_of`` reduces.

All times are whole nanoseconds on the clock of the file; intervals are half open. Names, threads, and streams are
positions in lists of the ``Trace``. A trace never travels: it is reduced to a ``Capture`` in the process that read it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from jobrules.captures.kinds import ALLOCATION, BLOCKING, LOADER, STEP, matching

if TYPE_CHECKING:
    from jobrules.model import BoolArray, CodeArray, IntArray

#: Stands for a missing correlation, as a trace itself writes it.
NO_CORRELATION = 0
#: Stands for a device, number, or position that is not given.
NOT_GIVEN = -1


def _no_ints() -> IntArray:
    return np.empty(0, np.int64)


def _no_codes() -> CodeArray:
    return np.empty(0, np.int32)


def _no_floats() -> npt.NDArray[np.float32]:
    return np.empty(0, np.float32)


def _no_flags() -> BoolArray:
    return np.empty(0, np.bool_)


class HostCalls(Struct, frozen=True, kw_only=True, eq=False):
    """Operators, marks, calls of the runtime, or overhead of the profiler on threads of the host.

    Sorted by thread, then start, the longest first.
    """

    name: CodeArray = field(default_factory=_no_codes)
    thread: CodeArray = field(default_factory=_no_codes)
    start_ns: IntArray = field(default_factory=_no_ints)
    end_ns: IntArray = field(default_factory=_no_ints)
    #: Of calls of the runtime: by it device events find their launch.
    correlation: IntArray = field(default_factory=_no_ints)

    def __len__(self) -> int:
        return len(self.start_ns)


class DeviceEvents(Struct, frozen=True, kw_only=True, eq=False):
    """Kernels and copies, sorted by device, then start; of equal starts by end, stream, and correlation."""

    name: CodeArray = field(default_factory=_no_codes)
    #: Number of the device in the process that recorded it.
    device: CodeArray = field(default_factory=_no_codes)
    #: Position in ``Trace.streams``.
    stream: CodeArray = field(default_factory=_no_codes)
    start_ns: IntArray = field(default_factory=_no_ints)
    end_ns: IntArray = field(default_factory=_no_ints)
    correlation: IntArray = field(default_factory=_no_ints)
    #: Whether the trace itself calls it a copy.
    copy: BoolArray = field(default_factory=_no_flags)
    #: NaN where not recorded.
    blocks_per_sm: npt.NDArray[np.float32] = field(default_factory=_no_floats)
    occupancy_percent: npt.NDArray[np.float32] = field(default_factory=_no_floats)
    #: Whether a graph launched it.
    of_graph: BoolArray = field(default_factory=_no_flags)
    #: Position in ``Trace.collectives``, ``NOT_GIVEN`` for most.
    collective: CodeArray = field(default_factory=_no_codes)

    def __len__(self) -> int:
        return len(self.start_ns)


class MemoryEvents(Struct, frozen=True, kw_only=True, eq=False):
    """What the allocator of PyTorch gave and took back, in the order of the file."""

    #: 0 for the host; 1 CUDA, 6 HIP, 12 XPU, 19 MTIA.
    device_type: CodeArray = field(default_factory=_no_codes)
    device: CodeArray = field(default_factory=_no_codes)
    time_ns: IntArray = field(default_factory=_no_ints)
    #: Negative for memory that is given back.
    bytes: IntArray = field(default_factory=_no_ints)
    #: All that is allocated and reserved after it; ``NOT_GIVEN`` where not recorded.
    allocated: IntArray = field(default_factory=_no_ints)
    reserved: IntArray = field(default_factory=_no_ints)

    def __len__(self) -> int:
        return len(self.time_ns)


class CollectiveArgs(Struct, frozen=True, kw_only=True):
    """What a kernel or an operator says of its collective; None or empty where it does not."""

    name: str = ""
    in_elements: int | None = None
    out_elements: int | None = None
    dtype: str = ""
    group_size: int | None = None
    group_name: str = ""
    group_description: str = ""
    group_ranks: str = ""
    rank: int | None = None
    sequence: int | None = None
    #: A number beyond 64 bits, kept as text.
    communicator: str = ""


class DeviceProperties(Struct, frozen=True, kw_only=True):
    """A device of the machine, as the trace describes it; None for what it does not."""

    device: int
    name: str = ""
    memory_bytes: int | None = None
    #: Of CUDA: 7 and higher has tensor cores.
    compute_major: int | None = None


class Head(Struct, frozen=True, kw_only=True):
    """What a trace says of itself."""

    rank: int | None = None
    #: The rank in the name of its file.
    named_rank: int | None = None
    world_size: int | None = None
    host: str = ""
    #: Nanoseconds since the epoch of time 0; None if the file does not say.
    base_ns: int | None = None
    devices: tuple[DeviceProperties, ...] = ()
    #: Versions of CUDA, HIP, and their profilers, by the trace's own words.
    versions: dict[str, str] = {}
    #: What was switched on: ``record_shapes``, ``profile_memory``, ``with_stack``, ``with_modules``, ``with_flops``.
    recorded: tuple[str, ...] = ()


class Trace(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The events of one file."""

    head: Head = Head()
    names: tuple[str, ...] = ()
    #: Process and thread, as the file numbers them.
    threads: tuple[tuple[str, str], ...] = ()
    streams: tuple[str, ...] = ()
    collectives: tuple[CollectiveArgs, ...] = ()
    device_events: DeviceEvents = DeviceEvents()
    #: Calls of the runtime and driver that launched a device event of the trace, or block, or allocate.
    launches: HostCalls = HostCalls()
    #: Threads with calls of the runtime or driver, of any kind.
    launching: frozenset[int] = frozenset()
    operators: HostCalls = HostCalls()
    marks: HostCalls = HostCalls()
    overhead: HostCalls = HostCalls()
    #: Operators that say what a collective is: in place of a name the position in ``collectives``.
    param_comms: HostCalls = HostCalls()
    memory: MemoryEvents = MemoryEvents()
    #: Calls of Python functions: only counted.
    python_calls: int = 0
    #: Whether device events of one stream overlap by design, as on MTIA.
    overlapping_streams: bool = False

    @cached_property
    def steps(self) -> BoolArray:
        """(names,) which marks and operators are steps."""
        return matching(self.names, STEP, self.marks.name, self.operators.name)

    @cached_property
    def loads(self) -> BoolArray:
        """(names,) which marks and operators load data."""
        return matching(self.names, LOADER, self.marks.name, self.operators.name)

    @cached_property
    def blocks(self) -> BoolArray:
        """(names,) which launches block."""
        return matching(self.names, BLOCKING, self.launches.name)

    @cached_property
    def allocates(self) -> BoolArray:
        """(names,) which launches allocate memory, or give it back."""
        return matching(self.names, ALLOCATION, self.launches.name)
