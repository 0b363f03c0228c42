"""Box-plot figures of one series."""

from __future__ import annotations

import numpy as np

from jobrules.model import FloatArray
from jobrules.model.order import quantiles
from jobrules.text import apportion

#: Devices and nodes whose means differ by less count as similar, in points.
ALIKE_POINTS = 5.0


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
