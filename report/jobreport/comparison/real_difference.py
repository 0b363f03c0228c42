"""When a difference of two runs is real.

The steps of a run are correlated: clocks, neighbors, the order of the data. A test that takes each step as a fresh
experiment (Mann-Whitney on steps, a bootstrap of steps) finds differences between equal runs. So a run is cut into 20 blocks of neighboring values; their means are nearly
independent, and what correlation is left is corrected by that of neighboring blocks. All is in closed form: equal
input gives equal bytes.

What is tested is what is shown: the difference of two values, or of their logarithms. The blocks of a run scatter around
its value, so a few long steps widen its interval and never move it.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: The correlation of neighboring blocks is corrected up to this one.
MAX_CORRELATION = 0.9
#: Above this, a run changed its course.
CHANGED_CORRELATION = 0.7
#: Effective number of values is never smaller: a variance needs two.
MIN_EFFECTIVE = 2.0
#: Values that differ by less, relative to the largest, are equal but for rounding.
ROUNDING = 1e-12
#: Degrees of freedom of a variance that is known: t is normal.
MANY = 1e6
#: Of a spread between runs that is assumed: it is known no better than so many runs would show it.
OF_ASSUMED = 12
#: Chance of a difference between equal runs.
ALPHA = 0.05
#: Terms of the continued fraction, which converges in a few dozen.
MAX_TERMS = 10_000
_TINY = 1e-300
#: Steps of Newton's method, which needs about six; the last ones differ in rounding only.
MAX_STEPS = 60


class Sample(Struct, frozen=True, kw_only=True):
    """A value of a run or of several, or its logarithm, and how well it is known."""

    mean: float
    #: Correlation of neighboring blocks, and how many independent values they are worth.
    correlation: float
    effective: float
    #: Of the mean.
    variance: float
    #: True if its spread is that between runs.
    of_runs: bool = False

    @classmethod
    def of_blocks(cls, values: Sequence[float], mean: float | None = None) -> Sample:
        """Of the values of blocks in their order, at least 2, that scatter around their mean, or around that of the run.

        The correlation is estimated as that of neighbors plus 1/k, which corrects its bias (Marriott and Pope, 1954),
        and k values of an autoregressive process of that correlation r are worth k (1 - r) / (1 + r) independent ones
        (Bayley and Hammersley, 1946).
        """
        k = len(values)
        mean = math.fsum(values) / k if mean is None else mean
        squares = _squares(values, mean)
        between = sum((a - mean) * (b - mean) for a, b in itertools.pairwise(values))
        raw = between / squares if squares else 0.0
        correlation = min(MAX_CORRELATION, max(0.0, raw + 1 / k))
        effective = max(MIN_EFFECTIVE, k * (1 - correlation) / (1 + correlation))
        variance = squares / (k - 1) / effective
        return cls(mean=mean, correlation=correlation, effective=effective, variance=variance)

    @classmethod
    def of_ratio(cls, totals: Sequence[float], sizes: Sequence[float], *, in_logarithms: bool) -> Sample:
        """Of the sum of totals over that of sizes, by blocks; in logarithms, neither sum may be 0.

        How far each block is from the ratio, by the size of a mean block (the delta method).
        """
        ratio = math.fsum(totals) / math.fsum(sizes)
        unit = math.fsum(sizes) / len(sizes) * (ratio if in_logarithms else 1.0)
        sample = cls.of_blocks([(t - ratio * n) / unit for t, n in zip(totals, sizes, strict=True)])
        return replace(sample, mean=math.log(ratio) if in_logarithms else ratio)

    @classmethod
    def of_values(cls, values: Sequence[float], *, in_logarithms: bool) -> Sample:
        """Of one value of each run, at least 2: runs are independent. In logarithms, the mean may not be 0."""
        mean = math.fsum(values) / len(values)
        unit = mean if in_logarithms else 1.0
        return cls(
            mean=math.log(mean) if in_logarithms else mean,
            correlation=0.0,
            effective=float(len(values)),
            variance=_squares([value / unit for value in values], mean / unit)
            / (len(values) - 1)
            / len(values),
            of_runs=True,
        )


def _squares(values: Sequence[float], mean: float) -> float:
    """Sum of squares of the distances from a mean; 0 if they are of rounding only."""
    largest = max(1.0, *(abs(value) for value in values))
    if all(abs(value - mean) <= ROUNDING * largest for value in values):
        return 0.0
    return math.fsum((value - mean) ** 2 for value in values)


def of_equal_code(one: Sample, other: Sample, noise: float) -> tuple[Sample, Sample, float | None]:
    """Both with what one shows of the other's spread, as runs of equal code have equal spread, and the spread of their difference that neither shows, or None if they show it all.

    ``noise`` is the standard deviation between runs that is assumed of a single run. A run without a stall does not
    know of them; and repeats may differ by more than is assumed.
    """
    if one.of_runs and other.of_runs:
        return one, other, None
    if not one.of_runs and not other.of_runs:
        widest = max(one, other, key=lambda sample: sample.variance)
        return replace(widest, mean=one.mean), replace(widest, mean=other.mean), math.sqrt(2) * noise
    repeats, single = (one, other) if one.of_runs else (other, one)
    if repeats.variance * repeats.effective <= single.variance + noise**2:
        return one, other, noise
    # One variance for both, with the degrees of freedom of the repeats.
    still = replace(single, variance=0.0)
    wide = replace(repeats, variance=repeats.variance * (1 + repeats.effective))
    return (wide, still, None) if one.of_runs else (still, wide, None)


class Difference(Struct, frozen=True, kw_only=True):
    """How much the second of two samples is above the first."""

    d: float
    #: Standard error of d.
    se: float
    #: Degrees of freedom; None if nothing varies.
    df: float | None
    #: Half the width of the 95% interval around d, by the samples alone, and with the spread between runs.
    own_half: float
    half: float
    #: Chance of a d that is at least as far from 0 between equal runs.
    p: float


def difference(one: Sample, other: Sample, spread: float = 0.0) -> Difference:
    """Welch's interval for two means of unequal variance, with the degrees of freedom of Welch and Satterthwaite.

    ``spread`` is the standard deviation of d that single runs do not show: blocks show the spread within a run only.
    Between runs, degrees of freedom are rounded down, as for tables of t: of few runs, they are too many.
    """
    variance = one.variance + other.variance
    squares = one.variance**2 / (one.effective - 1) + other.variance**2 / (other.effective - 1)
    d, few = other.mean - one.mean, one.of_runs or other.of_runs

    def half(whole: float, squares: float) -> tuple[float, float]:
        """Degrees of freedom, and half the width."""
        df = min(MANY, whole**2 / squares) if squares else MANY
        df = math.floor(df + ROUNDING) if few else df
        return df, t_quantile(df) * math.sqrt(whole)

    df, own_half = half(variance, squares) if variance else (None, 0.0)
    if not (whole := variance + spread**2):
        return Difference(d=d, se=0.0, df=None, own_half=0.0, half=0.0, p=float(not d))
    wide_df, wide = half(whole, squares + spread**4 / OF_ASSUMED)
    p = tail(abs(d) / math.sqrt(whole), wide_df)
    return Difference(d=d, se=math.sqrt(variance), df=df, own_half=own_half, half=wide, p=p)


def not_by_chance(chances: Iterable[float]) -> set[float]:
    """Those of several chances that stay below 5% if all are looked at (Holm, 1979)."""
    kept: set[float] = set()
    ordered = sorted(set(chances))
    for rank, p in enumerate(ordered):
        if p > ALPHA / (len(ordered) - rank):
            break
        kept.add(p)
    return kept


# --- Student's t, for any positive number of degrees of freedom


@cache
def t_quantile(df: float, two_sided: float = 0.95) -> float:
    """The t that ``|T|`` does not exceed with this probability, by Newton's method.

    The probability is concave in t, so that from 0 all steps stay below it.
    """
    a = df / 2
    peak = 2 * math.exp(math.lgamma(a + 0.5) - math.lgamma(a)) / math.sqrt(math.pi * df)
    t = 0.0
    for _ in range(MAX_STEPS):
        step = (two_sided - 1 + tail(t, df)) / (peak * (1 + t * t / df) ** (-a - 0.5))
        if step <= 1e-15 * t:
            break
        t += step
    return t


def tail(t: float, df: float) -> float:
    """Probability that ``|T|`` exceeds t (Abramowitz and Stegun, 26.7.1): I of df/(df + t²) at (df/2, 1/2)."""
    return incomplete_beta(df / 2, 0.5, df / (df + t * t))


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function, I of x at (a, b) (Abramowitz and Stegun, 6.6.2)."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):  # the fraction converges slowly there
        return 1 - incomplete_beta(b, a, 1 - x)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(logarithm) / a * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of Abramowitz and Stegun, 26.5.8, by the method of Lentz."""
    numerator, denominator = 1.0, 1 - (a + b) * x / (a + 1)
    denominator = 1 / (denominator if abs(denominator) > _TINY else _TINY)
    value = denominator
    for m in range(1, MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            denominator = 1 / ((1 + term * denominator) or _TINY)
            numerator = (1 + term / numerator) or _TINY
            value *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-15:
            break
    return value
