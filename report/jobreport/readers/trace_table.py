"""The events of all trace files in one table: dated, in order, each once."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from jobreport.readers.strays import spans_of_job, within
from jobreport.readers.trace_columns import EARLIEST_US, LATEST_US, Columns
from jobrules.job import BoolArray, Events, IntArray, Lane, natural_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.tally import Tally
    from jobreport.readers.trace_columns import Dictionaries

_UNDATED = "time is no date, for want of a time base in the file"
_RELATIVE = "time is no date, for want of a time base in the file; only durations and distances are right"
_STRAY = "time lies more than 30 days from nearly all other events"
_REPEATED = "repetition of an event in another file"

_T = TypeVar("_T", str, Lane)
_Column = npt.NDArray[np.int64]


class Table:
    """Collects the events of files."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, Columns]] = []

    def add(self, file: int, columns: Columns) -> None:
        """Add events of a file, which goes by its number."""
        if len(columns.lane):
            self._parts.append((file, columns))

    def finish(self, known: Dictionaries, names: Sequence[str], tally: Tally) -> tuple[Events, int]:
        """All events, and the number of files that they come from; ``names`` are those of all files."""
        if not self._parts:
            return Events(), 0
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
        lanes, columns["lane"] = _sorted_codes(list(known.lanes), columns["lane"])
        words, columns["name"] = _sorted_codes(known.names.texts, columns["name"])
        order = _order(columns)
        columns = {key: column[order] for key, column in columns.items()}
        columns = _without(_repeated(columns), columns, _REPEATED, names, tally)
        files = int(np.count_nonzero(np.bincount(columns["file"])))
        loaders = [one for one in known.loaders if within(np.array([one.start_us]), spans)[0]]
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
