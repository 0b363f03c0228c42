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
from jobreport.readers.columns import GrowingColumn
from jobreport.readers.nvidia_smi import columns as says
from jobreport.readers.nvidia_smi.cells import IMPLAUSIBLE, is_no_value
from jobreport.readers.nvidia_smi.columns import Column, columns, query_of, without_gpu
from jobreport.readers.nvidia_smi.gpu_names import (
    MAX_HOSTS,
    MAX_NAMES,
    MAX_NUMBERS,
    SURPLUS_GPU,
    SURPLUS_NODE,
    GpuNames,
)
from jobreport.readers.nvidia_smi.measured import Measured
from jobreport.readers.nvidia_smi.rows import GPU, Rows
from jobreport.readers.nvidia_smi.table import Texts
from jobreport.readers.nvidia_smi.times import RELATIVE, ZONED, Times, times_of
from jobrules.model import SECOND_US, BoolArray, FloatArray, IntArray, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from jobreport.readers.nvidia_smi.table import Table

_GPU = re.compile(r"gpu[0-9]+")
#: Bits of ``clocks_event_reasons.active`` (NVML, nvmlClocksEventReasons) by the metric that they make 100%.
_MASKS = {
    Metric.GPU_THERMAL_SLOWDOWN: 0x20 | 0x40,
    Metric.GPU_POWER_CAP: 0x4,
    # The power brake, or heat or a reason that the hardware does not name. With heat both may be set.
    Metric.GPU_HARDWARE_SLOWDOWN: 0x8 | 0x80,
}
#: Share of the rows in which the number of the next GPU comes, if a column has these.
_ROWS_IN_TURN = 0.75
#: Where so many of the values are the share of memory in use, all are.
_SHARE_IN_USE = 0.9
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
        self._parts: dict[Hashable, _LongTable] = {}

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
                self._parts[key] = _LongTable(one.names, kind, partial(self._note, line=table.line))
            self._parts[key].add(one, said, found)

    def finish(self) -> list[Part]:
        """The rows that have a time and a value; what was gathered is used up."""
        found = []
        for key in [*self._parts]:
            long = self._parts.pop(key)
            gpus = [*long.by_gpu()]
            if gpus:
                found.append(Part(kind=long.kind or RELATIVE, gpus=gpus))
        return found


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


class _LongTable:
    """The rows of the tables of a file that have the same columns, and times of one kind or none.

    They stay in the order of the file until all of them are there, and are then grouped by GPU.
    """

    def __init__(self, names: Sequence[str], kind: str | None, note: _Note) -> None:
        self.kind, self._note = kind, note
        meanings = columns(names)
        self._gpus = GpuNames((one.says for one in meanings if one), note)
        self._is_of_processes = any(one and one.says == says.PROCESS for one in meanings)
        #: Whether there is any process, and whether any has a number for its use.
        self._has_process = self._is_use_known = False
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
        self._count = 0
        self._time_us, self._place = GrowingColumn(np.int64), GrowingColumn(np.int16)
        self._numbers = [GrowingColumn(np.float32) for _ in self._measured]

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
            leave_out("nvidia_smi.no_value", _has_none(numbers, len(usable)))
        if self._use is not None and not self._gpus.lines and self._measured[self._use].is_bare is not None:
            self._gpus.words.discard(says.INDEX)
        place = self._gpus.places_of({word: texts for word, (_, texts) in said.items()}, table.lines)
        leave_out("samples.devices", place == SURPLUS_GPU, limit=MAX_GPUS, unit="rows")
        leave_out("nvidia_smi.many_nodes", place == SURPLUS_NODE, nodes=MAX_HOSTS, gpus=MAX_NAMES)
        rows = slice(None) if usable.all() else usable
        for column, more in zip(self._numbers, numbers, strict=True):
            # A column of which a driver has nothing takes no memory.
            if not np.isnan(more).all():
                column.fill(self._count)
                column.add(more[rows])
        self._time_us.add(time_us[rows])
        self._place.add(place[rows])
        self._count += len(time_us[rows])

    def _with_idle(self, table: Table, said: Mapping[str, _Cells]) -> list[Texts]:
        """The columns, with 0 for a dash: no process ran, or one that did nothing."""
        processes = said[says.PROCESS][1].distinct
        self._has_process |= any(not is_no_value(text) for text in processes)
        for place in self._places:
            self._is_use_known |= any(text.strip()[:1].isdigit() for text in table.columns[place].distinct)
        return [texts.with_zero_for("-") for texts in table.columns]

    def by_gpu(self) -> Iterator[Rows]:
        """The rows of each GPU that have a value; this uses them up."""
        numbers: dict[int, FloatArray] = {}
        for i, column in enumerate(self._numbers):
            if self._measured[i].has_number or i == self._use:
                column.fill(self._count)
                numbers[i] = column.take()
        place, time_us = self._place.take(), self._time_us.take()
        used, index = self._used_columns(place, time_us, numbers)
        if self.kind is None:
            self._note("nvidia_smi.assumed_second")
        gpus, place = self._gpus_and_places(place, None if index is None else numbers[index])
        if self.kind is None:
            time_us = _turn_of(place) * SECOND_US
        values = self._values(used, numbers)
        # From here on the only ones, so that grouping takes the memory of one more column.
        numbers.clear()
        none = _has_none([*values.values()], self._count)
        self._note_no_value(used, int(np.count_nonzero(none)))
        self._settle_activity(values, used)
        self._note_lost([self._measured[i] for i in used])
        rows = np.flatnonzero(~none)
        if self._is_of_processes:
            place, time_us, values = _summed(place[rows], time_us[rows], values, rows)
            self._note("nvidia_smi.added_process", count=len(rows) - len(place))
            rows = np.arange(len(place))
        rows = rows[self._are_sound(gpus, place[rows])[place[rows]]] if len(rows) else rows
        # Numbers of 16 bits are sorted in time that is proportional to their count.
        rows = rows[np.argsort(place[rows], kind="stable")]
        mine, begins = np.unique(place[rows], return_index=True)
        time_us = time_us[rows]
        for metric in values:
            values[metric] = values[metric][rows]
        for gpu, begin, end in zip(mine.tolist(), begins, [*begins, len(rows)][1:], strict=True):
            some = {metric: one[begin:end] for metric, one in values.items()}
            yield replace(gpus[gpu], time_us=time_us[begin:end], values=some)

    def _used_columns(
        self, place: IntArray, time_us: IntArray, numbers: Mapping[int, FloatArray]
    ) -> tuple[list[int], int | None]:
        """The columns that are read, and that of the numbers of GPUs among them, if the rows name no index."""
        chosen = [next((i for i in some if self._measured[i].has_number), some[0]) for some in self._either]
        use, index = self._use, None
        if use is not None and use in chosen:
            if says.INDEX in self._gpus.words:
                chosen.remove(use)
            elif self._measured[use].is_bare and _are_in_turn(place, time_us, numbers[use]):
                chosen.remove(use)
                index = use
            else:
                one = self._measured[use]
                self._note("nvidia_smi.use_in_gpu", count=one.has_number, name=one.name)
        return self._used(chosen), index

    def _gpus_and_places(self, place: IntArray, numbers: FloatArray | None) -> tuple[list[Rows], IntArray]:
        """Each GPU, still without rows, and (n,) which one each row is of; ``numbers`` may have those of GPUs."""
        nothing = np.empty(0, np.int64)
        gpus = [
            Rows(gpu=gpu, host=host, line=line, time_us=nothing, values={})
            for (host, gpu), line in zip(self._gpus.names, self._gpus.lines, strict=True)
        ]
        if numbers is None:
            return gpus, place
        distinct = np.unique(numbers[~np.isnan(numbers)])
        names = [*(f"gpu{int(number)}" for number in distinct), ""]
        # NaN comes behind all numbers.
        return [
            replace(one, gpu=replace(one.gpu, name=name)) for one in gpus for name in names
        ], place.astype(np.int64) * len(names) + np.searchsorted(distinct, numbers)

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

    def _values(self, used: Sequence[int], numbers: Mapping[int, FloatArray]) -> dict[Metric, FloatArray]:
        """(n,) of each metric, NaN where there is no value."""
        found: dict[Metric, FloatArray] = {}
        is_by_software = True
        for i in used:
            measured = self._measured[i]
            factor = measured.unit.factor
            if factor is None or not measured.has_number:
                continue
            values = numbers[i]
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

    def _settle_activity(self, values: dict[Metric, FloatArray], used: Sequence[int]) -> None:
        """Leave out what a script calls the utilization of memory, and what is the share of it in use."""
        metric = Metric.GPU_MEMORY_ACTIVITY
        columns = [self._measured[i] for i in used]
        name = next((one.name for one in columns if one.metric is metric and not one.column.own), "")
        activity = values.get(metric)
        if not name or activity is None:
            return
        used_b, total_b = map(values.get, (Metric.GPU_MEMORY_USED, Metric.GPU_MEMORY_TOTAL))
        if used_b is not None and total_b is not None:
            # A GPU that idles has little of both.
            telling = ~np.isnan(activity) & ~((activity <= 1) & (100 * used_b <= 2 * total_b))
            # Rounded, whatever the size.
            shares = np.abs(activity * total_b - 100 * used_b) <= total_b
            if np.count_nonzero(shares & telling) > _SHARE_IN_USE * np.count_nonzero(telling):
                self._note("nvidia_smi.not_activity", name=name)
                del values[metric]
                return
        self._note("nvidia_smi.assumed_activity", name=name)

    def _note_no_value(self, used: Sequence[int], count: int) -> None:
        impossible = [place for i in used if (place := self._measured[i].first_impossible)[0]]
        first = dict(zip(("line", "text"), min(impossible), strict=True)) if impossible else {}
        self._note("nvidia_smi.no_value", count=count, **first)

    def _are_sound(self, gpus: Sequence[Rows], place: IntArray) -> BoolArray:
        """Whether each GPU has a name as the others, of which ``place`` has the rows: one without is damage."""
        count = np.bincount(place, minlength=len(gpus))
        sound = count > 0
        is_number = np.array([not one.gpu.name or bool(_GPU.fullmatch(one.gpu.name)) for one in gpus])
        if 2 * (numbers := int(count[is_number].sum())) > count.sum():
            self._note("nvidia_smi.no_number", count=int(count.sum()) - numbers)
            sound &= is_number
        for what, has_name in (
            ("GPU", np.array([one.gpu != GPU() for one in gpus])),
            ("machine", np.array([bool(one.host) for one in gpus])),
        ):
            if (sound & has_name).any():
                self._note("nvidia_smi.no_name", count=int(count[sound & ~has_name].sum()), what=what)
                sound &= has_name
        return sound

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


def _are_in_turn(place: IntArray, time_us: IntArray, numbers: FloatArray) -> bool:
    """Whether numbers are those of GPUs: the next one in the next row, the first after the last."""
    in_turn = count = 0
    order = np.lexsort((time_us, place))
    for mine in np.split(numbers[order], np.flatnonzero(np.diff(place[order])) + 1):
        distinct, turn = np.unique(mine[~np.isnan(mine)], return_inverse=True)
        if not len(distinct):
            continue
        if len(distinct) > MAX_NUMBERS or (distinct % 1).any() or distinct[-1] >= MAX_NUMBERS:
            return False
        count += len(turn) - 1
        in_turn += int(np.count_nonzero(np.diff(turn) % len(distinct) == 1 % len(distinct)))
    return in_turn >= _ROWS_IN_TURN * count


def _has_none(columns: Sequence[FloatArray], count: int) -> BoolArray:
    """(n,) whether all columns lack a number in a row."""
    none = np.ones(count, np.bool_)
    for column in columns:
        none &= np.isnan(column)
    return none


def _turn_of(place: IntArray) -> IntArray:
    """(n,) how many rows of the same GPU come before each."""
    order = np.argsort(place, kind="stable")
    turn = np.empty(len(place), np.int64)
    turn[order] = np.arange(len(place)) - np.searchsorted(place[order], place[order])
    return turn


def _summed(
    place: IntArray, time_us: IntArray, values: Mapping[Metric, FloatArray], rows: IntArray
) -> tuple[IntArray, IntArray, dict[Metric, FloatArray]]:
    """Of the ``rows`` of processes, one for each moment of a GPU."""
    order = np.lexsort((time_us, place))
    place, time_us = place[order], time_us[order]
    is_first = np.append(True, (np.diff(place) != 0) | (np.diff(time_us) != 0))[: len(order)]
    starts = np.flatnonzero(is_first)
    summed = {
        metric: np.minimum(np.add.reduceat(np.nan_to_num(one[rows[order]]), starts), 100.0)
        for metric, one in values.items()
        if len(starts)
    }
    return place[starts], time_us[starts], summed
