"""The rows of each GPU of one machine, from all its nvidia-smi logs."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport.readers.nvidia_smi.logs import GPU_IN_NAME
from jobreport.readers.nvidia_smi.table import UNNUMBERED
from jobrules.measures.snapshots import Series
from jobrules.model import natural_sorted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.readers.nvidia_smi.logs import Log
    from jobreport.readers.tally import Tally
    from jobrules.model import FloatArray, Metric

#: A machine has fewer; more are damage or malice.
MAX_GPUS = 1024


def rows_by_gpu(logs: Sequence[Log], tally: Tally) -> dict[str, Log]:
    """The rows of each GPU of one machine, in the order of time, each time once."""
    parts: defaultdict[str, list[Log]] = defaultdict(list)
    for log in _numbered(logs):
        for name, own in log.by_gpu().items():
            parts[name].append(own)
    gpus = {name: _once(_sorted(parts[name]), tally) for name in natural_sorted(set(parts))}
    surplus = [gpus.pop(name) for name in list(gpus)[MAX_GPUS:]]
    tally.note("nvidia_smi.many_gpus", count=sum(len(gpu.time_us) for gpu in surplus), gpus=MAX_GPUS)
    return gpus


def _numbered(logs: Sequence[Log]) -> Sequence[Log]:
    """The logs of one machine, each GPU with a number: that in the name of its file, or as its rows come in turn."""
    taken = {name for log in logs for name in log.gpus}
    found: dict[str, str] = {}
    free = (gpu for i in count() if (gpu := f"gpu{i}") not in taken)
    for log in sorted(logs, key=lambda log: (int(log.time_us[0]), log.file)):
        gpus, first = np.unique(log.gpu, return_index=True)
        in_turn = [log.gpus[i] for i in gpus[np.argsort(first)].tolist()]
        match = GPU_IN_NAME.search(log.file.own_name) if len(in_turn) == 1 else None
        for name in in_turn:
            if name.startswith(UNNUMBERED) and name not in found:
                own = f"gpu{int(match[1])}" if match else ""
                found[name] = own if own and own not in taken else next(free)
                taken.add(found[name])
    return [replace(log, gpus=tuple(found.get(name, name) for name in log.gpus)) for log in logs]


def _sorted(logs: Sequence[Log]) -> Log:
    """The rows of one GPU from several files, in the order of time."""
    time_us = np.concatenate([log.time_us for log in logs])
    order = np.argsort(time_us, kind="stable")
    values = {
        metric: np.concatenate([log.values.get(metric, np.full(len(log.time_us), np.nan)) for log in logs])[
            order
        ]
        for metric in sorted({metric for log in logs for metric in log.values})
    }
    return replace(logs[0], time_us=time_us[order], gpu=np.zeros(len(order), np.int64), values=values)


def _once(gpu: Log, tally: Tally) -> Log:
    """One row of a GPU, in the order of time, for each time; other values of the same time are joined to it.

    The others are counted by whether their values repeat, contradict, or add to those of the first.
    """
    first = np.diff(gpu.time_us, prepend=gpu.time_us[0] - 1) != 0
    if first.all():
        return gpu
    rows, starts, group = np.arange(len(first)), np.flatnonzero(first), np.cumsum(first) - 1
    values: dict[Metric, FloatArray] = {}
    differs, adds = np.zeros_like(first), np.zeros_like(first)
    for metric, measured in gpu.values.items():
        there = ~np.isnan(measured)
        # The first row of each time that has a value, or the number of all rows where none has.
        place = np.minimum.reduceat(np.where(there, rows, len(rows)), starts)
        values[metric] = np.append(measured, np.nan)[place]
        differs |= there & (measured != values[metric][group])
        adds |= place[group] == rows
    tally.note("nvidia_smi.repeated_row", count=int(np.count_nonzero(~first & ~differs & ~adds)))
    tally.note("nvidia_smi.second_row", count=int(np.count_nonzero(differs)))
    tally.note("nvidia_smi.joined_row", count=int(np.count_nonzero(~first & ~differs & adds)))
    return replace(gpu.where(first), values=values)


def series_of(name: str, gpu: Log) -> Iterator[Series]:
    """The samples of each metric of a GPU."""
    for metric, values in gpu.values.items():
        there = ~np.isnan(values)
        if there.all():
            yield Series(metric=metric, device=name, time_us=gpu.time_us, values=values)
        elif there.any():
            yield Series(metric=metric, device=name, time_us=gpu.time_us[there], values=values[there])
