"""The samples of one metric on one node."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.model.metric import Metric
from jobrules.model.names import DeviceName, Name, NodeName
from jobrules.model.order import median
from jobrules.model.types import BoolArray, FloatArray, IntArray

#: What the columns of some metrics are, which are no devices.
_COLUMNS = {
    Metric.FREE_SPACE: "mount",
    Metric.PROCESS_CPU: "process",
    Metric.PROCESS_MEMORY: "process",
    Metric.PROCESS_THREADS: "process",
}
ColumnName: TypeAlias = Annotated[str, Name(lambda panel: _COLUMNS.get(panel.metric, "device"))]
#: Rows that are averaged at a time.
_ROWS = 4096


class OfGPU(Struct, frozen=True, kw_only=True):
    """What is known of one GPU."""

    node: str
    device: DeviceName

    @property
    def name(self) -> str:
        """``node/device``, as in ``Finding.devices``."""
        return f"{self.node}/{self.device}"

    @property
    def label(self) -> str:
        """``node device``, as in sentences."""
        return f"{self.node} {self.device}"


class Panel(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """All samples of one metric on one node: one row per snapshot, one column per device.

    A snapshot is what a sampler read at the same moment; the reader decides how close that is.
    """

    node: NodeName
    metric: Metric
    #: Device names in natural order (``gpu0`` … ``gpu15``); one name for a metric of the whole node.
    devices: tuple[ColumnName, ...]
    #: (n,) time of the first sample of each snapshot, strictly ascending, n ≥ 1.
    time_us: IntArray
    #: (n,) number of the snapshot on this node, shared by all metrics of the node, strictly ascending.
    snapshot: IntArray
    #: (n, devices) in ``metric.unit``; NaN where a device gave no sample. No row and no column is all NaN.
    #: Fastest if each column is contiguous (Fortran order); no result may depend on the order.
    values: FloatArray
    #: Time of the last sample; a few milliseconds past ``time_us[-1]`` where devices are read in turn.
    last_us: int

    @cached_property
    def mean(self) -> FloatArray:
        """(n,) mean over the devices that were sampled in each snapshot."""
        if len(self.devices) == 1:
            return self.values[:, 0]
        mean = np.nanmean if np.isnan(self.values).any() else np.mean
        # Row after row, some rows at a time: the order of adding decides the last digit.
        portions = (self.values[i : i + _ROWS] for i in range(0, len(self.values), _ROWS))
        return np.concatenate([mean(np.ascontiguousarray(rows), axis=1) for rows in portions])

    def where(self, rows: BoolArray) -> Panel | None:
        """Snapshots selected by a mask, with the devices that have samples in them; None without any."""
        return self._of(rows) if rows.any() else None

    def within(self, first_us: int, last_us: int) -> Panel | None:
        """Snapshots from one moment to another, as ``where``; arrays are shared where that is possible."""
        first, stop = np.searchsorted(self.time_us, (first_us, last_us + 1)).tolist()
        return self._of(slice(first, stop)) if stop > first else None

    def _of(self, rows: BoolArray | slice) -> Panel:
        time_us, values = self.time_us[rows], self.values[rows]
        there: BoolArray = np.asarray(~np.isnan(values).all(axis=0))
        return replace(
            self,
            devices=tuple(device for device, kept in zip(self.devices, there.tolist(), strict=True) if kept),
            time_us=time_us,
            snapshot=self.snapshot[rows],
            values=values if there.all() else values[:, there],
            last_us=self.last_us if time_us[-1] == self.time_us[-1] else int(time_us[-1]),
        )

    def series(self, device: int) -> tuple[IntArray, FloatArray]:
        """Times and values of one device (a column number), without snapshots in which it has no sample."""
        column = self.values[:, device]
        measured = ~np.isnan(column)
        if measured.all():
            return self.time_us, column
        rows = np.flatnonzero(measured)
        return self.time_us[rows], column[rows]

    @cached_property
    def interval_us(self) -> int:
        """Sampling interval: median distance of two snapshots; 0 with fewer than two."""
        return int(median(np.diff(self.time_us))) if len(self.time_us) > 1 else 0
