"""The one-minute windows in which rules look at a job, and trailing quantiles at their ends.

Windows are half open, ``[start, start + width)``, so that a sample on a boundary counts once; the
first one begins at the full minute of the first sample, the last one holds the last record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.job import SECOND_US, BoolArray, FloatArray, IntArray, Job

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH_US = 60 * SECOND_US
#: Samples, counted in each window that holds them, that are in memory together.
_CELLS = 1 << 21


class Windows(Struct, frozen=True, kw_only=True):
    """``count`` windows of ``width_us`` from ``start_us`` on."""

    start_us: int
    count: int
    width_us: int = WIDTH_US

    @classmethod
    def of(cls, job: Job) -> Windows:
        """The windows of a job; none for a job without any record."""
        first, last = job.span_us
        if not (job.samples_us or job.steps_us):
            return cls(start_us=0, count=0)
        start = first - first % WIDTH_US
        return cls(start_us=start, count=(last - start) // WIDTH_US + 1)

    @property
    def starts_us(self) -> IntArray:
        """(count,) start of each window."""
        return self.start_us + self.width_us * np.arange(self.count, dtype=np.int64)

    def seen(self, time_us: IntArray) -> IntArray:
        """(count + 1,) how many of the ascending times lie before each window start, and in all."""
        edges = self.start_us + self.width_us * np.arange(self.count + 1, dtype=np.int64)
        return np.searchsorted(time_us, edges, side="left").astype(np.int64)


def judged(seen: IntArray, at_least: int) -> IntArray:
    """Windows in which a series is judged: it has a new sample there and more than ``at_least`` so far.

    A window without a new sample says nothing that the one before did not say: time that was not
    measured is not judged again.
    """
    return np.flatnonzero((seen[1:] > at_least) & (np.diff(seen) > 0))


def trailing_quantiles(values: FloatArray, ends: IntArray, window: int, probs: Sequence[float]) -> FloatArray:
    """(len(ends), len(probs)) quantiles of the ``window`` values before each end, of all if fewer.

    Linear interpolation between order statistics; every end must be at least 1.
    """
    result = np.empty((len(ends), len(probs)))
    full = np.flatnonzero(ends >= window)
    # A view of every stretch of `window` values; only the rows at the ends are copied, some at a time.
    stretches = np.lib.stride_tricks.sliding_window_view(values, window) if len(full) else values
    portion = max(1, _CELLS // window)
    for chunk in (full[i : i + portion] for i in range(0, len(full), portion)):
        result[chunk] = np.quantile(stretches[ends[chunk] - window], probs, axis=1).T
    for i in np.flatnonzero(ends < window):
        result[i] = np.quantile(values[: ends[i]], probs)
    return result


def trailing_below(values: FloatArray, ends: IntArray, window: int, prob: float, limit: float) -> BoolArray:
    """(len(ends),) whether the quantile that ``trailing_quantiles`` gives is below a limit.

    The quantile lies between two neighbours in order: how many values are below the limit tells on which
    side of it both lie. Only where it parts them, the quantile is computed.
    """
    first = np.maximum(ends - window, 0)
    below = np.append(0, np.cumsum(values < limit))
    count = below[ends] - below[first]
    place = (ends - first - 1) * prob
    result = count > np.ceil(place)
    parted = np.flatnonzero(~result & (count > np.floor(place)))
    result[parted] = trailing_quantiles(values, ends[parted], window, (prob,))[:, 0] < limit
    return np.asarray(result)
