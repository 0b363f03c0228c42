"""From the cells of a table in an nvidia-smi log to rows: which GPU, when, and what was measured."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec.structs import replace

from jobreport.readers.names import as_name
from jobreport.readers.nvidia_smi import columns as says
from jobreport.readers.nvidia_smi.cells import NO_VALUE, any_number, cells
from jobreport.readers.nvidia_smi.columns import Column, columns
from jobreport.readers.nvidia_smi.rows import UNNUMBERED, Rows
from jobreport.readers.nvidia_smi.table import Texts
from jobreport.readers.nvidia_smi.times import RELATIVE, ZONED, Times, times_of
from jobrules.model import SECOND_US, BoolArray, FloatArray, IntArray, Metric, natural_sorted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jobreport.readers.nvidia_smi.table import Table

_NUMBERED = re.compile(r"(?:gpu|cuda|nvidia|device)?[ :_-]?\+?([0-9]{1,4})", re.IGNORECASE)
#: Bits of ``clocks_event_reasons.active`` (NVML, nvmlClocksEventReasons) by the metric that they make 100%.
_MASKS = {
    Metric.GPU_THERMAL_SLOWDOWN: 0x20 | 0x40,
    Metric.GPU_POWER_CAP: 0x4,
    # The power brake, or heat or a reason that the hardware does not name. With heat both may be set.
    Metric.GPU_HARDWARE_SLOWDOWN: 0x8 | 0x80,
}

#: A column and its cells.
_Cells: TypeAlias = "tuple[Column, Texts]"


def rows_of(table: Table, note: Callable[..., None]) -> Rows | None:
    """Rows of a table that have a time and a value; ``None`` without any.

    ``note`` counts a remark, as ``Tally.note`` of this table.
    """
    parts = [rows for part in _by_gpu(table) if (rows := _rows(part, note))]
    return Rows.joined(parts) if parts else None


def _by_gpu(table: Table) -> list[Table]:
    """A table for each GPU of one with columns of several (``gpu0_util``), else the table itself."""
    meanings = columns(table.names)
    numbers = dict.fromkeys(one.gpu for one in meanings if one and one.gpu is not None)
    if not numbers or table.each_second or any(one and one.says == says.INDEX for one in meanings):
        return [table]
    rows = len(table.columns[0].code)
    found = []
    for number in numbers:
        mine = [i for i, one in enumerate(meanings) if one and one.gpu in (None, number)]
        names = (*(table.names[i] for i in mine), says.INDEX)
        cells = [*(table.columns[i] for i in mine), Texts.of([str(number)] * rows)]
        found.append(replace(table, names=names, columns=cells))
    return found


def _rows(table: Table, note: Callable[..., None]) -> Rows | None:
    """Rows of a table without columns of several GPUs."""
    said, measured = _meanings(table)
    texts = {word: cells for word, (_, cells) in said.items()}
    count = len(table.columns[0].code)
    uuids = _identifiers(texts.get(says.UUID))
    gpus, gpu = _gpus(texts.get(says.INDEX), uuids or _identifiers(texts.get(says.BUS)), count)
    hosts, host = _named(_identifiers(texts.get(says.HOST)), as_name, count)
    times = _times(said)
    if times is None and table.each_second:
        note("nvidia_smi.assumed_second")
        times = _a_second_apart(gpu, texts.get(says.PROCESS))
    if times is None:
        note("nvidia_smi.no_time", count=count)
        return None
    values = _values(measured, texts.get(says.MASK), note)
    usable = _usable(times, values, gpu, host, note)
    if not usable.any():
        return None
    found = Rows(
        time_us=times.time_us[usable],
        kind=times.kind,
        gpus=gpus,
        gpu=gpu[usable],
        hosts=hosts,
        host=host[usable],
        uuids=frozenset(filter(None, uuids.distinct)) if uuids else frozenset(),
        values={metric: some[usable] for metric, some in values.items() if not np.isnan(some[usable]).all()},
    )
    return _summed(found, note) if says.PROCESS in said else found


def _usable(
    times: Times,
    values: Mapping[Metric, FloatArray],
    gpu: IntArray,
    host: IntArray,
    note: Callable[..., None],
) -> BoolArray:
    """(n,) whether a row has all that it needs; each other row is counted under what it lacks first."""
    usable = np.ones(len(gpu), np.bool_)

    def count(code: str, lacking: BoolArray, **fields: str) -> None:
        note(code, count=int(np.count_nonzero(usable & lacking)), **fields)
        usable[lacking] = False

    count("nvidia_smi.other_time", times.other)
    count("nvidia_smi.no_time", ~times.there)
    count("nvidia_smi.no_value", np.all([np.isnan(one) for one in values.values()] or [usable], axis=0))
    # In a table that names GPUs or machines, a row that does not is damaged.
    for what, number in (("GPU", gpu), ("machine", host)):
        count("nvidia_smi.no_name", (number < 0) & (number >= 0).any(), what=what)
    return usable


def _meanings(table: Table) -> tuple[dict[str, _Cells], Mapping[Metric, list[_Cells]]]:
    """The first column for each word of what a row says, and all columns of each metric."""
    said: dict[str, _Cells] = {}
    measured: defaultdict[Metric, list[_Cells]] = defaultdict(list)
    for column, texts in zip(columns(table.names), table.columns, strict=True):
        if column and column.metric:
            measured[column.metric].append((column, texts))
        elif column:
            said.setdefault(column.says, (column, texts))
    if says.PROCESS not in said:
        return said, measured
    _, process = said[says.PROCESS]
    # Of all that is said of processes, only their utilization adds up to that of a GPU.
    metric = Metric.GPU_UTILIZATION
    return said, {metric: [(column, _with_idle(texts, process)) for column, texts in measured[metric]]}


def _with_idle(utilization: Texts, process: Texts) -> Texts:
    """The utilization by processes, with 0 for a dash of a process that does nothing.

    A dash means 0 where no process ran, or if the log has any number. Without a number, as on Windows, a dash next to a
    process is no value.
    """
    no_process = np.array([text.strip() == "-" for text in process.distinct])[process.code]
    is_dash = np.array([text.strip() == "-" for text in utilization.distinct])[utilization.code]
    any_number = any(text.strip()[:1].isdigit() for text in utilization.distinct)
    idle = is_dash & (no_process | any_number)
    zero = len(utilization.distinct)
    return Texts(distinct=[*utilization.distinct, "0"], code=np.where(idle, zero, utilization.code))


# Which GPU of which machine


def _identifiers(texts: Texts | None) -> Texts | None:
    """The texts, empty in place of words for no value; ``None`` if all of them are."""
    if texts is None:
        return None
    stripped = [text.strip() for text in texts.distinct]
    distinct = ["" if one.strip("[]").lower() in NO_VALUE else one for one in stripped]
    return Texts(distinct=distinct, code=texts.code) if any(distinct) else None


def _gpus(index: Texts | None, other: Texts | None, rows: int) -> tuple[tuple[str, ...], IntArray]:
    """Names of GPUs, and (n,) a position among them, -1 for none.

    The name is the number, else ``UNNUMBERED`` and what identifies it.
    """
    if index:
        return _named(index, _gpu_name, rows)
    return _named(other, UNNUMBERED.__add__, rows)


def _gpu_name(text: str) -> str:
    if text.strip("[]").lower() in NO_VALUE:
        return ""
    match = _NUMBERED.fullmatch(text)
    return f"gpu{int(match[1])}" if match else as_name(text)


def _named(texts: Texts | None, name_of: Callable[[str], str], rows: int) -> tuple[tuple[str, ...], IntArray]:
    """Each name once, and (n,) the position of every row among them; -1 for an empty one."""
    if texts is None:
        return (), np.full(rows, -1)
    names = [name_of(plain) if (plain := text.strip()) else "" for text in texts.distinct]
    place = {name: i for i, name in enumerate(natural_sorted(set(names) - {""}))}
    return tuple(place), np.array([place.get(name, -1) for name in names], np.int64)[texts.code]


# When


def _times(said: Mapping[str, _Cells]) -> Times | None:
    """When the rows were written; ``None`` without a column of times."""
    if says.TIME in said:
        column, texts = said[says.TIME]
        if says.DATE in said:
            texts = _side_by_side(said[says.DATE][1], texts)
        return times_of(texts, elapsed=False, factor=column.factor)
    if says.EPOCH in said:
        times = times_of(said[says.EPOCH][1], elapsed=False)
        # Smaller numbers are those of a training's epochs.
        if times.kind == ZONED:
            return times
    if says.ELAPSED in said:
        column, texts = said[says.ELAPSED]
        return times_of(texts, elapsed=True, factor=column.factor)
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


def _a_second_apart(gpu: IntArray, process: Texts | None) -> Times:
    """Times of rows without any, a second from one moment to the next.

    A moment begins where the number of the GPU falls: GPUs 0, 1, 0, 1 are two moments. Among rows of one GPU it begins
    where a process comes again, or where the row or the one before has no process.
    """
    process = process or Texts(distinct=[""], code=np.zeros(len(gpu), np.int64))
    is_idle = [text.strip() == "-" for text in process.distinct]
    moments: list[int] = []
    here: set[int] = set()
    moment, last, was_idle = 0, -1, False
    for number, code in zip(gpu.tolist(), process.code.tolist(), strict=True):
        comes_again = number == last and (code in here or is_idle[code] or was_idle)
        if number < last or comes_again:
            moment += 1
        if comes_again or number != last:
            here.clear()
        here.add(code)
        last, was_idle = number, is_idle[code]
        moments.append(moment)
    every = np.ones(len(gpu), np.bool_)
    return Times(time_us=np.array(moments) * SECOND_US, there=every, other=~every, kind=RELATIVE)


# What was measured


def _values(
    measured: Mapping[Metric, Sequence[_Cells]], mask: Texts | None, note: Callable[..., None]
) -> dict[Metric, FloatArray]:
    """(n,) of each metric, NaN where there is no value."""
    used = [(metric, *one) for metric, some in measured.items() if some for one in _best(metric, some, note)]
    if mask:
        used += [(metric, Column(metric=metric, bits=bits), mask) for metric, bits in _MASKS.items()]
    found: dict[Metric, FloatArray] = {}
    for metric, column, texts in used:
        read = cells(texts, metric, column)
        for code, count in read.remarks.items():
            note(code, count=count, unit="values")
        # Of several reasons that are one metric any is enough.
        found[metric] = np.fmax(found[metric], read.values) if metric in found else read.values
    heat, hardware = (found.get(one) for one in (Metric.GPU_THERMAL_SLOWDOWN, Metric.GPU_HARDWARE_SLOWDOWN))
    by_software_only = all(column.rank for column, _ in measured.get(Metric.GPU_THERMAL_SLOWDOWN, ()))
    if heat is not None and hardware is not None and by_software_only and not mask:
        # That the software names no heat does not say whether the hardware slows for it.
        found[Metric.GPU_THERMAL_SLOWDOWN] = np.where((hardware > 0) & (heat == 0), np.nan, heat)
    return found


def _best(metric: Metric, candidates: Sequence[_Cells], note: Callable[..., None]) -> list[_Cells]:
    """Columns of a metric that are used: the best that has a number, and all that are reasons."""
    filled = [one for one in candidates if any_number(one[1], metric, one[0])]
    best = min(filled or candidates, key=lambda one: one[0].rank)
    equal = sum(column.rank == best[0].rank and not column.bits for column, _ in filled)
    note("nvidia_smi.equal_column", count=max(equal - 1, 0), metric=metric.label)
    return [one for one in candidates if one is best or one[0].bits]


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
