"""From the rows of trace files to columns of events."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jobreport.readers.faults import EARLIEST_S, LATEST_S
from jobreport.readers.strays import FAR_US
from jobreport.readers.trace_rows import Args, Row
from jobrules.job import SECOND_US, BoolArray, EventSource, FloatArray, IntArray, Lane, Loader
from jobrules.loading import SET_UP

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally
    from jobreport.readers.trace_files import Origin
    from jobrules.job import CodeArray

EARLIEST_US, LATEST_US = int(EARLIEST_S) * SECOND_US, int(LATEST_S) * SECOND_US
#: Above it a time counts from the epoch, whatever the time base: three years after one no job runs.
_ABSOLUTE_US = 10**14

#: Lane of rows whose process was not announced.
_UNKNOWN = "Unknown"
#: Longer names are damage or malice; they would have to be carried through every page.
_LONGEST_NAME = 1000
_MOST_DIGITS = 18
_NO_NUMBER = -1
_NO_ARGS = Args()

_NO_NAME = "has no name"
_NO_START = "has no start"
_NO_TIME = "start or duration is negative, NaN, infinite or too large"
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """Some events of one file, in the order of its rows."""

    #: Position in the lanes and in the names.
    lane: CodeArray
    name: CodeArray
    start_us: IntArray
    end_us: IntArray
    step: IntArray
    pid: IntArray
    thread: IntArray
    #: Rows that each event takes in its file: 1, or 2 for one of a begin and an end.
    rows: npt.NDArray[np.int8]


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


@dataclass(kw_only=True)
class Dictionaries:
    """The lanes and names of all files, and the loaders that were met."""

    lanes: dict[Lane, int] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    loaders: dict[Loader, None] = field(default_factory=dict)


class FileOfRows:
    """Makes events of the rows of one file, some rows at a time."""

    def __init__(self, file: SourceFile, origin: Origin, known: Dictionaries, tally: Tally) -> None:
        self._file = file
        self._origin = origin
        self._known = known
        self._tally = tally
        self._base_us = origin.base_us
        self._lanes: dict[str, int] = {}
        #: The lane that each ``pid`` of the file was last announced for.
        self._lane_of: dict[Hashable, int] = {}
        #: What has begun and not ended: row, lane and time base.
        self._begun: defaultdict[tuple[Hashable, Hashable], list[tuple[Row, int, int]]] = defaultdict(list)

    def events(self, rows: Iterable[Row]) -> Columns:
        """The events of the next rows."""
        kept: list[Row] = []
        lanes: list[int] = []
        bases: list[int] = []
        pairs: list[int] = []
        left_out: Counter[str | None] = Counter()
        unknown, lane_of, base = self._lane(_UNKNOWN), self._lane_of, self._base_us
        for row in rows:
            ph = row.ph
            if ph == "X":
                kept.append(row)
                lanes.append(lane_of.get(row.pid, unknown))
                bases.append(base)
            elif ph == "M":
                self._announce(row)
                base = self._base_us
            elif ph == "B":
                begun = (row, lane_of.get(row.pid, unknown), _base_for(row.ts, base))
                self._begun[row.pid, row.tid].append(begun)
            elif ph == "E":
                open_ones = self._begun.get((row.pid, row.tid))
                if open_ones:
                    first, lane, first_base = open_ones.pop()
                    pairs.append(len(kept))
                    kept.append(_paired(first, row, _base_for(row.ts, base) - first_base))
                    lanes.append(lane)
                    bases.append(first_base)
                else:
                    self._skip(_NO_BEGIN)
            else:
                left_out[ph] += 1
        for ph, count in left_out.items():
            default = "of a kind that is not read" if ph else _NO_KIND
            self._skip(_WITHOUT_DURATION.get(ph or "", default), count)
        return self._columns(kept, lanes, bases, pairs)

    def close(self) -> None:
        """Count what has not ended."""
        self._skip(_NO_END, sum(map(len, self._begun.values())))

    def _announce(self, row: Row) -> None:
        """Take note of a time base or of the lane of a ``pid``; the last one holds."""
        args = row.args
        if row.name != "process_name" or args is None:
            return
        base = args.start_time_since_epoch_in_micros
        if base is not None:
            known = _time_base(base)
            if known is None:
                self._tally.add("skipped", "time bases", _NO_BASE, file=self._file.name)
            self._base_us = known or 0
        elif isinstance(args.name, str):
            self._lane_of[row.pid] = self._lane(args.name)

    def _lane(self, phase: str) -> int:
        """Number of a lane; none is added twice."""
        if phase not in self._lanes:
            known = self._known
            text = known.names.texts[known.names[phase]]
            lane = Lane(
                node=self._origin.node, worker=self._origin.worker, phase=text, source=self._origin.source
            )
            code = known.lanes.setdefault(lane, len(known.lanes))
            if len(phase) > _LONGEST_NAME:  # not worth keeping
                return code
            self._lanes[phase] = code
        return self._lanes[phase]

    def _columns(self, kept: list[Row], lanes: list[int], bases: list[int], pairs: list[int]) -> Columns:
        names = self._known.names
        name = np.fromiter(map(names.__getitem__, [row.name for row in kept]), np.int32, len(kept))
        if names.shortened:
            self._tally.add("corrected", "names", _TOO_LONG, count=names.shortened, file=self._file.name)
            names.shortened = 0
        takes = np.ones(len(kept), np.int8)
        takes[pairs] = 2
        ts, no_start = _numbers([row.ts for row in kept])
        dur, _ = _numbers([row.dur for row in kept])
        if self._origin.source == EventSource.HOROVOD:
            # With a bare number Horovod says that a rank became ready, which takes no time.
            used = {code: names.texts[code] for code in np.unique(name).tolist() if code >= 0}
            ranks = [code for code, text in used.items() if text.isascii() and text.isdigit()]
            dur[np.isin(name, ranks)] = 0
        with np.errstate(invalid="ignore"):
            bad_time = ~((ts >= 0) & (ts <= LATEST_US) & (dur >= 0) & (dur <= FAR_US))
        good = ~(no_start | bad_time) & (name >= 0)
        for reason, rows in (
            (_NO_NAME, name < 0),
            (_NO_START, no_start & (name >= 0)),
            (_NO_TIME, bad_time & ~no_start & (name >= 0)),
        ):
            self._skip(reason, int(takes[rows].sum()))
        if not good.all():
            kept = [row for row, ok in zip(kept, good.tolist(), strict=True) if ok]
        args = [row.args or _NO_ARGS for row in kept]
        number = _WholeNumbers()
        thread = number.of([one.thread_id for one in args])
        for other in ([row.tid for row in kept], [one.tid for one in args]):
            thread = np.where(thread < 0, number.of(other), thread)
        base_us = np.where(ts[good] > _ABSOLUTE_US, 0, np.fromiter(bases, np.int64, len(bases))[good])
        columns = Columns(
            lane=np.fromiter(lanes, np.int32, len(lanes))[good],
            name=name[good],
            start_us=base_us + _rounded(ts[good]),
            end_us=base_us + _rounded(ts[good] + dur[good]),
            step=number.of([one.step_num for one in args]),
            pid=number.of([one.pid for one in args]),
            thread=thread,
            rows=takes[good],
        )
        self._note_loaders(kept, columns)
        return columns

    def _note_loaders(self, kept: list[Row], columns: Columns) -> None:
        known = self._known
        mine = known.lanes.get(
            Lane(
                node=self._origin.node,
                worker=self._origin.worker,
                phase=SET_UP,
                source=self._origin.source,
            )
        )
        if mine is None:
            return
        for i in np.flatnonzero(columns.lane == mine).tolist():
            args = kept[i].args or _NO_ARGS
            workers = _whole(args.num_workers)
            loader = Loader(
                node=self._origin.node,
                worker=self._origin.worker,
                iterator=known.names.texts[columns.name[i]].removesuffix(".__init__"),
                start_us=int(columns.start_us[i]),
                num_workers=None if workers == _NO_NUMBER else workers,
                pin_memory=args.pin_memory if isinstance(args.pin_memory, bool) else None,
            )
            known.loaders[loader] = None

    def _skip(self, reason: str, count: int = 1) -> None:
        if count:
            self._tally.add("skipped", "rows", reason, count=count, file=self._file.name)


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
    return 0 if ts is not None and ts > _ABSOLUTE_US else base_us


def _time_base(value: object) -> int | None:
    """Microseconds since the epoch; none for what is no date."""
    if type(value) not in (int, float) or not EARLIEST_US <= value <= LATEST_US:  # type: ignore[operator]
        return None
    return round(value)  # type: ignore[call-overload, no-any-return]


def _numbers(values: Sequence[float | None]) -> tuple[FloatArray | IntArray, BoolArray]:
    """The numbers, and which are missing; those are 0."""
    array = np.array(values)
    if array.dtype.kind in "if":
        return array, np.zeros(len(values), np.bool_)
    # Some are missing, or have more than 63 bits.
    missing = np.array([value is None for value in values])
    return np.array([_float(value) for value in values], np.float64), missing


def _float(value: float | None) -> float:
    try:
        return 0.0 if value is None else float(value)
    except OverflowError:
        return float("inf")


def _rounded(values: FloatArray | IntArray) -> IntArray:
    return np.rint(values).astype(np.int64) if values.dtype.kind == "f" else np.asarray(values, np.int64)


class _WholeNumbers(dict[object, int]):
    """The number that a value is; few values are asked for often."""

    def __missing__(self, value: object) -> int:
        number = self[value] = _whole(value)
        return number

    def of(self, values: list[Any]) -> IntArray:
        """Numbers of steps, processes or threads; -1 for what is none."""
        if values.count(None) == len(values):
            return np.full(len(values), _NO_NUMBER, np.int64)
        try:
            return np.fromiter(map(self.__getitem__, values), np.int64, len(values))
        except TypeError:  # a list or an object is among them
            return np.fromiter(map(_whole, values), np.int64, len(values))


def _whole(value: object) -> int:
    """A whole number from 0 on, which may stand in a text; -1 for anything else."""
    if isinstance(value, str):
        is_number = value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
        return int(value) if is_number else _NO_NUMBER
    if isinstance(value, int | float) and 0 <= value < 10**_MOST_DIGITS and value == int(value):
        return int(value)
    return _NO_NUMBER
