"""From the text of a trace file to a ``Trace``: events that cannot be true are dropped or cut here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec.structs import asdict, replace

from jobreport.readers.kineto.columns import DEVICE_ORDER, LAUNCH, MARK, OPERATOR, OVERHEAD, Columns
from jobreport.readers.kineto.meta import head_of, top_of
from jobreport.readers.kineto.text import TraceText
from jobrules.captures.kinds import ALLOCATION, BLOCKING, PARAM_COMMS, matching
from jobrules.captures.trace import NO_CORRELATION, DeviceEvents, HostCalls, MemoryEvents, Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally
    from jobrules.model import BoolArray, IntArray

_Any = TypeVar("_Any", bound=HostCalls | DeviceEvents | MemoryEvents)
_Rows = TypeVar("_Rows", bound=HostCalls | DeviceEvents)
_OfDevices = TypeVar("_OfDevices", bound=DeviceEvents | MemoryEvents)

#: Each device of a process is judged by itself; no machine has as many.
MAX_DEVICES = 256

#: An event cannot end so long after all others of any other kind.
_MAX_BEHIND_NS = 3600 * 10**9
#: A device event that runs over whole later ones of its stream by more than this has an impossible duration.
_MAX_OVER_NS = 1_000_000


def read_trace(file: SourceFile, tally: Tally) -> tuple[Trace, int]:
    """The events of a file, and how many of its values are in use."""
    text, columns = TraceText(file, tally), Columns(file, tally)
    first = 1
    for block in text.events():
        columns.add(block, first)
        first = text.count + 1
    columns.finish()
    top = top_of(text.head, text.tail)
    names = tuple(columns.names.listed)
    tables: dict[str, Any] = {
        "device_events": columns.device_events(),
        "launches": columns.host_calls(LAUNCH),
        "operators": columns.host_calls(OPERATOR),
        "marks": columns.host_calls(MARK),
        "overhead": columns.host_calls(OVERHEAD),
    }
    late = _drop_late(tables)
    events, elsewhere = _of_few_devices(tables.pop("device_events"))
    memory, memory_elsewhere = _of_few_devices(columns.memory_events())
    events, repeated = _once(events)
    calls = tables.pop("launches")
    launching = frozenset(np.unique(calls.thread).tolist())
    launches, repeated_calls = _once(_used(calls, events, names))
    del calls
    events, cut, lost_ns = (events, 0, 0) if columns.overlapping_streams else _shortened(events)
    for code, count in (
        ("kineto.errors", top.errors),
        ("kineto.dropped", top.dropped),
        ("kineto.late", late),
        ("kineto.devices", elsewhere + memory_elsewhere),
        ("kineto.repeated", repeated + repeated_calls),
    ):
        tally.note(code, count=count, file=file.name)
    tally.note("kineto.shortened", count=cut, file=file.name, ms=f"{lost_ns / 1e6:,.3f}")
    trace = Trace(
        head=head_of(top, file.own_name),
        names=names,
        threads=tuple(columns.threads.listed),
        streams=tuple(columns.streams.listed),
        collectives=tuple(columns.collectives.listed),
        device_events=_sorted(events) if cut else events,
        launches=launches,
        launching=launching,
        param_comms=columns.host_calls(PARAM_COMMS),
        memory=memory,
        python_calls=columns.counts["kineto.python_call"],
        overlapping_streams=columns.overlapping_streams,
        **tables,
    )
    return trace, columns.rows - late - repeated - repeated_calls - elsewhere - memory_elsewhere


def _drop_late(tables: dict[str, Any]) -> int:
    """Leave out events that end long after all of other kinds; how many."""
    ends = {key: int(table.end_ns.max()) for key, table in tables.items() if len(table)}
    late = 0
    for key, table in tables.items():
        others = [end for other, end in ends.items() if other != key]
        if others:
            tables[key] = _where(table, table.end_ns <= max(others) + _MAX_BEHIND_NS)
            late += len(table) - len(tables[key])
    return late


def _of_few_devices(table: _OfDevices) -> tuple[_OfDevices, int]:
    """The events of the devices with the lowest numbers; how many others there are."""
    numbers = np.unique(table.device)
    if len(numbers) <= MAX_DEVICES:
        return table, 0
    kept = _where(table, table.device < numbers[MAX_DEVICES])
    return kept, len(table) - len(kept)


def _once(table: _Rows) -> tuple[_Rows, int]:
    """The rows without repetitions, as merged files have; how many these are."""
    kept = _where(table, _is_first(table))
    return kept, len(table) - len(kept)


def _used(calls: HostCalls, events: DeviceEvents, names: Sequence[str]) -> HostCalls:
    """The calls that launched a recorded event, or may explain idle time; more than half of all do neither."""
    known = np.append(np.sort(events.correlation), NO_CORRELATION)
    launches = known[np.searchsorted(known[:-1], calls.correlation)] == calls.correlation
    explains = matching(names, BLOCKING, calls.name) | matching(names, ALLOCATION, calls.name)
    return _where(calls, launches & (calls.correlation != NO_CORRELATION) | explains[calls.name])


def _where(table: _Any, rows: BoolArray) -> _Any:
    if rows.all():
        return table
    kept = {key: column[rows] for key, column in asdict(table).items() if len(column)}
    return replace(table, **kept)


def _sorted(table: DeviceEvents) -> DeviceEvents:
    order = np.lexsort([getattr(table, key) for key in DEVICE_ORDER])
    return replace(table, **{key: column[order] for key, column in asdict(table).items()})


def _is_first(table: HostCalls | DeviceEvents) -> BoolArray:
    """Which rows repeat no earlier one, as events of merged files do."""
    lane = (table.stream, table.device) if isinstance(table, DeviceEvents) else (table.thread,)
    columns = (table.correlation, table.start_ns, table.end_ns, table.name, *lane)
    order = np.lexsort(columns[::-1])
    is_same = np.ones(max(len(table) - 1, 0), np.bool_)
    for column in columns:
        is_same &= np.diff(column[order]) == 0
    first = np.ones(len(table), np.bool_)
    first[order[1:]] = ~is_same
    return first


def _shortened(table: DeviceEvents) -> tuple[DeviceEvents, int, int]:
    """The events, those with impossible durations cut; how many, by how much together."""
    order = np.lexsort((table.end_ns, table.start_ns, table.stream, table.device))
    start_ns, end_ns, correlation = table.start_ns[order], table.end_ns[order], table.correlation[order]
    same = (np.diff(table.stream[order]) == 0) & (np.diff(table.device[order]) == 0)
    impossible = same & (end_ns[:-1] > start_ns[1:] + _MAX_OVER_NS) & (end_ns[1:] <= end_ns[:-1])
    impossible &= (correlation[:-1] != correlation[1:]) & ~table.of_graph[order][:-1]
    cut = np.flatnonzero(impossible)
    if not len(cut):
        return table, 0, 0
    new_end: IntArray = table.end_ns.copy()
    new_end[order[cut]] = start_ns[cut + 1]
    return replace(table, end_ns=new_end), len(cut), int((end_ns[cut] - start_ns[cut + 1]).sum())
