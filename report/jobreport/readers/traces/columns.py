"""From the rows of trace files to columns of events."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from struct import pack
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from jobreport.readers.bounds import EARLIEST_US, LATEST_US
from jobreport.readers.columns import Positions, Table, short_name, whole_number
from jobreport.readers.traces.row import Args, Row, Scalar
from jobrules.measures.data_loading import SET_UP
from jobrules.model import SECOND_US, EventSource, Lane, Loader, StepMark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally
    from jobreport.readers.traces.files import Origin
    from jobrules.model import CodeArray, FloatArray, IntArray

#: Larger times count from the epoch, whatever the time base: no job runs three years.
_ABSOLUTE_US = 10**14
_MAX_DURATION_US = 30 * 24 * 3600 * SECOND_US
#: Events that are converted together: their columns fit in a processor's cache.
_MANY_EVENTS = 1 << 15
#: Stands for a step, process, thread or name that is not given.
NO_NUMBER = -1

#: Whose traces have whole steps, and the lane of its own work, which is none of the job's.
_RECORDER = "jobrecord "
RECORDER_LANE = "Recorder"
#: Event type of rows whose process was not announced.
_UNKNOWN = "Unknown"
#: Longer names would have to be carried through every page.
_MAX_NAME = 1000
_name = partial(short_name, longest=_MAX_NAME)
#: Whole numbers up to here are exact as floats.
_MAX_STEP = 2**53
#: Of the mark of a command.
_MAX_COMMAND = 16
#: Of the batches of one step.
_MAX_SIZE = 10**12
_NO_SIZE = NO_NUMBER, NO_NUMBER, False
_NO_ARGS = Args()
_NAN = float("nan")
#: Remarks on rows that are no events, by their ``ph``.
_NO_EVENTS: dict[str | None, str] = {
    None: "traces.no_type",
    **dict.fromkeys("iIR", "traces.instant"),
    **dict.fromkeys("C", "traces.counter"),
    **dict.fromkeys("stf", "traces.flow"),
    **dict.fromkeys("bneSTpF", "traces.async"),
    "E": "traces.end_only",
}


class _Place(Struct, frozen=True, eq=False):
    """Lane and time base of rows. Compared by identity, which is fast."""

    lane: Lane
    base_us: int


#: When a recording began, and the mark of a command.
Command: TypeAlias = tuple[int, str]
#: Of each origin, event type and time base.
_Places: TypeAlias = dict[tuple[str, str, EventSource, str, int], _Place]


class _Kind(NamedTuple):
    """What many events have in common."""

    name: str | None
    place: _Place
    pid: Scalar
    thread: Scalar


class _Kinds(dict[tuple[str | None, _Place, Scalar, Scalar], int]):
    """The position of each kind; one that is asked for and not there is added."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[_Kind] = []

    def __missing__(self, key: tuple[str | None, _Place, Scalar, Scalar]) -> int:
        kind = _Kind(*key)
        position = len(self.listed)
        self.listed.append(kind)
        # Each loader that is set up is a kind of its own.
        if kind.place.lane.event_type != SET_UP:
            self[key] = position
        return position


class _File(dict[Scalar, _Place]):
    """A file and what its rows have announced so far: the place of a row by its ``pid``."""

    def __init__(self, number: int, origin: Origin, places: _Places) -> None:
        super().__init__()
        self.number = number
        self.base_us = origin.base_us
        #: Whether jobrecord wrote it.
        self.is_recorded = False
        #: When its recording began, and a mark of the command that wrote it.
        self.command: Command | None = None
        #: Begin events whose end has not come yet, with their places, by process and thread.
        self.begun: defaultdict[tuple[Scalar, Scalar], list[tuple[Row, _Place]]] = defaultdict(list)
        #: What is left out or changed, by the remark on it.
        self.counts: Counter[str] = Counter()
        self._origin = origin
        self._event_types: dict[Scalar, str] = {}
        self._places = places

    def __missing__(self, pid: Scalar) -> _Place:
        node, rank, source = self._origin.node, self._origin.rank, self._origin.source
        event_type = self._event_types.get(pid, _UNKNOWN)
        key = node, rank, source, event_type, self.base_us
        if key not in self._places:
            lane = Lane(node=node, rank=rank, event_type=event_type, source=source)
            self._places[key] = _Place(lane, self.base_us)
        self[pid] = self._places[key]
        return self[pid]

    def set_event_type(self, pid: Scalar, event_type: str) -> None:
        """Announce it for all further rows of a process."""
        self._event_types[pid] = event_type
        self.pop(pid, None)

    def set_base(self, base_us: int) -> None:
        """Announce the time base of all further rows."""
        self.base_us = base_us
        self.clear()


class Columns:
    """The events of trace files, which are added one file after the other."""

    def __init__(self, files: Sequence[tuple[SourceFile, Origin]], tally: Tally) -> None:
        self.lanes: dict[Lane, int] = {}
        self.names = Positions(_name, _MAX_NAME)
        self.loaders: list[Loader] = []
        #: Whether step numbers are text, in any part of the files; None where there are none.
        self.numbers_as_text: set[bool | None] = set()
        #: Samples and tokens of steps, and whether they are inferred, each once.
        self.sizes: dict[tuple[int, int, bool], int] = {_NO_SIZE: 0}
        #: Node, and rank or process id, of the files that jobrecord wrote.
        self.recorded: set[tuple[str, str]] = set()
        #: The command that wrote a file, by the file's number.
        self.commands: dict[int, Command] = {}
        self._files = files
        self._tally = tally
        self._places: _Places = {}
        self._tables: list[Table] = []
        self._clear()

    def add(self, number: int, blocks: Iterable[tuple[Sequence[Row], bool | None]]) -> None:
        """Add the rows of a file."""
        source, origin = self._files[number]
        file, known = _File(number, origin, self._places), len(self.names.listed)
        for rows, as_text in blocks:
            self._add_block(rows, file)
            self.numbers_as_text.add(as_text)
            if self._counts.total() >= _MANY_EVENTS:
                self._convert()
        if file.is_recorded:
            self.recorded.add((origin.node, origin.rank))
            if file.command:
                self.commands[number] = file.command
        file.counts["traces.begin_only"] = sum(map(len, file.begun.values()))
        file.counts["traces.long_name"] = sum(map(_is_cut, self.names.listed[known:]))
        for code, count in file.counts.items():
            self._tally.note(code, count=count, file=source.name)

    def take(self) -> Table:
        """All events; none is left here. Columns: ``file``, ``lane`` and ``name`` are positions, ``start_us`` and
        ``end_us`` count from the epoch where that is known, ``step``, ``pid`` and ``thread`` may be ``NO_NUMBER``,
        ``mark`` is a ``StepMark``, ``size`` a position in ``sizes``.
        """
        self._convert()
        columns = {key: [table[key] for table in self._tables] for key in self._tables[0]}
        self._tables = []
        return {key: np.concatenate(columns.pop(key)) for key in list(columns)}

    def _clear(self) -> None:
        self._kinds = _Kinds()
        #: Positions of name and lane, time base, process and thread of each kind, and whether it takes no time.
        self._facts: list[tuple[int, int, int, int, int, bool]] = []
        #: Kind, start, duration and step of events, and how many of them are of which file.
        self._blocks: list[FloatArray] = []
        self._counts: Counter[int] = Counter()
        #: Marks of the few events that have one, by their place among these events.
        self._marks: dict[int, StepMark] = {}
        #: Sizes of those that have one, in the same way.
        self._sizes: dict[int, int] = {}

    def _add_block(self, rows: Sequence[Row], file: _File) -> None:
        kinds = self._kinds
        known = len(kinds.listed)
        codes: list[int] = []
        starts: list[float] = []
        durations: list[float] = []
        steps: list[float] = []
        for row in rows:
            if row.ph == "X":
                event, place = row, file[row.pid]
            elif row.ph == "E" and file.begun[row.pid, row.tid]:
                event, place = _paired(row, file)
            else:
                self._add_other(row, file)
                continue
            args = event.args or _NO_ARGS
            if args.profiled or args.cut:
                self._marks[self._counts.total() + len(codes)] = (
                    StepMark.CUT if args.cut else StepMark.PROFILED
                )
            if file.is_recorded and (args.samples or args.tokens or args.inferred):
                size = _size(args.samples), _size(args.tokens), args.inferred is True
                self._sizes[self._counts.total() + len(codes)] = self.sizes.setdefault(size, len(self.sizes))
            thread = args.thread_id
            if thread is None:
                thread = event.tid
            if thread is None:
                thread = args.tid
            codes.append(kinds[event.name, place, args.pid, thread])
            starts.append(event.ts)
            durations.append(event.dur)
            steps.append(_NAN if args.step_num is None else args.step_num)
        for kind in kinds.listed[known:]:
            self._add_kind(kind)
            if kind.place.lane.event_type == SET_UP:
                start = starts[codes.index(len(self._facts) - 1)]
                setting_up = (row for row in rows if row.ts == start and row.name == kind.name)
                self._add_loader(kind, next(setting_up, Row(ts=start)))
        # An array of these lists would look at each value twice.
        packed = pack(f"{4 * len(codes)}d", *codes, *starts, *durations, *steps)
        self._blocks.append(np.frombuffer(packed).reshape(4, len(codes)))
        self._counts[file.number] += len(codes)

    def _add_other(self, row: Row, file: _File) -> None:
        """Take up a row that is no event by itself."""
        if row.ph == "B":
            file.begun[row.pid, row.tid].append((row, file[row.pid]))
        elif row.ph != "M":
            file.counts[_NO_EVENTS.get(row.ph, "traces.other_type")] += 1
        elif row.name == "process_name":
            args = row.args or _NO_ARGS
            if (base_us := args.start_time_since_epoch_in_micros) is not None:
                is_date = type(base_us) in (int, float) and EARLIEST_US <= base_us <= LATEST_US
                file.counts["traces.time_base"] += not is_date
                file.is_recorded = isinstance(args.writer, str) and args.writer.startswith(_RECORDER)
                if isinstance(args.command, str) and type(args.recording) is int:
                    file.command = args.recording, args.command[:_MAX_COMMAND]
                file.set_base(round(base_us) if is_date else 0)
            elif isinstance(args.name, str):
                file.set_event_type(row.pid, self.names.listed[self.names[args.name]])

    def _add_kind(self, kind: _Kind) -> None:
        lane, name = kind.place.lane, kind.name or ""
        # The event that says that a rank became ready has its number for a name, and a duration without a meaning.
        takes_no_time = lane.source == EventSource.HOROVOD and name.isascii() and name.isdigit()
        self._facts.append(
            (
                NO_NUMBER if kind.name is None else self.names[name],
                self.lanes.setdefault(lane, len(self.lanes)),
                kind.place.base_us,
                _number(kind.pid),
                _number(kind.thread),
                takes_no_time,
            )
        )

    def _add_loader(self, kind: _Kind, row: Row) -> None:
        """Add the data loader that a row sets up."""
        # Rows may begin before the time base of their file.
        if kind.name is None or not (-_base(row, kind.place.base_us) <= row.ts <= LATEST_US):
            return
        args = row.args or _NO_ARGS
        loading = _number(args.num_workers)
        self.loaders.append(
            Loader(
                node=kind.place.lane.node,
                rank=kind.place.lane.rank,
                iterator=self.names.listed[self.names[kind.name]].removesuffix(".__init__"),
                start_us=round(row.ts) + _base(row, kind.place.base_us),
                num_workers=None if loading == NO_NUMBER else loading,
                pin_memory=args.pin_memory if isinstance(args.pin_memory, bool) else None,
            )
        )

    def _convert(self) -> None:
        """Make a table of the events that have come together, without those that cannot be events."""
        file = np.repeat(np.array(list(self._counts), np.int32), list(self._counts.values()))
        kind, start, duration, step = np.concatenate([np.empty((4, 0)), *self._blocks], axis=1)
        kind = kind.astype(np.int32)
        facts = np.array(self._facts, np.int64).reshape(-1, 6).T
        name, lane, base, pid, thread, takes_no_time = facts
        mark = np.zeros(len(kind), np.int8)
        mark[list(self._marks)] = list(self._marks.values())
        size = np.zeros(len(kind), np.int32)
        size[list(self._sizes)] = list(self._sizes.values())
        self._clear()
        if takes_no_time.any():
            duration[takes_no_time[kind] > 0] = 0
        base = base[kind]
        base[start > _ABSOLUTE_US] = 0
        is_named = name[kind] >= 0
        # Events may begin before the time base of their file.
        is_sound = is_named & (start >= -base) & (start <= LATEST_US)
        is_sound &= (duration >= 0) & (duration <= _MAX_DURATION_US)
        if not is_sound.all():
            has_no_start = np.isnan(start) & is_named
            self._note("traces.no_name", file[~is_named])
            self._note("traces.no_start", file[has_no_start])
            self._note("traces.bad_time", file[is_named & ~is_sound & ~has_no_start])
            columns = file, kind, base, start, duration, step, mark, size
            file, kind, base, start, duration, step, mark, size = (one[is_sound] for one in columns)
        self._tables.append(
            {
                "file": file,
                "lane": lane.astype(np.int32)[kind],
                "name": name.astype(np.int32)[kind],
                "start_us": _rounded(start) + base,
                "end_us": _rounded(start + duration) + base,
                "step": _whole(step),
                "pid": pid[kind],
                "thread": thread[kind],
                "mark": mark,
                "size": size,
            }
        )

    def _note(self, code: str, file: CodeArray) -> None:
        """Count rows of some files."""
        if len(file):
            first, _ = self._files[file.min()]
            self._tally.note(code, count=len(file), file=first.name)


def _paired(end: Row, file: _File) -> tuple[Row, _Place]:
    """The event of an end and the begin in front of it, and the place of that. What it does not say the end may."""
    begin, place = file.begun[end.pid, end.tid].pop()
    if begin.name is None:
        begin.name = end.name
    both = zip(astuple(begin.args or _NO_ARGS), astuple(end.args or _NO_ARGS), strict=True)
    begin.args = Args(*(last if first is None else first for first, last in both))
    begin.dur = end.ts - begin.ts + _base(end, file.base_us) - _base(begin, place.base_us)
    return begin, place


def _base(row: Row, base_us: int) -> int:
    """What is added to the time of a row."""
    return 0 if row.ts > _ABSOLUTE_US else base_us


def _number(value: object) -> int:
    """A whole number from 0 on; ``NO_NUMBER`` for anything else."""
    number = whole_number(value)
    return NO_NUMBER if number is None or number < 0 else number


def _size(value: object) -> int:
    """A number of samples or tokens; ``NO_NUMBER`` for anything else."""
    number = _number(value)
    return number if number <= _MAX_SIZE else NO_NUMBER


def _is_cut(name: str) -> bool:
    return len(name) == _MAX_NAME and name.endswith("…")


def _whole(numbers: FloatArray) -> IntArray:
    whole = np.where((numbers >= 0) & (numbers < _MAX_STEP), numbers, NO_NUMBER).astype(np.int64)
    whole[whole != numbers] = NO_NUMBER
    return whole


def _rounded(times: FloatArray) -> IntArray:
    """Times to ``LATEST_US`` and somewhat further on both sides of 0, rounded half to even."""
    # Floats from 2**52 on are whole; ``np.rint`` takes five times as long.
    whole = np.copysign(2.0**52, times)
    return (times + whole - whole).astype(np.int64)
