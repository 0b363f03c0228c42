"""Box-plot figures of one series."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jobrules.model import FloatArray
from jobrules.text import apportion

#: Devices and nodes whose means differ by less count as similar, in points.
ALIKE_POINTS = 5.0


def ordered(values: FloatArray) -> FloatArray:
    """The values in ascending order; at least one.

    Samplers give percents with two digits at most: many of those are counted, which is faster than sorting.
    """
    hundredths = np.rint(100 * values)
    if hundredths.min() >= 0 and hundredths.max() < len(values) and np.array_equal(hundredths / 100, values):
        counts = np.bincount(hundredths.astype(np.int64))
        return np.repeat(np.arange(len(counts)) / 100, counts)
    return np.sort(values)


def quantiles(ordered: FloatArray, probs: Sequence[float]) -> list[float]:
    """What ``np.quantile`` gives, of ascending values: nothing has to be put in order again."""
    place = (len(ordered) - 1) * np.asarray(probs)
    before = np.floor(place).astype(np.int64)
    part = place - before
    low, high = ordered[before], ordered[np.minimum(before + 1, len(ordered) - 1)]
    far = high - low
    # As numpy has it: from the nearer neighbor.
    found: list[float] = np.where(part < 0.5, low + far * part, high - far * (1 - part)).tolist()
    return found


def quartiles(ordered: FloatArray) -> dict[str, float]:
    """``p25, p50, p75, p95, upper, lower`` of SageMaker Debugger's schema, of ascending values.

    Whiskers: ``upper = min(p75 + 1.5 iqr, max)``, ``lower = max(p25 - 1.5 iqr, min)``.
    """
    p25, p50, p75, p95 = quantiles(ordered, (0.25, 0.5, 0.75, 0.95))
    reach = 1.5 * (p75 - p25)
    return {
        "p25": p25,
        "p50": p50,
        "p75": p75,
        "p95": p95,
        "upper": min(p75 + reach, float(ordered[-1])),
        "lower": max(p25 - reach, float(ordered[0])),
    }


def shares(ordered: FloatArray) -> dict[str, float]:
    """``below_10, from_10_to_90, above_90``: shares of ascending percents that add up to 1.000."""
    low, high = int(np.searchsorted(ordered, 10)), int(np.searchsorted(ordered, 90, "right"))
    parts = apportion((low, high - low, len(ordered) - high), 1.0, 3)
    return dict(zip(("below_10", "from_10_to_90", "above_90"), parts, strict=True))
