"""The rows of each GPU of one machine, from all its nvidia-smi logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport.readers.bounds import MAX_GPUS
from jobreport.readers.nvidia_smi.rows import GPU, Rows, count_of, joined
from jobrules.measures.snapshots import Series
from jobrules.model import natural_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobreport.readers.nvidia_smi.identity import Machine
    from jobreport.readers.tally import Tally
    from jobrules.model import FloatArray, Metric


def rows_by_gpu(machine: Machine, logs: dict[int, list[Rows]], tally: Tally) -> dict[str, Rows]:
    """The rows of each GPU of one machine, in the order of time, each time once; those of its logs are used up."""
    parts: list[Rows] = []
    for entry in machine.logs:
        for rows in logs.pop(entry.number):
            if name := machine.gpus.get(rows.gpu):
                parts.append(replace(rows, gpu=GPU(name=name)))
            else:
                tally.note("nvidia_smi.not_joined", count=len(rows.time_us), file=entry.file.name)
    gpus = sorted(joined(parts), key=lambda rows: natural_key(rows.gpu.name))
    tally.note("samples.devices", count=count_of(gpus[MAX_GPUS:]), unit="rows", limit=MAX_GPUS)
    return {rows.gpu.name: _once(_sorted(rows), tally) for rows in gpus[:MAX_GPUS]}


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
