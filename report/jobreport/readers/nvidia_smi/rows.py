"""The rows of nvidia-smi logs by GPU: what was measured of one, moment by moment."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import BoolArray, FloatArray, IntArray, Metric


class GPU(Struct, frozen=True, kw_only=True):
    """A GPU as a row names it; empty where the row does not."""

    #: Made of its number, such as ``gpu0``.
    name: str = ""
    bus: str = ""
    uuid: str = ""


class Rows(Struct, frozen=True, kw_only=True, eq=False):
    """The rows of one GPU, in the order of the log; at least one."""

    gpu: GPU
    #: The machine that they name; empty if they name none.
    host: str = ""
    #: Number of the line of the first one.
    line: int = 0
    #: (n,) microseconds; of which kind they are, the log knows.
    time_us: IntArray
    #: (n,) each, NaN where there is no value.
    values: dict[Metric, FloatArray]

    def where(self, rows: BoolArray | IntArray) -> Rows:
        """The rows of a mask, or at these places."""
        values = {metric: some[rows] for metric, some in self.values.items()}
        return replace(self, time_us=self.time_us[rows], values=values)


def joined(rows: Sequence[Rows]) -> list[Rows]:
    """The rows of each GPU of one machine together, in the order of the log; their values are used up."""
    by_gpu: defaultdict[GPU, list[Rows]] = defaultdict(list)
    for one in rows:
        by_gpu[one.gpu].append(one)
    return [_one_after_the_other(parts) for parts in by_gpu.values()]


def _one_after_the_other(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    values = {}
    for metric in dict.fromkeys(metric for part in parts for metric in part.values):
        nothing = (np.full(len(part.time_us), np.nan) for part in parts)
        pieces = [part.values.pop(metric, none) for part, none in zip(parts, nothing, strict=True)]
        values[metric] = np.concatenate(pieces)
    time_us = np.concatenate([part.time_us for part in parts])
    return replace(parts[0], line=min(part.line for part in parts), time_us=time_us, values=values)


def in_time(rows: Rows) -> Rows:
    """The rows in the order of time."""
    if (np.diff(rows.time_us) >= 0).all():
        return rows
    return rows.where(np.argsort(rows.time_us, kind="stable"))


def count_of(rows: Sequence[Rows]) -> int:
    """The number of rows of all GPUs."""
    return sum(len(one.time_us) for one in rows)
