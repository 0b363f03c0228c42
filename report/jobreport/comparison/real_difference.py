"""When a difference of two runs is real.

The steps of a run are correlated: clocks, neighbors, the order of the data. A test that takes each step as a fresh
experiment (Mann-Whitney on steps, a bootstrap of steps) finds differences between equal runs, in up to four of five
pairs (``benchmarks/false_alarms.py``). So a run is cut into 20 blocks of neighboring values; their means are nearly
independent, and what correlation is left is corrected by that of neighboring blocks. All is in closed form: equal
input gives equal bytes.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.comparison.student import t_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The correlation of neighboring blocks is corrected up to this one.
MAX_CORRELATION = 0.9
#: Above this, a run changed its course.
CHANGED_CORRELATION = 0.7
#: Effective number of values is never smaller: a variance needs two.
MIN_EFFECTIVE = 2.0
#: Values that differ by less, relative to the largest, are equal but for rounding.
ROUNDING = 1e-12
#: Standard deviations that hold 95% of a normal distribution.
NORMAL_95 = 1.96


class Sample(Struct, frozen=True, kw_only=True):
    """A mean of blocks or of runs, and how well it is known."""

    mean: float
    #: Correlation of neighboring blocks, and how many independent values they are worth.
    correlation: float
    effective: float
    #: Of the mean.
    variance: float

    @classmethod
    def of_blocks(cls, values: Sequence[float]) -> Sample:
        """Of the values of blocks in their order, at least 2.

        The correlation is estimated as that of neighbors plus 1/k, which corrects its bias (Marriott and Pope, 1954),
        and k values of an autoregressive process of that correlation r are worth k (1 - r) / (1 + r) independent ones
        (Bayley and Hammersley, 1946).
        """
        k = len(values)
        mean, squares = _mean_and_squares(values)
        between = sum((a - mean) * (b - mean) for a, b in itertools.pairwise(values))
        raw = between / squares if squares else 0.0
        correlation = min(MAX_CORRELATION, max(0.0, raw + 1 / k))
        effective = max(MIN_EFFECTIVE, k * (1 - correlation) / (1 + correlation))
        variance = squares / (k - 1) / effective
        return cls(mean=mean, correlation=correlation, effective=effective, variance=variance)

    @classmethod
    def of_runs(cls, values: Sequence[float]) -> Sample:
        """Of one value of each run, at least 2: runs are independent."""
        mean, squares = _mean_and_squares(values)
        return cls(
            mean=mean,
            correlation=0.0,
            effective=float(len(values)),
            variance=squares / (len(values) - 1) / len(values),
        )


def _mean_and_squares(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and sum of squares of the distances from it; 0 if they are of rounding only."""
    mean = math.fsum(values) / len(values)
    if max(values) - min(values) <= ROUNDING * max(1.0, *(abs(value) for value in values)):
        return mean, 0.0
    return mean, math.fsum((value - mean) ** 2 for value in values)


class Difference(Struct, frozen=True, kw_only=True):
    """How much the second of two samples is above the first."""

    d: float
    #: Standard error of d.
    se: float
    #: Degrees of freedom; None if nothing varies.
    df: float | None
    #: Half the width of the 95% interval around d.
    half_width: float


def difference(one: Sample, other: Sample) -> Difference:
    """Welch's interval for two means of unequal variance, with the degrees of freedom of Welch and Satterthwaite."""
    variance = one.variance + other.variance
    se = math.sqrt(variance)
    if not variance:
        return Difference(d=other.mean - one.mean, se=0.0, df=None, half_width=0.0)
    df = variance**2 / (one.variance**2 / (one.effective - 1) + other.variance**2 / (other.effective - 1))
    return Difference(d=other.mean - one.mean, se=se, df=df, half_width=t_quantile(df) * se)


def with_run_noise(half_width: float, noise: float, single_runs: int) -> float:
    """The half-width with the spread between runs of the same code, once for each of the two that is a single run.

    Blocks show the spread within a run only. ``noise`` is the standard deviation between runs.
    """
    return math.sqrt(half_width**2 + single_runs * (NORMAL_95 * noise) ** 2)
