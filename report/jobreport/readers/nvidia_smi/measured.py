"""What a column of an nvidia-smi log measures, and the unit of its numbers, where only these show it.

The numbers of a file come table by table; what shows their unit is counted until the last one is there.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jobreport.readers.nvidia_smi.cells import IMPLAUSIBLE, KINDS, NOT_AVAILABLE, numbers_of
from jobreport.readers.nvidia_smi.units import ASSUMED, MIB
from jobrules.model import FloatArray, Metric

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from jobreport.readers.nvidia_smi.columns import Column
    from jobreport.readers.nvidia_smi.table import Texts
    from jobrules.model import BoolArray, IntArray

_BARE, _KNOWN, *_ = range(len(KINDS))
#: No GPU comes above these; a percentage is at most 100.
_HIGHEST = {
    Metric.GPU_MEMORY_USED: 2.0**40,
    Metric.GPU_MEMORY_TOTAL: 2.0**40,
    Metric.GPU_POWER: 2000.0,
    Metric.GPU_POWER_LIMIT: 2000.0,
    Metric.GPU_TEMPERATURE: 130.0,
    Metric.GPU_CLOCK: 5000.0,
    Metric.GPU_ECC_CORRECTED: 1e18,
    Metric.GPU_ECC_UNCORRECTED: 1e18,
}
#: The highest value of any GPU is at least this.
_LEAST_HIGHEST = {Metric.GPU_MEMORY_TOTAL: 256 * MIB, Metric.GPU_CLOCK: 50.0}
#: Impossible values are damage up to this share, or a single one of so many; more of them are in another unit.
_DAMAGED_SHARE, _ROWS_WITH_DAMAGE = 0.01, 10
#: The driver gives use and memory in whole numbers. With decimals in this share of them, they are something else.
_DECIMAL_SHARE = 0.1
#: Memory below this with decimals may be in GiB.
_GIB_BELOW = 1024.0


class Lost(NamedTuple):
    """Cells without a value: how many, the line of the first, and its text."""

    cells: int
    line: int
    text: str


class Unit(NamedTuple):
    """The unit of the numbers of a column."""

    #: What makes them numbers of the metric; ``None`` if they are not read.
    factor: float | None
    #: Code of the remark on what was assumed, or on why the numbers are not read; empty for none.
    code: str = ""
    #: The unit that was assumed, or those that are possible.
    scale: str = ""


class Measured:
    """A column of a metric, counted table by table."""

    def __init__(self, name: str, column: Column, metric: Metric) -> None:
        self.name, self.column, self.metric = name, column, metric
        #: Whether the numbers have no unit; known with the first of them.
        self.is_bare: bool | None = None
        #: By the code of the remark on them.
        self.lost: dict[str, Lost] = {}
        #: The line and the text of the first cell that is impossible in the most common unit; 0 for none.
        self.first_impossible = (0, "")
        self._count = self._others = self._decimals = self._above_1 = self._above_100 = 0
        self._highest = 0.0
        #: How many are impossible, by the unit that they may be in.
        self._impossible = dict.fromkeys(ASSUMED[metric.unit], 0)

    @property
    def _scales(self) -> dict[str, float]:
        """The units that the numbers may be in."""
        scales = ASSUMED[self.metric.unit]
        return scales if self.is_bare else {unit: factor for unit, factor in scales.items() if factor == 1}

    def read(self, texts: Texts, lines: IntArray) -> FloatArray:
        """(n,) the numbers of a table, whose rows begin in these lines; NaN where there is none.

        In half of the usual width where that holds them: nearly all are whole.
        """
        values, kinds, at = numbers_of(texts, self.column, self.metric.unit)
        bare, known = (int(np.count_nonzero(kinds == kind)) for kind in (_BARE, _KNOWN))
        if self.is_bare is None and bare + known:
            self.is_bare = bare > known
        cells = (
            np.ones(len(kinds), np.int64) if isinstance(at, slice) else np.bincount(at, minlength=len(kinds))
        )
        # A number with a unit where the others have none, or without, is damaged.
        is_other = kinds == (_KNOWN if self.is_bare else _BARE)
        self._others += int(cells[is_other].sum())
        kinds[is_other] = KINDS.index(IMPLAUSIBLE)
        for code in (NOT_AVAILABLE, IMPLAUSIBLE):
            if (lost := kinds == KINDS.index(code)).any():
                row = int(np.argmax(lost[at]))
                self.lose(code, int(cells[lost].sum()), int(lines[row]), texts[row])
        there = kinds <= _KNOWN
        values[~there] = np.nan
        narrow: NDArray[Any] = values.astype(np.float32)
        of_rows = (narrow if np.array_equal(narrow, values, equal_nan=True) else values)[at]
        numbers, rows = values[there], cells[there]
        if not len(numbers):
            return of_rows

        def count_of(which: BoolArray) -> int:
            return int(rows[which].sum())

        self._count += int(rows.sum())
        self._highest = max(self._highest, float(numbers.max()))
        self._decimals += count_of(numbers != np.floor(numbers))
        self._above_1 += count_of(numbers > 1)
        self._above_100 += count_of(numbers > 100)
        for unit, factor in self._scales.items():
            self._impossible[unit] += count_of(self.outside(numbers * factor))
        usual, *_ = self._scales
        if self._impossible[usual] and not self.first_impossible[0]:
            impossible = self.outside(values * self._scales[usual])
            row = int(np.argmax(impossible[at]))
            self.first_impossible = int(lines[row]), texts[row]
        return of_rows

    def lose(self, code: str, count: int, line: int, text: str) -> None:
        """Count cells without a value."""
        before = self.lost.get(code) or Lost(0, line, text)
        self.lost[code] = Lost(before.cells + count, *min(before[1:], (line, text)))

    def outside(self, values: FloatArray) -> BoolArray:
        """(n,) whether no GPU has such a value of the metric."""
        return np.asarray((values < 0) | (values > _HIGHEST.get(self.metric, 100.0)))

    @cached_property
    def unit(self) -> Unit:
        """The unit of all numbers; the last one must be there."""
        metric, column = self.metric, self.column
        least = _LEAST_HIGHEST.get(metric, 0.0) if self.is_bare and self._highest else 0.0
        usual, *_ = self._scales
        possible = [
            unit
            for unit, factor in self._scales.items()
            if self._is_damage(self._impossible[unit]) and self._highest * factor >= least
        ]
        if not self._is_damage(self._others):
            return Unit(None, "nvidia_smi.mixed_units")
        if not possible:
            return Unit(None, "nvidia_smi.impossible_unit", usual)
        if metric.unit == "%" and not column.bits:
            return self._percent()
        scale = possible[0]
        is_assumed = scale != usual
        if metric.unit == "B" and self.is_bare and self._highest and not column.own:
            if column.is_share_possible and self._is_damage(self._above_100):
                return Unit(None, "nvidia_smi.unclear_unit", "percent, MiB, or GiB")
            if scale == usual and self._highest < _GIB_BELOW and self._has_decimals:
                return Unit(None, "nvidia_smi.unclear_unit", "MiB or GiB")
            is_assumed = True
        return Unit(self._scales[scale], "nvidia_smi.assumed_unit" * is_assumed, scale)

    def _percent(self) -> Unit:
        """The unit of numbers that are percent or fractions of 1."""
        column = self.column
        unclear = Unit(None, "nvidia_smi.unclear_unit", "percent or fractions")
        # Scripts also call the share of memory in use so; the driver writes no decimals of its activity.
        if self.metric is Metric.GPU_MEMORY_ACTIVITY and self._has_decimals and not column.own:
            return Unit(None, "nvidia_smi.not_activity")
        if not self.is_bare:
            # A name with percent may contradict the numbers.
            if self._has_decimals and column.factor == 1 and not self._above_1:
                return unclear
            return Unit(1.0)
        if self._has_decimals and not self._above_1:
            return Unit(100.0, "nvidia_smi.fraction")
        above = 0 if self._has_decimals and self._is_damage(self._above_1) else self._above_1
        if self._highest and not column.own and not above:
            return unclear
        return Unit(1.0, scale="%")

    def _is_damage(self, impossible: int) -> bool:
        """Whether so few numbers are impossible that only these are damaged."""
        return impossible <= max(int(self._count * _DAMAGED_SHARE), self._count >= _ROWS_WITH_DAMAGE)

    @property
    def has_number(self) -> bool:
        """Whether any number is possible in the unit."""
        unit = self.unit
        return unit.factor is not None and self._count > self._impossible.get(unit.scale, 0)

    @property
    def _has_decimals(self) -> bool:
        """Whether so many have decimals that the driver did not write them."""
        return self._decimals > 0 and self._decimals >= _DECIMAL_SHARE * self._count
