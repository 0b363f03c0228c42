"""From the cells of an nvidia-smi log to rows: which GPU, when, and what was measured."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec.structs import replace

from jobreport.readers.names import as_name
from jobreport.readers.nvidia_smi import columns as says
from jobreport.readers.nvidia_smi.cells import is_no_value
from jobreport.readers.nvidia_smi.columns import Column, columns, query_of, without_gpu
from jobreport.readers.nvidia_smi.measured import Measured
from jobreport.readers.nvidia_smi.rows import GPU, Names, Places, Rows, gpus_of, nowhere
from jobreport.readers.nvidia_smi.table import Texts, numbered
from jobreport.readers.nvidia_smi.times import RELATIVE, ZONED, Times, times_of
from jobrules.model import SECOND_US, BoolArray, FloatArray, IntArray, Metric, natural_sorted

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from jobreport.readers.nvidia_smi.table import Table

_NUMBERED = re.compile(r"(?:gpu|cuda|nvidia|device)?[ :_-]?\+?([0-9]{1,4})(?:\.0+)?", re.IGNORECASE)
#: Bits of ``clocks_event_reasons.active`` (NVML, nvmlClocksEventReasons) by the metric that they make 100%.
_MASKS = {
    Metric.GPU_THERMAL_SLOWDOWN: 0x20 | 0x40,
    Metric.GPU_POWER_CAP: 0x4,
    # The power brake, or heat or a reason that the hardware does not name. With heat both may be set.
    Metric.GPU_HARDWARE_SLOWDOWN: 0x8 | 0x80,
}
#: GPUs of a machine are fewer, and their numbers lower; in this share of the rows comes the next one.
_GPUS, _ROWS_IN_TURN = 64, 0.75

#: A column and its cells.
_Cells: TypeAlias = "tuple[Column, Texts]"
_Note: TypeAlias = "Callable[..., None]"


class FileRows:
    """The rows of a file, gathered table by table: what a column means is known when all of them are there."""

    def __init__(self, note: _Note) -> None:
        """``note`` counts a remark, as ``Tally.note`` of this file."""
        self._note = note
        self._parts: dict[Hashable, _Part] = {}

    def add(self, table: Table) -> None:
        """Keep what a table says."""
        note = partial(self._note, count=len(table.lines), line=int(table.lines[0]))
        if query := query_of(table.names):
            note("nvidia_smi.other_query", query=query)
            return
        for one in _by_gpu(table):
            said = _said(one)
            found = _times(said)
            if not found and not table.each_second:
                note("nvidia_smi.no_time")
                continue
            kind = found[0].kind if found else None
            # Whatever the columns are called that are not read.
            pairs = zip(one.names, columns(one.names), strict=True)
            key = (*(name if meaning else "" for name, meaning in pairs), kind)
            part = self._parts.get(key)
            if part is None:
                part = _Part(one.names, kind, partial(self._note, line=table.line))
                self._parts[key] = part
            part.add(one, said, found)

    def finish(self) -> list[Rows]:
        """The rows that have a time and a value, those under the same names together."""
        return [rows for part in self._parts.values() if (rows := part.finish())]


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


class _Part:
    """The rows of the tables of a file that have the same columns, and times of one kind or none."""

    def __init__(self, names: Sequence[str], kind: str | None, note: _Note) -> None:
        self._kind, self._note = kind, note
        meanings = columns(names)
        self._is_of_processes = any(one and one.says == says.PROCESS for one in meanings)
        #: Whether any process has a number for its use.
        self._is_use_known = False
        self._rows = 0
        self._time_us = array("q")
        #: By the word for what they name.
        self._named = _Names(dict.fromkeys(one.says for one in meanings if one and one.says in _NAME_OF))
        #: Each column of a metric: its place, and what it may measure. A mask is one for each of its reasons.
        self._measured: list[tuple[int, list[Measured]]] = []
        for place, (name, one) in enumerate(zip(names, meanings, strict=True)):
            if one and one.says == says.MASK:
                self._measured += [
                    (place, [Measured(name, Column(bits=bits), metric)]) for metric, bits in _MASKS.items()
                ]
            # Of all that is said of processes, only their utilization adds up to that of a GPU.
            elif one and (not self._is_of_processes or one.metric is Metric.GPU_UTILIZATION):
                either = [
                    Measured(name, some, some.metric) for some in (one, one.otherwise) if some and some.metric
                ]
                self._measured += [(place, either)] * bool(either)
        #: The place of a column that has the index or the use of a GPU.
        self._index_or_use = next(
            (i for i, one in enumerate(meanings) if one and one.says and one.otherwise), -1
        )

    def add(self, table: Table, said: Mapping[str, _Cells], when: tuple[Times, Texts] | None) -> None:
        """Keep the rows of a table; where rows have times, those with one and with any number."""
        usable = np.ones(len(table.lines), np.bool_)

        def leave_out(code: str, lacking: BoolArray, texts: Texts | None = None) -> None:
            rows = np.flatnonzero(usable & lacking)
            usable[rows] = False
            if len(rows):
                text = texts[int(rows[0])] if texts else ""
                self._note(code, count=len(rows), line=int(table.lines[rows[0]]), text=text)

        cells = self._with_idle(table) if self._is_of_processes else table.columns
        read = [
            (one, one.read(cells[place], table.lines)) for place, either in self._measured for one in either
        ]
        if when:
            times, texts = when
            leave_out("nvidia_smi.other_time", times.other, texts)
            leave_out("nvidia_smi.no_time", ~times.there, texts)
            nothing = [np.isnan(numbers.known) & np.isnan(numbers.bare) for _, numbers in read]
            leave_out("nvidia_smi.no_value", np.all(nothing or [usable], axis=0))
            self._time_us.frombytes(times.time_us[usable].tobytes())
        for one, numbers in read:
            one.keep(numbers, usable, self._rows)
        self._named.add({word: texts for word, (_, texts) in said.items()}, usable)
        self._rows += int(np.count_nonzero(usable))

    def _with_idle(self, table: Table) -> list[Texts]:
        """The columns, with 0 for a dash: no process ran, or one that did nothing."""
        for place, _ in self._measured:
            self._is_use_known |= any(text.strip()[:1].isdigit() for text in table.columns[place].distinct)
        return [
            replace(texts, distinct=["0" if text.strip() == "-" else text for text in texts.distinct])
            for texts in table.columns
        ]

    def finish(self) -> Rows | None:
        """The rows that have a value; ``None`` without any."""
        if not self._rows:
            return None
        hosts, host = self._named.of_rows(says.HOST)
        time_us = np.frombuffer(self._time_us, np.int64)
        measured = self._finished(time_us, host)
        gpus, gpu = self._gpus()
        _, process = self._named.of_rows(says.PROCESS)
        if self._kind is None:
            self._note("nvidia_smi.assumed_second")
            time_us = _a_second_apart(gpu, process if self._is_of_processes else None)
        values = self._values(measured)
        if self._is_of_processes and not self._is_use_known:
            # As on Windows: a dash is no use of a process that runs, but nobody knows it.
            for use in values.values():
                use[process >= 0] = np.nan
        usable = self._usable(measured, values, gpu, host)
        if not usable.any():
            return None
        found = Rows(
            time_us=time_us,
            kind=self._kind or RELATIVE,
            gpus=gpus,
            gpu=gpu,
            hosts=hosts,
            host=host,
            values=values,
        )
        found = found if usable.all() else found.where(usable)
        return _summed(found, self._note) if self._is_of_processes else found

    def _finished(self, time_us: IntArray, host: Places) -> list[Measured]:
        """What each column of a metric measures."""
        found = []
        for place, either in self._measured:
            for one in either:
                one.finish(self._rows)
            fitting = next((one for one in either if one.values is not None), either[0])
            if place == self._index_or_use:
                has_numbers = fitting.values is not None or fitting.unit.factor is None
                if not has_numbers or _are_in_turn(*self._named.of_rows(says.INDEX), time_us, host):
                    continue
                self._named.words.discard(says.INDEX)
                self._note("nvidia_smi.use_in_gpu", count=fitting.values is not None, name=fitting.name)
            found.append(fitting)
        self._measured.clear()
        return found

    def _gpus(self) -> tuple[tuple[GPU, ...], Places]:
        """The GPUs as the rows name them, and (n,) a position among them, -1 for none."""
        names, _ = self._named.of(says.INDEX)
        if len(names) > _GPUS and all(map(_NUMBERED.fullmatch, names)):
            self._named.words.discard(says.INDEX)
            self._note("nvidia_smi.row_numbers")
        gpus, gpu = gpus_of(*map(self._named.of, (says.INDEX, says.BUS, says.UUID)))
        return gpus, gpu[self._named.code]

    def _usable(
        self, measured: Sequence[Measured], values: Mapping[Metric, FloatArray], gpu: Places, host: Places
    ) -> BoolArray:
        """(n,) whether a row has all that it needs; each other row is counted under what it lacks first."""
        usable = np.ones(self._rows, np.bool_)

        def count(code: str, lacking: BoolArray, **fields: Any) -> None:
            self._note(code, count=int(np.count_nonzero(usable & lacking)), **fields)
            usable[lacking] = False

        impossible = [one.first_impossible for one in measured if one.first_impossible[0]]
        first = dict(zip(("line", "text"), min(impossible), strict=True)) if impossible else {}
        nothing = np.ones(self._rows, np.bool_)
        for one in values.values():
            nothing &= np.isnan(one)
        count("nvidia_smi.no_value", nothing, **first)
        # In a log that names GPUs or machines, a row that does not is damaged.
        for what, number in (("GPU", gpu), ("machine", host)):
            count("nvidia_smi.no_name", (number < 0) & (number >= 0).any(), what=what)
        return usable

    def _values(self, measured: Sequence[Measured]) -> dict[Metric, FloatArray]:
        """(n,) of each metric, NaN where there is no value."""
        by_metric: defaultdict[Metric, list[Measured]] = defaultdict(list)
        for one in measured:
            by_metric[one.metric].append(one)
            if one.unit.factor is None:
                self._note_unit(one)
        found: dict[Metric, FloatArray] = {}
        for metric, candidates in by_metric.items():
            for one in self._best(metric, candidates):
                for code, (count, line, text) in one.lost.items():
                    self._note(code, count=count, line=line, text=text, unit="values")
                if one.values is not None:
                    if one.unit.code:
                        self._note_unit(one)
                    # Of several reasons that are one metric any is enough.
                    found[metric] = np.fmax(found[metric], one.values) if metric in found else one.values
        heat, hardware = (
            found.get(one) for one in (Metric.GPU_THERMAL_SLOWDOWN, Metric.GPU_HARDWARE_SLOWDOWN)
        )
        by_software_only = all(one.column.rank for one in by_metric[Metric.GPU_THERMAL_SLOWDOWN])
        if heat is not None and hardware is not None and by_software_only:
            # That the software names no heat does not say whether the hardware slows for it.
            found[Metric.GPU_THERMAL_SLOWDOWN] = np.where((hardware > 0) & (heat == 0), np.nan, heat)
        return found

    def _note_unit(self, one: Measured) -> None:
        line, text = one.first_impossible
        place = {"line": line, "text": text} if line else {}
        self._note(
            one.unit.code, name=one.name, measure=one.metric.quantity.noun, scale=one.unit.scale, **place
        )

    def _best(self, metric: Metric, candidates: Sequence[Measured]) -> list[Measured]:
        """Columns of a metric that are used: the best that has a number, and all that are reasons."""
        filled = [one for one in candidates if one.values is not None]
        best = min(filled or candidates, key=lambda one: one.column.rank)
        equal = sum(one.column.rank == best.column.rank and not one.column.bits for one in filled)
        self._note("nvidia_smi.equal_column", count=max(equal - 1, 0), metric=metric.label)
        return [one for one in candidates if one is best or one.column.bits]


# Names


class _Names:
    """What the rows of a file name, in one column or several: each combination once, and which one each row has."""

    def __init__(self, words: Iterable[str]) -> None:
        """``words``: what the columns name. One that is taken out names nothing."""
        self.words = {*words}
        self._columns = sorted(self.words)
        self._place: dict[tuple[str, ...], int] = {}
        self._code = array("i")

    def add(self, said: Mapping[str, Texts], usable: BoolArray) -> None:
        """Add the cells of the usable rows."""
        codes = [said[word].code[usable] for word in self._columns] or [np.zeros(int(usable.sum()), np.int64)]
        if not len(codes[0]):
            return
        first, code = numbered([one.view(np.uint64) for one in codes])
        names = []
        for word, one in zip(self._columns, codes, strict=False):
            texts = [said[word].distinct[place] for place in one[first].tolist()]
            names.append(["" if is_no_value(text) else _NAME_OF[word](text.strip()) for text in texts])
        combinations = zip(*names, strict=True) if names else [()]
        places = [self._place.setdefault(one, len(self._place)) for one in combinations]
        self._code.frombytes(np.array(places, np.int32)[code].tobytes())

    @property
    def code(self) -> Places:
        """(n,) the combination of each row."""
        return np.frombuffer(self._code, np.int32)

    def of(self, word: str) -> Names:
        """The names in a column, and the place of that of each combination among them."""
        if word not in self.words:
            return (), nowhere(len(self._place))
        mine = [names[self._columns.index(word)] for names in self._place]
        names = natural_sorted({*mine} - {""})
        place = {name: i for i, name in enumerate(names)}
        return names, np.array([place.get(name, -1) for name in mine], np.int32)

    def of_rows(self, word: str) -> Names:
        """The names in a column, and (n,) the place of that of each row among them."""
        names, place = self.of(word)
        return names, place[self.code] if names else nowhere(len(self._code))


def _bus(text: str) -> str:
    """The bus id as ``7:00.0``: tools write ``00000000:07:00.0``, ``0000:07:00.0`` or ``07:00.0``."""
    return text.lower().lstrip("0:")


def _gpu_name(text: str) -> str:
    match = _NUMBERED.fullmatch(text)
    return f"gpu{int(match[1])}" if match else as_name(text)


#: What makes a name of the text in a column that names something.
_NAME_OF: dict[str, Callable[[str], str]] = {
    says.INDEX: _gpu_name,
    says.UUID: str,
    says.BUS: _bus,
    says.HOST: as_name,
    says.PROCESS: str,
}


def _are_in_turn(names: Sequence[str], code: Places, time_us: IntArray, host: Places) -> bool:
    """Whether names are numbers of GPUs, the next one in the next row, and the first one again after the last."""
    numbers = [int(name[3:]) if _NUMBERED.fullmatch(name) else _GPUS for name in names]
    if not numbers or max(numbers) >= _GPUS:
        return False
    order = np.lexsort((time_us, host)) if len(time_us) else np.arange(len(code))
    # The names are in the order of their numbers.
    steps = np.diff(code[order]) % len(numbers)
    return int(np.count_nonzero(steps == 1 % len(numbers))) >= _ROWS_IN_TURN * len(steps)


# When


def _times(said: Mapping[str, _Cells]) -> tuple[Times, Texts] | None:
    """When the rows were written, and the cells that say so; ``None`` without a column of times."""
    if says.TIME in said:
        column, texts = said[says.TIME]
        if says.DATE in said:
            texts = _side_by_side(said[says.DATE][1], texts)
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


def _side_by_side(dates: Texts, clocks: Texts) -> Texts:
    """The cells of two columns with a blank between them."""
    pairs, code = np.unique(dates.code * len(clocks.distinct) + clocks.code, return_inverse=True)
    days, times = np.divmod(pairs, len(clocks.distinct))
    both = zip(days.tolist(), times.tolist(), strict=True)
    return Texts(
        distinct=[f"{dates.distinct[day].strip()} {clocks.distinct[time].strip()}" for day, time in both],
        code=code,
    )


def _a_second_apart(gpu: Places, process: Places | None) -> IntArray:
    """Times of rows without any, a second from one moment to the next.

    A moment begins where the number of the GPU falls: GPUs 0, 1, 0, 1 are two moments. Among rows of one GPU it begins
    where a process comes again, or where the row or the one before has no process.
    """
    processes = [0] * len(gpu) if process is None else process.tolist()
    moments = array("q")
    here: set[int] = set()
    moment, last, was_idle = 0, -1, False
    for number, one in zip(gpu.tolist(), processes, strict=True):
        comes_again = number == last and (one in here or one < 0 or was_idle)
        if number < last or comes_again:
            moment += 1
        if comes_again or number != last:
            here.clear()
        here.add(one)
        last, was_idle = number, one < 0
        moments.append(moment)
    return np.frombuffer(moments, np.int64) * SECOND_US


def _summed(rows: Rows, note: Callable[..., None]) -> Rows:
    """Of the rows of processes, one for each GPU and moment."""
    keys = np.stack([rows.time_us, rows.gpu, rows.host])
    _, first, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    note("nvidia_smi.added_process", count=len(rows.time_us) - len(first))
    values = {
        metric: np.minimum(np.bincount(group.ravel(), weights=np.nan_to_num(one)), 100.0)
        for metric, one in rows.values.items()
    }
    return replace(
        rows, time_us=rows.time_us[first], gpu=rows.gpu[first], host=rows.host[first], values=values
    )
