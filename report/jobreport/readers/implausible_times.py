"""Records with a time that cannot be the job's: a clock that was not set yet, a damaged digit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobrules.measures.snapshots import anchors
from jobrules.model import SECOND_US, BoolArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobrules.measures.snapshots import Series

#: No job pauses this long.
FAR_US = 30 * 24 * 3600 * SECOND_US
#: Ten of the longest intervals at which machines are sampled.
LONE_US = 600 * SECOND_US
#: So many samples at a moment are many, so many alone are few, and so many times the usual distance is far.
MANY_SENSORS, _FEW_SAMPLES, _USUAL_TIMES = 8, 2, 10
#: Samples of a device that say at what interval it is read.
_ENOUGH = 10
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
    first, last = np.array(sorted(spans), np.int64).reshape(-1, 2).T
    span = np.searchsorted(first, time_us, "right") - 1
    if not len(first):
        return np.zeros(len(time_us), np.bool_)
    return np.asarray((span >= 0) & (time_us <= np.maximum.accumulate(last)[span]))


def lone_spans(series: Sequence[Series]) -> list[tuple[int, int]]:
    """First and last time of one or two samples of a machine that lie far from all its others.

    Far is ten minutes, and ten times as far as its moments usually lie apart. A sampler reads all sensors in turn,
    before and after a pause too, while damage to a digit moves one of them: only where many are read at a moment
    does one alone tell of damage.
    """
    of_array: dict[int, tuple[IntArray, int]] = {}
    for one in series:
        of_array[id(one.time_us)] = one.time_us, of_array.get(id(one.time_us), (one.time_us, 0))[1] + 1
    if not _has_pause([times for times, _ in of_array.values()]):
        return []
    times = np.concatenate([times for times, _ in of_array.values()])
    counts = np.concatenate([np.full(len(times), many) for times, many in of_array.values()])
    order = np.argsort(times, kind="stable")
    times, counts = times[order], counts[order]
    moments = anchors(times)
    usual = np.median(np.add.reduceat(counts, np.searchsorted(times, moments)))
    if usual < MANY_SENSORS:
        return []
    far_us = max(LONE_US, _USUAL_TIMES * float(np.median(np.diff(moments))))
    starts = np.concatenate(([0], np.flatnonzero(np.diff(times) > far_us) + 1))
    ends = np.append(starts[1:], len(times)) - 1
    lone = np.add.reduceat(counts, starts) <= _FEW_SAMPLES
    return list(zip(times[starts[lone]].tolist(), times[ends[lone]].tolist(), strict=True))


def misnamed(series: Sequence[Series]) -> list[Series]:
    """Those of one sample, taken just when another device of the metric lacks one.

    Damage to a name moves a sample from one device to another; a device that was really read once leaves no gap.
    """
    lone = [one for one in series if len(one.time_us) == 1]
    found: list[Series] = []
    for metric in {one.metric for one in lone}:
        of_metric = [one for one in lone if one.metric is metric]
        moments = np.concatenate([one.time_us for one in of_metric])
        gone = np.zeros(len(moments), np.bool_)
        for other in series:
            if other.metric is metric and len(other.time_us) >= _ENOUGH:
                gone |= _lacks(other.time_us, moments)
        found += [one for one, is_gone in zip(of_metric, gone.tolist(), strict=True) if is_gone]
    return found


def _lacks(time_us: IntArray, moments: IntArray) -> BoolArray:
    """At which moments a device lacks its sample, and that one alone: a longer gap is a pause."""
    after = np.searchsorted(time_us, moments).clip(1, len(time_us) - 1)
    before_us, after_us = moments - time_us[after - 1], time_us[after] - moments
    usual = float(np.median(np.diff(time_us)))
    return np.asarray((np.minimum(before_us, after_us) > usual / 2) & (before_us + after_us < 2.5 * usual))


def _has_pause(times: Sequence[IntArray]) -> bool:
    """Whether there may be ten minutes without a sample; most jobs have none, and this is soon seen."""
    return any(
        max(ends) - min(ends) > LONE_US for ends in ([t[0] for t in times], [t[-1] for t in times])
    ) or any((np.diff(t) > LONE_US).any() for t in times)
