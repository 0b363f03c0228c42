"""What training processes trained with in each step, as far as it was recorded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.rows import TRAIN, series_of
from jobrules.model import IntArray, Job, StepMark

#: Sizes of fewer of a process's steps say nothing about the others.
KNOWN_PART = 0.5


class BatchSizes(Struct, frozen=True, kw_only=True, eq=False):
    """The training steps of one process without those that are marked, and their sizes; none that it did not record."""

    #: Ends of the steps, on the common clock.
    end_us: IntArray
    samples: IntArray | None
    tokens: IntArray | None
    #: Whether the recorder inferred them from what loaders gave.
    inferred: bool

    @property
    def typical(self) -> int:
        """The median of samples in a step; 0 if they were not recorded."""
        return 0 if self.samples is None else int(np.median(self.samples[self.samples > 0]))


def batch_sizes(job: Job) -> list[BatchSizes]:
    """Of each training process."""
    return job.gathered(_of_node, Clocks.of(job))


def _of_node(part: Job, clocks: Clocks) -> Iterator[BatchSizes]:
    for (node, _, mode), every in series_of(part.steps).items():
        rows = every[part.steps.mark[every] == StepMark.NONE]
        if mode != TRAIN or not len(rows):
            continue
        inferred = bool(part.steps.inferred[rows].any())
        yield BatchSizes(
            end_us=part.steps.end_us[rows] - clocks.late_us(node),
            samples=_known(part.steps.samples[rows], inferred=inferred),
            tokens=_known(part.steps.tokens[rows], inferred=inferred),
            inferred=inferred,
        )


def _known(sizes: IntArray, *, inferred: bool) -> IntArray | None:
    """The sizes of all steps; a script that left some out trained with as much there.

    A loader that fetches ahead gives two batches before one step, and none before another.
    """
    known = sizes >= 0
    if known.mean() < KNOWN_PART or not (sizes > 0).any():
        return None
    mean = 0 if inferred else round(float(sizes[known].mean()))
    return np.asarray(np.where(known, sizes, mean))
