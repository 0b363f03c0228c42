"""From the rows of trace files to columns, a block of rows at a time."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from jobreport.readers.bounds import EARLIEST_S, LATEST_S
from jobreport.readers.traces.row import Args
from jobrules.measures.data_loading import SET_UP
from jobrules.model import SECOND_US, EventSource, Lane, Loader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally
    from jobreport.readers.traces.files import Origin
    from jobreport.readers.traces.row import Row, Scalar
    from jobrules.model import BoolArray, CodeArray, FloatArray, IntArray

#: Columns by name, as many values in each.
Table: TypeAlias = dict[str, npt.NDArray[Any]]

EARLIEST_US, LATEST_US = int(EARLIEST_S) * SECOND_US, int(LATEST_S) * SECOND_US
#: Larger times count from the epoch, whatever the time base: no job runs three years.
_ABSOLUTE_US = 10**14
_MAX_DURATION_US = 30 * 24 * 3600 * SECOND_US
#: Rows that are converted together: for few of them numpy takes longer than for their values.
_MANY_ROWS = 1 << 11
#: Stands for a step, process or thread that is not given.
NO_NUMBER = -1

#: Event type of rows whose process was not announced.
_UNKNOWN = "Unknown"
#: Longer names would have to be carried through every page.
_MAX_NAME = 1000
_MAX_DIGITS = 18
#: Whole numbers up to here are exact as floats.
_MAX_STEP = 2**53
#: Values whose number is remembered.
_MAX_KNOWN = 1 << 16
_NO_ARGS = Args()
#: Metadata, events, and begin and end events, by their ``ph``.
_READ = frozenset("MXBE")
#: Remarks on rows that are no events, by their ``ph``.
_NO_EVENTS: dict[str | None, str] = {
    None: "traces.no_type",
    **dict.fromkeys("iIR", "traces.instant"),
    **dict.fromkeys("C", "traces.counter"),
    **dict.fromkeys("stf", "traces.flow"),
    **dict.fromkeys("bneSTpF", "traces.async"),
}


class Names(dict[str, int]):
    """The position of each name; one that is asked for and not there is added."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.shortened = 0

    def __missing__(self, name: str) -> int:
        # A lone surrogate, which JSON can hold and UTF-8 cannot, becomes an escape.
        text = name.encode("utf-8", "backslashreplace").decode()
        if len(text) > _MAX_NAME:
            text = text[: _MAX_NAME - 1] + "…"
            self.shortened += 1
        if text not in self:
            self.texts.append(text)
            self[text] = len(self.texts) - 1
        self[name] = self[text]
        return self[name]


class _Codes(dict[tuple[Any, ...], int]):
    """The place of each key in the order in which they were first asked for."""

    def __missing__(self, key: tuple[Any, ...]) -> int:
        code = self[key] = len(self)
        return code


class _Numbers(dict[Any, int]):
    """The number of each process or thread."""

    def __missing__(self, value: Scalar) -> int:
        if len(self) >= _MAX_KNOWN:
            self.clear()
        number = self[value] = whole_number(value)
        return number


def whole_number(value: object) -> int:
    """A whole number from 0 on, which may stand in a text; ``NO_NUMBER`` for anything else."""
    if isinstance(value, str):
        is_number = value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS
        return int(value) if is_number else NO_NUMBER
    if isinstance(value, int | float) and 0 <= value < 10**_MAX_DIGITS and value == int(value):
        return int(value)
    return NO_NUMBER


class _Kind(NamedTuple):
    """What rows have in common."""

    ph: str | None
    name: str | None
    pid: Scalar
    tid: Scalar
    pid_arg: Scalar
    thread_id_arg: Scalar
    tid_arg: Scalar


class _File:
    """A file, and what its rows have announced so far."""

    def __init__(self, number: int, base_us: int, unknown: int) -> None:
        self.number = number
        self.base_us = base_us
        #: The lane that each ``pid`` was last announced for.
        self.lane_of: defaultdict[Scalar, int] = defaultdict(lambda: unknown)


class Columns:
    """The events of trace files, which are added one file after the other."""

    def __init__(self, files: Sequence[tuple[SourceFile, Origin]], tally: Tally) -> None:
        self.lanes: dict[Lane, int] = {}
        self.names = Names()
        self.loaders: list[Loader] = []
        self._files = files
        self._tally = tally
        self._numbers = _Numbers()
        #: Rows that are converted together, and how many of them come from which file.
        self._rows: list[Row] = []
        self._parts: list[tuple[_File, int]] = []
        self._events: list[Table] = []
        #: Begin and end events, which are paired at the end, and numbers of their threads.
        self._halves: list[Table] = []
        self._threads: dict[tuple[Scalar, Scalar], int] = {}

    def add(self, number: int, blocks: Iterable[Sequence[Row]]) -> None:
        """Add the rows of a file."""
        file = _File(number, self._files[number][1].base_us, self._lane(_UNKNOWN, number))
        for rows in blocks:
            self._rows += rows
            self._parts.append((file, len(rows)))
            if len(self._rows) >= _MANY_ROWS:
                self._convert()

    def take(self) -> Table:
        """All events; none is left here. Columns: ``file``, ``lane`` and ``name`` are positions, ``start_us`` and
        ``end_us`` count from the epoch where that is known, ``step``, ``pid`` and ``thread`` may be ``NO_NUMBER``.
        """
        self._convert()
        if self._halves:
            self._add_pairs(_joined(self._halves))
        return _joined(self._events)

    def _convert(self) -> None:
        """Add the events of the rows that have come together."""
        rows = self._rows
        args = [row.args or _NO_ARGS for row in rows]
        # Rows differ in little but their times and steps; all else is looked at once for each kind of row.
        codes = _Codes()
        code = np.array(
            [
                codes[row.ph, row.name, row.pid, row.tid, arg.pid, arg.thread_id, arg.tid]
                for row, arg in zip(rows, args, strict=True)
            ],
            np.int32,
        )
        kinds = [_Kind(*key) for key in codes]
        events = self._origins(kinds, code)
        events |= {
            "start": np.array([row.ts for row in rows], float),
            "duration": np.array([row.dur for row in rows], float),
            "name": self._names_of(kinds, code, events["file"]),
            "step": _whole(np.array([arg.step_num for arg in args], float)),
            "pid": np.array([self._numbers[kind.pid_arg] for kind in kinds], np.int64)[code],
            "thread": np.array([self._thread(kind) for kind in kinds], np.int64)[code],
        }
        is_event, is_begin, is_end = (
            np.array([kind.ph == ph for kind in kinds], np.bool_)[code] for ph in "XBE"
        )
        self._add_loaders(events, is_event | is_begin)
        self._keep(events, is_event)
        if (is_half := is_begin | is_end).any():
            thread = [self._threads.setdefault((kind.pid, kind.tid), len(self._threads)) for kind in kinds]
            events |= {"own_thread": np.array(thread, np.int64)[code], "is_begin": is_begin}
            self._halves.append(_rows(events, is_half))
        unread = [
            None if kind.ph in _READ else _NO_EVENTS.get(kind.ph, "traces.other_type") for kind in kinds
        ]
        for remark in filter(None, set(unread)):
            self._note(remark, events["file"], np.array([one == remark for one in unread], np.bool_)[code])
        self._rows, self._parts = [], []

    def _origins(self, kinds: Sequence[_Kind], code: CodeArray) -> Table:
        """File, lane and time base of each row: the last ones that were announced in the file."""
        pids: dict[Scalar, int] = {}
        pid = np.array([pids.setdefault(kind.pid, len(pids)) for kind in kinds], np.int32)[code]
        announces = np.array([kind.ph == "M" and kind.name == "process_name" for kind in kinds], np.bool_)[
            code
        ]
        file, lane = np.empty((2, len(code)), np.int32)
        base = np.empty(len(code), np.int64)
        end = 0
        for one, count in self._parts:
            begin, end = end, end + count
            file[begin:end], base[begin:end] = one.number, one.base_us
            lane[begin:end] = np.array([one.lane_of[value] for value in pids], np.int32)[pid[begin:end]]
            for at in (begin + np.flatnonzero(announces[begin:end])).tolist():
                row = self._rows[at]
                args = row.args or _NO_ARGS
                if args.start_time_since_epoch_in_micros is not None:
                    one.base_us = self._time_base(args.start_time_since_epoch_in_micros, one.number)
                    base[at:end] = one.base_us
                elif isinstance(args.name, str):
                    announced = self._lane(args.name, one.number)
                    if one.lane_of[row.pid] != announced:
                        one.lane_of[row.pid] = announced
                        lane[at:end][pid[at:end] == pids[row.pid]] = announced
        return {"file": file, "lane": lane, "base": base}

    def _time_base(self, value: object, number: int) -> int:
        """Microseconds since the epoch; 0 for what is no date."""
        if type(value) in (int, float) and EARLIEST_US <= value <= LATEST_US:  # type: ignore[operator]
            return round(value)  # type: ignore[call-overload, no-any-return]
        self._tally.note("traces.time_base", file=self._files[number][0].name)
        return 0

    def _lane(self, event_type: str, number: int) -> int:
        origin = self._files[number][1]
        shortened = self.names.shortened
        text = self.names.texts[self.names[event_type]]
        self._note_shortened(shortened, number)
        lane = Lane(node=origin.node, rank=origin.rank, event_type=text, source=origin.source)
        return self.lanes.setdefault(lane, len(self.lanes))

    def _names_of(self, kinds: Sequence[_Kind], code: CodeArray, file: CodeArray) -> CodeArray:
        """The position of the name of each row; -1 for none."""
        shortened = self.names.shortened
        names = [-1 if kind.name is None else self.names[kind.name] for kind in kinds]
        if self.names.shortened > shortened:
            is_long = np.array([len(kind.name or "") > _MAX_NAME for kind in kinds], np.bool_)
            self._note_shortened(shortened, int(file[is_long[code]].min()))
        return np.array(names, np.int32)[code]

    def _note_shortened(self, before: int, number: int) -> None:
        if count := self.names.shortened - before:
            self._tally.note("traces.long_name", count=count, file=self._files[number][0].name)

    def _thread(self, kind: _Kind) -> int:
        found = (self._numbers[value] for value in (kind.thread_id_arg, kind.tid, kind.tid_arg))
        return next((number for number in found if number >= 0), NO_NUMBER)

    def _add_loaders(self, events: Table, is_begun: BoolArray) -> None:
        """Add the data loaders that events set up."""
        set_up = [code for lane, code in self.lanes.items() if lane.event_type == SET_UP]
        is_set_up = np.isin(events["lane"], set_up) & is_begun & (events["name"] >= 0)
        is_set_up &= _is_time(events["start"])
        for at in np.flatnonzero(is_set_up).tolist():
            args = self._rows[at].args or _NO_ARGS
            loading = whole_number(args.num_workers)
            ts, base_us = self._rows[at].ts, int(events["base"][at])
            origin = self._files[events["file"][at]][1]
            self.loaders.append(
                Loader(
                    node=origin.node,
                    rank=origin.rank,
                    iterator=self.names.texts[events["name"][at]].removesuffix(".__init__"),
                    start_us=round(ts) + (0 if ts > _ABSOLUTE_US else base_us),
                    num_workers=None if loading == NO_NUMBER else loading,
                    pin_memory=args.pin_memory if isinstance(args.pin_memory, bool) else None,
                )
            )

    def _add_pairs(self, halves: Table) -> None:
        """Add an event for each pair of a begin and an end event; count those without the other."""
        file, is_begin = halves["file"], halves.pop("is_begin")
        begin, end = _pairs(halves.pop("own_thread") + len(self._threads) * file.astype(np.int64), is_begin)
        is_alone = np.ones(len(file), np.bool_)
        is_alone[begin] = is_alone[end] = False
        self._note("traces.end_only", file, is_alone & ~is_begin)
        self._note("traces.begin_only", file, is_alone & is_begin)
        halves["base"][halves["start"] > _ABSOLUTE_US] = 0
        first, last = _rows(halves, begin), _rows(halves, end)
        with np.errstate(invalid="ignore"):  # infinite times
            first["duration"] = last["start"] - first["start"] + (last["base"] - first["base"])
        for key in ("name", "step", "pid", "thread"):
            first[key] = np.where(first[key] < 0, last[key], first[key])
        self._keep(first, np.ones(len(begin), np.bool_))

    def _keep(self, events: Table, is_event: BoolArray) -> None:
        """Add those rows that are events, dated; those that cannot be events are counted."""
        self._mark_ready_ranks(events)
        start, duration, file = events["start"], events["duration"], events["file"]
        is_sound = is_event & _is_time(start) & (duration >= 0) & (duration <= _MAX_DURATION_US)
        is_sound &= events["name"] >= 0
        if not np.array_equal(is_sound, is_event):
            no_name = is_event & (events["name"] < 0)
            no_start = is_event & np.isnan(start) & ~no_name
            self._note("traces.no_name", file, no_name)
            self._note("traces.no_start", file, no_start)
            self._note("traces.bad_time", file, is_event & ~(is_sound | no_start | no_name))
        kept = _rows(events, is_sound)
        start, duration, base = (kept.pop(key) for key in ("start", "duration", "base"))
        base[start > _ABSOLUTE_US] = 0
        kept["start_us"] = np.rint(start).astype(np.int64) + base
        kept["end_us"] = np.rint(start + duration).astype(np.int64) + base
        self._events.append(kept)

    def _mark_ready_ranks(self, events: Table) -> None:
        """Take the duration from events that say that a rank became ready: Horovod writes a bare number for it."""
        horovod = [code for lane, code in self.lanes.items() if lane.source == EventSource.HOROVOD]
        is_horovod = np.isin(events["lane"], horovod)
        if is_horovod.any():
            texts = self.names.texts
            used = np.unique(events["name"][is_horovod & (events["name"] >= 0)]).tolist()
            ranks = [name for name in used if texts[name].isascii() and texts[name].isdigit()]
            events["duration"][is_horovod & np.isin(events["name"], ranks)] = 0

    def _note(self, code: str, file: CodeArray, rows: BoolArray) -> None:
        """Count some rows."""
        if rows.any():
            first, _ = self._files[file[rows].min()]
            self._tally.note(code, count=int(np.count_nonzero(rows)), file=first.name)


def _joined(tables: list[Table]) -> Table:
    """One table of all, which are taken out of the list."""
    columns = {key: [table[key] for table in tables] for key in (tables[0] if tables else ())}
    tables.clear()
    return {key: np.concatenate(columns.pop(key)) for key in list(columns)}


def _rows(table: Table, rows: BoolArray | IntArray) -> Table:
    return {key: column[rows] for key, column in table.items()}


def _whole(numbers: FloatArray) -> IntArray:
    is_whole = (numbers >= 0) & (numbers < _MAX_STEP) & (numbers == np.floor(numbers))
    return np.where(is_whole, numbers, NO_NUMBER).astype(np.int64)


def _is_time(start: FloatArray) -> BoolArray:
    return np.asarray((start >= 0) & (start <= LATEST_US))


def _pairs(group: IntArray, is_begin: BoolArray) -> tuple[IntArray, IntArray]:
    """The places of begin events and of the end events that belong to them, in the order of time in each group.

    Of a group, the events at one depth of nesting are begins and ends in turn.
    """
    order = np.argsort(group, kind="stable")
    group, is_begin = group[order], is_begin[order]
    depth = np.cumsum(np.where(is_begin, 1, -1)) + ~is_begin
    by_depth = np.lexsort((depth, group))
    order, group, depth, is_begin = order[by_depth], group[by_depth], depth[by_depth], is_begin[by_depth]
    is_pair = is_begin[:-1] & ~is_begin[1:] & (group[:-1] == group[1:]) & (depth[:-1] == depth[1:])
    first = np.flatnonzero(is_pair)
    return order[first], order[first + 1]
