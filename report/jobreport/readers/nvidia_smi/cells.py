"""Cells of an nvidia-smi log: numbers with and without units, yes and no, and words for no value."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.readers.nvidia_smi.columns import FACTORS
from jobrules.model import FloatArray, Metric

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobreport.readers.nvidia_smi.columns import Column
    from jobreport.readers.nvidia_smi.table import Texts

#: How the tool says that it has no value.
NO_VALUE = {
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
#: Anything smaller is nothing in any unit; a ratio to it might be past the largest number there is.
_SMALLEST = 1e-9
#: Codes of remarks.
_NOT_AVAILABLE, _IMPLAUSIBLE, _OUT_OF_RANGE = (
    "samples.not_available",
    "samples.implausible",
    "samples.percent",
)


class Cells(Struct, kw_only=True, eq=False):
    """The cells of a column as numbers."""

    #: (n,) NaN where there is none.
    values: FloatArray
    #: Cells by the code of the remark on them.
    remarks: Counter[str]


def any_number(texts: Texts, metric: Metric, column: Column) -> bool:
    """Whether the cells of a column of a metric hold any number."""
    return any(not math.isnan(_value(text, metric, column)[0]) for text in texts.distinct)


def cells(texts: Texts, metric: Metric, column: Column) -> Cells:
    """Numbers in the cells of a column of a metric."""
    read = [*map(_reader(metric, column), texts.distinct)]
    remarks: Counter[str] = Counter()
    for (_, code), count in zip(read, np.bincount(texts.code, minlength=len(read)).tolist(), strict=True):
        if code:
            remarks[code] += count
    return Cells(values=np.array([value for value, _ in read])[texts.code], remarks=remarks)


@lru_cache(16)
def _reader(metric: Metric, column: Column) -> Callable[[str], tuple[float, str]]:
    """``_value`` of a column, with a memory: each block of a log has most of the texts of the one before."""
    return lru_cache(1 << 14)(partial(_value, metric=metric, column=column))


def _value(text: str, metric: Metric, column: Column) -> tuple[float, str]:
    """A number and, if something is wrong with it, the code of the remark on it."""
    plain = text.strip().strip("[]").strip()
    if plain.lower() in NO_VALUE:
        return math.nan, _NOT_AVAILABLE
    if column.bits:
        return _reason(plain.lower(), column.bits)
    match, factors = _NUMBER.fullmatch(plain), _FACTORS[metric.unit]
    if match is None or (match[2] and match[2].lower() not in factors):
        return math.nan, _IMPLAUSIBLE
    value = float(match[1].replace(",", ".")) * factors.get(match[2].lower(), column.factor)
    value = value if abs(value) >= _SMALLEST else 0.0
    if 0 <= value <= _HIGHEST.get(metric, 100.0):
        return value, ""
    return (min(max(value, 0.0), 100.0), _OUT_OF_RANGE) if metric.unit == "%" else (math.nan, _IMPLAUSIBLE)


def _reason(text: str, bits: int) -> tuple[float, str]:
    """100 while a reason holds, else 0."""
    if text in _YES | _NO:
        return 100.0 * (text in _YES), ""
    if _MASK.fullmatch(text) or (text.isdecimal() and len(text) < 20):
        return 100.0 * bool(int(text, 0 if text.startswith("0x") else 10) & bits), ""
    return math.nan, _IMPLAUSIBLE
