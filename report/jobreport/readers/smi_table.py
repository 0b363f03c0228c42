"""From the cells of a table in an nvidia-smi log to rows: which GPU, when, and what was measured."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers import smi_columns as says
from jobreport.readers.sensors import as_name
from jobreport.readers.smi_cells import cells
from jobreport.readers.smi_columns import column
from jobreport.readers.smi_times import RELATIVE, Times, times_of
from jobrules.job import SECOND_US, FloatArray, IntArray, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jobreport.readers.smi_columns import Column
    from jobreport.readers.smi_text import Table
    from jobreport.readers.tally import Tally

_NUMBERED = re.compile(r"(?:gpu|cuda|nvidia|device)?[ :_-]?([0-9]{1,4})", re.IGNORECASE)
_MASKS = {
    Metric.GPU_THERMAL_SLOWDOWN: says.THERMAL_BITS,
    Metric.GPU_POWER_CAP: says.POWER_CAP_BITS,
    Metric.GPU_HARDWARE_SLOWDOWN: says.HARDWARE_BITS,
}

_NO_TIME = "no time that can be read"
_NO_TIMES = "no column of times"
_NO_VALUE = "no value that is read"
_NOT_TOLD = "the tool had no value, as [N/A]"
_DAMAGED = "no number that a GPU can have"
_OUTSIDE = "percentage outside 0 to 100, set to the nearer bound"
_ASSUMED = "no times in the log: a second from row to row, which is what the tool does unless told otherwise"
_SUMMED = "use of each GPU is the sum over its processes"


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
    meant = [column(name) for name in table.names]
    fields = list(zip(*table.rows, strict=True))
    by_word: dict[str, Sequence[str]] = {}
    of_metric: defaultdict[Metric, list[tuple[int, int]]] = defaultdict(list)
    for i, one in enumerate(meant):
        if one and one.says:
            by_word.setdefault(one.says, fields[i])
        elif one and one.metric:
            of_metric[one.metric].append((one.rank, i))

    def add(action: str, unit: str, reason: str, count: int) -> None:
        tally.add(action, unit, reason, count=count, file=file, line=table.line)

    gpus, gpu = _gpus(by_word)
    if says.PROCESS in by_word:
        of_metric = defaultdict(list, {m: of_metric[m] for m in (Metric.GPU_USE,) if m in of_metric})
    times = _times(table, meant, by_word, gpu)
    if times is None:
        add("skipped", "rows", _NO_TIMES, len(table.rows))
        return None
    if table.marked and says.TIME not in by_word:
        add("corrected", "files", _ASSUMED, 1)
    values = _values(meant, fields, of_metric, by_word, add)
    told = np.zeros(len(table.rows), np.bool_)
    for measured in values.values():
        told |= ~np.isnan(measured)
    add("skipped", "rows", _NO_TIME, int(np.count_nonzero(~times.there)))
    add("skipped", "rows", _NO_VALUE, int(np.count_nonzero(times.there & ~told)))
    keep = times.there & told
    if not keep.any():
        return None
    hosts, host = _named([as_name(text.strip()) for text in by_word.get(says.HOST, ())], len(keep))
    rows = Rows(
        time_us=times.time_us[keep],
        kind=times.kind,
        gpus=gpus,
        gpu=gpu[keep],
        hosts=hosts,
        host=host[keep],
        uuids=frozenset(text.strip() for text in set(by_word.get(says.UUID, ())) if text.strip()),
        values={metric: one[keep] for metric, one in values.items() if not np.isnan(one[keep]).all()},
    )
    return _summed(rows, add) if says.PROCESS in by_word else rows


def _gpus(by_word: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], IntArray]:
    """Which GPU each row is of: by its number, else by what identifies it; -1 where neither is told."""
    if says.INDEX in by_word:
        return _named([_gpu_name(text.strip()) for text in by_word[says.INDEX]])
    texts = next((by_word[word] for word in (says.UUID, says.BUS) if word in by_word), None)
    if texts is None:
        rows = len(next(iter(by_word.values()), ()))
        return (), np.full(rows, -1)
    ordered, code = _named([text.strip() for text in texts])
    return tuple(f"gpu{i}" for i in range(len(ordered))), code


def _gpu_name(text: str) -> str:
    match = _NUMBERED.fullmatch(text)
    return f"gpu{int(match[1])}" if match else as_name(text) if text else ""


def _named(texts: Sequence[str], rows: int | None = None) -> tuple[tuple[str, ...], IntArray]:
    """Each text once, and the position of every row among them; -1 for an empty one."""
    if not texts:
        return (), np.full(rows or 0, -1)
    place = {text: i for i, text in enumerate(sorted(set(texts) - {""}))} | {"": -1}
    return tuple(text for text in place if text), np.fromiter(
        map(place.__getitem__, texts), np.int64, len(texts)
    )


def _times(
    table: Table,
    meant: Sequence[Column | None],
    by_word: Mapping[str, Sequence[str]],
    gpu: IntArray,
) -> Times | None:
    """When the rows were written; none where nothing tells."""
    if says.TIME in by_word:
        texts = by_word[says.TIME]
        if says.DATE in by_word:
            texts = [f"{d.strip()} {t.strip()}" for d, t in zip(by_word[says.DATE], texts, strict=True)]
        return times_of(texts, elapsed=False)
    if says.ELAPSED in by_word:
        factor = next(one.factor for one in meant if one and one.says == says.ELAPSED)
        return times_of(by_word[says.ELAPSED], elapsed=True, factor=factor)
    if not table.marked:
        return None
    # A moment ends where one of its rows comes again.
    keys = [*zip(gpu.tolist(), by_word.get(says.PROCESS, ()) or [""] * len(gpu), strict=True)]
    seen: Counter[tuple[int, str]] = Counter()
    earlier = np.empty(len(keys), np.int64)
    for i, key in enumerate(keys):
        earlier[i] = seen[key]
        seen[key] += 1
    time_us = np.maximum.accumulate(earlier) * SECOND_US
    return Times(time_us=time_us, there=np.ones(len(time_us), np.bool_), kind=RELATIVE)


def _values(
    meant: Sequence[Column | None],
    fields: Sequence[Sequence[str]],
    of_metric: Mapping[Metric, Sequence[tuple[int, int]]],
    by_word: Mapping[str, Sequence[str]],
    add: Callable[[str, str, str, int], None],
) -> dict[Metric, FloatArray]:
    """(n,) of each metric, NaN where there is no value."""
    wanted: list[tuple[Metric, Sequence[str], float, int]] = []
    for metric, columns in of_metric.items():
        best = min(columns)
        for rank, i in columns:
            one = meant[i]
            # Of several reasons that are one metric any is enough.
            if one and ((rank, i) == best or one.bits):
                wanted.append((metric, fields[i], one.factor, one.bits))
    if says.MASK in by_word:
        wanted += [(metric, by_word[says.MASK], 1.0, bits) for metric, bits in _MASKS.items()]
    found: dict[Metric, FloatArray] = {}
    for metric, texts, factor, bits in wanted:
        read = cells(texts, metric, factor, bits)
        add("dropped", "values", _NOT_TOLD, read.not_told)
        add("dropped", "values", _DAMAGED, read.damaged)
        add("corrected", "values", _OUTSIDE, read.outside)
        known = found.get(metric)
        found[metric] = read.values if known is None else np.fmax(known, read.values)
    return found


def _summed(rows: Rows, add: Callable[[str, str, str, int], None]) -> Rows:
    """Of the rows of processes, one for each GPU and moment."""
    add("corrected", "rows", _SUMMED, len(rows.time_us))
    keys = np.stack([rows.time_us, rows.gpu, rows.host])
    _, first, of = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    values = {
        metric: np.minimum(np.bincount(of.ravel(), weights=np.nan_to_num(one)), 100.0)
        for metric, one in rows.values.items()
    }
    return replace(
        rows, time_us=rows.time_us[first], gpu=rows.gpu[first], host=rows.host[first], values=values
    )
