"""From the rows of trace files to columns, a block of rows at a time."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from jobreport.readers.faults import EARLIEST_S, LATEST_S
from jobreport.readers.traces.row import Args
from jobrules.measures.data_loading import SET_UP
from jobrules.model import SECOND_US, EventSource, Lane, Loader

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class Columns:
    """The events of trace files."""

    def __init__(self) -> None:
        self.lanes: dict[Lane, int] = {}
        self.names = Names()
        self.numbers = _Numbers()
        self.loaders: list[Loader] = []
        self._blocks: defaultdict[str, list[npt.NDArray[Any]]] = defaultdict(list)

    def add(self, events: Table) -> None:
        """Add some events."""
        for name, column in events.items():
            self._blocks[name].append(column)

    def take(self) -> Table:
        """All events; none is left here. Columns: ``file``, ``lane`` and ``name`` are positions, ``start_us`` and
        ``end_us`` count from the epoch where that is known, ``step``, ``pid`` and ``thread`` may be ``NO_NUMBER``.
        """
        return {name: np.concatenate(self._blocks.pop(name)) for name in list(self._blocks)}


class _Kind(NamedTuple):
    """What rows have in common."""

    ph: str | None
    name: str | None
    pid: Scalar
    tid: Scalar
    pid_arg: Scalar
    thread_id_arg: Scalar
    tid_arg: Scalar


class FileOfRows:
    """Adds the rows of one file to the columns, some rows at a time."""

    def __init__(self, number: int, file: SourceFile, origin: Origin, columns: Columns, tally: Tally) -> None:
        self._number = number
        self._file = file
        self._origin = origin
        self._columns = columns
        self._tally = tally
        self._base_us = origin.base_us
        #: Lanes of the file by their event type, and the one that each ``pid`` was last announced for.
        self._lanes: dict[str, int] = {}
        unknown = self._lane(_UNKNOWN)
        self._lane_of: defaultdict[Scalar, int] = defaultdict(lambda: unknown)
        #: Begin and end events, which are paired at the end of the file, and numbers of their threads.
        self._halves: list[Table] = []
        self._threads: dict[tuple[Scalar, Scalar], int] = {}

    def add(self, rows: Sequence[Row]) -> None:
        """Add the next rows."""
        args = [row.args or _NO_ARGS for row in rows]
        numbers = self._columns.numbers
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
        lane, base = self._lanes_and_bases(rows, kinds, code)
        events = {
            "start": np.array([row.ts for row in rows]),
            "duration": np.array([row.dur for row in rows]),
            "base": base,
            "lane": lane,
            "name": np.array([self._name(kind.name) for kind in kinds], np.int32)[code],
            "step": _whole(np.array([arg.step_num for arg in args], float)),
            "pid": np.array([numbers[kind.pid_arg] for kind in kinds], np.int64)[code],
            "thread": np.array([self._thread(kind) for kind in kinds], np.int64)[code],
        }
        is_event, is_begin, is_end = (
            np.array([kind.ph == ph for kind in kinds], np.bool_)[code] for ph in "XBE"
        )
        self._add_loaders(rows, events, is_event | is_begin)
        self._keep(events, is_event)
        if (is_half := is_begin | is_end).any():
            group = [self._threads.setdefault((kind.pid, kind.tid), len(self._threads)) for kind in kinds]
            events |= {"group": np.array(group, np.int64)[code], "is_begin": is_begin}
            self._halves.append(_rows(events, is_half))
        for kind, count in zip(kinds, np.bincount(code).tolist(), strict=True):
            if kind.ph not in _READ:
                self._note(_NO_EVENTS.get(kind.ph, "traces.other_type"), count)

    def close(self) -> None:
        """Add an event for each pair of a begin and an end event; count those without the other."""
        if not self._halves:
            return
        halves = {key: np.concatenate([some[key] for some in self._halves]) for key in self._halves[0]}
        is_begin = halves.pop("is_begin")
        begin, end = _pairs(halves.pop("group"), is_begin)
        self._note("traces.end_only", (~is_begin).sum() - len(end))
        self._note("traces.begin_only", is_begin.sum() - len(begin))
        halves["base"][halves["start"] > _ABSOLUTE_US] = 0
        first, last = _rows(halves, begin), _rows(halves, end)
        with np.errstate(invalid="ignore"):  # infinite times
            first["duration"] = last["start"] - first["start"] + (last["base"] - first["base"])
        for key in ("name", "step", "pid", "thread"):
            first[key] = np.where(first[key] < 0, last[key], first[key])
        self._keep(first, np.ones(len(begin), np.bool_))

    def _lanes_and_bases(
        self, rows: Sequence[Row], kinds: Sequence[_Kind], code: CodeArray
    ) -> tuple[CodeArray, IntArray]:
        """Lane and time base of each row: the last ones that were announced."""
        pids: dict[Scalar, int] = {}
        pid = np.array([pids.setdefault(kind.pid, len(pids)) for kind in kinds], np.int32)[code]
        lane = np.array([self._lane_of[one] for one in pids], np.int32)[pid]
        base = np.full(len(rows), self._base_us, np.int64)
        announces = np.array([kind.ph == "M" and kind.name == "process_name" for kind in kinds], np.bool_)
        for at in np.flatnonzero(announces[code]).tolist():
            row = rows[at]
            args = row.args or _NO_ARGS
            if args.start_time_since_epoch_in_micros is not None:
                self._base_us = self._time_base(args.start_time_since_epoch_in_micros)
                base[at:] = self._base_us
            elif isinstance(args.name, str) and self._lane_of[row.pid] != self._lane(args.name):
                self._lane_of[row.pid] = self._lane(args.name)
                lane[at:][pid[at:] == pids[row.pid]] = self._lane_of[row.pid]
        return lane, base

    def _time_base(self, value: object) -> int:
        """Microseconds since the epoch; 0 for what is no date."""
        if type(value) in (int, float) and EARLIEST_US <= value <= LATEST_US:  # type: ignore[operator]
            return round(value)  # type: ignore[call-overload, no-any-return]
        self._tally.note("traces.time_base", file=self._file.name)
        return 0

    def _lane(self, event_type: str) -> int:
        if event_type not in self._lanes:
            lane = Lane(
                node=self._origin.node,
                rank=self._origin.rank,
                event_type=self._columns.names.texts[self._name(event_type)],
                source=self._origin.source,
            )
            self._lanes[event_type] = self._columns.lanes.setdefault(lane, len(self._columns.lanes))
        return self._lanes[event_type]

    def _name(self, text: str | None) -> int:
        """The position of a name; -1 for none."""
        if text is None:
            return -1
        names = self._columns.names
        shortened = names.shortened
        position = names[text]
        self._note("traces.long_name", names.shortened - shortened)
        return position

    def _thread(self, kind: _Kind) -> int:
        values = (kind.thread_id_arg, kind.tid, kind.tid_arg)
        found = (self._columns.numbers[value] for value in values)
        return next((number for number in found if number >= 0), NO_NUMBER)

    def _add_loaders(self, rows: Sequence[Row], events: Table, is_begun: BoolArray) -> None:
        """Add the data loaders that events set up."""
        if (set_up := self._lanes.get(SET_UP)) is None:
            return
        is_set_up = (events["lane"] == set_up) & is_begun & (events["name"] >= 0) & _is_time(events["start"])
        for at in np.flatnonzero(is_set_up).tolist():
            args = rows[at].args or _NO_ARGS
            loading = whole_number(args.num_workers)
            ts, base_us = rows[at].ts, int(events["base"][at])
            self._columns.loaders.append(
                Loader(
                    node=self._origin.node,
                    rank=self._origin.rank,
                    iterator=self._columns.names.texts[events["name"][at]].removesuffix(".__init__"),
                    start_us=round(ts) + (0 if ts > _ABSOLUTE_US else base_us),
                    num_workers=None if loading == NO_NUMBER else loading,
                    pin_memory=args.pin_memory if isinstance(args.pin_memory, bool) else None,
                )
            )

    def _keep(self, events: Table, is_event: BoolArray) -> None:
        """Add those rows that are events, dated; those that cannot be events are counted."""
        if self._origin.source == EventSource.HOROVOD:
            self._mark_ready_ranks(events)
        start, duration = events["start"], events["duration"]
        no_name = is_event & (events["name"] < 0)
        no_start = is_event & np.isnan(start) & ~no_name
        is_sound = is_event & _is_time(start) & (duration >= 0) & (duration <= _MAX_DURATION_US) & ~no_name
        self._note("traces.no_name", no_name.sum())
        self._note("traces.no_start", no_start.sum())
        self._note("traces.bad_time", (is_event & ~(is_sound | no_start | no_name)).sum())
        kept = _rows(events, is_sound)
        start, duration, base = (kept.pop(key) for key in ("start", "duration", "base"))
        base[start > _ABSOLUTE_US] = 0
        kept["file"] = np.full(len(start), self._number, np.int32)
        kept["start_us"] = np.rint(start).astype(np.int64) + base
        kept["end_us"] = np.rint(start + duration).astype(np.int64) + base
        self._columns.add(kept)

    def _mark_ready_ranks(self, events: Table) -> None:
        """Take the duration from events that say that a rank became ready: Horovod writes a bare number for it."""
        texts = self._columns.names.texts
        used = np.unique(events["name"][events["name"] >= 0]).tolist()
        ranks = [name for name in used if texts[name].isascii() and texts[name].isdigit()]
        events["duration"][np.isin(events["name"], ranks)] = 0

    def _note(self, code: str, count: int | np.integer[Any]) -> None:
        if count:
            self._tally.note(code, count=int(count), file=self._file.name)


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
