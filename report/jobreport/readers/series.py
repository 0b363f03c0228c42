"""Values of a scalar as they are read: in columns, and evenly fewer where they are too many."""

from __future__ import annotations

from array import array
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from jobreport.readers.names import as_name
from jobreport.readers.restarts import latest
from jobrules.model.learning import Scalars

if TYPE_CHECKING:
    from jobrules.model.types import FloatArray, IntArray

#: Values of a series that are kept.
MAX_VALUES = 1_000_000
#: Those of all series of a file, series, and characters of a name.
_MAX_ALL, _MAX_SERIES, _MAX_NAME = 4_000_000, 1000, 200
#: Values that are the same number, by the larger of it and 1.
_SAME = 1e-6


class Series:
    """Values of a scalar in the order of the file: all of them, or evenly fewer and those that are not finite."""

    def __init__(self) -> None:
        self._columns = array("q"), array("q"), array("d")
        #: Finite values that were met, of which every first, second, fourth, … is kept.
        self._stride, self._seen = 1, 0
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, step: int, time_us: int, value: float) -> None:
        """Keep a value."""
        if isfinite(value):
            self._seen += 1
            if (self._seen - 1) % self._stride:
                self.left_out += 1
                return
        self._columns[0].append(step)
        self._columns[1].append(time_us)
        self._columns[2].append(value)

    def thin(self) -> None:
        """Leave out every second value; one that is not finite stays, unless those alone are too many."""
        value = np.array(self._columns[2])
        finite = np.isfinite(value)
        if 2 * int(finite.sum()) < len(value):
            finite[:] = True
        kept = ~finite | (np.cumsum(finite) % 2 == 1)
        self.left_out += int((~kept).sum())
        self._stride *= 2
        self._columns = (
            array("q", np.array(self._columns[0])[kept].tobytes()),
            array("q", np.array(self._columns[1])[kept].tobytes()),
            array("d", value[kept].tobytes()),
        )

    def arrays(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Steps, times, and values, each step as it was written last."""
        step, time_us, value = (np.array(column) for column in self._columns)
        kept = latest(step)
        return step[kept], time_us[kept], value[kept]


class Logged:
    """All series of a file, one of ``share`` that share the memory."""

    def __init__(self, share: int = 1) -> None:
        self._most = max(_MAX_ALL // share, _MAX_SERIES)
        #: By mode and name.
        self._series: dict[tuple[str, str], Series] = {}
        self._held = 0
        #: Values of steps that come again, known after ``scalars``.
        self.repeated = 0

    def __bool__(self) -> bool:
        return bool(self._series)

    def __contains__(self, name: str) -> bool:
        return any(known == name[:_MAX_NAME] for _, known in self._series)

    def add(self, mode: str, name: str, step: int, time_us: int, value: float) -> bool:
        """Keep a value; False if it is of one series too many."""
        key = mode, name[:_MAX_NAME]
        series = self._series.get(key)
        if series is None:
            if len(self._series) == _MAX_SERIES:
                return False
            series = self._series[key] = Series()
        self._held -= len(series)
        series.add(step, time_us, value)
        if len(series) > MAX_VALUES:
            series.thin()
        self._held += len(series)
        if self._held > self._most:
            usual = self._held / len(self._series)
            for one in self._series.values():
                if len(one) >= usual:
                    one.thin()
            self._held = sum(map(len, self._series.values()))
        return True

    @property
    def left_out(self) -> int:
        """Values that were too many."""
        return sum(one.left_out for one in self._series.values())

    def scalars(self, source: str, rank: int = 0) -> list[Scalars]:
        """The series."""
        found = []
        for (mode, name), series in self._series.items():
            step, time_us, value = series.arrays()
            self.repeated += len(series) - len(step)
            shown = as_name(name)
            found.append(
                Scalars(
                    name=shown,
                    logged_as=shown,
                    mode=mode,
                    source=source,
                    rank=rank,
                    step=step,
                    time_us=time_us,
                    value=value,
                )
            )
        return found


def is_same(one: Scalars, other: Scalars) -> bool | None:
    """Whether two series have the same values at all steps that both have; None without any."""
    _, here, there = np.intersect1d(one.step, other.step, return_indices=True)
    values, others = one.value[here], other.value[there]
    with np.errstate(invalid="ignore"):
        near = np.abs(values - others) <= _SAME * np.maximum(1, np.abs(values))
    same = near | (values == others) | (np.isnan(values) & np.isnan(others))
    return bool(same.all()) if len(here) else None
