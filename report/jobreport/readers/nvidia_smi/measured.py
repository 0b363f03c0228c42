"""What a column of an nvidia-smi log measures, and the unit of its numbers, where only these show it.

The values of a file come table by table, so they are kept as numbers until the last one is there.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jobreport.readers.nvidia_smi.cells import IMPLAUSIBLE, cells
from jobreport.readers.nvidia_smi.columns import GIB, MIB
from jobrules.model import FloatArray, Metric

if TYPE_CHECKING:
    from jobreport.readers.nvidia_smi.cells import Cells
    from jobreport.readers.nvidia_smi.columns import Column
    from jobreport.readers.nvidia_smi.table import Texts
    from jobrules.model import BoolArray, IntArray

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
#: By the unit of a metric: the units that numbers without one may be in, and what these are multiplied with. The first
#: one in which they are possible is assumed.
_SCALES = {
    "B": (("MiB", MIB), ("bytes", 1.0), ("GiB", GIB)),
    "W": (("W", 1.0), ("mW", 1e-3)),
    "°C": (("°C", 1.0), ("m°C", 1e-3)),
    "MHz": (("MHz", 1.0), ("kHz", 1e-3), ("GHz", 1e3)),
    "%": (("%", 1.0),),
    "": (("", 1.0),),
}
#: The unit of a number of a metric itself, by the unit of the metric, as ``_SCALES`` names it.
_BASES = {unit: next(word for word, factor in scales if factor == 1) for unit, scales in _SCALES.items()}
#: Impossible values are damage up to this share, or a single one of so many; more of them are in another unit.
_DAMAGED_SHARE, _ROWS_WITH_DAMAGE = 0.01, 10
#: The driver gives use and memory in whole numbers. With decimals in this share of them, they are something else.
_DECIMAL_SHARE = 0.1
#: Memory below this with decimals may be in GiB.
_GIB_BELOW = 1024.0
#: Codes of remarks.
_FRACTION, _ASSUMED, _UNCLEAR, _NOT_ACTIVITY, _IMPOSSIBLE = (
    "nvidia_smi.fraction",
    "nvidia_smi.assumed_unit",
    "nvidia_smi.unclear_unit",
    "nvidia_smi.not_activity",
    "nvidia_smi.impossible_unit",
)


class Lost(NamedTuple):
    """Cells without a value: how many, the line of the first, and its text."""

    cells: int
    line: int
    text: str


class Unit(NamedTuple):
    """The unit of numbers without one."""

    #: What makes them numbers of the metric; ``None`` if they are not read.
    factor: float | None
    #: Code of the remark on what was assumed, or on why the numbers are not read; empty for none.
    code: str = ""
    #: The unit that was assumed, or those that are possible.
    scale: str = ""


class Numbers:
    """Numbers of a column, of as many rows as were added, and what shows their unit."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        #: With NaN for rows that have none.
        self._all = array("d")
        self.count = 0
        self.highest = 0.0
        self.decimals = 0
        self.above_1 = 0
        self.above_100 = 0
        #: How many are impossible, by the unit that they may be in.
        self.impossible = dict.fromkeys((unit for unit, _ in _SCALES[metric.unit]), 0)

    def put(self, numbers: FloatArray, start: int) -> None:
        """Add the numbers of the rows from ``start`` on."""
        found = numbers[~np.isnan(numbers)]
        if not len(found):
            return
        self._fill(start)
        self._all.frombytes(numbers.tobytes())
        self.count += len(found)
        self.highest = max(self.highest, float(found.max()))
        self.decimals += int(np.count_nonzero(found != np.floor(found)))
        self.above_1 += int(np.count_nonzero(found > 1))
        self.above_100 += int(np.count_nonzero(found > 100))
        for unit, factor in _SCALES[self.metric.unit]:
            self.impossible[unit] += int(np.count_nonzero(_outside(found * factor, self.metric)))

    def all(self, rows: int) -> FloatArray:
        """(rows,) the numbers of all rows, NaN where there is none; none can be added then."""
        self._fill(rows)
        return np.frombuffer(self._all)

    def is_damage(self, impossible: int) -> bool:
        """Whether so few numbers are impossible that only these are damaged."""
        return impossible <= max(int(self.count * _DAMAGED_SHARE), self.count >= _ROWS_WITH_DAMAGE)

    @property
    def have_decimals(self) -> bool:
        """Whether so many have decimals that the driver did not write them."""
        return self.decimals > 0 and self.decimals >= _DECIMAL_SHARE * self.count

    def _fill(self, rows: int) -> None:
        self._all.frombytes(np.full(rows - len(self._all), np.nan).tobytes())


class Measured:
    """A column of a metric, gathered table by table."""

    def __init__(self, name: str, column: Column, metric: Metric) -> None:
        self.name, self.column, self.metric = name, column, metric
        #: Numbers in a known unit, and those whose unit all of them together have to show.
        self._known, self._bare = Numbers(metric), Numbers(metric)
        #: By the code of the remark on them.
        self.lost: dict[str, Lost] = {}
        #: The line and the text of the first cell that is impossible in the most common unit; 0 for none.
        self.first_impossible = (0, "")
        #: Known when it is finished. (n,) of the values, NaN where there is none; ``None`` without any.
        self.unit = Unit(None)
        self.values: FloatArray | None = None

    def read(self, texts: Texts, lines: IntArray) -> Cells:
        """The numbers of a table, whose rows begin in these lines."""
        found = cells(texts, self.column, self.metric.unit)
        for code, (count, row) in found.lost.items():
            self._lose(code, count, int(lines[row]), texts[row])
        if not self.first_impossible[0]:
            _, factor = _SCALES[self.metric.unit][0]
            impossible = _outside(found.known, self.metric) | _outside(found.bare * factor, self.metric)
            if impossible.any():
                row = int(np.argmax(impossible))
                self.first_impossible = int(lines[row]), texts[row]
        return found

    def keep(self, numbers: Cells, usable: BoolArray, start: int) -> None:
        """Add the numbers of the usable rows, which are those from ``start`` on."""
        self._known.put(numbers.known[usable], start)
        self._bare.put(numbers.bare[usable], start)

    def finish(self, rows: int) -> None:
        """Find the unit and the values; nothing can be added then."""
        self.unit = unit_of(self._known, self._bare, self.column)
        if self.unit.factor is not None:
            self.values = self._values(rows, self.unit.factor)

    def _values(self, rows: int, factor: float) -> FloatArray | None:
        """(rows,) without those that are damaged."""
        values = self._known.all(rows) if self._known.count else self._bare.all(rows)
        if not self._known.count:
            values *= factor
        elif self._bare.count:
            np.copyto(values, self._bare.all(rows) * factor, where=np.isnan(values))
        outside = _outside(values, self.metric)
        if outside.any():
            values[outside] = np.nan
            self._lose(IMPLAUSIBLE, int(np.count_nonzero(outside)), *self.first_impossible)
        return None if np.isnan(values).all() else values

    def _lose(self, code: str, count: int, line: int, text: str) -> None:
        before = self.lost.get(code) or Lost(0, line, text)
        self.lost[code] = Lost(before.cells + count, *min(before[1:], (line, text)))


def unit_of(known: Numbers, bare: Numbers, column: Column) -> Unit:
    """The unit of the numbers of a column without one. ``known`` are those in the unit of the metric."""
    unit = bare.metric.unit
    scales = _SCALES[unit]
    (usual, _), *_ = scales
    least = _LEAST_HIGHEST.get(bare.metric, 0.0) if bare.highest else 0.0
    possible = [
        (word, factor)
        for word, factor in scales
        if bare.is_damage(bare.impossible[word]) and bare.highest * factor >= least
    ]
    if not possible or not known.is_damage(known.impossible[_BASES[unit]]):
        return Unit(None, _IMPOSSIBLE, usual)
    if unit == "%" and not column.bits:
        return _percent(known, bare, column)
    scale, factor = possible[0]
    if unit == "B" and bare.highest and not column.own:
        if column.is_share_possible and bare.is_damage(bare.above_100):
            return Unit(None, _UNCLEAR, "percent, MiB, or GiB")
        if scale == usual and bare.highest < _GIB_BELOW and bare.have_decimals:
            return Unit(None, _UNCLEAR, "MiB or GiB")
        return Unit(factor, _ASSUMED, scale)
    return Unit(factor, _ASSUMED * (scale != usual), scale)


def _percent(known: Numbers, bare: Numbers, column: Column) -> Unit:
    """The unit of numbers that are percent or fractions of 1."""
    unclear = Unit(None, _UNCLEAR, "percent or fractions")
    if bare.metric is Metric.GPU_MEMORY_ACTIVITY and (known.have_decimals or bare.have_decimals):
        return Unit(None, _NOT_ACTIVITY)
    if known.have_decimals and column.factor == 1 and not known.above_1:
        # The unit contradicts the numbers.
        return unclear
    if bare.have_decimals and not bare.above_1:
        return Unit(100.0, _FRACTION)
    if bare.highest and not column.own:
        is_one_at_most = bare.is_damage(bare.above_1) if bare.have_decimals else not bare.above_1
        if is_one_at_most:
            return unclear
    # What a script calls "mem" may be the activity of the memory.
    return Unit(1.0, _ASSUMED * (column.otherwise is not None), "%")


def _outside(numbers: FloatArray, metric: Metric) -> BoolArray:
    return np.asarray((numbers < 0) | (numbers > _HIGHEST.get(metric, 100.0)))
