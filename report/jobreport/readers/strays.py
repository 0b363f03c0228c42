"""Records with a time that cannot be the job's: a clock that was not set yet, a damaged digit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobrules.job import SECOND_US, BoolArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: No job pauses this long.
FAR_US = 30 * 24 * 3600 * SECOND_US
#: A group of records is kept if it holds at least this share of all.
KEPT_SHARE = 0.01

#: First and last time of records that lie near one another, and how many they are.
Cluster = tuple[int, int, int]


def clusters(time_us: IntArray, counts: IntArray | None = None) -> list[Cluster]:
    """The clusters of ascending times, more than 30 days apart; a time counts as one record or as ``counts``."""
    if not len(time_us):
        return []
    starts = np.concatenate(([0], np.flatnonzero(np.diff(time_us) > FAR_US) + 1))
    ends = np.append(starts[1:], len(time_us))
    many = ends - starts if counts is None else np.add.reduceat(counts, starts)
    return list(zip(time_us[starts].tolist(), time_us[ends - 1].tolist(), many.tolist(), strict=True))


def kept_spans(found: Iterable[Cluster]) -> list[tuple[int, int]] | None:
    """First and last time of the clusters that are the job's, once joined; none if all are.

    One that holds fewer than a hundredth of the records is not the job: it would stretch every time
    axis and share over years.
    """
    joined: list[Cluster] = []
    for first, last, many in sorted(found):
        if joined and first - joined[-1][1] <= FAR_US:
            begin, end, more = joined.pop()
            joined.append((begin, max(end, last), more + many))
        else:
            joined.append((first, last, many))
    total = sum(many for _, _, many in joined)
    kept = [(first, last) for first, last, many in joined if many >= KEPT_SHARE * total]
    return kept if len(kept) < len(joined) else None


def spans_of_job(times: Sequence[IntArray]) -> list[tuple[int, int]] | None:
    """``kept_spans`` of times in any order."""
    if not times or max(int(t.max()) for t in times) - min(int(t.min()) for t in times) <= FAR_US:
        return None
    return kept_spans(clusters(np.sort(np.concatenate(times))))


def within(time_us: IntArray, spans: Sequence[tuple[int, int]]) -> BoolArray:
    """Which times lie in one of the spans."""
    inside = [(time_us >= first) & (time_us <= last) for first, last in spans]
    return np.asarray(np.logical_or.reduce(inside))
