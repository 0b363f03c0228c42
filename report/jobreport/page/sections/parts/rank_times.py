"""A late rank: the figure of each rank in each step, for steps of the job and for those of traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.page.figures import rank_times as drawings
from jobreport.page.figures.names import rows_class
from jobreport.page.kit import Drawing, Figure
from jobrules.text import capitalized

if TYPE_CHECKING:
    from jobreport.page.figures.rank_times import RankTimes
    from jobreport.page.kit import Table


def rank_times(name: str, found: RankTimes, *, finding: str, aid: str, more: str, table: Table) -> Figure:
    """The range over all ranks, and each of them against the median; ``more`` ends the explanation."""
    what, shades = found.what.lower(), found.shades
    return Figure(
        name=name,
        title=f"{capitalized(what)} of each rank in each step",
        finding=finding,
        aid=aid,
        drawings=(
            Drawing(
                figure=drawings.over_ranks(found),
                style="names low",
                title=f"Shortest, median, and longest {what} over all ranks",
            ),
            Drawing(
                figure=drawings.heat_map(found, shades),
                style=f"names {rows_class(len(found.names))}",
                title="Each rank against the median of the step",
            ),
        ),
        key=(
            ("s1", "median rank", ""),
            ("u3", "shortest to longest", ""),
            *((style, words, "") for style, words in zip(("h0", "h9"), shades.ends, strict=True)),
        ),
        reading=f"Ten shades. Hatched: not recorded.{more}",
        tables=[table],
    )
