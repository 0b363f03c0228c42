"""The events of all trace files in one table: dated, in order, each once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from jobreport.readers.strays import KEPT_SHARE, spans_of_job, within
from jobreport.readers.trace_columns import EARLIEST_US, LATEST_US, Columns
from jobrules.job import SECOND_US, BoolArray, Events, IntArray, Lane, Loader, natural_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jobreport.readers.tally import Tally
    from jobreport.readers.trace_columns import Dictionaries

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
_Column = npt.NDArray[np.int64]


class Table:
    """Collects the events of files."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, Columns]] = []

    def add(self, file: int, columns: Columns) -> None:
        """Add events of a file, which goes by its number."""
        if len(columns.lane):
            self._parts.append((file, columns))

    def start_of_step(self, number: int, is_step: Callable[[Lane, str], bool], known: Dictionaries) -> int:
        """When a step first began, by the events so far; 0 where none has its number and a date."""
        lanes, names = list(known.lanes), known.names.texts
        starts = []
        for _, part in self._parts:
            rows = np.flatnonzero((part.step == number) & (part.start_us >= EARLIEST_US))
            # Few events are of one step; these are looked at one by one.
            codes = zip(part.lane[rows].tolist(), part.name[rows].tolist(), strict=True)
            found = rows[[is_step(lanes[lane], names[name]) for lane, name in codes]]
            starts += part.start_us[found].tolist()
        return min(starts, default=0)

    def finish(self, known: Dictionaries, names: Sequence[str], tally: Tally) -> tuple[Events, int]:
        """All events, and the number of files that they come from; ``names`` are those of all files."""
        if not self._parts:
            return Events(), 0
        workers = _one_name_each(self._pids(list(known.lanes)))
        columns = self._joined()
        spans = [(EARLIEST_US, LATEST_US)]
        dated = (columns["start_us"] >= EARLIEST_US) & (columns["end_us"] <= LATEST_US)
        if not dated.any():
            tally.add(
                "corrected", "rows", _RELATIVE, count=int(columns["rows"].sum()), file=_first(columns, names)
            )
            spans = [(0, LATEST_US)]
        else:
            columns = _without(~dated, columns, _UNDATED, names, tally)
            found = spans_of_job([np.asarray(columns["start_us"], np.int64)])
            if found is not None:
                spans = found
                columns = _without(~within(columns["start_us"], spans), columns, _STRAY, names, tally)
        renamed = [_renamed(lane, workers) for lane in known.lanes]
        unique = {lane: code for code, lane in enumerate(dict.fromkeys(renamed))}
        columns["lane"] = np.array([unique[lane] for lane in renamed], np.int64)[columns["lane"]]
        lanes, columns["lane"] = _sorted_codes(list(unique), columns["lane"])
        words, columns["name"] = _sorted_codes(known.names.texts, columns["name"])
        order = _order(columns)
        columns = {key: column[order] for key, column in columns.items()}
        columns = _without(_repeated(columns), columns, _REPEATED, names, tally)
        columns = _without(_endless(columns), columns, _ENDLESS, names, tally)
        files = int(np.count_nonzero(np.bincount(columns["file"])))
        found_loaders = dict.fromkeys(_renamed(one, workers) for one in known.loaders)
        loaders = [one for one in found_loaders if within(np.array([one.start_us]), spans)[0]]
        loaders.sort(
            key=lambda one: (natural_key(one.node), natural_key(one.worker), one.start_us, repr(one))
        )
        kept = {key: columns[key] for key in _EVENT if key not in ("lane", "name")}
        return Events(
            lanes=tuple(lanes),
            names=tuple(words),
            lane=columns["lane"].astype(np.int32),
            name=columns["name"].astype(np.int32),
            loaders=tuple(loaders),
            **{key: column.astype(np.int64, copy=False) for key, column in kept.items()},
        ), files

    def _pids(self, lanes: Sequence[Lane]) -> dict[_Worker, set[int]]:
        """The process ids in the events of each worker; a file is of one worker."""
        pids: defaultdict[_Worker, set[int]] = defaultdict(set)
        for _, part in self._parts:
            lane = lanes[int(part.lane[0])]
            pids[lane.node, lane.worker].update(np.unique(part.pid).tolist())
        return pids

    def _joined(self) -> dict[str, _Column]:
        columns: dict[str, _Column] = {
            one.name: np.concatenate([getattr(part, one.name) for _, part in self._parts])
            for one in fields(Columns)
        }
        counts = [len(part.lane) for _, part in self._parts]
        columns["file"] = np.repeat(np.array([file for file, _ in self._parts], np.int32), counts)
        self._parts.clear()
        return columns


#: Columns that make an event what it is, in the order that the table is sorted by.
_EVENT = ("start_us", "end_us", "lane", "name", "step", "pid", "thread")


def _without(
    rows: BoolArray, columns: dict[str, _Column], reason: str, names: Sequence[str], tally: Tally
) -> dict[str, _Column]:
    if not rows.any():
        return columns
    dropped = {key: columns[key][rows] for key in ("file", "rows")}
    tally.add("dropped", "rows", reason, count=int(dropped["rows"].sum()), file=_first(dropped, names))
    return {key: column[~rows] for key, column in columns.items()}


def _first(columns: dict[str, _Column], names: Sequence[str]) -> str:
    return names[int(columns["file"].min())]


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
    return replace(one, worker=workers.get((one.node, one.worker), one.worker))


def _endless(columns: dict[str, _Column]) -> BoolArray:
    """Which events end more than a day after the last start: one, or fewer than a hundredth of all.

    While a job runs, something begins. Several that last on may be the lives of loader processes.
    """
    count = len(columns["start_us"])
    late = columns["end_us"] > columns["start_us"].max() + _DAY_US
    few = count > 1 and np.count_nonzero(late) <= max(1, KEPT_SHARE * count)
    return late if few else np.zeros(count, np.bool_)


def _sorted_codes(values: Sequence[_T], codes: _Column) -> tuple[list[_T], _Column]:
    """The values in use in their order, and the codes for them."""
    used = np.flatnonzero(np.bincount(codes, minlength=len(values))).tolist()
    used.sort(key=lambda code: values[code])
    position = np.zeros(len(values), np.int64)
    position[used] = np.arange(len(used), dtype=np.int64)
    return [values[code] for code in used], position[codes]


def _order(columns: dict[str, _Column]) -> IntArray:
    """The order by all columns of the event, then by file."""
    start, end = columns["start_us"], columns["end_us"]
    order = np.lexsort((end, start))
    same = (np.diff(start[order]) == 0) & (np.diff(end[order]) == 0)
    # Few events begin and end together; only these are compared by what else they are.
    tied = np.append(same, False) | np.insert(same, 0, False)
    rows = order[tied]
    keys = [columns[key][rows] for key in (*_EVENT, "file")]
    order[tied] = rows[np.lexsort(keys[::-1])]
    return order


def _repeated(columns: dict[str, _Column]) -> BoolArray:
    """Which rows of the sorted table repeat an event that another file has.

    Equal events of one file are several events; of all files, the one with most of them counts.
    """
    count = len(columns["file"])
    changes = np.ones(count, np.bool_)
    changes[1:] = np.logical_or.reduce([np.diff(columns[key]) != 0 for key in _EVENT])
    file_changes = changes.copy()
    file_changes[1:] |= np.diff(columns["file"]) != 0
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
