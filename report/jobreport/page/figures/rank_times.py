"""The time of each rank in each step: the range over all ranks, and below it a heat map of how far each is from the median."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.formats import escape_name
from jobreport.page.figures import chart, theme
from jobreport.page.figures.canvas import UNKNOWN, Canvas, Figure
from jobreport.page.figures.chart import quantity
from jobreport.page.figures.names import cut_apart
from jobreport.page.figures.scales import ceiling

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

#: Steps whose numbers stand below a figure.
MAX_LABELS = 12
LEVELS = 10
#: Range of the shades at least, so that noise is not drawn as if ranks differed.
LEAST_RANGE = 0.1
#: Paper above and below a row, and how far a cell lies over the next one, so that no paper shines through between them.
_PAPER, _OVER = 0.04, 0.04


class Shades(Struct, frozen=True, kw_only=True):
    """Ten shades of how much longer than the median of all ranks a rank took in a step, the longest farthest from the paper."""

    #: Parts of that median: of the rank that is fastest in most steps, and of the slowest.
    low: float
    high: float

    @classmethod
    def of(cls, deviations: Floats) -> Shades:
        """From the (ranks, steps) deviations, NaN where none was recorded; ranks that hardly differ stay near the paper."""
        of_ranks = np.nanmedian(deviations[~np.isnan(deviations).all(axis=1)], axis=1)
        low = min(0.0, float(of_ranks.min()))
        return cls(low=low, high=max(low + LEAST_RANGE, float(of_ranks.max())))

    @property
    def width(self) -> float:
        """Of one shade."""
        return (self.high - self.low) / LEVELS

    @property
    def ends(self) -> tuple[str, str]:
        """What the first and the last shade mean."""
        first, last = self.low + self.width, self.high - self.width
        return f"below {_signed(first)}", f"{_signed(last)} or more"

    def levels(self, deviations: Floats) -> Floats:
        """Number of the shade, NaN where none was recorded."""
        return np.clip(np.floor((deviations - self.low) / self.width), 0, LEVELS - 1)


def _signed(part: float) -> str:
    return f"{100 * part:+.0f}%".replace("-", "\N{MINUS SIGN}")


class RankTimes(Struct, frozen=True, kw_only=True, eq=False):
    """Times of ranks in steps, or in columns of neighboring steps."""

    #: Of ranks, and the numbers of steps: ``7``, ``120–129``.
    names: Sequence[str]
    steps: Sequence[str]
    #: What is measured, in which unit, and the digits of its values.
    what: str
    unit: str
    digits: int
    #: (ranks, steps), NaN where a rank did not record a step.
    times: Floats
    #: (steps,) over all ranks, also those without a row.
    shortest: Floats
    median: Floats
    longest: Floats

    @property
    def deviations(self) -> Floats:
        """(ranks, steps) parts of the median of the step."""
        median = np.where(self.median > 0, self.median, np.nan)
        return np.asarray(np.where(np.isnan(median), self.times * 0, self.times / median - 1))

    @property
    def shades(self) -> Shades:
        """Of these deviations."""
        return Shades.of(self.deviations)


def over_ranks(found: RankTimes) -> Figure:
    """A line of the median, and bars from the shortest to the longest of all ranks."""
    top = ceiling(float(found.longest.max()))
    canvas = Canvas(step_slots(found.steps), chart.upward(top, unit=f" {found.unit}"), left=theme.NAMES_PX)
    place = np.arange(len(found.steps), dtype=np.float64)
    columns = {"step": list(found.steps), "median": found.median}
    band = canvas.bars("u3", (place, place + 1, found.shortest, found.longest), columns)
    canvas.line("s1", np.repeat(np.append(place, len(place)), 2)[1:-1], np.repeat(found.median, 2))
    rows = [
        ("Step", "@step"),
        ("Shortest", quantity("bottom", found.unit, found.digits)),
        ("Median", quantity("median", found.unit, found.digits)),
        ("Longest", quantity("top", found.unit, found.digits)),
    ]
    canvas.tooltip(rows, [band], mode="vline")
    return canvas.figure


def heat_map(found: RankTimes, shades: Shades) -> Figure:
    """A row per rank and a column per step, in the shade of its deviation from the median of the step."""
    canvas = Canvas(step_slots(found.steps), chart.downward(cut_apart(found.names)), left=theme.NAMES_PX)
    deviations = found.deviations
    levels = shades.levels(deviations)
    drawn = []
    for shade in range(LEVELS):
        rows, columns = np.nonzero(levels == shade)
        if not len(rows):
            continue
        values = {
            "rank": [escape_name(found.names[row], 40) for row in rows.tolist()],
            "step": [found.steps[column] for column in columns.tolist()],
            "time": found.times[rows, columns].astype(np.float32),
            "percent": (100 * deviations[rows, columns]).astype(np.float32),
        }
        sides = (columns, columns + 1 + _OVER, -rows - 1 + _PAPER, -rows - _PAPER)
        drawn.append(canvas.bars(f"h{shade}", sides, values))
    rows, columns = np.nonzero(np.isnan(found.times))
    if len(rows):
        canvas.bars(UNKNOWN, (columns, columns + 1, -rows - 1 + _PAPER, -rows - _PAPER))
    tooltip = [
        ("Rank", "@rank"),
        ("Step", "@step"),
        (found.what, quantity("time", found.unit, found.digits)),
        ("Against the median", "@percent{+0.0}%"),
    ]
    canvas.tooltip(tooltip, drawn)
    return canvas.figure


def step_slots(steps: Sequence[str]) -> chart.Axis:
    """A slot for each step, the first number of some of them below."""
    every = -(-len(steps) // MAX_LABELS)
    return chart.slots([step.partition("–")[0] if i % every == 0 else "" for i, step in enumerate(steps)])
