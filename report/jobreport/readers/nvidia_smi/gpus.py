"""The rows of each GPU of one machine, from all its nvidia-smi logs."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport.readers.bounds import MAX_GPUS
from jobreport.readers.nvidia_smi.logs import GPU_IN_NAME
from jobreport.readers.nvidia_smi.rows import UNNUMBERED, Rows
from jobrules.measures.snapshots import Series
from jobrules.model import natural_sorted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.readers.nvidia_smi.logs import Log
    from jobreport.readers.tally import Tally
    from jobrules.model import FloatArray, Metric


def rows_by_gpu(logs: Sequence[Log], tally: Tally) -> dict[str, Rows]:
    """The rows of each GPU of one machine, in the order of time, each time once."""
    parts: defaultdict[str, list[Rows]] = defaultdict(list)
    for rows in _numbered(logs):
        for name, own in rows.by_gpu().items():
            parts[name].append(own)
    gpus = {name: _once(_sorted(Rows.joined(parts[name])), tally) for name in natural_sorted(set(parts))}
    surplus = [gpus.pop(name) for name in list(gpus)[MAX_GPUS:]]
    surplus_rows = sum(len(gpu.time_us) for gpu in surplus)
    tally.note("samples.devices", count=surplus_rows, unit="rows", limit=MAX_GPUS)
    return gpus


def _numbered(logs: Sequence[Log]) -> list[Rows]:
    """The rows of one machine, each GPU with a number: that in the name of its file, or as its rows come in turn."""
    taken = {name for log in logs for name in log.rows.gpus}
    found: dict[str, str] = {}
    free = (gpu for i in count() if (gpu := f"gpu{i}") not in taken)
    for log in sorted(logs, key=lambda log: (int(log.rows.time_us[0]), log.file)):
        gpus, first = np.unique(log.rows.gpu, return_index=True)
        in_turn = [log.rows.gpus[i] for i in gpus[np.argsort(first)].tolist()]
        match = GPU_IN_NAME.search(log.file.own_name) if len(in_turn) == 1 else None
        for name in in_turn:
            if name.startswith(UNNUMBERED) and name not in found:
                own = f"gpu{int(match[1])}" if match else ""
                found[name] = own if own and own not in taken else next(free)
                taken.add(found[name])
    return [replace(log.rows, gpus=tuple(found.get(name, name) for name in log.rows.gpus)) for log in logs]


def _sorted(rows: Rows) -> Rows:
    return rows.where(np.argsort(rows.time_us, kind="stable"))


def _once(gpu: Rows, tally: Tally) -> Rows:
    """One row of a GPU, in the order of time, for each time, with the first value of each metric at that time."""
    first = np.diff(gpu.time_us, prepend=gpu.time_us[0] - 1) != 0
    if first.all():
        return gpu
    rows, starts = np.arange(len(first)), np.flatnonzero(first)
    values: dict[Metric, FloatArray] = {}
    for metric, measured in gpu.values.items():
        # The first row of each time that has a value, or the number of all rows where none has.
        place = np.minimum.reduceat(np.where(np.isnan(measured), len(rows), rows), starts)
        values[metric] = np.append(measured, np.nan)[place]
    tally.note("nvidia_smi.second_row", count=len(rows) - len(starts))
    return replace(gpu.where(first), values=values)


def series_of(name: str, gpu: Rows) -> Iterator[Series]:
    """The samples of each metric of a GPU."""
    for metric, values in gpu.values.items():
        there = ~np.isnan(values)
        if there.all():
            yield Series(metric=metric, device=name, time_us=gpu.time_us, values=values)
        elif there.any():
            yield Series(metric=metric, device=name, time_us=gpu.time_us[there], values=values[there])
