"""Rows of a training itself: the loss and other scalars as counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobreport.timeline.rows import NODES, Name, Rows, text
from jobrules.model.learning import GRADIENT_NORM, LEARNING_RATE, TRAINING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.timeline.rows import Chosen
    from jobrules.measures.clock_offsets import Clocks
    from jobrules.model.learning import Learning

#: Names that a reader knows.
_LABELS = {LEARNING_RATE: "learning rate", GRADIENT_NORM: "gradient norm"}


def of_scalars(
    learning: Learning, nodes: Sequence[str], chosen: Chosen, clocks: Clocks, names: list[Name]
) -> Iterator[Rows]:
    """Counters of the scalars of rank 0, on the node where they were recorded, and marks where one is no number."""
    number = nodes.index(learning.node) if learning.node in nodes else 0
    late_us = clocks.late_us(learning.node)
    if not nodes:
        names.append(Name(pid=NODES, name=learning.node or "training", sort=0))
    for series in learning.scalars:
        time_us = series.time_us - late_us
        inside = (series.time_us > 0) & (time_us >= chosen.start_us) & (time_us < chosen.end_us)
        rows = np.flatnonzero(inside)
        if series.rank or not len(rows) or not chosen.allows(len(rows)):
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
