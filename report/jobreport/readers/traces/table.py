"""The events of all trace files in one table: dated, in order, each once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from jobreport.readers.implausible_times import FAR_US, KEPT_SHARE, spans_of_job, within
from jobreport.readers.traces.columns import (
    ABSOLUTE_US,
    EARLIEST_US,
    LATEST_US,
    NO_NUMBER,
    is_number,
    whole_number,
)
from jobrules.model import SECOND_US, BoolArray, Events, EventSource, IntArray, Lane, Loader, natural_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jobreport.readers.tally import Tally
    from jobreport.readers.traces.columns import Columns
    from jobrules.model import CodeArray

_NO_NAME = "has no name"
_NO_START = "has no start"
_NO_TIME = "start or duration is negative, NaN, infinite or too large"
_UNDATED = "time is no date, for want of a time base in the file"
_RELATIVE = "time is no date, for want of a time base in the file; only durations and distances are right"
_STRAY = "time lies more than 30 days from nearly all other events"
_REPEATED = "repetition of an event in another file"
_ENDLESS = "ends more than a day after the job's last event begins"
_DAY_US = 24 * 3600 * SECOND_US

_T = TypeVar("_T", str, Lane)
_OfWorker = TypeVar("_OfWorker", Lane, Loader)
#: Node and worker.
_Worker: TypeAlias = tuple[str, str]
#: Columns by name, as many values in each.
_Table: TypeAlias = dict[str, npt.NDArray[Any]]


def starts_of_steps(
    columns: Columns, has_steps: Callable[[Lane], bool], is_step: Callable[[str], bool]
) -> dict[int, int]:
    """When each step first began, by its number; only those that have both are told."""
    lanes = np.array([has_steps(lane) for lane in columns.lanes], np.bool_)
    names = np.array([*map(is_step, columns.names.texts), False])
    rows = np.flatnonzero(lanes[columns.column("lane")] & names[columns.column("name")])
    steps = {key: columns.column(key)[rows] for key in ("name", "start", "duration", "base", "step")}
    sound = ~np.logical_or.reduce(list(_faults(steps).values()))
    _date(steps)
    sound &= (steps["start_us"] >= EARLIEST_US) & is_number(steps["step"])
    latest_first = np.argsort(-steps["start_us"][sound])
    starts = (steps[key][sound][latest_first].tolist() for key in ("step", "start_us"))
    return dict(zip(*starts, strict=True))


def table(columns: Columns, files: Sequence[str], tally: Tally) -> tuple[Events, int]:
    """All events, and the number of files that they come from; ``files`` are the names of all files.

    Takes everything out of the columns.
    """
    if not len(columns):
        return Events(), 0
    events = columns.take()
    _mark_ranks(events, columns)
    faults = _faults(events)
    _date(events)
    for key in ("step", "pid", "thread"):
        events[key][~is_number(events[key])] = NO_NUMBER
    sound = ~np.logical_or.reduce(list(faults.values()))
    set_up = _loaders(events, [at for at in columns.set_ups if sound[at]], columns)
    for reason, rows in faults.items():
        _tell(events, rows, "skipped", reason, files, tally)
    if not sound.all():
        _keep(events, sound)
    if not len(events["file"]):
        return Events(), 0
    workers = _one_name_each(_pids(events, columns))
    spans = [(EARLIEST_US, LATEST_US)]
    dated = (events["start_us"] >= EARLIEST_US) & (events["end_us"] <= LATEST_US)
    if not dated.any():
        count, file = len(events["file"]), files[int(events["file"].min())]
        tally.add("corrected", "rows", _RELATIVE, count=count, file=file)
        spans = [(0, LATEST_US)]
    else:
        _drop(events, ~dated, _UNDATED, files, tally)
        found = spans_of_job([events["start_us"]])
        if found is not None:
            spans = found
            _drop(events, ~within(events["start_us"], spans), _STRAY, files, tally)
    renamed = [_renamed(lane, workers) for lane in columns.lanes]
    unique = {lane: code for code, lane in enumerate(dict.fromkeys(renamed))}
    events["lane"] = np.array([unique[lane] for lane in renamed], np.int32)[events["lane"]]
    lanes, events["lane"] = _sorted_codes(list(unique), events["lane"])
    names, events["name"] = _sorted_codes(columns.names.texts, events["name"])
    _keep(events, _order(events))
    _drop(events, _repeated(events), _REPEATED, files, tally)
    _drop(events, _endless(events), _ENDLESS, files, tally)
    used = int(np.count_nonzero(np.bincount(events["file"])))
    found_loaders = dict.fromkeys(_renamed(one, workers) for one in set_up)
    loaders = [one for one in found_loaders if within(np.array([one.start_us]), spans)[0]]
    loaders.sort(key=lambda one: (natural_key(one.node), natural_key(one.rank), one.start_us, repr(one)))
    return Events(
        lanes=tuple(lanes), names=tuple(names), loaders=tuple(loaders), **{key: events[key] for key in _EVENT}
    ), used


#: Columns that make an event what it is, in the order that the table is sorted by.
_EVENT = ("start_us", "end_us", "lane", "name", "step", "pid", "thread")


def _mark_ranks(events: _Table, columns: Columns) -> None:
    """Take the duration from what tells that a rank became ready: Horovod writes a bare number."""
    horovod = np.array([lane.source == EventSource.HOROVOD for lane in columns.lanes], np.bool_)
    if horovod.any():
        is_rank = np.array([*(text.isascii() and text.isdigit() for text in columns.names.texts), False])
        events["duration"][horovod[events["lane"]] & is_rank[events["name"]]] = 0


def _faults(events: _Table) -> dict[str, BoolArray]:
    """Which rows are no events, by the reason."""
    start, duration = events["start"], events["duration"]
    no_name, no_start = events["name"] < 0, np.isnan(start)
    good = (start >= 0) & (start <= LATEST_US) & (duration >= 0) & (duration <= FAR_US)
    return {_NO_NAME: no_name, _NO_START: no_start & ~no_name, _NO_TIME: ~(good | no_start | no_name)}


def _date(events: _Table) -> None:
    """Put start and end, in microseconds since the epoch, in place of start, duration and base."""
    start, end, base = (events.pop(key) for key in ("start", "duration", "base"))
    base[start > ABSOLUTE_US] = 0
    with np.errstate(invalid="ignore"):  # of what is a fault
        end += start
        for key, time in (("start_us", start), ("end_us", end)):
            events[key] = np.rint(time, out=time).astype(np.int64)
            events[key] += base


def _loaders(events: _Table, rows: Sequence[int], columns: Columns) -> list[Loader]:
    """The loaders that some events set up."""
    lanes, loaders = list(columns.lanes), []
    for row in rows:
        lane, args = lanes[events["lane"][row]], columns.set_ups[row]
        workers = whole_number(args.num_workers)
        loader = Loader(
            node=lane.node,
            rank=lane.rank,
            iterator=columns.names.texts[events["name"][row]].removesuffix(".__init__"),
            start_us=int(events["start_us"][row]),
            num_workers=None if workers == NO_NUMBER else workers,
            pin_memory=args.pin_memory if isinstance(args.pin_memory, bool) else None,
        )
        loaders.append(loader)
    return loaders


def _keep(events: _Table, rows: BoolArray | IntArray) -> None:
    # One column after the other, so that there are never two of all.
    for key in events:
        events[key] = events[key][rows]


def _tell(
    events: _Table, rows: BoolArray, action: str, reason: str, files: Sequence[str], tally: Tally
) -> None:
    """Count some events; a begin and its end count as one row."""
    if rows.any():
        first = min(files[file] for file in np.unique(events["file"][rows]).tolist())
        tally.add(action, "rows", reason, count=int(np.count_nonzero(rows)), file=first)


def _drop(events: _Table, rows: BoolArray, reason: str, files: Sequence[str], tally: Tally) -> None:
    if rows.any():
        _tell(events, rows, "dropped", reason, files, tally)
        _keep(events, ~rows)


def _pids(events: _Table, columns: Columns) -> dict[_Worker, set[int]]:
    """The process ids in the events of each worker."""
    workers = [(lane.node, lane.rank) for lane in columns.lanes]
    codes = {worker: code for code, worker in enumerate(dict.fromkeys(workers))}
    worker, pid = np.array([codes[one] for one in workers], np.int32)[events["lane"]], events["pid"]
    first = np.append(True, (worker[1:] != worker[:-1]) | (pid[1:] != pid[:-1]))
    known, pids = list(codes), defaultdict[_Worker, set[int]](set)
    for code, number in set(zip(worker[first].tolist(), pid[first].tolist(), strict=True)):
        pids[known[code]].add(number)
    return pids


def _one_name_each(pids: Mapping[_Worker, set[int]]) -> dict[_Worker, str]:
    """The rank of each worker that is named by its process id.

    A process writes its first files under its id and, once it knows its rank, further ones under that.
    """
    by_id = {(node, worker) for (node, worker), mine in pids.items() if worker and int(worker) in mine}
    others: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for (node, worker), mine in pids.items():
        if worker and (node, worker) not in by_id:
            for pid in mine:
                others[node, pid].append(worker)
    ranks = {one: others[one[0], int(one[1])] for one in by_id}
    return {one: found[0] for one, found in ranks.items() if len(found) == 1}


def _renamed(one: _OfWorker, workers: Mapping[_Worker, str]) -> _OfWorker:
    return replace(one, rank=workers.get((one.node, one.rank), one.rank))


def _endless(events: _Table) -> BoolArray:
    """Which events end more than a day after the last start: one, or fewer than a hundredth of all.

    While a job runs, something begins. Several that last on may be the lives of loader processes.
    """
    count = len(events["start_us"])
    late = events["end_us"] > events["start_us"].max() + _DAY_US
    few = count > 1 and np.count_nonzero(late) <= max(1, KEPT_SHARE * count)
    return late if few else np.zeros(count, np.bool_)


def _sorted_codes(values: Sequence[_T], codes: CodeArray) -> tuple[list[_T], CodeArray]:
    """The values in use in their order, and the codes for them."""
    used = np.flatnonzero(np.bincount(codes, minlength=len(values))).tolist()
    used.sort(key=lambda code: values[code])
    position = np.zeros(len(values), np.int32)
    position[used] = np.arange(len(used), dtype=np.int32)
    return [values[code] for code in used], position[codes]


def _order(events: _Table) -> IntArray:
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


def _repeated(events: _Table) -> BoolArray:
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
