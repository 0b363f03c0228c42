"""From the cells of a table in an nvidia-smi log to rows: which GPU, when, and what was measured."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers.nvidia_smi import columns as says
from jobreport.readers.nvidia_smi.cells import NOT_TOLD, any_number, cells
from jobreport.readers.nvidia_smi.columns import columns
from jobreport.readers.nvidia_smi.text import Texts
from jobreport.readers.nvidia_smi.times import RELATIVE, Times, times_of
from jobreport.readers.sensors import as_name
from jobrules.model import SECOND_US, FloatArray, IntArray, Metric, natural_sorted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jobreport.readers.nvidia_smi.columns import Column
    from jobreport.readers.nvidia_smi.text import Table
    from jobreport.readers.tally import Tally

#: Begins the name of a GPU of which no number is told, but a UUID or a bus; all logs of a machine tell which it is.
UNNUMBERED = "with "
_NUMBERED = re.compile(r"(?:gpu|cuda|nvidia|device)?[ :_-]?\+?([0-9]{1,4})", re.IGNORECASE)
_SINCE_1970 = re.compile(r"\s*[0-9]{9}")
_MASKS = {
    Metric.GPU_THERMAL_SLOWDOWN: says.THERMAL_BITS,
    Metric.GPU_POWER_CAP: says.POWER_CAP_BITS,
    Metric.GPU_HARDWARE_SLOWDOWN: says.HARDWARE_BITS,
}

_NO_TIME = "no time that can be read"
OTHER_TIMES = "times of another kind than most in the file"
_NO_GPU = "the GPU is not told, as it is in other rows"
_NO_HOST = "the machine is not told, as it is in other rows"
_NO_TIMES = "no column of times"
_NO_VALUE = "no value that is read"
_NOT_TOLD = "the tool had no value, as [N/A]"
_DAMAGED = "no number that a GPU can have, or in a unit of something else"
_OUTSIDE = "percentage outside 0 to 100, set to the nearer bound"
_ASSUMED = "no times in the log: a second from row to row, which is what the tool does unless told otherwise"
_AS_GOOD = "another column of the same measure ({}); the first is in use"
_SUMMED = "use of each GPU is the sum over its processes"
_ADDED = "another process of the same GPU at the same moment, added to the first"


class Rows(Struct, frozen=True, kw_only=True, eq=False):
    """Rows of a log, every array of the same length."""

    #: (n,) microseconds, and what kind of times they are (``smi_times``).
    time_us: IntArray
    kind: str
    #: Names of GPUs, and (n,) a position among them; -1 where the row names none.
    gpus: tuple[str, ...]
    gpu: IntArray
    #: Names of machines, and (n,) a position among them; empty where the log names none.
    hosts: tuple[str, ...]
    host: IntArray
    #: What identifies the GPUs, wherever they are.
    uuids: frozenset[str]
    #: (n,) each, NaN where there is no value.
    values: dict[Metric, FloatArray]

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of one part after the other."""
        if len(parts) == 1:
            return parts[0]
        gpus, gpu = _merged([(part.gpus, part.gpu) for part in parts])
        hosts, host = _merged([(part.hosts, part.host) for part in parts])
        if hosts and (host < 0).any():
            # Under another header of the file no machine is told: it is the only one, or one without a name.
            hosts, host = (hosts, np.zeros_like(host)) if len(hosts) == 1 else (("", *hosts), host + 1)
        metrics = dict.fromkeys(metric for part in parts for metric in part.values)
        return cls(
            time_us=np.concatenate([part.time_us for part in parts]),
            kind=parts[0].kind,
            gpus=gpus,
            gpu=gpu,
            hosts=hosts,
            host=host,
            uuids=frozenset().union(*(part.uuids for part in parts)),
            values={
                metric: np.concatenate(
                    [part.values.get(metric, np.full(len(part.time_us), np.nan)) for part in parts]
                )
                for metric in metrics
            },
        )


def _merged(parts: Sequence[tuple[tuple[str, ...], IntArray]]) -> tuple[tuple[str, ...], IntArray]:
    """Names of all parts, and the positions among them."""
    place = {name: i for i, name in enumerate(dict.fromkeys(name for names, _ in parts for name in names))}
    # The last position is -1, which stands for none.
    moved = [np.array([*(place[name] for name in names), -1], np.int64)[code] for names, code in parts]
    return tuple(place), np.concatenate(moved)


def rows_of(table: Table, file: str, tally: Tally) -> Rows | None:
    """The rows of a table that have a time and a value; none without any."""
    rows = len(table.columns[0].code)
    named = zip(columns(table.names), table.columns, strict=True)
    meant = [(one, texts) for one, texts in named if one]
    numbers = dict.fromkeys(one.gpu for one, _ in meant if one.gpu is not None)
    if numbers and not table.marked and all(one.says != says.INDEX for one, _ in meant):
        parts = [_of_gpu(table, number) for number in numbers]
        read = [found for part in parts if (found := rows_of(part, file, tally))]
        return Rows.joined(read) if read else None
    of_processes = any(one.says == says.PROCESS for one, _ in meant)
    said: dict[str, tuple[Column, Texts]] = {}
    measured: defaultdict[Metric, list[tuple[Column, Texts]]] = defaultdict(list)
    for one, texts in meant:
        if one.metric is None:
            said.setdefault(one.says, (one, texts))
        elif not of_processes or one.metric is Metric.GPU_UTILIZATION:
            measured[one.metric].append((one, texts))

    def add(action: str, unit: str, reason: str, count: int) -> None:
        tally.add(action, unit, reason, count=count, file=file, line=table.line)

    def told(word: str) -> Texts | None:
        return said[word][1] if word in said else None

    uuids = _told(told(says.UUID))
    gpus, gpu = _gpus(told(says.INDEX), uuids or _told(told(says.BUS)), rows)
    if of_processes:
        for used in measured.values():
            used[:] = [(one, _idle(texts, said[says.PROCESS][1])) for one, texts in used]
    times = _times(said)
    if times is None and not table.marked:
        add("skipped", "rows", _NO_TIMES, rows)
        return None
    if times is None:
        add("corrected", "files", _ASSUMED, 1)
        times = _assumed(gpu, told(says.PROCESS))
    values = _values(measured, told(says.MASK), add)
    # In a table that tells which GPU, a row that does not is damaged.
    nameless = (gpu < 0) & (gpu >= 0).any()
    any_value = np.zeros(rows, np.bool_)
    for measure in values.values():
        any_value |= ~np.isnan(measure)
    add("skipped", "rows", OTHER_TIMES, times.others)
    add("skipped", "rows", _NO_TIME, int(np.count_nonzero(~times.there)) - times.others)
    add("skipped", "rows", _NO_VALUE, int(np.count_nonzero(times.there & ~any_value)))
    add("skipped", "rows", _NO_GPU, int(np.count_nonzero(times.there & any_value & nameless)))
    hosts, host = _named(_told(told(says.HOST)), as_name, rows)
    keep = times.there & any_value & ~nameless
    homeless = (host < 0) & (host >= 0).any()
    add("skipped", "rows", _NO_HOST, int(np.count_nonzero(keep & homeless)))
    keep &= ~homeless
    if not keep.any():
        return None
    found = Rows(
        time_us=times.time_us[keep],
        kind=times.kind,
        gpus=gpus,
        gpu=gpu[keep],
        hosts=hosts,
        host=host[keep],
        uuids=frozenset(filter(None, uuids.distinct)) if uuids else frozenset(),
        values={metric: v[keep] for metric, v in values.items() if not np.isnan(v[keep]).all()},
    )
    return _summed(found, add) if of_processes else found


def _of_gpu(table: Table, number: int) -> Table:
    """Of a table with columns of several GPUs in each row, those of one and those of none, and its number."""
    rows = len(table.columns[0].code)
    mine = [i for i, one in enumerate(columns(table.names)) if one and one.gpu in (None, number)]
    return replace(
        table,
        names=(*(table.names[i] for i in mine), says.INDEX),
        columns=[*(table.columns[i] for i in mine), Texts.of([str(number)] * rows)],
    )


def _idle(use: Texts, process: Texts) -> Texts:
    """The use by processes, 0 for those that do nothing, which have a dash there.

    So have all processes where the use by each is not known, as on Windows: where there is no number at all, a dash
    beside a process is none.
    """
    none = np.array([text.strip() == "-" for text in process.distinct])[process.code]
    number = np.array([text.strip()[:1].isdigit() for text in use.distinct])[use.code]
    dash = np.array([text.strip() == "-" for text in use.distinct])[use.code]
    idle = dash & (none | number.any())
    return Texts(distinct=[*use.distinct, "0"], code=np.where(idle, len(use.distinct), use.code))


def _told(texts: Texts | None) -> Texts | None:
    """The texts, empty where they say that there is nothing to tell; none if all of them do."""
    if texts is None:
        return None
    distinct = [
        "" if (one := text.strip()).strip("[]").lower() in NOT_TOLD else one for text in texts.distinct
    ]
    return Texts(distinct=distinct, code=texts.code) if any(distinct) else None


def _gpus(index: Texts | None, other: Texts | None, rows: int) -> tuple[tuple[str, ...], IntArray]:
    """Which GPU each row is of: its number, else ``UNNUMBERED`` what identifies it; -1 where neither is told."""
    if index:
        return _named(index, _gpu_name, rows)
    return _named(other, UNNUMBERED.__add__, rows)


def _gpu_name(text: str) -> str:
    if text.strip("[]").lower() in NOT_TOLD:
        return ""
    match = _NUMBERED.fullmatch(text)
    return f"gpu{int(match[1])}" if match else as_name(text)


def _named(texts: Texts | None, called: Callable[[str], str], rows: int) -> tuple[tuple[str, ...], IntArray]:
    """Each name once, and the position of every row among them; -1 for an empty one."""
    if texts is None:
        return (), np.full(rows, -1)
    names = [called(plain) if (plain := text.strip()) else "" for text in texts.distinct]
    place = {name: i for i, name in enumerate(natural_sorted(set(names) - {""}))}
    return tuple(place), np.array([place.get(name, -1) for name in names], np.int64)[texts.code]


def _times(said: Mapping[str, tuple[Column, Texts]]) -> Times | None:
    """When the rows were written; none where nothing tells."""
    if says.TIME in said:
        one, texts = said[says.TIME]
        if says.DATE in said:
            _, dates = said[says.DATE]
            pairs, code = np.unique(dates.code * len(texts.distinct) + texts.code, return_inverse=True)
            days, clocks = np.divmod(pairs, len(texts.distinct))
            both = zip(days.tolist(), clocks.tolist(), strict=True)
            texts = Texts(
                distinct=[f"{dates.distinct[d].strip()} {texts.distinct[t].strip()}" for d, t in both],
                code=code,
            )
        return times_of(texts, elapsed=False, factor=one.factor)
    if says.EPOCH in said:
        _, texts = said[says.EPOCH]
        # Smaller numbers are those of a training's epochs.
        since = [text if _SINCE_1970.match(text) else "" for text in texts.distinct]
        if any(since):
            return times_of(Texts(distinct=since, code=texts.code), elapsed=False)
    if says.ELAPSED in said:
        one, texts = said[says.ELAPSED]
        return times_of(texts, elapsed=True, factor=one.factor)
    return None


def _assumed(gpu: IntArray, process: Texts | None) -> Times:
    """A second from one moment to the next, which begins where the GPUs start over.

    That is where the number of the GPU does not rise. The processes of one GPU follow one another: the same one again,
    or a change from or to none, is another moment.
    """
    begins = np.diff(gpu, prepend=gpu[:1] - 1) <= 0
    if process:
        idle = [text.strip() == "-" for text in process.distinct]
        same = np.diff(gpu, prepend=gpu[:1] - 1) == 0
        here: set[int] = set()
        before_idle = False
        for i, (code, same_gpu) in enumerate(zip(process.code.tolist(), same.tolist(), strict=True)):
            if same_gpu:
                begins[i] = code in here or idle[code] or before_idle
            if begins[i] or not same_gpu:
                here.clear()
            here.add(code)
            before_idle = idle[code]
    time_us = np.cumsum(begins) * SECOND_US
    return Times(time_us=time_us, there=np.ones(len(gpu), np.bool_), kind=RELATIVE)


def _values(
    measured: Mapping[Metric, Sequence[tuple[Column, Texts]]],
    mask: Texts | None,
    add: Callable[[str, str, str, int], None],
) -> dict[Metric, FloatArray]:
    """(n,) of each metric, NaN where there is no value."""
    wanted: list[tuple[Metric, Texts, float, int]] = []
    for metric, candidates in measured.items():
        # Where the best has no number, as [N/A] in every row, another may.
        filled = [
            found for found in candidates if any_number(found[1], metric, found[0].factor, found[0].bits)
        ]
        best = min(filled or candidates, key=lambda found: found[0].rank)
        # Of several reasons that are one metric any is enough.
        used = [found for found in candidates if found is best or found[0].bits]
        as_good = sum(found[0].rank == best[0].rank and not found[0].bits for found in filled)
        add("dropped", "columns", _AS_GOOD.format(metric.label), max(as_good - 1, 0))
        wanted += [(metric, texts, one.factor, one.bits) for one, texts in used]
    if mask:
        wanted += [(metric, mask, 1.0, bits) for metric, bits in _MASKS.items()]
    found: dict[Metric, FloatArray] = {}
    for metric, texts, factor, bits in wanted:
        read = cells(texts, metric, factor, bits)
        add("dropped", "values", _NOT_TOLD, read.not_told)
        add("dropped", "values", _DAMAGED, read.damaged)
        add("corrected", "values", _OUTSIDE, read.outside)
        known = found.get(metric)
        found[metric] = read.values if known is None else np.fmax(known, read.values)
    heat, hardware = (found.get(one) for one in (Metric.GPU_THERMAL_SLOWDOWN, Metric.GPU_HARDWARE_SLOWDOWN))
    asked = mask or not all(one.rank for one, _ in measured.get(Metric.GPU_THERMAL_SLOWDOWN, ()))
    if heat is not None and hardware is not None and not asked:
        # That the software names no heat does not tell whether the hardware slows for it.
        found[Metric.GPU_THERMAL_SLOWDOWN] = np.where((hardware > 0) & (heat == 0), np.nan, heat)
    return found


def _summed(rows: Rows, add: Callable[[str, str, str, int], None]) -> Rows:
    """Of the rows of processes, one for each GPU and moment."""
    add("corrected", "files", _SUMMED, 1)
    keys = np.stack([rows.time_us, rows.gpu, rows.host])
    _, first, of = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    add("dropped", "rows", _ADDED, len(rows.time_us) - len(first))
    values = {
        metric: np.minimum(np.bincount(of.ravel(), weights=np.nan_to_num(one)), 100.0)
        for metric, one in rows.values.items()
    }
    return replace(
        rows, time_us=rows.time_us[first], gpu=rows.gpu[first], host=rows.host[first], values=values
    )
