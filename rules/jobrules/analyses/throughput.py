"""Samples and tokens that the job trained with in a second."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.analyses.blocks import timed_steps
from jobrules.analyses.job_steps import JobSteps
from jobrules.measures.batch_sizes import batch_sizes
from jobrules.model import SECOND_US, Amount, Count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.measures.batch_sizes import BatchSizes
    from jobrules.model import FloatArray, IntArray, Job

#: Columns of the course, and steps that each of them needs.
MAX_COLUMNS, MIN_STEPS = 100, 20
#: Significant digits.
DIGITS = 6


class Throughput(Struct, frozen=True, kw_only=True):
    """What all ranks together trained with: of all steps, in the time from the end of one step to the end of the next.

    That time is the mean of the steps of ``blocks``: without the first 10, evaluation, and checkpoints.
    """

    #: Mean of a step of the job, and of a second; None if it was not recorded.
    samples_per_step: Amount | None = None
    tokens_per_step: Amount | None = None
    samples_per_second: Amount | None = None
    tokens_per_second: Amount | None = None
    #: The usual number of samples in a step of the job; None if it is not known of all ranks.
    batch_size: Count | None = None
    #: Training ranks, and those that recorded what they trained with: the numbers are their sums.
    ranks: Count
    ranks_known: Count
    #: Whether the recorder inferred the sizes from what loaders gave.
    inferred: bool
    #: In equal columns of time, samples in a second, or tokens where samples are not known; None without a timed step.
    start_us: int
    width_us: Count
    course: tuple[Amount | None, ...] = ()


def throughput(job: Job) -> Throughput | None:
    """None if no step was timed, or nobody recorded what steps trained with."""
    ranks = batch_sizes(job)
    known = [one for one in ranks if one.samples is not None or one.tokens is not None]
    if not known:
        return None
    begin_us, end_us = timed_steps(job)
    if not len(begin_us):
        return None
    steps, seconds = JobSteps.of(job), float((end_us - begin_us).mean()) / SECOND_US
    sizes = [
        [int(one.sum()) for one in of if one is not None]
        for of in ([r.samples for r in ranks], [r.tokens for r in ranks])
    ]
    samples, tokens = (sum(of) / len(steps) for of in sizes)
    typical = [one.typical for one in ranks]
    columns = max(1, min(MAX_COLUMNS, len(begin_us) // MIN_STEPS))
    edges_us = np.linspace(int(begin_us[0]), int(end_us[-1]), columns + 1)
    return Throughput(
        samples_per_step=_rounded(samples),
        tokens_per_step=_rounded(tokens),
        samples_per_second=_rounded(samples / seconds),
        tokens_per_second=_rounded(tokens / seconds),
        batch_size=sum(typical) if all(typical) else None,
        ranks=len(ranks),
        ranks_known=min(len(of) for of in sizes if of),
        inferred=any(one.inferred for one in known),
        start_us=int(edges_us[0]),
        width_us=round(edges_us[1] - edges_us[0]),
        course=_course(known, "samples" if samples else "tokens", steps, (begin_us, end_us), edges_us),
    )


def _rounded(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if value else None


def _course(
    known: Sequence[BatchSizes],
    what: str,
    steps: JobSteps,
    timed: tuple[IntArray, IntArray],
    edges_us: FloatArray,
) -> tuple[float | None, ...]:
    """In each column: the mean size of its steps over the mean time of those that were timed."""

    def added(at_us: IntArray, weights: IntArray | None = None) -> FloatArray:
        column = np.searchsorted(edges_us, at_us, side="left") - 1
        inside = (column >= 0) & (column < len(edges_us) - 1)
        chosen = None if weights is None else weights[inside]
        return np.bincount(column[inside], chosen, len(edges_us) - 1).astype(np.float64)

    sizes = sum(added(one.end_us, of) for one in known if (of := getattr(one, what)) is not None)
    begin_us, end_us = timed
    # A column without a timed step has no rate, nor has one of steps that took no time.
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = sizes / added(steps.end_us) * added(end_us) / added(end_us, end_us - begin_us) * SECOND_US
    return tuple(_rounded(rate) if math.isfinite(rate) else None for rate in rates.tolist())
