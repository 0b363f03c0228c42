"""Snapshots: which samples of a node were taken "at the same moment", and panels made of them.

A sampler reads its sensors in turn, so the samples of one moment differ by a few milliseconds. In
order of time, a sample within the tolerance of the first one of its snapshot, the anchor, belongs
to that snapshot; any other starts the next.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.model import BoolArray, FloatArray, IntArray, Metric, Panel, natural_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

#: Largest distance of the sensors of one moment in system samples.
TOLERANCE_US = 20_000
#: Cells of a panel for each sample in it, at most. So many devices may each have moments of their own.
MOST_CELLS = 128
#: Samples of a series of which snapshots are found at a time.
_BLOCK = 1 << 16


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
    starts = np.concatenate([*_anchors_of_all([*distinct.values()], tolerance_us)])
    numbers = {
        key: np.searchsorted(starts, t, side="right").astype(np.int32) - 1 for key, t in distinct.items()
    }
    by_metric: defaultdict[Metric, list[_Column]] = defaultdict(list)
    surplus = sparse = 0
    for time_us in times:
        one = left.pop(0)
        column = _Column(one.device, time_us, numbers[id(time_us)], one.values)
        surplus += column.surplus
        by_metric[one.metric].append(column)
    rows_of: dict[tuple[int, ...], tuple[IntArray, IntArray]] = {}
    for metric, columns in by_metric.items():
        kept = sorted(_fitting(columns), key=lambda column: natural_key(column.device))
        sparse += _samples(columns) - _samples(kept)
        by_metric[metric] = kept
        key = _rows_key(kept)
        if key not in rows_of:
            rows_of[key] = _rows(kept)
    # What is large goes before the panels come: times of samples, and then series by series.
    del times, distinct, numbers, time_us, one, column, columns, kept
    for column in (column for columns in by_metric.values() for column in columns):
        del column.time_us
    panels = [
        _panel(node, metric, by_metric[metric], *rows_of[_rows_key(by_metric[metric])])
        for metric in Metric
        if metric in by_metric
    ]
    return NodePanels(panels=tuple(panels), surplus=surplus, sparse=sparse)


def _anchors_of_all(times: list[IntArray], tolerance_us: int) -> Iterator[IntArray]:
    """The first times of snapshots of all series, piece by piece: no copy of all their times is made."""
    after_us = min(int(t[0]) for t in times) - 1
    cuts = np.concatenate([[max(int(t[-1]) for t in times)], *(t[_BLOCK::_BLOCK] for t in times)])
    for cut_us in np.sort(cuts).tolist():
        spans = [np.searchsorted(t, (after_us, cut_us), side="right") for t in times]
        piece = np.concatenate(
            [t[begin : max(begin, end)] for t, (begin, end) in zip(times, spans, strict=True)]
        )
        if len(piece):
            # A stable sort is quick with what is a few ascending runs.
            yield (found := anchors(np.sort(piece, kind="stable"), tolerance_us))
            after_us = int(found[-1]) + tolerance_us


class _Column:
    """A device of a panel, with one sample for each snapshot."""

    def __init__(
        self, device: str, time_us: IntArray, snapshot: NDArray[np.int32], values: FloatArray
    ) -> None:
        first = np.diff(snapshot, prepend=-1) > 0
        self.device = device
        self.surplus = len(first) - int(np.count_nonzero(first))
        #: Columns with the same key have the same rows.
        self.rows_key = id(time_us)
        keep = first if self.surplus else slice(None)
        self.time_us, self.snapshot, self.values = time_us[keep], snapshot[keep], values[keep]
        self.last_us = int(self.time_us[-1])


def _rows_key(columns: list[_Column]) -> tuple[int, ...]:
    return tuple(column.rows_key for column in columns)


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


def _rows(columns: list[_Column]) -> tuple[IntArray, IntArray]:
    """The snapshots in which any of the columns has a sample, and the first time in each."""
    taken = _taken(columns)
    time_us = np.full(len(taken), np.iinfo(np.int64).max)
    for column in columns:
        time_us[column.snapshot] = np.minimum(time_us[column.snapshot], column.time_us)
    return np.flatnonzero(taken), time_us[taken]


def _panel(node: str, metric: Metric, columns: list[_Column], snapshot: IntArray, time_us: IntArray) -> Panel:
    """A panel with these rows of columns, which are used up."""
    devices = tuple(column.device for column in columns)
    last_us = max(column.last_us for column in columns)
    row_of = np.zeros(int(snapshot[-1]) + 1, np.int32)
    row_of[snapshot] = np.arange(len(snapshot))
    values = np.empty((len(columns), len(snapshot))).T
    for i in range(len(devices)):
        column = columns.pop(0)
        if len(column.snapshot) == len(snapshot):
            values[:, i] = column.values
        else:
            values[:, i] = np.nan
            values[row_of[column.snapshot], i] = column.values
    return Panel(
        node=node,
        metric=metric,
        devices=devices,
        time_us=time_us,
        snapshot=snapshot,
        values=values,
        last_us=last_us,
    )


def _shared(arrays: Iterable[IntArray]) -> list[IntArray]:
    """The same arrays, with one object for those that are equal."""
    result = []
    known: dict[int, IntArray] = {}
    same: dict[int, IntArray] = {}
    for array in arrays:
        if id(array) not in same:
            like = known.setdefault(hash(array.tobytes()), array)
            same[id(array)] = like if np.array_equal(like, array) else array
        result.append(same[id(array)])
    return result
