"""The one-minute windows in which rules look at a job, and trailing quantiles at their ends.

Windows are half open, ``[start, start + width)``, so that a sample on a boundary counts once; the
first one begins at the full minute of the first sample, the last one holds the last record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.model import SECOND_US, BoolArray, FloatArray, IntArray, Job
from jobrules.model.order import distinct, quantiles

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
        """The windows of a job; None for a job without any record."""
        first, last = job.span_us
        if not (job.samples_us or job.steps_us):
            return cls(start_us=0, count=0)
        start = first - first % WIDTH_US
        return cls(start_us=start, count=(last - start) // WIDTH_US + 1)

    def begin_us(self, window: int) -> int:
        """Start of a window, which is the end of the one before it."""
        return self.start_us + self.width_us * int(window)

    def seen(self, time_us: IntArray) -> Seen:
        """Where the ascending times of a series lie."""
        if len(time_us) < self.count:
            # With a wrong clock, samples may span decades: empty windows take no memory.
            windows = distinct((time_us - self.start_us) // self.width_us)
        else:
            windows = np.arange(self.count, dtype=np.int64)
        ends = np.searchsorted(time_us, self.start_us + self.width_us * (windows + 1)).astype(np.int64)
        new = np.diff(ends, prepend=0) > 0
        return Seen(windows=windows[new], ends=ends[new])


class Seen(Struct, frozen=True, kw_only=True, eq=False):
    """The windows that hold samples of a series."""

    #: Their numbers, ascending, and how many samples lie before the end of each.
    windows: IntArray
    ends: IntArray

    def judged(self, more_than: int) -> IntArray:
        """Windows in which the series is judged: it has a new sample there and more than some so far.

        A window without a new sample says nothing that the one before did not say: time that was not
        measured is not judged again.
        """
        return self.windows[self.ends > more_than]

    def by(self, windows: IntArray) -> IntArray:
        """How many samples lie before the end of each of some windows."""
        return np.append(0, self.ends)[np.searchsorted(self.windows, windows, side="right")]

    def before(self, window: int) -> int:
        """How many samples lie before the start of a window: ``seen`` of all windows at that place."""
        at = int(np.searchsorted(self.windows, window))
        return int(self.ends[at - 1]) if at else 0

    def new(self, windows: IntArray) -> BoolArray:
        """Which of some windows hold a sample."""
        return np.isin(windows, self.windows)


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
        result[chunk] = quantiles(stretches[ends[chunk] - window], probs)
    for i in np.flatnonzero(ends < window):
        result[i] = quantiles(values[: ends[i]], probs)
    return result


def trailing_below(values: FloatArray, ends: IntArray, window: int, prob: float, limit: float) -> BoolArray:
    """(len(ends),) whether the quantile that ``trailing_quantiles`` gives is below a limit.

    The quantile lies between two neighbors in order: the number of values below the limit says on which
    side of it both lie. Only if they lie on different sides, the quantile is computed.
    """
    first = np.maximum(ends - window, 0)
    below = np.append(0, np.cumsum(values < limit))
    count = below[ends] - below[first]
    place = (ends - first - 1) * prob
    result = count > np.ceil(place)
    parted = np.flatnonzero(~result & (count > np.floor(place)))
    result[parted] = trailing_quantiles(values, ends[parted], window, (prob,))[:, 0] < limit
    return np.asarray(result)
