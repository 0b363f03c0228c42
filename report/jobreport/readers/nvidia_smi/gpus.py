"""The rows of each GPU of one machine, from all its nvidia-smi logs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport.readers.bounds import MAX_GPUS
from jobreport.readers.nvidia_smi.rows import Rows, nowhere
from jobrules.measures.snapshots import Series
from jobrules.model import natural_sorted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobreport.readers.nvidia_smi.identity import Machine
    from jobreport.readers.nvidia_smi.rows import GPU, Places
    from jobreport.readers.tally import Tally
    from jobrules.model import FloatArray, Metric

#: Rows of a log that are divided at a time.
_BLOCK = 1 << 16


def rows_by_gpu(machine: Machine, logs: dict[int, Rows], tally: Tally) -> dict[str, Rows]:
    """The rows of each GPU of one machine, in the order of time, each time once; those of its logs are used up."""
    parts: defaultdict[str, list[Rows]] = defaultdict(list)
    for entry in machine.logs:
        for gpu, rows in _split(logs.pop(entry.number)).items():
            if name := machine.gpus.get(gpu):
                parts[name].append(rows)
            else:
                tally.note("nvidia_smi.not_joined", count=len(rows.time_us), file=entry.file.name)
    gpus = {name: _once(_sorted(Rows.joined(parts.pop(name))), tally) for name in natural_sorted(set(parts))}
    surplus = [gpus.pop(name) for name in list(gpus)[MAX_GPUS:]]
    surplus_rows = sum(len(gpu.time_us) for gpu in surplus)
    tally.note("samples.devices", count=surplus_rows, unit="rows", limit=MAX_GPUS)
    return gpus


def _split(rows: Rows) -> dict[GPU, Rows]:
    """The rows of each GPU. Those of all are given up array by array, for they take most of the memory."""
    pieces: defaultdict[int, list[Places]] = defaultdict(list)
    for start in range(0, len(rows.gpu), _BLOCK):
        numbers_of = rows.gpu[start : start + _BLOCK]
        order = np.argsort(numbers_of, kind="stable")
        numbers, starts = np.unique(numbers_of[order], return_index=True)
        split = np.split(start + order.astype(np.int32), starts[1:])
        for number, own in zip(numbers.tolist(), split, strict=True):
            pieces[number].append(own)
    places = {rows.gpus[number]: np.concatenate(pieces.pop(number)) for number in [*pieces]}
    del numbers_of
    rows = replace(rows, gpu=nowhere(len(rows.gpu)))
    found = {
        gpu: replace(
            rows,
            time_us=rows.time_us[own],
            gpus=(gpu,),
            gpu=np.broadcast_to(np.int32(0), len(own)),
            hosts=(),
            host=nowhere(len(own)),
            values={},
        )
        for gpu, own in places.items()
    }
    measured = rows.values
    del rows
    for metric in [*measured]:
        values = measured.pop(metric)
        for one, own in places.items():
            found[one].values[metric] = values[own]
    return found


def _sorted(rows: Rows) -> Rows:
    if (np.diff(rows.time_us) >= 0).all():
        return rows
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
    """The samples of each metric of a GPU, which gives them up."""
    for metric in [*gpu.values]:
        values = gpu.values.pop(metric)
        there = ~np.isnan(values)
        if there.all():
            yield Series(metric=metric, device=name, time_us=gpu.time_us, values=values)
        elif there.any():
            yield Series(metric=metric, device=name, time_us=gpu.time_us[there], values=values[there])
