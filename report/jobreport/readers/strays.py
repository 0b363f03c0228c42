"""Samples with a time that cannot be the job's: a clock that was not set yet, a damaged digit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobrules.job import SECOND_US, BoolArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Sequence

#: No job pauses this long.
FAR_US = 30 * 24 * 3600 * SECOND_US
#: A group of samples is kept if it holds at least this share of all.
KEPT_SHARE = 0.01


def spans_of_job(times: Sequence[IntArray]) -> list[tuple[int, int]] | None:
    """First and last time of every group of samples that is the job's; none if all samples are.

    Groups lie more than 30 days apart. One that holds fewer than a hundredth of the samples is not
    the job: it would stretch every time axis and share over years.
    """
    if not times or max(int(t.max()) for t in times) - min(int(t.min()) for t in times) <= FAR_US:
        return None
    merged = np.sort(np.concatenate(times))
    groups = np.split(merged, np.flatnonzero(np.diff(merged) > FAR_US) + 1)
    kept = [(int(g[0]), int(g[-1])) for g in groups if len(g) >= KEPT_SHARE * len(merged)]
    return kept if len(kept) < len(groups) else None


def within(time_us: IntArray, spans: Sequence[tuple[int, int]]) -> BoolArray:
    """Which times lie in one of the spans."""
    inside = [(time_us >= first) & (time_us <= last) for first, last in spans]
    return np.asarray(np.logical_or.reduce(inside))
