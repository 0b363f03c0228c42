"""From the cells of an nvidia-smi log to rows: which GPU, when, and what was measured."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers.bounds import MAX_GPUS
from jobreport.readers.names import as_name
from jobreport.readers.nvidia_smi import columns as says
from jobreport.readers.nvidia_smi.cells import IMPLAUSIBLE, is_no_value
from jobreport.readers.nvidia_smi.columns import Column, columns, query_of, without_gpu
from jobreport.readers.nvidia_smi.measured import Measured
from jobreport.readers.nvidia_smi.rows import GPU, Rows, count_of
from jobreport.readers.nvidia_smi.table import Texts, numbered
from jobreport.readers.nvidia_smi.times import RELATIVE, ZONED, Times, times_of
from jobrules.model import SECOND_US, BoolArray, FloatArray, IntArray, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from jobreport.readers.nvidia_smi.table import Table

_NUMBERED = re.compile(r"(?:(?:gpu|cuda|nvidia|device)[ :_-]?)?\+?([0-9]{1,4})(?:\.0+)?", re.IGNORECASE)
_GPU = re.compile(r"gpu[0-9]+")
#: Bits of ``clocks_event_reasons.active`` (NVML, nvmlClocksEventReasons) by the metric that they make 100%.
_MASKS = {
    Metric.GPU_THERMAL_SLOWDOWN: 0x20 | 0x40,
    Metric.GPU_POWER_CAP: 0x4,
    # The power brake, or heat or a reason that the hardware does not name. With heat both may be set.
    Metric.GPU_HARDWARE_SLOWDOWN: 0x8 | 0x80,
}
#: GPUs of a machine are fewer, and their numbers lower; in this share of the rows comes the next one.
_GPUS, _ROWS_IN_TURN = 64, 0.75
#: Combinations of names whose rows are kept, and machines among them: more are damage or malice.
_MAX_NAMES, _MAX_HOSTS = 4096, 1024
#: In the place of the GPU of a row: one of too many GPUs of a machine, or of too many machines or GPUs of a file.
_SURPLUS_GPU, _SURPLUS_NODE = -1, -2
#: Where so many of the values are the share of memory in use, all are.
_SHARE_IN_USE = 0.9

#: Numbers for which there is room at first, how many times as much is reserved for more, and how many more at most.
_ROOM, _ROOM_STEP, _MAX_ROOM_STEP = 64, 32, 1 << 21

#: A column and its cells.
_Cells: TypeAlias = "tuple[Column, Texts]"
_Note: TypeAlias = "Callable[..., None]"


class Part(Struct, frozen=True, kw_only=True, eq=False):
    """The rows under the same names of columns."""

    #: What kind of times they have (``nvidia_smi.times``).
    kind: str
    #: A GPU of a machine each, by its names; not empty.
    gpus: list[Rows]


class FileRows:
    """The rows of a file, gathered table by table: what a column means is known when all of them are there."""

    def __init__(self, note: _Note) -> None:
        """``note`` counts a remark, as ``Tally.note`` of this file."""
        self._note = note
        self._parts: dict[Hashable, _Gathered] = {}

    def add(self, table: Table) -> None:
        """Keep what a table says."""
        note = partial(self._note, count=len(table.lines), line=int(table.lines[0]))
        if query := query_of(table.names):
            note("nvidia_smi.other_query", query=query)
            return
        for one in _by_gpu(table):
            said = _said(one)
            found = _times(said)
            if not found and not (table.each_second and says.PROCESS not in said):
                note("nvidia_smi.no_time")
                continue
            kind = found[0].kind if found else None
            # Whatever the columns are called that are not read.
            pairs = zip(one.names, columns(one.names), strict=True)
            key = (*(name if meaning else "" for name, meaning in pairs), kind)
            if key not in self._parts:
                self._parts[key] = _Gathered(one.names, kind, partial(self._note, line=table.line))
            self._parts[key].add(one, said, found)

    def finish(self) -> list[Part]:
        """The rows that have a time and a value."""
        return [part for gathered in self._parts.values() if (part := gathered.finish()).gpus]


def _by_gpu(table: Table) -> list[Table]:
    """A table for each GPU of one with columns of several (``gpu0_util``), else the table itself.

    The number is left out of the names: the columns of all GPUs are in one unit.
    """
    meanings = columns(table.names)
    numbers = dict.fromkeys(one.gpu for one in meanings if one and one.gpu is not None)
    if not numbers or table.each_second or any(one and one.says == says.INDEX for one in meanings):
        return [table]
    of_each = {one.metric for one in meanings if one and one.gpu is not None}
    found = []
    for number in numbers:
        # Next to the columns of each GPU, one of the same metric is of all of them.
        mine = [
            i
            for i, one in enumerate(meanings)
            if one and (one.gpu == number or (one.gpu is None and one.metric not in of_each))
        ]
        names = (*(without_gpu(table.names[i]) for i in mine), says.INDEX)
        cells = [*(table.columns[i] for i in mine), Texts.of([str(number)] * len(table.lines))]
        found.append(replace(table, names=names, columns=cells))
    return found


def _said(table: Table) -> dict[str, _Cells]:
    """The first column for each word of what a row says."""
    found: dict[str, _Cells] = {}
    for column, texts in zip(columns(table.names), table.columns, strict=True):
        if column and column.says:
            found.setdefault(column.says, (column, texts))
    return found


class _Growing:
    """Numbers that come piece by piece.

    Their memory is reserved in large steps, of which the system gives only what is used: many lists that grow in small
    steps leave holes that take as much again.
    """

    def __init__(self, dtype: type) -> None:
        self.count = 0
        self._room: NDArray[Any] = np.empty(_ROOM, dtype)

    def add(self, more: NDArray[Any]) -> None:
        """Add some."""
        end = self.count + len(more)
        if end > len(self._room):
            size = min(_ROOM_STEP * len(self._room), len(self._room) + _MAX_ROOM_STEP)
            self._room = self._moved(np.empty(max(size, end), self._room.dtype))
        if self._room.dtype == np.float32 and more.dtype == np.float64:
            self._room = self._moved(np.empty(len(self._room)))
        self._room[self.count : end] = more
        self.count = end

    def _moved(self, room: NDArray[Any]) -> NDArray[Any]:
        room[: self.count] = self.all()
        return room

    def all(self) -> NDArray[Any]:
        """(n,) all of them."""
        return self._room[: self.count]


class _OfGpu:
    """The rows of a GPU while they are gathered."""

    def __init__(self, line: int, columns: int) -> None:
        self.line = line
        self.time_us = _Growing(np.int64)
        #: Of each column that has any, up to the last table in which it has some.
        self._numbers: list[_Growing | None] = [None] * columns

    def add(self, time_us: IntArray, numbers: Iterable[FloatArray | None]) -> None:
        """Add rows; columns that have no number in them are ``None``."""
        for column, more in enumerate(numbers):
            if more is not None:
                self._filled(column).add(more)
        self.time_us.add(time_us)

    def numbers(self, column: int) -> FloatArray:
        """(n,) the numbers of a column, NaN where there is none."""
        return self._filled(column).all()

    def _filled(self, column: int) -> _Growing:
        numbers = self._numbers[column] = self._numbers[column] or _Growing(np.float32)
        if missing := self.time_us.count - numbers.count:
            numbers.add(np.full(missing, np.nan, np.float32))
        return numbers


class _Gathered:
    """The rows of the tables of a file that have the same columns, and times of one kind or none."""

    def __init__(self, names: Sequence[str], kind: str | None, note: _Note) -> None:
        self._kind, self._note = kind, note
        meanings = columns(names)
        #: What names a GPU or a machine.
        self._words = {one.says for one in meanings if one and one.says} & _NAME_OF.keys()
        self._is_of_processes = any(one and one.says == says.PROCESS for one in meanings)
        #: Whether there is any process, and whether any has a number for its use.
        self._has_process = self._is_use_known = False
        #: The place of each GPU by the host, the index, the bus id, and the UUID.
        self._place: dict[tuple[str, ...], int] = {}
        self._gpus: list[_OfGpu] = []
        #: What the rows of each host call its GPUs.
        self._of_host: dict[str, set[str]] = {}
        #: Columns of metrics, and their places; what a column may measure is in the order of likelihood.
        self._measured: list[Measured] = []
        self._places: list[int] = []
        self._either: list[range] = []
        #: That of the use in a column that may have the indices of GPUs instead.
        self._use: int | None = None
        for place, (name, one) in enumerate(zip(names, meanings, strict=True)):
            if one and one.says == says.MASK:
                for metric, bits in _MASKS.items():
                    self._add_column(place, Measured(name, Column(bits=bits), metric))
            # Of all that is said of processes, only their utilization adds up to that of a GPU.
            elif one and (not self._is_of_processes or one.metric is Metric.GPU_UTILIZATION):
                if one.says and one.otherwise:
                    self._use = len(self._measured)
                either = (one, one.otherwise)
                self._add_column(
                    place, *(Measured(name, some, some.metric) for some in either if some and some.metric)
                )

    def _add_column(self, place: int, *either: Measured) -> None:
        if either:
            self._either.append(range(len(self._measured), len(self._measured) + len(either)))
            self._measured += either
            self._places += [place] * len(either)

    def add(self, table: Table, said: Mapping[str, _Cells], when: tuple[Times, Texts] | None) -> None:
        """Keep the rows of a table; where rows have times, those with one and with any number."""
        usable = np.ones(len(table.lines), np.bool_)

        def leave_out(code: str, lacking: BoolArray, texts: Texts | None = None, **fields: Any) -> None:
            rows = np.flatnonzero(usable & lacking)
            usable[rows] = False
            if len(rows):
                text = texts[int(rows[0])] if texts else ""
                self._note(code, count=len(rows), line=int(table.lines[rows[0]]), text=text, **fields)

        cells = self._with_idle(table, said) if self._is_of_processes else table.columns
        numbers = [
            one.read(cells[place], table.lines)
            for place, one in zip(self._places, self._measured, strict=True)
        ]
        time_us = np.zeros(len(usable), np.int64)
        if when:
            times, texts = when
            time_us = times.time_us
            leave_out("nvidia_smi.other_time", times.other, texts)
            leave_out("nvidia_smi.no_time", ~times.there, texts)
            leave_out("nvidia_smi.no_value", np.all([usable, *map(np.isnan, numbers)], axis=0))
        if self._use is not None and not self._gpus and self._measured[self._use].is_bare is not None:
            self._words.discard(says.INDEX)
        place = self._places_of(said, table.lines)
        leave_out("samples.devices", place == _SURPLUS_GPU, limit=MAX_GPUS, unit="rows")
        leave_out("nvidia_smi.many_nodes", place == _SURPLUS_NODE, nodes=_MAX_HOSTS, gpus=_MAX_NAMES)
        rows = np.flatnonzero(usable)
        # Numbers of 16 bits are sorted in time that is proportional to their count.
        rows = rows[np.argsort(place[rows], kind="stable")]
        time_us = time_us[rows]
        sorted_ = [None if np.isnan(one).all() else one[rows] for one in numbers]
        gpus, begins = np.unique(place[rows], return_index=True)
        for gpu, begin, end in zip(gpus.tolist(), begins, [*begins, len(rows)][1:], strict=True):
            self._gpus[gpu].add(
                time_us[begin:end], (one if one is None else one[begin:end] for one in sorted_)
            )

    def _with_idle(self, table: Table, said: Mapping[str, _Cells]) -> list[Texts]:
        """The columns, with 0 for a dash: no process ran, or one that did nothing."""
        processes = said[says.PROCESS][1].distinct
        self._has_process |= any(not is_no_value(text) for text in processes)
        for place in self._places:
            self._is_use_known |= any(text.strip()[:1].isdigit() for text in table.columns[place].distinct)
        return [
            Texts.of(["0" if texts[row] == "-" else texts[row] for row in range(len(texts.code))])
            for texts in table.columns
        ]

    def _places_of(self, said: Mapping[str, _Cells], lines: IntArray) -> NDArray[np.int16]:
        """(n,) the place of the GPU of each row; where there are too many, below 0."""
        texts = {word: said[word][1] for word in sorted(self._words)}
        if not self._gpus and says.INDEX in texts:
            numbers = [text for text in texts[says.INDEX].distinct if _NUMBERED.fullmatch(text.strip())]
            if len(numbers) > _GPUS:
                self._words.discard(says.INDEX)
                del texts[says.INDEX]
                self._note("nvidia_smi.row_numbers")
        first, code = np.zeros(1, np.int64), np.zeros(len(lines), np.int64)
        if texts:
            first, code = numbered([one.code.view(np.uint64) for one in texts.values()])
        kinds = [
            tuple(_name(word, texts[word][row]) if word in texts else "" for word in _NAME_OF)
            for row in first.tolist()
        ]
        new = {names: kind for kind, names in enumerate(kinds) if names not in self._place}
        # The first row of each kind: of several places the last one that is written stays.
        begins = np.zeros(len(kinds), np.int64)
        begins[code[::-1]] = np.arange(len(code))[::-1]
        for row, names in sorted((int(begins[kind]), names) for names, kind in new.items()):
            host, index, bus, uuid = names
            if len(self._of_host) < _MAX_HOSTS:
                self._of_host.setdefault(host, set())
            gpu, mine = index or bus or uuid, self._of_host.get(host)
            if mine is None or len(self._gpus) == _MAX_NAMES or (len(mine) == MAX_GPUS and gpu not in mine):
                continue
            mine.add(gpu)
            self._place[names] = len(self._gpus)
            self._gpus.append(_OfGpu(int(lines[row]), len(self._measured)))
        is_full = len(self._gpus) == _MAX_NAMES
        surplus = [
            _SURPLUS_NODE if is_full or host not in self._of_host else _SURPLUS_GPU for host, *_ in kinds
        ]
        return np.array([*map(self._place.get, kinds, surplus)], np.int16)[code]

    def finish(self) -> Part:
        """The rows that have a value."""
        chosen = [next((i for i in some if self._measured[i].has_number), some[0]) for some in self._either]
        index = None
        if self._use in chosen:
            if says.INDEX in self._words or self._is_index(self._use):
                chosen.remove(self._use)
                index = self._use
            else:
                one = self._measured[self._use]
                self._note("nvidia_smi.use_in_gpu", count=one.has_number, name=one.name)
        used = self._used(chosen)
        if self._kind is None:
            self._note("nvidia_smi.assumed_second")
        found = [
            rows
            for names, place in self._place.items()
            if self._gpus[place].time_us.count
            for rows in self._rows(names, self._gpus[place], used, index)
        ]
        self._gpus.clear()
        self._settle_activity(found, used)
        self._note_lost([self._measured[i] for i in used])
        # In a log that numbers GPUs, a row with another text is damaged.
        numbers = [rows for rows in found if not rows.gpu.name or _GPU.fullmatch(rows.gpu.name)]
        if 2 * (sound := count_of(numbers)) > (all_ := count_of(found)):
            self._note("nvidia_smi.no_number", count=all_ - sound)
            found = numbers
        # In a log that names GPUs or machines, a row that does not is damaged.
        for what, nameless in (
            ("GPU", [rows for rows in found if rows.gpu == GPU()]),
            ("machine", [rows for rows in found if not rows.host]),
        ):
            if len(nameless) < len(found):
                self._note("nvidia_smi.no_name", count=count_of(nameless), what=what)
                gone = {*map(id, nameless)}
                found = [rows for rows in found if id(rows) not in gone]
        return Part(kind=self._kind or RELATIVE, gpus=found)

    def _rows(
        self, names: tuple[str, ...], one: _OfGpu, used: Sequence[int], index: int | None
    ) -> Iterator[Rows]:
        """The rows of a GPU, or of those whose numbers are in a column."""
        host, name, bus, uuid = names
        time_us = one.time_us.all()
        if self._kind is None:
            time_us = np.arange(one.time_us.count) * SECOND_US
        rows = Rows(
            gpu=GPU(name=name, bus=bus, uuid=uuid),
            host=host,
            line=one.line,
            time_us=time_us,
            values=self._values(one, used),
        )
        impossible = [place for i in used if (place := self._measured[i].first_impossible)[0]]
        first = dict(zip(("line", "text"), min(impossible), strict=True)) if impossible else {}
        of_each = [rows]
        if index is not None and says.INDEX not in self._words:
            numbers = one.numbers(index)
            of_each = [rows.where(np.isnan(numbers))] + [
                replace(rows.where(numbers == number), gpu=replace(rows.gpu, name=f"gpu{int(number)}"))
                for number in np.unique(numbers[~np.isnan(numbers)]).tolist()
            ]
        for some in of_each:
            there = ~np.all(
                [np.ones(len(some.time_us), np.bool_), *map(np.isnan, some.values.values())], axis=0
            )
            self._note("nvidia_smi.no_value", count=int(np.count_nonzero(~there)), **first)
            if there.any():
                whole = some if there.all() else some.where(there)
                yield _summed(whole, self._note) if self._is_of_processes else whole

    def _is_index(self, column: int) -> bool:
        """Whether the numbers of a column are those of GPUs: the next one in the next row, the first after the last."""
        if not self._measured[column].is_bare:
            return False
        in_turn = count = 0
        for one in self._gpus:
            numbers = one.numbers(column)
            if self._kind is not None:
                numbers = numbers[np.argsort(one.time_us.all(), kind="stable")]
            distinct, place = np.unique(numbers[~np.isnan(numbers)], return_inverse=True)
            if not len(distinct):
                continue
            if len(distinct) > _GPUS or (distinct != np.floor(distinct)).any() or distinct[-1] >= _GPUS:
                return False
            count += len(place) - 1
            in_turn += int(np.count_nonzero(np.diff(place) % len(distinct) == 1 % len(distinct)))
        return in_turn >= _ROWS_IN_TURN * count

    def _used(self, chosen: Sequence[int]) -> list[int]:
        """Of the columns of each metric the best that has a number, and all that are reasons."""
        by_metric: defaultdict[Metric, list[int]] = defaultdict(list)
        for i in chosen:
            one = self._measured[i]
            if one.unit.factor is None:
                self._note_unit(one)
            by_metric[one.metric].append(i)
        used = []
        for metric, all_ in by_metric.items():
            columns = {i: self._measured[i].column for i in all_}
            filled = [i for i in all_ if self._measured[i].has_number]
            # Of "gpu_util" and "gpu_util_smoothed" the one that says less.
            best = min(filled or all_, key=lambda i: (columns[i].rank, len(self._measured[i].name)))
            equal = sum(columns[i].rank == columns[best].rank and not columns[i].bits for i in filled)
            self._note("nvidia_smi.equal_column", count=max(equal - 1, 0), metric=metric.label)
            used += [i for i in all_ if i == best or columns[i].bits]
        return used

    def _values(self, one: _OfGpu, used: Sequence[int]) -> dict[Metric, FloatArray]:
        """(n,) of each metric, NaN where there is no value."""
        found: dict[Metric, FloatArray] = {}
        is_by_software = True
        for i in used:
            measured = self._measured[i]
            factor = measured.unit.factor
            if factor is None or not measured.has_number:
                continue
            values = one.numbers(i)
            if math.frexp(factor)[0] != 0.5:  # no power of two: the product may have more digits
                values = values.astype(np.float64)
            np.multiply(values, factor, out=values)
            outside = measured.outside(values)
            if outside.any():
                values[outside] = np.nan
                measured.lose(IMPLAUSIBLE, int(np.count_nonzero(outside)), *measured.first_impossible)
            metric = measured.metric
            # Of several reasons that are one metric any is enough.
            found[metric] = np.fmax(found[metric], values) if metric in found else values
            if metric is Metric.GPU_THERMAL_SLOWDOWN:
                is_by_software &= measured.column.rank > 0
        heat, hardware = found.get(Metric.GPU_THERMAL_SLOWDOWN), found.get(Metric.GPU_HARDWARE_SLOWDOWN)
        if heat is not None and hardware is not None and is_by_software:
            # That the software names no heat does not say whether the hardware slows for it.
            heat[(hardware > 0) & (heat == 0)] = np.nan
        if self._has_process and not self._is_use_known:
            # As on Windows: a dash is no use of a process that runs, but nobody knows it.
            found.clear()
        return found

    def _settle_activity(self, gpus: Sequence[Rows], used: Sequence[int]) -> None:
        """Leave out what a script calls the utilization of memory, and what is the share of it in use."""
        columns = [self._measured[i] for i in used]
        metric = Metric.GPU_MEMORY_ACTIVITY
        name = next((one.name for one in columns if one.metric is metric and not one.column.own), "")
        shares = count = 0
        for rows in gpus:
            values = rows.values.get(metric)
            used_b, total_b = (
                rows.values.get(one) for one in (Metric.GPU_MEMORY_USED, Metric.GPU_MEMORY_TOTAL)
            )
            if values is not None:
                telling = ~np.isnan(values)
                if used_b is not None and total_b is not None:
                    # A GPU that idles has little of both.
                    telling &= ~((values <= 1) & (100 * used_b <= 2 * total_b))
                    # Rounded, whatever the size.
                    is_share = np.abs(values * total_b - 100 * used_b) <= total_b
                    shares += int(np.count_nonzero(is_share & telling))
                count += int(np.count_nonzero(telling))
        if not name or all(rows.values.get(metric) is None for rows in gpus):
            return
        if not shares or shares <= _SHARE_IN_USE * count:
            self._note("nvidia_smi.assumed_activity", name=name)
            return
        self._note("nvidia_smi.not_activity", name=name)
        for rows in gpus:
            rows.values.pop(metric, None)

    def _note_lost(self, used: Sequence[Measured]) -> None:
        """Count the cells without a value, and say which units were assumed."""
        for one in used:
            for code, (count, line, text) in one.lost.items():
                self._note(code, count=count, line=line, text=text, unit="values")
            if one.has_number and one.unit.code:
                self._note_unit(one)

    def _note_unit(self, one: Measured) -> None:
        line, text = one.first_impossible
        place = {"line": line, "text": text} if line else {}
        unit = one.unit
        self._note(unit.code, name=one.name, measure=one.metric.quantity.noun, scale=unit.scale, **place)


# Names


def _bus(text: str) -> str:
    """The bus id as ``7:00.0``: tools write ``00000000:07:00.0``, ``0000:07:00.0`` or ``07:00.0``."""
    return as_name(text.lower().lstrip("0:"))


def _gpu_name(text: str) -> str:
    match = _NUMBERED.fullmatch(text)
    return f"gpu{int(match[1])}" if match else as_name(text)


#: What makes a name of the text in a column that names something.
_NAME_OF: dict[str, Callable[[str], str]] = {
    says.HOST: as_name,
    says.INDEX: _gpu_name,
    says.BUS: _bus,
    says.UUID: as_name,
}


def _name(word: str, text: str) -> str:
    return "" if is_no_value(text) else _NAME_OF[word](text)


# When


def _times(said: Mapping[str, _Cells]) -> tuple[Times, Texts] | None:
    """When the rows were written, and the cells that say so; ``None`` without a column of times."""
    if says.TIME in said:
        column, texts = said[says.TIME]
        if says.DATE in said:
            dates = said[says.DATE][1]
            texts = Texts.of([f"{dates[row]} {texts[row]}" for row in range(len(texts.code))])
        return times_of(texts, elapsed=False, factor=column.factor or 1.0), texts
    if says.EPOCH in said:
        _, texts = said[says.EPOCH]
        times = times_of(texts, elapsed=False)
        # Smaller numbers are those of a training's epochs.
        if times.kind == ZONED:
            return times, texts
    if says.ELAPSED in said:
        column, texts = said[says.ELAPSED]
        return times_of(texts, elapsed=True, factor=column.factor or 1.0), texts
    return None


def _summed(rows: Rows, note: _Note) -> Rows:
    """Of the rows of processes, one for each moment."""
    _, first, moment = np.unique(rows.time_us, return_index=True, return_inverse=True)
    note("nvidia_smi.added_process", count=len(rows.time_us) - len(first))
    values = {
        metric: np.minimum(np.bincount(moment, weights=np.nan_to_num(one)), 100.0)
        for metric, one in rows.values.items()
    }
    return replace(rows, time_us=rows.time_us[first], values=values)
