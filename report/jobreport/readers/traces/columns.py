"""From the rows of trace files to columns, one value after the other as the files have it."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jobreport.readers.faults import EARLIEST_S, LATEST_S
from jobreport.readers.traces.row import Args, Row
from jobrules.measures.data_loading import SET_UP
from jobrules.model import SECOND_US, Lane

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally
    from jobreport.readers.traces.files import Origin
    from jobreport.readers.traces.text import Block
    from jobrules.model import BoolArray, CodeArray, IntArray

EARLIEST_US, LATEST_US = int(EARLIEST_S) * SECOND_US, int(LATEST_S) * SECOND_US
#: Above it a time counts from the epoch, whatever the time base: three years after one no job runs.
ABSOLUTE_US = 10**14

#: Lane of rows whose process was not announced.
_UNKNOWN = "Unknown"
#: Longer names are damage or malice; they would have to be carried through every page.
_LONGEST_NAME = 1000
_MOST_DIGITS = 18
#: Texts and numbers whose number is remembered.
_MOST_KEPT = 1 << 16
NO_NUMBER = -1
_NO_ARGS = Args()

_NO_KIND = "does not say of what kind it is"
_NO_BEGIN = "ends what did not begin in its file"
_NO_END = "begins what does not end in its file"
_NO_BASE = "time base is no date"
_TOO_LONG = "name has more than 1000 characters, shortened"
_KINDS = {
    "marks a moment and has no duration": "iIR",
    "counter, has no duration": "C",
    "connects other rows and has no duration": "stf",
    "part of an asynchronous operation, which is not read": "bneSTpF",
}
_WITHOUT_DURATION = {ph: reason for reason, kinds in _KINDS.items() for ph in kinds}


class Names(dict[str | None, int]):
    """The position of each name; one that is asked for and not there is added."""

    def __init__(self) -> None:
        super().__init__({None: -1})
        self.texts: list[str] = []
        #: Times that a name was shortened since this was last set to 0.
        self.shortened = 0

    def __missing__(self, name: str | None) -> int:
        # A lone surrogate, which JSON can hold and UTF-8 cannot, becomes an escape.
        text = (name or "").encode("utf-8", "backslashreplace").decode()
        if len(text) > _LONGEST_NAME:
            text = text[: _LONGEST_NAME - 1] + "…"
            self.shortened += 1
        if text == name or text not in self:
            self[text] = len(self.texts)
            self.texts.append(text)
        return self[text]


class Columns:
    """What trace files tell of events, before it is looked at whether that can be."""

    def __init__(self) -> None:
        self.lanes: dict[Lane, int] = {}
        self.names = Names()
        #: Arguments of the events that set up a loader, by position.
        self.set_ups: dict[int, Args] = {}
        self._length = 0
        self._values = _no_values()

    def __len__(self) -> int:
        return self._length

    def add(self, count: int, **values: bytes | bytearray | npt.NDArray[Any] | int) -> None:
        """Add some events: a value of each to all columns, or one for all."""
        begin, end = self._length, self._length + count
        for name, more in values.items():
            column = self._values[name]
            if end > len(column):
                # Not a bytearray, because for arrays numpy asks for large pages, which come at a fraction of the cost.
                self._values[name] = np.empty(2 * end, column.dtype)
                self._values[name][:begin] = column[:begin]
            new = np.frombuffer(more, column.dtype) if isinstance(more, bytes | bytearray) else more
            self._values[name][begin:end] = new
        self._length = end

    def cut(self, length: int) -> None:
        """Forget all events but the first so many."""
        self._length = length
        self.set_ups = {at: args for at, args in self.set_ups.items() if at < length}

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column as it is, until something is added."""
        return self._values[name][: self._length]

    def take(self) -> dict[str, npt.NDArray[Any]]:
        """All columns by name, without a copy; none is left here."""
        columns = {name: self.column(name) for name in _TYPES}
        self._length, self._values = 0, _no_values()
        return columns


#: Columns. ``file``, ``lane`` and ``name`` are positions, -1 for no name; ``start`` and ``duration`` are
#: microseconds, NaN for no start; ``base`` is what a start counts from, in microseconds since the epoch;
#: ``step``, ``pid`` and ``thread`` are what ``is_number`` says, or none.
_TYPES = {
    "file": "i",
    "lane": "i",
    "name": "i",
    "start": "d",
    "duration": "d",
    "base": "q",
    "step": "q",
    "pid": "q",
    "thread": "q",
}


def _no_values() -> dict[str, npt.NDArray[Any]]:
    return {name: np.empty(0, kind) for name, kind in _TYPES.items()}


def is_number(values: IntArray) -> BoolArray:
    """Which values number a step, a process or a thread."""
    return np.asarray((values >= 0) & (values < 10**_MOST_DIGITS))


class WholeNumbers(dict[object, int]):
    """The number that a value is; few values are asked for often."""

    def __missing__(self, value: object) -> int:
        if len(self) >= _MOST_KEPT:
            self.clear()
        number = self[value] = whole_number(value)
        return number

    def of(self, values: list[Any]) -> bytes | None:
        """Numbers of steps, processes or threads, as ``is_number`` says; none where no value is there."""
        if values.count(None) == len(values):
            return None
        try:
            return _packed("q", values)
        except struct.error:
            pass
        try:
            return _packed("q", map(self.__getitem__, values))
        except TypeError:  # a list or an object is among them
            return _packed("q", map(whole_number, values))


class FileOfRows:
    """Adds what the rows of one file tell to the columns, some rows at a time."""

    def __init__(
        self,
        number: int,
        file: SourceFile,
        origin: Origin,
        columns: Columns,
        numbers: WholeNumbers,
        tally: Tally,
    ) -> None:
        self.number = number
        self._file = file
        self._origin = origin
        self._columns = columns
        self._numbers = numbers
        self._tally = tally
        self.base_us = origin.base_us
        self._lanes: dict[str, int] = {}
        unknown = self._lane(_UNKNOWN)
        #: The lane that each ``pid`` of the file was last announced for.
        self._lane_of: defaultdict[Hashable, int] = defaultdict(lambda: unknown)
        #: What has begun and not ended: row, lane and time base.
        self._begun: defaultdict[tuple[Hashable, Hashable], list[tuple[Row, int, int]]] = defaultdict(list)

    def add(self, rows: Sequence[Row]) -> None:
        """Add what the next rows tell."""
        kept: list[Row] = []
        lanes: list[int] = []
        bases = bytearray()
        left_out: Counter[str | None] = Counter()
        lane_of, behind = self._lane_of, 0
        others = [at for at, row in enumerate(rows) if row.ph != "X"]
        for at in (*others, len(rows)):
            if behind < at:
                complete = rows[behind:at]
                kept += complete
                lanes += map(lane_of.__getitem__, [row.pid for row in complete])
                bases += struct.pack("q", self.base_us) * len(complete)
            behind = at + 1
            if at == len(rows):
                break
            row = rows[at]
            ph = row.ph
            if ph == "M":
                self.announce(row)
            elif ph == "B":
                begun = (row, lane_of[row.pid], _base_for(row.ts, self.base_us))
                self._begun[row.pid, row.tid].append(begun)
            elif ph == "E":
                open_ones = self._begun.get((row.pid, row.tid))
                if open_ones:
                    first, lane, first_base = open_ones.pop()
                    kept.append(_paired(first, row, _base_for(row.ts, self.base_us) - first_base))
                    lanes.append(lane)
                    bases += struct.pack("q", first_base)
                else:
                    self._skip(_NO_BEGIN)
            else:
                left_out[ph] += 1
        for ph, count in left_out.items():
            default = "of a kind that is not read" if ph else _NO_KIND
            self._skip(_WITHOUT_DURATION.get(ph or "", default), count)
        self._keep(kept, lanes, bases)

    def close(self) -> None:
        """Count what has not ended."""
        self._skip(_NO_END, sum(map(len, self._begun.values())))

    def lanes(self, pids: Iterable[Hashable]) -> CodeArray:
        """The lane that each of these was last announced for."""
        return np.array([self._lane_of[pid] for pid in pids], np.int32)

    def set_ups(self, lanes: CodeArray) -> list[int]:
        """Which of these lanes are that of the events that set up a loader."""
        mine = self._lanes.get(SET_UP)
        return [] if mine is None else np.flatnonzero(lanes == mine).tolist()

    def announce(self, row: Row) -> None:
        """Take note of a time base or of the lane of a ``pid``; the last one holds."""
        args = row.args
        if row.name != "process_name" or args is None:
            return
        base = args.start_time_since_epoch_in_micros
        if base is not None:
            known = time_base(base)
            if known is None:
                self._tally.add("skipped", "time bases", _NO_BASE, file=self._file.name)
            self.base_us = known or 0
        elif isinstance(args.name, str):
            self._lane_of[row.pid] = self._lane(args.name)

    def _lane(self, phase: str) -> int:
        """Number of a lane; none is added twice."""
        if phase not in self._lanes:
            lanes, names = self._columns.lanes, self._columns.names
            text = names.texts[names[phase]]
            lane = Lane(
                node=self._origin.node, rank=self._origin.rank, event_type=text, source=self._origin.source
            )
            code = lanes.setdefault(lane, len(lanes))
            if len(phase) > _LONGEST_NAME:  # not worth keeping
                return code
            self._lanes[phase] = code
        return self._lanes[phase]

    def _keep(self, kept: list[Row], lanes: list[int], bases: bytearray) -> None:
        count = len(kept)
        columns, names, number = self._columns, self._columns.names, self._numbers.of
        mine = self._lanes.get(SET_UP)
        if mine is not None:
            at = len(columns)
            columns.set_ups |= {
                at + i: kept[i].args or _NO_ARGS for i, lane in enumerate(lanes) if lane == mine
            }
        args = [row.args or _NO_ARGS for row in kept]
        none = struct.pack("q", NO_NUMBER) * count
        columns.add(
            count,
            file=self.number,
            lane=_packed("i", lanes),
            name=_packed("i", map(names.__getitem__, [row.name for row in kept])),
            start=_times([row.ts for row in kept], float("nan")),
            duration=_times([row.dur for row in kept], 0.0),
            base=bases,
            step=number([one.step_num for one in args]) or none,
            pid=number([one.pid for one in args]) or none,
            thread=_first_of(
                number([one.thread_id for one in args]),
                number([row.tid for row in kept]),
                number([one.tid for one in args]),
            )
            or none,
        )
        if names.shortened:
            self._tally.add("corrected", "names", _TOO_LONG, count=names.shortened, file=self._file.name)
            names.shortened = 0

    def _skip(self, reason: str, count: int = 1) -> None:
        if count:
            self._tally.add("skipped", "rows", reason, count=count, file=self._file.name)


def add_blocks(files: Sequence[FileOfRows], blocks: Iterable[Block], columns: Columns) -> None:
    """Add the events of sound files, in whose order the blocks have them."""
    following, file = iter(files), files[0]
    for block in blocks:
        rows, count = block.examples, len(block.example)
        args = [row.args or _NO_ARGS for row in rows]
        pids = list(dict.fromkeys(row.pid for row in rows))
        pid = np.array([pids.index(row.pid) for row in rows], np.intp)[block.example]
        number, lane = np.empty((2, count), np.int32)
        base = np.empty(count, np.int64)
        begin = 0
        for end, row in (*block.between, (count, None)):
            if begin < end:
                number[begin:end], base[begin:end] = file.number, file.base_us
                lane[begin:end] = file.lanes(pids)[pid[begin:end]]
                for at in file.set_ups(lane[begin:end]):
                    columns.set_ups[len(columns) + begin + at] = args[block.example[begin + at]]
                begin = end
            if row is None:
                file = next(following, file)
            else:
                file.announce(row)
        names = [columns.names[row.name] for row in rows]
        threads = [
            _first_number(one.thread_id, row.tid, one.tid) for one, row in zip(args, rows, strict=True)
        ]
        columns.add(
            count,
            file=number,
            lane=lane,
            name=np.array(names, np.int32)[block.example],
            start=block.start,
            duration=block.duration,
            base=base,
            step=block.step,
            pid=np.array([whole_number(one.pid) for one in args], np.int64)[block.example],
            thread=np.array(threads, np.int64)[block.example],
        )


def _paired(begin: Row, end: Row, later_us: int) -> Row:
    """One row of a begin and an end, whose time base is that much later; without a time where one lacks it."""
    ts, dur = begin.ts, None
    if begin.ts is None or end.ts is None:
        ts = None
    else:
        try:
            dur = end.ts - begin.ts + later_us
        except OverflowError:  # a whole number too large for a float
            dur = float("inf")
    return Row(
        name=begin.name or end.name or begin.name,
        pid=begin.pid,
        tid=begin.tid,
        ts=ts,
        dur=dur,
        args=_united(begin.args, end.args),
    )


def _united(begin: Args | None, end: Args | None) -> Args | None:
    """All arguments; those at the end hold where both have one."""
    if begin is None or end is None:
        return begin or end
    mine, others = ({key: getattr(args, key) for key in Args.__struct_fields__} for args in (end, begin))
    return Args(**{key: others[key] if value is None else value for key, value in mine.items()})


def _base_for(ts: float | None, base_us: int) -> int:
    """What a time counts from."""
    return 0 if ts is not None and ts > ABSOLUTE_US else base_us


def time_base(value: object) -> int | None:
    """Microseconds since the epoch; none for what is no date."""
    if type(value) not in (int, float) or not EARLIEST_US <= value <= LATEST_US:  # type: ignore[operator]
        return None
    return round(value)  # type: ignore[call-overload, no-any-return]


def _packed(kind: str, values: Iterable[Any]) -> bytes:
    """The numbers as an array has them; the fastest way there is. Raises ``struct.error``."""
    numbers = tuple(values)
    return struct.pack(f"{len(numbers)}{kind}", *numbers)


def _times(values: list[float | None], absent: float) -> bytes:
    try:
        return _packed("d", values)
    except (struct.error, OverflowError):
        return _packed("d", [absent if value is None else _float(value) for value in values])


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _first_of(*columns: bytes | None) -> bytes | None:
    """The numbers of the first column that has one, row by row."""
    found = [np.frombuffer(column, np.int64) for column in columns if column is not None]
    if not found:
        return None
    numbers = found[0]
    for other in found[1:]:
        numbers = np.where(is_number(numbers), numbers, other)
    return numbers.tobytes()


def _first_number(*values: object) -> int:
    """The first that is a number, or -1."""
    return next((number for value in values if (number := whole_number(value)) >= 0), NO_NUMBER)


def whole_number(value: object) -> int:
    """A whole number from 0 on, which may stand in a text; -1 for anything else."""
    if isinstance(value, str):
        is_number = value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
        return int(value) if is_number else NO_NUMBER
    if isinstance(value, int | float) and 0 <= value < 10**_MOST_DIGITS and value == int(value):
        return int(value)
    return NO_NUMBER
