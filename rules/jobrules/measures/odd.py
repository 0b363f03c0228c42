"""Which of several alike things differ from most: nodes, GPUs, ranks.

One differs if it is farther from the median than three robust standard deviations (1.4826 times the median absolute
deviation, which for normal noise estimates one) and than a minimum, so that noise does not separate those that are nearly
equal. Half of them may differ without moving the median.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobrules.model.order import median

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import FloatArray

#: Robust standard deviations from the median, and a median absolute deviation in standard deviations.
DEVIATIONS = 3.0
MAD_SIGMA = 1.4826


def odd_limit(values: Sequence[float] | FloatArray, least: float) -> float:
    """Distance from the median beyond which one of the values is odd."""
    mad = median(np.abs(np.asarray(values) - median(values)))
    return max(least, DEVIATIONS * MAD_SIGMA * mad)


def oddness(values: Sequence[float] | FloatArray, least: float) -> FloatArray:
    """(n,) distance of each value from the median, in parts of this limit: above 1 it is odd."""
    limit = odd_limit(values, least)
    return np.abs(np.asarray(values) - median(values)) / (limit or 1.0)
