"""Snapshots: which samples of a node were taken "at the same moment", and panels made of them.

A sampler reads its sensors in turn, so the samples of one moment differ by a few milliseconds. In
order of time, a sample within the tolerance of the first one of its snapshot, the anchor, belongs
to that snapshot; any other starts the next.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.model import BoolArray, FloatArray, IntArray, Metric, Panel, natural_key

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Largest distance of the sensors of one moment in system samples.
TOLERANCE_US = 20_000
#: Cells of a panel for each sample in it, at most. So many devices may each have moments of their own.
MOST_CELLS = 128


class Series(Struct, frozen=True, kw_only=True, eq=False):
    """The samples of one device; a node has at most one series for each metric and device."""

    metric: Metric
    device: str
    #: (n,) ascending, n ≥ 1. Devices that were sampled together may share one array, which is faster.
    time_us: IntArray
    #: (n,) finite.
    values: FloatArray


class NodePanels(Struct, frozen=True, kw_only=True, eq=False):
    """All panels of one node."""

    #: In the order of ``Metric``.
    panels: tuple[Panel, ...]
    #: Samples left out because their device already had one in the same snapshot; the first one stays.
    surplus: int
    #: Samples left out with their devices, because the panel would have been nearly empty.
    sparse: int


def anchors(time_us: IntArray, tolerance_us: int = TOLERANCE_US) -> IntArray:
    """First time of each snapshot, from ascending times."""
    if not len(time_us):
        return time_us
    # A gap wider than the tolerance always starts a snapshot; only what lies between two such gaps
    # and is longer than the tolerance has to be walked.
    starts = np.flatnonzero(np.diff(time_us, prepend=time_us[0] - tolerance_us - 1) > tolerance_us)
    ends = np.append(starts[1:], len(time_us))
    found = [starts]
    for cluster in np.flatnonzero(time_us[ends - 1] - time_us[starts] > tolerance_us):
        part = time_us[starts[cluster] : ends[cluster]]
        after = np.searchsorted(part, part + tolerance_us, side="right").tolist()
        position, walked = after[0], []
        while position < len(part):
            walked.append(position)
            position = after[position]
        found.append(starts[cluster] + np.array(walked, np.int64))
    return time_us[np.sort(np.concatenate(found))]


def node_panels(node: str, series: Iterable[Series], tolerance_us: int = TOLERANCE_US) -> NodePanels:
    """The panels of one node, their snapshots numbered over the samples of all its series."""
    left = [*series]
    if not left:
        return NodePanels(panels=(), surplus=0, sparse=0)
    times = _shared(one.time_us for one in left)
    distinct = {id(t): t for t in times}
    # A stable sort is quick with what is a few ascending runs.
    starts = anchors(np.sort(np.concatenate(list(distinct.values())), kind="stable"), tolerance_us)
    numbers = {key: np.searchsorted(starts, t, side="right") - 1 for key, t in distinct.items()}
    by_metric: defaultdict[Metric, list[_Column]] = defaultdict(list)
    surplus = 0
    for time_us in times:
        one = left.pop(0)
        column = _Column(one.device, time_us, numbers[id(time_us)], one.values)
        surplus += column.surplus
        by_metric[one.metric].append(column)
    sparse = 0
    panels = []
    for metric in Metric:
        # Series that nobody else has are gone with their panel.
        if columns := by_metric.pop(metric, []):
            kept = _fitting(columns)
            sparse += _samples(columns) - _samples(kept)
            panels.append(_panel(node, metric, kept))
    return NodePanels(panels=tuple(panels), surplus=surplus, sparse=sparse)


class _Column:
    """A device of a panel, with one sample for each snapshot."""

    def __init__(self, device: str, time_us: IntArray, snapshot: IntArray, values: FloatArray) -> None:
        first = np.diff(snapshot, prepend=-1) > 0
        self.device = device
        self.surplus = len(first) - int(np.count_nonzero(first))
        #: Columns with the same key have the same rows.
        self.rows_key = id(time_us)
        keep = first if self.surplus else slice(None)
        self.time_us, self.snapshot, self.values = time_us[keep], snapshot[keep], values[keep]


def _samples(columns: list[_Column]) -> int:
    return sum(len(column.values) for column in columns)


def _fitting(columns: list[_Column]) -> list[_Column]:
    """All columns; of a panel that would be nearly empty, the ``MOST_CELLS`` with most samples.

    A panel grows with devices times moments: a small file of thousands of names, each at moments of its own,
    would take all memory there is. No sampler leaves one.
    """
    if len(columns) <= MOST_CELLS:
        return columns
    if int(np.count_nonzero(_taken(columns))) * len(columns) <= MOST_CELLS * _samples(columns):
        return columns
    return sorted(columns, key=lambda column: (-len(column.values), natural_key(column.device)))[:MOST_CELLS]


def _taken(columns: list[_Column]) -> BoolArray:
    """Whether any of the columns has a sample, by the number of the snapshot."""
    taken = np.zeros(1 + max(int(column.snapshot[-1]) for column in columns), np.bool_)
    for column in columns:
        taken[column.snapshot] = True
    return taken


def _panel(node: str, metric: Metric, columns: list[_Column]) -> Panel:
    columns.sort(key=lambda column: natural_key(column.device))
    first = columns[0]
    if all(column.rows_key == first.rows_key for column in columns):
        snapshot, time_us = first.snapshot, first.time_us
        values = np.stack([column.values for column in columns]).T
    else:
        taken = _taken(columns)
        snapshot, row_of = np.flatnonzero(taken), np.cumsum(taken) - 1
        time_us = np.full(len(snapshot), np.iinfo(np.int64).max)
        values = np.full((len(columns), len(snapshot)), np.nan).T
        for i, column in enumerate(columns):
            rows = row_of[column.snapshot]
            time_us[rows] = np.minimum(time_us[rows], column.time_us)
            values[rows, i] = column.values
    return Panel(
        node=node,
        metric=metric,
        devices=tuple(column.device for column in columns),
        time_us=time_us,
        snapshot=snapshot,
        values=values,
        last_us=max(int(column.time_us[-1]) for column in columns),
    )


def _shared(arrays: Iterable[IntArray]) -> list[IntArray]:
    """The same arrays, with one object for those that are equal."""
    result = []
    known: dict[bytes, IntArray] = {}
    same: dict[int, IntArray] = {}
    for array in arrays:
        if id(array) not in same:
            same[id(array)] = known.setdefault(blake2b(array.tobytes()).digest(), array)
        result.append(same[id(array)])
    return result
