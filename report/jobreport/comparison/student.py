"""The quantile of Student's t distribution for any positive number of degrees of freedom."""

from __future__ import annotations

import math
from functools import cache

#: Terms of the continued fraction, which converges in a few dozen.
MAX_TERMS = 10_000
_TINY = 1e-300
#: Steps of Newton's method, which needs about six; the last ones differ in rounding only.
MAX_STEPS = 60


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
