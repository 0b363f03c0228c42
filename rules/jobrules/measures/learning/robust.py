"""Robust statistics of a series that rules on training share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from jobrules.model import Measure, Reason, ReasonKind
from jobrules.model.order import median
from jobrules.text import MINUS, number

if TYPE_CHECKING:
    from jobrules.model import FloatArray, IntArray
    from jobrules.model.learning import Scalars

#: The standard deviation of normal noise by its median absolute deviation, and that of a median by that of a mean.
SIGMA, OF_MEDIAN = 1.4826, 1.2533
#: No difference, sum, or square of values within is infinite, and no ratio to one above.
_LARGEST, TINY = 1e150, 1e-100


def finite(series: Scalars | None) -> tuple[IntArray, FloatArray]:
    """(n,) and (n,) steps and values that are finite numbers; none without a series."""
    if series is None:
        return np.empty(0, np.int64), np.empty(0)
    return series.step[series.finite], np.clip(series.value[series.finite], -_LARGEST, _LARGEST)


def few(have: int, needed: int, what: str) -> Reason:
    """Reason of a rule that needs so many."""
    return Reason(kind=ReasonKind.TOO_FEW, what=what, needed=needed, have=have)


def of_hundred(value: float, threshold: float, unit: str) -> Measure:
    """What a rule compared that triggers above a number of percent."""
    return Measure(
        value=round(value, 1),
        limits=(threshold,),
        bad="above",
        scale=100.0,
        unit=unit,
        limit_text=f"threshold {threshold:g}%",
    )


def noise(values: FloatArray) -> float:
    """Standard deviation of the noise of at least two values, whatever trend they follow."""
    return SIGMA * median(np.abs(np.diff(values))) / math.sqrt(2)


def block_medians(values: FloatArray, blocks: int) -> FloatArray:
    """(blocks,) the median of each of so many parts of about equal length."""
    return np.array([median(part) for part in np.array_split(values, blocks)])


def kendall(values: FloatArray) -> int:
    """Pairs of a few values that rise, less those that fall."""
    early, late = np.triu_indices(len(values), 1)
    return int(np.sign(values[late] - values[early]).sum())


def around(values: FloatArray) -> FloatArray:
    """(n - 2,) the median of each value but the first and last, with the ones before and after it."""
    before, own, after = values[:-2], values[1:-1], values[2:]
    low, high = np.minimum(before, own), np.maximum(before, own)
    return np.asarray(np.maximum(low, np.minimum(high, after)))


def shown(value: float) -> str:
    """A loss or the like with four digits: ``2.306``, ``0.03512``, ``9,123,000``."""
    if value and not 1e-4 <= abs(value) < 1e12:
        return f"{value:.3e}".replace("-", MINUS, int(value < 0))
    if not value:
        return "0"
    digits = 3 - math.floor(math.log10(abs(value)))
    text = number(round(value, digits), max(0, digits))
    return text.rstrip("0").rstrip(".") if "." in text else text
