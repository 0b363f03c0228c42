"""The events of all trace files in one table: in order, each once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
from msgspec.structs import replace

from jobreport.readers.base import CommandSpan
from jobreport.readers.bounds import EARLIEST_US, LATEST_US
from jobreport.readers.traces.columns import RECORDER_LANE
from jobrules.model import BoolArray, Events, IntArray, Lane, Loader, natural_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.readers.columns import Table
    from jobreport.readers.tally import Tally
    from jobreport.readers.traces.columns import Columns, Command
    from jobrules.model import CodeArray

_T = TypeVar("_T", str, Lane)
_OfRank = TypeVar("_OfRank", Lane, Loader)
#: Node and rank, or process id in its place.
_Process: TypeAlias = tuple[str, str]

#: In the name of each training step.
_TRAIN_STEP = "Step:ModeKeys.TRAIN"
#: Columns that make an event what it is, in the order that the table is sorted by.
_EVENT = ("start_us", "end_us", "lane", "name", "step", "pid", "thread")


def table(
    columns: Columns, files: Sequence[str], tally: Tally
) -> tuple[Events, Table, int, tuple[CommandSpan, ...]]:
    """All events, ``mark`` and ``size`` of each, the number of files that they come from, and the recorded commands.

    ``files`` are the names of all files.

    Takes the events out of ``columns``.
    """
    events = columns.take()
    own = [
        lane.event_type == RECORDER_LANE and (lane.node, lane.rank) in columns.recorded
        for lane in columns.lanes
    ]
    if any(own):
        _keep(events, ~np.array(own)[events["lane"]])
    if not len(events["file"]):
        return Events(), events, 0, ()
    pids = _pids(events, columns)
    ranks = _in_turn(events, columns, pids) | _ranks(pids)
    dated = (events["start_us"] >= EARLIEST_US) & (events["end_us"] <= LATEST_US)
    if dated.any():
        _drop(events, ~dated, "traces.undated", files, tally)
    else:
        _note(events, ~dated, "traces.relative", files, tally)
    commands = _commands(events, columns)
    lanes = [_with_rank(lane, ranks) for lane in columns.lanes]
    unique = {lane: code for code, lane in enumerate(dict.fromkeys(lanes))}
    events["lane"] = np.array([unique[lane] for lane in lanes], np.int32)[events["lane"]]
    used_lanes, events["lane"] = _sorted_codes(list(unique), events["lane"])
    used_names, events["name"] = _sorted_codes(columns.names.listed, events["name"])
    _keep(events, _order(events))
    _drop(events, _repeated(events), "traces.repeated", files, tally)
    loaders = {
        _with_rank(one, ranks) for one in columns.loaders if one.start_us >= EARLIEST_US or not dated.any()
    }
    used_files = int(np.count_nonzero(np.bincount(events["file"])))
    found = Events(
        lanes=tuple(used_lanes),
        names=tuple(used_names),
        loaders=tuple(
            sorted(
                loaders,
                key=lambda one: (natural_key(one.node), natural_key(one.rank), one.start_us, repr(one)),
            )
        ),
        **{key: events[key] for key in _EVENT},
    )
    return found, {key: events[key] for key in ("mark", "size")}, used_files, commands


def _keep(events: Table, rows: BoolArray | IntArray) -> None:
    # One column after the other, so that there are never two of all.
    for key in events:
        events[key] = events[key][rows]


def _drop(events: Table, rows: BoolArray, code: str, files: Sequence[str], tally: Tally) -> None:
    if rows.any():
        _note(events, rows, code, files, tally)
        _keep(events, ~rows)


def _note(events: Table, rows: BoolArray, code: str, files: Sequence[str], tally: Tally) -> None:
    """Count some events; a pair of a begin and an end event is one row."""
    first = min(files[file] for file in np.unique(events["file"][rows]).tolist())
    tally.note(code, count=int(np.count_nonzero(rows)), file=first)


def _pids(events: Table, columns: Columns) -> dict[_Process, set[int]]:
    """The process ids in the events of each process."""
    processes = [(lane.node, lane.rank) for lane in columns.lanes]
    codes = {process: code for code, process in enumerate(dict.fromkeys(processes))}
    process = np.array([codes[one] for one in processes], np.int32)[events["lane"]]
    pid = events["pid"]
    first = np.append(True, (process[1:] != process[:-1]) | (pid[1:] != pid[:-1]))
    known, pids = list(codes), defaultdict[_Process, set[int]](set)
    for code, number in set(zip(process[first].tolist(), pid[first].tolist(), strict=True)):
        pids[known[code]].add(number)
    return pids


def _ranks(pids: Mapping[_Process, set[int]]) -> dict[_Process, str]:
    """The rank of each process that is named by its process id.

    A process writes its first files under its id and, once it knows its rank, further ones under that.
    """
    by_id = _named_by_id(pids)
    others: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for (node, name), mine in pids.items():
        if name and (node, name) not in by_id:
            for pid in mine:
                others[node, pid].append(name)
    ranks = {one: others[one[0], int(one[1])] for one in by_id}
    return {one: found[0] for one, found in ranks.items() if len(found) == 1}


def _named_by_id(pids: Mapping[_Process, set[int]]) -> set[_Process]:
    return {(node, name) for (node, name), mine in pids.items() if name and int(name) in mine}


def _in_turn(events: Table, columns: Columns, pids: Mapping[_Process, set[int]]) -> dict[_Process, str]:
    """The name of the first of several processes without a rank that jobrecord recorded on a node one after the other.

    A job that is started again is one rank, not two; another command is another one.
    """
    nameless = columns.recorded & _named_by_id(pids)
    spans = []
    for process in nameless if len(nameless) > 1 else ():
        lanes = [code for lane, code in columns.lanes.items() if (lane.node, lane.rank) == process]
        rows = np.isin(events["lane"], lanes)
        command = columns.commands.get(int(events["file"][rows.argmax()]))
        spans.append((process, _span(command, events["start_us"][rows], events["end_us"][rows])))
    found: dict[_Process, str] = {}
    # The last process of each name.
    last: dict[_Process, CommandSpan] = {}
    for (node, name), span in sorted(spans, key=lambda one: (one[1].start_us, one[1].end_us, one[0])):
        before = [
            one
            for one, its in last.items()
            if one[0] == node and its.end_us <= span.start_us and its.is_started_again(span)
        ]
        first = max(before, key=lambda one: last[one].end_us, default=(node, name))
        last[first] = span
        found[node, name] = first[1]
    return found


def _commands(events: Table, columns: Columns) -> tuple[CommandSpan, ...]:
    """When each command ran that jobrecord recorded."""
    is_step = np.array([_TRAIN_STEP in name for name in columns.names.listed], np.bool_)
    found: dict[Command, CommandSpan] = {}
    for file, command in columns.commands.items():
        # Rows are in the order of their files.
        first, stop = np.searchsorted(events["file"], (file, file + 1)).tolist()
        if stop > first:
            start_us, end_us = events["start_us"][first:stop], events["end_us"][first:stop]
            trained_us = (end_us - start_us)[is_step[events["name"][first:stop]]].sum()
            one = _span(command, start_us, end_us, int(trained_us))
            found[command] = found[command].joined(one) if command in found else one
    return tuple(found.values())


def _span(command: Command | None, start_us: IntArray, end_us: IntArray, trained_us: int = 0) -> CommandSpan:
    """That of some events; a command that an older version of jobrecord recorded is always the same."""
    recording, mark = command or (0, "")
    return CommandSpan(
        recording=recording,
        marks=frozenset([mark]),
        start_us=int(start_us.min()),
        end_us=int(end_us.max()),
        trained_us=trained_us,
    )


def _with_rank(one: _OfRank, ranks: Mapping[_Process, str]) -> _OfRank:
    return replace(one, rank=ranks.get((one.node, one.rank), one.rank))


def _sorted_codes(values: Sequence[_T], codes: CodeArray) -> tuple[list[_T], CodeArray]:
    """The values in use in their order, and the codes for them."""
    used = np.flatnonzero(np.bincount(codes, minlength=len(values))).tolist()
    used.sort(key=lambda code: values[code])
    position = np.zeros(len(values), np.int32)
    position[used] = np.arange(len(used), dtype=np.int32)
    return [values[code] for code in used], position[codes]


def _order(events: Table) -> IntArray:
    """The order by all columns of the event, then by file."""
    start, end = events["start_us"], events["end_us"]
    order = np.lexsort((end, start))
    same = (np.diff(start[order]) == 0) & (np.diff(end[order]) == 0)
    # Few events begin and end together; only these are compared by what else they are.
    tied = np.append(same, False) | np.insert(same, 0, False)
    rows = order[tied]
    keys = [events[key][rows] for key in (*_EVENT, "file")]
    order[tied] = rows[np.lexsort(keys[::-1])]
    return order


def _repeated(events: Table) -> BoolArray:
    """Which rows of the sorted table repeat an event that another file has.

    Equal events of one file are several events; of all files, the one with most of them counts.
    """
    count = len(events["file"])
    changes = np.ones(count, np.bool_)
    changes[1:] = np.logical_or.reduce([np.diff(events[key]) != 0 for key in _EVENT])
    file_changes = changes.copy()
    file_changes[1:] |= np.diff(events["file"]) != 0
    # Runs of equal events of one file, and groups of runs of equal events.
    run_starts = np.flatnonzero(file_changes)
    if len(run_starts) == np.count_nonzero(changes):
        return np.zeros(count, np.bool_)
    sizes = np.diff(np.append(run_starts, count))
    group = np.cumsum(changes[run_starts]) - 1
    # The largest run of each group, and of equal ones the first.
    order = np.lexsort((np.arange(len(sizes)), -sizes, group))
    kept = np.zeros(len(sizes), np.bool_)
    kept[order[np.diff(group[order], prepend=-1) != 0]] = True
    return np.repeat(~kept, sizes)
