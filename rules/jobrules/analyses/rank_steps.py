"""How long each rank took for its steps without waiting for the others: a late rank stands out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.causes.rank_waits import RankWaits, late_rank
from jobrules.model.names import EventName, NodeName, RankName
from jobrules.verdict.story import WARNING_SHARE

if TYPE_CHECKING:
    from jobrules.model import FloatArray, Job

#: Columns of neighboring steps, and cells of all ranks together.
MAX_COLUMNS, MAX_CELLS = 200, 4096
#: Ranks that are all kept; of more, so many that differ most.
MAX_ALL, MAX_ODD = 64, 32


class RankRow(Struct, frozen=True, kw_only=True):
    """The own time of one rank: medians of all steps and of those of each column, in microseconds."""

    node: NodeName
    rank: RankName
    median_us: int
    columns_us: tuple[int, ...]


class RankSteps(Struct, frozen=True, kw_only=True):
    """The own times of ranks that train in step: steps without the phase in which others wait for a late one."""

    ranks: int
    #: Empty for the time outside of phases.
    phase: EventName
    #: Numbers of the first and the last step of each column.
    first: tuple[int, ...]
    last: tuple[int, ...]
    #: Over all ranks, in microseconds; the median of all steps and of those of each column.
    typical_us: int
    shortest_us: tuple[int, ...]
    median_us: tuple[int, ...]
    longest_us: tuple[int, ...]
    #: All ranks in their order, or those that differ most from the median, the slowest first.
    rows: tuple[RankRow, ...]


def rank_steps(job: Job) -> RankSteps | None:
    """None if no rank makes others wait for a relevant part of the time."""
    waits = RankWaits.of(job)
    late = waits and late_rank(waits)
    if not waits or not late or late.part < WARNING_SHARE:
        return None
    own_us = waits.step_us - waits.phases[late.phase]
    medians = np.median(own_us, axis=1)
    kept = np.arange(len(medians))
    if len(kept) > MAX_ALL:
        kept = np.argsort(-np.abs(medians - np.median(medians)), kind="stable")[:MAX_ODD]
        kept = kept[np.argsort(-medians[kept], kind="stable")]
    together = -(-len(waits.number) // min(MAX_COLUMNS, MAX_CELLS // len(kept)))
    columns = _columns(own_us, together)
    return RankSteps(
        ranks=len(medians),
        phase=late.phase,
        first=tuple(waits.number[::together].tolist()),
        last=(*waits.number[together - 1 : -1 : together].tolist(), int(waits.number[-1])),
        typical_us=round(float(np.median(medians))),
        shortest_us=_whole(columns.min(axis=0)),
        median_us=_whole(np.median(columns, axis=0)),
        longest_us=_whole(columns.max(axis=0)),
        rows=tuple(
            RankRow(
                node=waits.ranks[i][0],
                rank=waits.ranks[i][1],
                median_us=round(float(medians[i])),
                columns_us=_whole(columns[i]),
            )
            for i in kept.tolist()
        ),
    )


def _columns(table: FloatArray, together: int) -> FloatArray:
    """(ranks, columns) median of so many neighbors; the last column may have fewer."""
    whole = table.shape[1] // together
    parts = table[:, : whole * together].reshape(len(table), whole, together)
    rest = table[:, whole * together :]
    medians = [np.median(parts, axis=2), *([np.median(rest, axis=1, keepdims=True)] if rest.size else [])]
    return np.concatenate(medians, axis=1)


def _whole(values: FloatArray) -> tuple[int, ...]:
    return tuple(np.rint(values).astype(np.int64).tolist())
