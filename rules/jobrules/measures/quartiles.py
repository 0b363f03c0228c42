"""How values are spread: box-plot figures of one series, and which of several alike things differ from most.

A node, GPU, or rank is odd if it is farther from the median than three robust standard deviations (1.4826 times the median
absolute deviation, which for normal noise estimates one) and than a minimum, so that noise does not separate those that
are nearly equal. Half of them may differ without moving the median.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobrules.model import FloatArray
from jobrules.model.order import median, quantiles
from jobrules.text import apportion

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Devices and nodes whose means differ by less count as similar, in points.
ALIKE_POINTS = 5.0
#: Robust standard deviations from the median, and a median absolute deviation in standard deviations.
DEVIATIONS = 3.0
MAD_SIGMA = 1.4826


def quartiles(values: FloatArray) -> dict[str, float]:
    """``p25, p50, p75, p95, upper, lower`` of SageMaker Debugger's schema.

    Whiskers: ``upper = min(p75 + 1.5 iqr, max)``, ``lower = max(p25 - 1.5 iqr, min)``.
    """
    p25, p50, p75, p95 = quantiles(values, (0.25, 0.5, 0.75, 0.95)).tolist()
    reach = 1.5 * (p75 - p25)
    return {
        "p25": p25,
        "p50": p50,
        "p75": p75,
        "p95": p95,
        "upper": min(p75 + reach, float(values.max())),
        "lower": max(p25 - reach, float(values.min())),
    }


def shares(values: FloatArray) -> dict[str, float]:
    """``below_10, from_10_to_90, above_90``: shares of percents that add up to 1.000."""
    low, high = int(np.count_nonzero(values < 10)), int(np.count_nonzero(values > 90))
    parts = apportion((low, len(values) - low - high, high), 1.0, 3)
    return dict(zip(("below_10", "from_10_to_90", "above_90"), parts, strict=True))


def odd_limit(values: Sequence[float] | FloatArray, least: float) -> float:
    """Distance from the median beyond which one of the values is odd."""
    mad = median(np.abs(np.asarray(values) - median(values)))
    return max(least, DEVIATIONS * MAD_SIGMA * mad)


def oddness(values: Sequence[float] | FloatArray, least: float) -> FloatArray:
    """(n,) distance of each value from the median, in parts of this limit: above 1 it is odd."""
    limit = odd_limit(values, least)
    return np.abs(np.asarray(values) - median(values)) / (limit or 1.0)
