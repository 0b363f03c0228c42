"""The job's own steps, compared between its ranks: a late rank stands out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobreport import formats
from jobreport.page.figures.rank_times import RankTimes
from jobreport.page.kit import Table
from jobreport.page.kit.table import node_cells, node_heads
from jobreport.page.sections.captures.parts import omitted
from jobreport.page.sections.parts.rank_times import rank_times
from jobreport.page.sections.parts.step_parts import rank_name
from jobrules.text import capitalized
from jobrules.verdict.late_ranks import phase_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.page.figures.steps import Unit
    from jobreport.page.kit import Figure
    from jobrules.analyses.rank_steps import RankSteps
    from jobrules.analyses.steps import StepTimes


def steps_of_ranks(times: StepTimes, unit: Unit) -> Figure | None:
    """None if no rank makes the others wait."""
    found = times.of_ranks
    if found is None:
        return None
    ranks = {row.rank for row in found.rows}
    names = [
        rank_name("" if len(ranks) == len(found.rows) else row.node, row.rank, times) for row in found.rows
    ]
    slowest = max(range(len(names)), key=lambda i: found.rows[i].median_us)
    aid = (
        f"Own time: step time without the {phase_words(found.phase)}, in which ranks wait for others."
        if found.phase
        else "Own time: step time in recorded phases; ranks wait for others outside of these."
    )
    together = any(first < last for first, last in zip(found.first, found.last, strict=True))
    return rank_times(
        "steps-ranks-time",
        _drawn(found, names, unit),
        finding=f"{capitalized(names[slowest])} has the longest own time per step: median "
        f"{unit.short(found.rows[slowest].median_us)}; {_compared(found, names, slowest, unit)}.",
        aid=aid + omitted(len(names), found.ranks, "rank"),
        more=" A column is the median of neighboring steps." if together else "",
        table=_table(found, unit),
    )


def _compared(found: RankSteps, names: Sequence[str], slowest: int, unit: Unit) -> str:
    """The other rank of two, or the median rank."""
    if found.ranks == 2:
        other = 1 - slowest
        return f"{names[other]} {unit.short(found.rows[other].median_us)}"
    return f"median rank {unit.short(found.typical_us)}"


def _drawn(found: RankSteps, names: Sequence[str], unit: Unit) -> RankTimes:
    ends = zip(found.first, found.last, strict=True)
    return RankTimes(
        names=names,
        steps=[str(first) if first == last else f"{first}–{last}" for first, last in ends],
        what="Own time",
        unit=unit.name,
        digits=unit.digits,
        times=np.array([row.columns_us for row in found.rows]) / unit.us,
        shortest=np.array(found.shortest_us) / unit.us,
        median=np.array(found.median_us) / unit.us,
        longest=np.array(found.longest_us) / unit.us,
    )


def _table(found: RankSteps, unit: Unit) -> Table:
    """The median of each rank, the slowest first."""
    several = len({row.node for row in found.rows}) > 1
    return Table(
        label="Median own time of each rank",
        fold="median own time of each rank",
        heads=(
            *node_heads(":Rank", several=several),
            *(f"Median ({unit.name})", "Against the median rank (%)"),
        ),
        rows=[
            (
                *node_cells(row.node, row.rank, several=several),
                unit.text(row.median_us),
                formats.signed(100 * (row.median_us / max(1, found.typical_us) - 1)),
            )
            for row in sorted(found.rows, key=lambda one: -one.median_us)
        ],
    )
