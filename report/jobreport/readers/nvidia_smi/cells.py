"""What stands in the cells of an nvidia-smi log: numbers with and without units, yes and no, and what was not told."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.readers.nvidia_smi.columns import FACTORS
from jobrules.model import FloatArray, Metric

if TYPE_CHECKING:
    from jobreport.readers.nvidia_smi.text import Texts

#: How the tool says that it has no value.
NOT_TOLD = {
    "",
    "-",
    "n/a",
    "na",
    "nan",
    "none",
    "null",
    "not supported",
    "unknown",
    "unknown error",
    "err!",
    "not found",
    "not available",
    "insufficient permissions",
    "gpu is lost",
    "gpu requires reset",
    "requested functionality has been deprecated",
}
#: What may be amiss with a cell.
_KINDS = ("not_told", "damaged", "outside")
_YES, _NO = {"active", "yes", "true"}, {"not active", "no", "false"}
#: A comma in a cell is a decimal one, unless the three digits behind it may be thousands.
_NUMBER = re.compile(
    r"([-+]?(?:[0-9]+(?:\.[0-9]*|,(?:[0-9]{1,2}|[0-9]{4,}))?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*([%a-zA-Z°]*)"
)
_MASK = re.compile(r"0x[0-9a-fA-F]{1,16}")
#: Behind a number, short forms are units too.
_FACTORS = FACTORS | {
    "B": FACTORS["B"]
    | {short: FACTORS["B"][f"{short[0]}ib"] for short in ("k", "ki", "m", "mi", "g", "gi", "mbytes")},
    "°C": FACTORS["°C"] | {"deg": 1.0, "degrees": 1.0},
}

#: No GPU comes near these; a percentage is set to the nearer bound instead.
_HIGHEST = {
    Metric.GPU_MEMORY_USED: 1e15,
    Metric.GPU_MEMORY_TOTAL: 1e15,
    Metric.GPU_POWER: 1e5,
    Metric.GPU_POWER_LIMIT: 1e5,
    Metric.GPU_TEMPERATURE: 300.0,
    Metric.GPU_CLOCK: 1e5,
    Metric.GPU_ECC_CORRECTED: 1e18,
    Metric.GPU_ECC_UNCORRECTED: 1e18,
}
#: Less is nothing in any unit; a ratio to it might be past the largest number there is.
_LEAST = 1e-9


class Cells(Struct, kw_only=True, eq=False):
    """The cells of a column as numbers."""

    #: (n,) NaN where there is none.
    values: FloatArray
    #: How many cells the tool had no value for, are no number, or had to be set to a bound.
    not_told: int
    damaged: int
    outside: int


def any_number(texts: Texts, metric: Metric, factor: float, bits: int) -> bool:
    """Whether a column of a metric holds any."""
    return any(not math.isnan(_value(text, metric, factor, bits)[0]) for text in texts.distinct)


def cells(texts: Texts, metric: Metric, factor: float, bits: int) -> Cells:
    """From the cells of a column of a metric."""
    read = [_value(text, metric, factor, bits) for text in texts.distinct]
    counts = np.bincount(texts.code, minlength=len(read))
    amiss = {
        kind: int(sum(n for n, (_, k) in zip(counts, read, strict=True) if k == kind)) for kind in _KINDS
    }
    return Cells(values=np.array([value for value, _ in read])[texts.code], **amiss)


def _value(text: str, metric: Metric, factor: float, bits: int) -> tuple[float, str]:
    """A number and, if something is amiss, what."""
    plain = text.strip().strip("[]").strip()
    lower = plain.lower()
    if lower in NOT_TOLD:
        return math.nan, "not_told"
    if bits:
        return _reason(lower, bits)
    match = _NUMBER.fullmatch(plain)
    if match is None:
        return math.nan, "damaged"
    unit, factors = match[2].lower(), _FACTORS[metric.unit]
    if unit and unit not in factors:
        return math.nan, "damaged"
    value = float(match[1].replace(",", ".")) * factors.get(unit, factor)
    value = value if abs(value) >= _LEAST else 0.0
    if metric.unit == "%":
        return (value, "") if 0 <= value <= 100 else (min(max(value, 0.0), 100.0), "outside")
    return (value, "") if 0 <= value <= _HIGHEST[metric] else (math.nan, "damaged")


def _reason(text: str, bits: int) -> tuple[float, str]:
    """100 while a reason holds, else 0."""
    if text in _YES | _NO:
        return 100.0 * (text in _YES), ""
    if _MASK.fullmatch(text) or (text.isdecimal() and len(text) < 20):
        return 100.0 * bool(int(text, 0 if text.startswith("0x") else 10) & bits), ""
    return math.nan, "damaged"
