"""The phases of the steps of each rank, and which rank the others wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.figures import step_parts as figures
from jobreport.page.kit import Drawing, Figure, Note, Table
from jobreport.page.kit.table import node_cells, node_heads
from jobreport.sentences import phase_name
from jobrules.text import took

if TYPE_CHECKING:
    from jobreport.page.figures.steps import Unit
    from jobrules.analyses.rank_waits import RankOfSteps, WaitsOfRanks

MAX_NAME = 24


def phases_of_ranks(waits: WaitsOfRanks, unit: Unit) -> Figure | Note:
    """A bar for each rank, and a table with the spread; a sentence if no rank is late."""
    if not waits.late:
        return Note("No rank is late: ranks end their steps together, and phases take about as long on each.")
    names = [phase_name(phase.key, phase.event_type) for phase in waits.phases]
    fills = figures.phase_fills(waits.phases)
    drawn = waits.ranks[: figures.MAX_RANKS]
    return Figure(
        name="steps-ranks",
        title="Phases of a step by rank",
        finding=_finding(waits),
        aid=f"Median of each phase over {formats.count(waits.steps, 'step')}.",
        key=[(fill, name, "") for fill, name in zip(fills, names, strict=True)],
        drawings=[
            Drawing(
                figure=figures.rank_phases(drawn, names, fills, unit),
                style="names low" if len(drawn) <= 3 else "names",
            )
        ],
        reading=_reading(waits, len(drawn)),
        tables=[_table(waits, names, unit)],
    )


def _finding(waits: WaitsOfRanks) -> str:
    late = [f"rank {formats.escape_name(one.rank, MAX_NAME)}" for one in waits.ranks[: waits.late]]
    return (
        f"The others wait {took(waits.late_us)} a step for {formats.join_names(late)}, "
        f"{formats.percent(waits.waiting_percent)} of the time of steps."
    )


def _reading(waits: WaitsOfRanks, drawn: int) -> str:
    phase = waits.phases[waits.waiting_phase]
    held = f"The others wait in: {phase_name(phase.key, phase.event_type)}. "
    more = formats.not_shown(len(waits.ranks) + waits.left - drawn, "rank").strip()
    return (
        f"{held}{more and more + ' '}Ranks that train in step end their steps together: one that takes longer in one phase makes the others wait in "
        "the phase that holds their exchange, where it has the least time itself. Medians of phases need not add up to the "
        "median step."
    )


def _table(waits: WaitsOfRanks, names: list[str], unit: Unit) -> Table:
    several = len({one.node for one in waits.ranks}) > 1
    return Table(
        label="Phases of a step by rank",
        fold="phases of a step by rank",
        caption=f"Phases of a step by rank: median, and 90th percentile ({unit.name}){formats.not_shown(waits.left, 'rank')}",
        heads=(
            *node_heads(":Rank", several=several),
            "Step",
            *(head for name in names for head in (name, f"{name}, p90")),
        ),
        rows=[
            (*_rank_cells(one, several=several), unit.text(one.step_us), *_cells(one, unit))
            for one in waits.ranks
        ],
    )


def _rank_cells(one: RankOfSteps, *, several: bool) -> list[str]:
    return node_cells(one.node, formats.escape_name(one.rank, MAX_NAME), several=several)


def _cells(one: RankOfSteps, unit: Unit) -> list[str]:
    pairs = zip(one.median_us, one.p90_us, strict=True)
    return [unit.text(us) for pair in pairs for us in pair]
