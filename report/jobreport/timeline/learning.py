"""Rows of a training itself: the loss and other scalars as counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobreport.timeline.rows import NODES, Rows, text
from jobrules.model.learning import GRADIENT_NORM, LEARNING_RATE, TRAINING
from jobrules.verdict.profiled import NEAR_US

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.timeline.rows import Chosen, LeftOut
    from jobrules.measures.clock_offsets import Clocks
    from jobrules.model.learning import Learning

#: Names that a reader knows.
_LABELS = {LEARNING_RATE: "learning rate", GRADIENT_NORM: "gradient norm"}


def with_scalars(
    span_us: tuple[int, int] | None, learning: Learning | None, clocks: Clocks
) -> tuple[int, int]:
    """The span of all other records, and of scalars near them."""
    own = learning.span_us if learning else None
    if learning is None or own is None or span_us is None:
        return span_us or own or (0, 0)
    late_us = clocks.late_us(learning.node)
    start_us, end_us = (
        max(own[0] - late_us, span_us[0] - NEAR_US),
        min(own[1] - late_us, span_us[1] + NEAR_US),
    )
    return (min(start_us, span_us[0]), max(end_us, span_us[1])) if start_us <= end_us else span_us


def of_scalars(
    learning: Learning,
    nodes: Sequence[str],
    chosen: Chosen,
    span_us: tuple[int, int],
    clocks: Clocks,
    left_out: LeftOut,
) -> Iterator[Rows]:
    """Counters of the scalars of rank 0, on the node where they were recorded, and marks where one is no number.

    Those outside of the span of the whole job are left out.
    """
    number = nodes.index(learning.node) if learning.node in nodes else 0
    late_us = clocks.late_us(learning.node)
    for series in (one for one in learning.scalars if not one.rank):
        time_us = series.time_us - late_us
        timed = series.time_us > 0
        during = timed & (time_us >= span_us[0]) & (time_us <= span_us[1])
        for why, lacks in (("without a time", ~timed), ("of another time", timed & ~during)):
            if lacks.any():
                left_out["logged value", why] += int(lacks.sum())
        rows = np.flatnonzero(during & (time_us >= chosen.start_us) & (time_us < chosen.end_us))
        if not len(rows) or not chosen.allows(len(rows)):
            continue
        label = _LABELS.get(series.name, series.name)
        label += f" ({series.mode})" if series.mode != TRAINING else ""
        value, finite = series.value[rows], series.finite[rows]
        yield Rows(
            pid=NODES + number,
            tid=0,
            start_us=time_us[rows],
            length_us=np.full(len(rows), -1),
            heads=[
                f'{{"name":{text(label)},"ph":"C"',
                *(
                    f'{{"name":{text(f"{label} is {what}")},"cat":"learning","ph":"i","s":"p"'
                    for what in ("NaN", "infinite")
                ),
            ],
            head=np.where(finite, 0, np.where(np.isnan(value), 1, 2)),
            tails=[f'{{"value":{one:.6g}}}' for one in value[finite].tolist()],
            tail=np.where(finite, np.cumsum(finite) - 1, -1),
        )
