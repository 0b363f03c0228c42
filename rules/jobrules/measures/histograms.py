"""Histograms that grow with the job, and the distance between two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrules.model import CodeArray, FloatArray, IntArray

#: Numbers in memory at a time, over all histograms of a portion.
_CELLS = 1 << 19


def growing(
    code: CodeArray | IntArray, codes: int, ends: IntArray, weight: IntArray | None = None
) -> Iterator[tuple[slice, IntArray]]:
    """Histograms of the first ``ends[0]``, ``ends[1]``, … entries, a portion at a time.

    ``code`` holds the bin of each entry, from 0 to ``codes - 1``; ``ends`` ascends; an entry counts
    ``weight``, or 1. Yields which of the ends, and their (portion, codes) histograms.
    """
    portion = max(1, _CELLS // max(1, codes))
    before = np.zeros(codes, np.int64)
    done = 0
    for first in range(0, len(ends), portion):
        part = slice(first, min(first + portion, len(ends)))
        last = int(ends[part.stop - 1])
        row = np.repeat(np.arange(part.stop - first), np.diff(ends[part], prepend=done))
        counts = np.bincount(
            row * codes + code[done:last],
            weights=None if weight is None else weight[done:last],
            minlength=(part.stop - first) * codes,
        )
        table = before + np.cumsum(counts.astype(np.int64).reshape(-1, codes), axis=0)
        before, done = table[-1], last
        yield part, table


def normalized(counts: IntArray | FloatArray) -> FloatArray:
    """Shares that add up to 1 along the last axis; zeros stay zeros."""
    total = counts.sum(axis=-1, keepdims=True)
    return np.asarray(counts / np.where(total > 0, total, 1))


def distance(p: FloatArray, q: FloatArray) -> FloatArray:
    """Jensen-Shannon distance of normalized histograms along the last axis, natural logarithm.

    From 0 for equal ones to ``sqrt(ln 2)`` = 0.8326 for histograms that share no bin.
    """
    middle = (p + q) / 2
    return np.sqrt(np.maximum(_divergence(p, middle) + _divergence(q, middle), 0) / 2)


def _divergence(p: FloatArray, middle: FloatArray) -> FloatArray:
    """Kullback-Leibler divergence of ``p`` from a histogram that is nowhere 0 where ``p`` is not."""
    filled = p > 0
    ratio = np.divide(p, middle, out=np.ones(np.broadcast(p, middle).shape), where=filled)
    return np.asarray((p * np.log(ratio)).sum(axis=-1))
