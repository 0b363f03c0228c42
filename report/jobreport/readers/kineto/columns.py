"""From the events of a trace file to the columns of a ``Trace``."""

from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal, InvalidOperation
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jobreport.readers.columns import GrowingTable, Positions, Table, short_name, whole_number
from jobreport.readers.kineto.event import Args, Event
from jobrules.captures.kinds import PARAM_COMMS
from jobrules.captures.trace import (
    NO_CORRELATION,
    NOT_GIVEN,
    CollectiveArgs,
    DeviceEvents,
    HostCalls,
    MemoryEvents,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally
    from jobrules.model import BoolArray, CodeArray, IntArray

KERNEL, COPY, LAUNCH, OPERATOR, MARK, OVERHEAD = "kernel", "copy", "launch", "operator", "mark", "overhead"
#: What is only counted: codes of remarks.
_PYTHON, _SYNC, _UNKNOWN_WAIT, _NO_WORK, _UNKNOWN = (
    "kineto.python_call",
    "kineto.synchronization",
    "kineto.unknown_wait",
    "kineto.no_work",
    "kineto.category",
)
#: Category, in lower case: what its events are.
_KINDS = {
    **dict.fromkeys(("kernel", "mtia_ccp_events"), KERNEL),
    **dict.fromkeys(("gpu_memcpy", "gpu_memset", "memcpy", "memset"), COPY),
    **dict.fromkeys(
        (
            "cuda_runtime",
            "cuda_driver",
            "runtime",
            "hip_runtime",
            "xpu_runtime",
            "xpu_driver",
            "mtia_runtime",
            "glow_runtime",
            "privateuse1_runtime",
            "privateuse1_driver",
        ),
        LAUNCH,
    ),
    **dict.fromkeys(("cpu_op", "operator"), OPERATOR),
    "user_annotation": MARK,
    "overhead": OVERHEAD,
    "python_function": _PYTHON,
    **dict.fromkeys(("cuda_sync", "cuda_event", "xpu_sync"), _SYNC),
    **dict.fromkeys(
        (
            "gpu_user_annotation",
            "trace",
            "mtia_insight",
            "collective_comm",
            "cuda_profiler_range",
            "hpu_op",
            "external_correlation",
        ),
        _NO_WORK,
    ),
}
KNOWN_CATEGORIES = frozenset(_KINDS)
#: Of which streams overlap by design.
_OVERLAPPING = "mtia_ccp_events"
_MEMORY = "[memory]"
#: Remarks on events that are no intervals, by their ``ph``.
_NO_INTERVALS: dict[str | None, str] = {
    **dict.fromkeys("stf", "kineto.flow"),
    "C": "kineto.counter",
    **dict.fromkeys("iI", "kineto.instant"),
    "M": "kineto.naming",
    None: "kineto.no_type",
}

#: By what device events are sorted, the last one first.
DEVICE_ORDER = ("correlation", "stream", "end_ns", "start_ns", "device")

#: Longer names are cut: those of templates have many kilobytes.
MAX_NAME = 512
_name = partial(short_name, longest=MAX_NAME)
_MAX_CATEGORY = 60
_MAX_US = 2.0**53
_MAX_DURATION_NS = 7 * 24 * 3600 * 10**9
_NS = Decimal(1000)
_NAN = float("nan")
_INT64 = 2**63
_INT32 = 2**31
_NO_ARGS = Args()
#: Types of a value; ``int | float`` where they are asked for would be made anew for each event.
_NUMBERS, _KEYS = (int, float), (int, str)


class _ByCategory(dict[str | None, list[Event]]):
    """Events by category; categories of one kind share a list, so that these stay in the order of the file."""

    def __init__(self) -> None:
        super().__init__()
        self.of_kind: defaultdict[str, list[Event]] = defaultdict(list)

    def __missing__(self, category: str | None) -> list[Event]:
        self[category] = self.of_kind[_KINDS.get((category or "").lower(), _UNKNOWN)]
        return self[category]


def _in_order(columns: dict[str, Any], rows: IntArray) -> dict[str, Any]:
    """Columns in another order; each is freed once it is copied."""
    return {key: columns.pop(key)[rows] for key in list(columns)}


class Columns:
    """The events of a trace file, which are added block by block."""

    def __init__(self, file: SourceFile, tally: Tally) -> None:
        self.names = Positions(_name, MAX_NAME)
        self.threads = Positions(lambda key: tuple("" if one is None else _name(str(one)) for one in key))
        self.streams = Positions(lambda key: _name(str(key)), MAX_NAME)
        self.collectives = Positions()
        self.counts: Counter[str] = Counter()
        #: Events in use.
        self.rows = 0
        self.overlapping_streams = False
        self._file, self._tally = file, tally
        self._tables: defaultdict[str, GrowingTable] = defaultdict(GrowingTable)
        self._block: Sequence[Event] = ()
        self._first = 0
        self._places: dict[int, int] = {}
        self._first_of: dict[str, int] = {}

    def add(self, events: Sequence[Event], first: int) -> None:
        """Add events, of which the first is value number ``first`` of the file's list."""
        self._block, self._first, self._places = events, first, {}
        of_category = _ByCategory()
        of_type: defaultdict[str | None, list[Event]] = defaultdict(list)
        for event in events:
            if event.ph == "X":
                of_category[event.cat].append(event)
            else:
                of_type[event.ph].append(event)
        for kind, some in of_category.of_kind.items():
            if kind in (KERNEL, COPY):
                self._add_device_events(kind, some)
            elif kind == _UNKNOWN:
                for event in some:
                    self._note(kind, event, name=(event.cat or "")[:_MAX_CATEGORY])
            elif kind == _SYNC:
                self._count_waits(some)
            elif kind in (_PYTHON, _NO_WORK):
                self._count(kind, some)
            else:
                self._add_calls(kind, some)
        self._add_others(of_type)

    def _add_others(self, of_type: dict[str | None, list[Event]]) -> None:
        """Add events of the allocator, and count all that is no interval."""
        if instants := of_type.pop("i", []):
            if memory := [event for event in instants if event.name == _MEMORY]:
                self._add_memory(memory)
            of_type["i"] = [event for event in instants if event.name != _MEMORY]
        for ph, some in filter(itemgetter(1), of_type.items()):
            self._count(_NO_INTERVALS.get(ph, "kineto.other_type"), some)

    def finish(self) -> None:
        """Write the remarks on what is only counted."""
        for code, count in self.counts.items():
            self._tally.note(code, count=count, file=self._file.name, line=self._first_of[code])

    def host_calls(self, kind: str) -> HostCalls:
        """All operators, marks, launches, overhead, or collectives of operators; none is left here."""
        if kind not in self._tables:
            return HostCalls()
        found = self._tables.pop(kind).take()
        rows = np.lexsort((-found["end_ns"], found["start_ns"], found["thread"]))
        return HostCalls(**_in_order(found, rows))

    def device_events(self) -> DeviceEvents:
        """All kernels and copies; none is left here."""
        if KERNEL not in self._tables:
            return DeviceEvents()
        found = self._tables.pop(KERNEL).take()
        return DeviceEvents(**_in_order(found, np.lexsort([found[key] for key in DEVICE_ORDER])))

    def memory_events(self) -> MemoryEvents:
        """All events of the allocator."""
        return MemoryEvents(**self._tables.pop(_MEMORY, GrowingTable()).take())

    def _add_calls(self, kind: str, events: list[Event]) -> None:
        kept, names, start_ns, end_ns = self._timed(events)
        threads = self.threads
        table: Table = {
            "name": names,
            "thread": np.array([threads[event.pid, event.tid] for event in kept], np.int32),
            "start_ns": start_ns,
            "end_ns": end_ns,
        }
        if kind == LAUNCH:
            table["correlation"] = _correlations(kept)
        elif kind == OPERATOR and PARAM_COMMS in self.names:
            self._add_param_comms(kept, table)
        self._tables[kind].add(table)

    def _add_param_comms(self, events: list[Event], table: Table) -> None:
        """Add the operators that say what a collective is; in place of its name each has that."""
        rows = [row for row, event in enumerate(events) if event.name == PARAM_COMMS]
        collective = np.array([self._collective(events[row].args) for row in rows], np.int32)
        says = collective != NOT_GIVEN
        own = {key: column[rows][says] for key, column in table.items()}
        self._tables[PARAM_COMMS].add(own | {"name": collective[says]})

    def _add_device_events(self, kind: str, events: list[Event]) -> None:
        kept, names, start_ns, end_ns = self._timed(events, of_device=True)
        self.overlapping_streams |= any((event.cat or "").lower() == _OVERLAPPING for event in events[:1])
        streams = self.streams
        args = [event.args or _NO_ARGS for event in kept]
        both = list(zip(kept, args, strict=True))
        self._tables[KERNEL].add(
            {
                "name": names,
                "device": _codes([event.pid if one.device is None else one.device for event, one in both]),
                "stream": np.array(
                    [
                        streams[one.stream if isinstance(one.stream, _KEYS) else event.tid]
                        for event, one in both
                    ],
                    np.int32,
                ),
                "start_ns": start_ns,
                "end_ns": end_ns,
                "correlation": _wholes([one.correlation for one in args], NO_CORRELATION),
                "copy": np.full(len(kept), kind == COPY),
                "blocks_per_sm": _numbers([one.blocks_per_sm for one in args]),
                "occupancy_percent": _numbers([one.occupancy for one in args]),
                "of_graph": np.array([bool(one.graph and whole_number(one.graph)) for one in args], np.bool_),
                "collective": np.array([self._collective(one) for one in args], np.int32),
            }
        )

    def _add_memory(self, events: list[Event]) -> None:
        for event in events:
            event.dur = 0.0
        kept, _, time_ns, _ = self._timed(events)
        args = [event.args or _NO_ARGS for event in kept]
        self._tables[_MEMORY].add(
            {
                "device_type": _codes([one.device_type for one in args]),
                "device": _codes([one.device_id for one in args]),
                "time_ns": time_ns,
                "bytes": _wholes([one.bytes for one in args], 0),
                "allocated": _wholes([one.allocated for one in args], NOT_GIVEN),
                "reserved": _wholes([one.reserved for one in args], NOT_GIVEN),
            }
        )

    def _timed(
        self, events: list[Event], *, of_device: bool = False
    ) -> tuple[list[Event], CodeArray, IntArray, IntArray]:
        """The events with a name and possible times: these, their names, starts, and ends."""
        # In one go: for so few numbers each step of it costs more than what it computes.
        times_ns, is_time = nanoseconds([event.ts for event in events] + [event.dur for event in events])
        start_ns, duration_ns = times_ns.reshape(2, -1)
        has_start, has_duration = is_time.reshape(2, -1)
        names = [event.name for event in events]
        faults: list[tuple[str, BoolArray]] = [
            ("kineto.no_start", ~has_start),
            ("kineto.no_duration", ~has_duration | (duration_ns < 0)),
            ("kineto.long", duration_ns > _MAX_DURATION_NS),
        ]
        if of_device:
            faults.insert(1, ("kineto.zero_time", start_ns == 0))
        if None in names:
            faults.insert(0, ("kineto.no_name", np.array([name is None for name in names], np.bool_)))
        lost = np.zeros(len(events), np.bool_)
        for code, at_fault in faults:
            for position in np.flatnonzero(at_fault & ~lost).tolist():
                self._note(code, events[position])
            lost |= at_fault
        if lost.any():
            kept = ~lost
            events = [event for event, keep in zip(events, kept.tolist(), strict=True) if keep]
            names = [event.name for event in events]
            start_ns, duration_ns = start_ns[kept], duration_ns[kept]
        self.rows += len(events)
        codes = np.array([self.names[name] for name in names], np.int32)
        return events, codes, start_ns, start_ns + duration_ns

    def _collective(self, args: Args | None) -> int:
        if args is None or (args.collective is None and args.in_elements is None and args.rank is None):
            return NOT_GIVEN
        return self.collectives[
            CollectiveArgs(
                name=_text(args.collective),
                in_elements=whole_number(args.in_elements),
                out_elements=whole_number(args.out_elements),
                dtype=_text(args.dtype),
                group_size=whole_number(args.group_size),
                group_name=_text(args.group_name),
                group_description=_text(args.group_description),
                group_ranks=_text(args.group_ranks),
                rank=whole_number(args.rank),
                sequence=whole_number(args.sequence),
                communicator=_text(args.communicator),
            )
        ]

    def _count(self, code: str, events: Sequence[Event]) -> None:
        """Count events of which a file has many; the first one is the place."""
        if code not in self.counts:
            self._first_of[code] = self._number(events[0])
        self.counts[code] += len(events)

    def _count_waits(self, events: Sequence[Event]) -> None:
        """Count synchronizations, those with an event whose record was not found by the profiler for themselves."""
        lacks = [bool(event.args and event.args.waited_for == -1) for event in events]
        for code, held in ((_UNKNOWN_WAIT, True), (_SYNC, False)):
            if counted := [event for event, one in zip(events, lacks, strict=True) if one is held]:
                self._count(code, counted)

    def _note(self, code: str, event: Event, **fields: Any) -> None:
        self._tally.note(code, file=self._file.name, line=self._number(event), **fields)

    def _number(self, event: Event) -> int:
        if not self._places:
            self._places = {id(one): at for at, one in enumerate(self._block, self._first)}
        return self._places[id(event)]


def nanoseconds(values: Sequence[float | str | Decimal | None]) -> tuple[IntArray, BoolArray]:
    """Times in microseconds as whole nanoseconds, rounded half to even, and which of them are times; all others are 0.

    A float below 2^43 holds nanoseconds; all digits of text and decimals count.
    """
    us = np.array(values)
    if us.dtype == object and not any(isinstance(value, str | Decimal) for value in values):
        us = us.astype(np.float64)
    if us.dtype == np.float64:
        is_time = np.abs(us) < _MAX_US
        us[~is_time] = 0
        base = np.floor(us)
        return base.astype(np.int64) * 1000 + np.rint((us - base) * 1000).astype(np.int64), is_time
    exact = [_exact(value) for value in values]
    return (
        np.array([0 if ns is None else ns for ns in exact], np.int64),
        np.array([ns is not None for ns in exact], np.bool_),
    )


def _exact(value: float | str | Decimal | None) -> int | None:
    try:
        us = Decimal(value) if value is not None else None
        return None if us is None or not abs(us) < _MAX_US else round(us * _NS)
    except (InvalidOperation, ValueError):
        return None


def _numbers(values: Sequence[object]) -> npt.NDArray[np.float32]:
    """Numbers that are not negative; NaN for all else."""
    sound = [value if isinstance(value, _NUMBERS) and 0 <= value < _INT64 else _NAN for value in values]
    return np.array(sound, np.float32)


def _wholes(values: Sequence[object], instead: int) -> IntArray:
    """Whole numbers; ``instead`` of all else."""
    try:
        return np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        found = [whole_number(value) for value in values]
        return np.array([instead if one is None else one for one in found], np.int64)


def _codes(values: Sequence[object]) -> CodeArray:
    found = _wholes(values, NOT_GIVEN)
    return np.where(np.abs(found) < _INT32, found, NOT_GIVEN).astype(np.int32)


def _correlations(events: Sequence[Event]) -> IntArray:
    return _wholes(
        [None if event.args is None else event.args.correlation for event in events], NO_CORRELATION
    )


def _text(value: object) -> str:
    """A value as text, without the quotes that some writers put around it a second time."""
    if value is None:
        return ""
    text = _name(value if isinstance(value, str) else str(value))
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
