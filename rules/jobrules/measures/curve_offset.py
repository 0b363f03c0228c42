"""How far two clocks are apart, by what both saw: the use of the same GPUs over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from jobrules.model import SECOND_US, FloatArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Panel

#: Width of the cells that curves are compared in: the longer sampling interval, in these bounds.
_NARROWEST_US, _WIDEST_US = SECOND_US // 4, 60 * SECOND_US
#: More cells are not compared, nor more than so many for each sample of a GPU; a longer recording gets wider ones.
_MOST_CELLS, _FEW_CELLS, _CELLS_A_SAMPLE = 1 << 18, 1 << 15, 16
#: A cell without a sample has the value of one so many cells before it.
_HELD = 3
#: Curves must overlap in so many cells, and in this share of the shorter one.
_LEAST_CELLS, _LEAST_OVERLAP = 30, 0.5
#: Correlation of curves that tell of the same GPUs, and by how much others must stay behind.
LEAST_CORRELATION, _AHEAD = 0.6, 0.05
#: Clocks that are set by the network are not farther apart: of offsets that fit alike, the nearest to none.
_USUAL_US = 5 * 60 * SECOND_US
#: Stretches that are compared on their own, to see how well the offset is known, and steps of a cell tried.
_STRETCHES, _STEPS = 16, 10

ComplexArray = npt.NDArray[np.complexfloating]
#: Times and use in percent of one GPU.
Curve = tuple[IntArray, FloatArray]


class CurveOffset(Struct, frozen=True, kw_only=True):
    """By how much the times of one recording are later than those of another."""

    us: int
    #: Half of the stretches of the job lie within so much of it; never less than half of a sampling interval.
    spread_us: int
    #: Of the two recordings, once they are set right.
    correlation: float


def curves(panel: Panel) -> dict[str, Curve]:
    """The use of each GPU of a panel."""
    return {device: panel.series(i) for i, device in enumerate(panel.devices)}


def curve_offset(one: dict[str, Curve], other: dict[str, Curve]) -> CurveOffset | str:
    """How much later the second recording tells of the same moments; else why that cannot be said, in words.

    The offset with the highest correlation over all lags (pooled over the GPUs, of the cells that both have;
    Padfield 2012, doi:10.1109/TIP.2011.2181402), then set right within a cell by the median over stretches.
    """
    names = [name for name in one if name in other]
    if not names:
        return "they name no GPU alike"
    pairs = [(one[name], other[name]) for name in names]
    dt = _width(pairs)
    lag = _best_lag(pairs, dt)
    if isinstance(lag, str):
        return lag
    cells, correlation = lag
    found = _refined(pairs, cells, dt)
    low, middle, high = np.quantile(found, (0.25, 0.5, 0.75))
    return CurveOffset(
        us=round(middle),
        spread_us=round(max(middle - low, high - middle, dt / 2)),
        correlation=correlation,
    )


def _width(pairs: Sequence[tuple[Curve, Curve]]) -> int:
    """Width of a cell in microseconds."""
    intervals = [float(np.median(np.diff(t))) for pair in pairs for t, _ in pair if len(t) > 1]
    longest = max(
        max(int(pair[i][0][-1]) for pair in pairs) - min(int(pair[i][0][0]) for pair in pairs) for i in (0, 1)
    )
    return _cell_us(
        longest, max(intervals, default=0), sum(len(t) for pair in pairs for t, _ in pair) / len(pairs)
    )


def _cell_us(longest_us: int, interval_us: float, samples: float) -> int:
    most = min(_MOST_CELLS, max(_FEW_CELLS, _CELLS_A_SAMPLE * samples))
    return int(max(_NARROWEST_US, min(interval_us, _WIDEST_US), longest_us / most))


def cells(longest_us: int, interval_us: int, samples: int) -> int:
    """About how many cells one GPU in two recordings takes: of them the longer, the longer interval, all samples."""
    return longest_us // _cell_us(longest_us, interval_us, samples) + 1


def _in_cells(curve: Curve, start_us: int, dt: int, count: int) -> FloatArray:
    """(count,) mean of the samples in each cell; NaN where none stands for it."""
    time_us, values = curve
    cell = (time_us - start_us) // dt
    n = np.bincount(cell, minlength=count)
    mean = np.bincount(cell, weights=values, minlength=count) / np.maximum(n, 1)
    last = np.maximum.accumulate(np.where(n > 0, np.arange(count), -1))
    near = (last >= 0) & (np.arange(count) - last <= _HELD)
    return np.where(near, mean[last], np.nan)


def _best_lag(pairs: Sequence[tuple[Curve, Curve]], dt: int) -> tuple[int, float] | str:
    """By how many microseconds, in whole cells, the second is later, and the correlation there."""
    starts = [min(int(pair[i][0][0]) for pair in pairs) for i in (0, 1)]
    counts = [max(int(pair[i][0][-1]) - starts[i] for pair in pairs) // dt + 1 for i in (0, 1)]
    size = 1 << (sum(counts) - 1).bit_length()
    common, covariance, varied, other_varied = pooled = np.zeros((4, size))
    for pair in pairs:
        (m, a, aa), (w, b, bb) = (
            _spectra(curve, start, dt, count, size)
            for curve, start, count in zip(pair, starts, counts, strict=True)
        )
        n = np.maximum(_correlated(m, w, size), 1e-9)
        sum_a, sum_b = _correlated(a, w, size), _correlated(m, b, size)
        pooled += np.stack(
            [
                np.rint(n),
                _correlated(a, b, size) - sum_a * sum_b / n,
                _correlated(aa, w, size) - sum_a**2 / n,
                _correlated(m, bb, size) - sum_b**2 / n,
            ]
        )
    least = len(pairs) * max(_LEAST_CELLS, _LEAST_OVERLAP * min(counts))
    # Of a deviation of one percent no curve can be told.
    judged = (np.minimum(varied, other_varied) > 1e-4 * np.maximum(common, 1)) & (common >= least)
    if not judged.any():
        return "their GPUs' use varies too little to tell when"
    r = np.where(judged, covariance / np.sqrt(np.maximum(varied * other_varied, 1e-18)), -1.0)
    # Lag k of the circle is how many cells the second has to be put forward; the later half is negative.
    lags = np.arange(size)
    lags = np.where(lags < counts[0], lags, lags - size)
    later_us = starts[1] - starts[0] - lags * dt
    best = int(np.argmax(r))
    if r[best] < LEAST_CORRELATION:
        return f"the use of their GPUs is not alike (correlation {max(0.0, r[best]):.2f} at best)"
    rivals = _peaks(r, best)
    if len(rivals) > 1:
        near = rivals[np.argmin(np.abs(later_us[rivals]))]
        if abs(int(later_us[near])) > _USUAL_US:
            return "the use of their GPUs repeats itself, and several offsets fit"
        best = int(near)
    return int(later_us[best]), float(r[best])


def _spectra(curve: Curve, start_us: int, dt: int, count: int, size: int) -> list[ComplexArray]:
    """Of where a curve has cells, of its deviation from the mean as a fraction, and of that squared."""
    cells = _in_cells(curve, start_us, dt, count)
    there = ~np.isnan(cells)
    apart = np.where(there, cells - np.mean(cells[there]), 0.0) / 100
    return [np.fft.rfft(one, size) for one in (there.astype(np.float64), apart, apart**2)]


def _correlated(one: ComplexArray, other: ComplexArray, size: int) -> FloatArray:
    return np.asarray(np.fft.irfft(one * np.conj(other), size), np.float64)


def _peaks(r: FloatArray, best: int) -> IntArray:
    """The lags with a peak that is nearly as high as the best one; that one among them."""
    high = np.flatnonzero((r >= np.roll(r, 1)) & (r >= np.roll(r, -1)) & (r >= r[best] - _AHEAD))
    # What no valley parts from the best one, round the circle either way, is the same peak.
    valleys = np.cumsum(r < r[best] - 2 * _AHEAD)
    between = np.abs(valleys[high] - valleys[best])
    return np.append(high[(between > 0) & (between < valleys[-1])], best)


def _refined(pairs: Sequence[tuple[Curve, Curve]], later_us: int, dt: int) -> FloatArray:
    """The offset in each stretch of the job, where it differs least from sample to sample."""
    tried = later_us + np.arange(-_STEPS, _STEPS + 1) * dt / _STEPS
    start = max(max(int(a[0][0]), int(b[0][0]) - later_us) for a, b in pairs)
    end = min(min(int(a[0][-1]), int(b[0][-1]) - later_us) for a, b in pairs)
    edges = np.linspace(start, end, _STRETCHES + 1)
    costs = np.zeros((len(tried), _STRETCHES))
    for (time_us, values), (their_us, theirs) in pairs:
        inside = (time_us >= start) & (time_us <= end)
        t, v = time_us[inside], values[inside]
        stretch = np.clip(np.searchsorted(edges, t, side="right") - 1, 0, _STRETCHES - 1)
        for i, offset in enumerate(tried):
            apart = np.abs(v - np.interp(t + offset, their_us, theirs))
            costs[i] += np.bincount(stretch, weights=apart, minlength=_STRETCHES)
    # A stretch in which nothing happens says nothing.
    told = costs.max(axis=0) > costs.min(axis=0)
    found = tried[np.argmin(costs, axis=0)][told]
    return found if len(found) else np.array([float(later_us)])
