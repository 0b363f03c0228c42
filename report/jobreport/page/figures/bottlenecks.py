"""The share of bottlenecks over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobreport.page.figures import over_columns
from jobreport.page.figures.chart import quantity, upward
from jobreport.page.figures.over_time import SharedTime, TimeCanvas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.page.figures.canvas import Figure
    from jobrules.analyses.time_lines import Columns
    from jobrules.verdict.phases import JobPhases


def shares_over_time(
    courses: Sequence[Sequence[float | None]], columns: Columns, phases: JobPhases, limit: float | None
) -> list[Figure]:
    """A bar for each column, hatched where nothing is known; the last figure has the labels."""
    time, figures = SharedTime(columns), []
    for i, percents in enumerate(courses):
        values = over_columns.numbers(percents)
        canvas = TimeCanvas(time, upward(100, unit="%"), labels=i == len(courses) - 1)
        canvas.hatch(over_columns.holes(columns, values))
        _, name = canvas.band("l", np.where(np.isnan(values), np.nan, 0.0), values)
        canvas.phases(phases)
        if limit is not None:
            canvas.level("limit", limit)
        canvas.values_at([("Bottlenecks", f"{quantity(name, '%')} of snapshots")], name)
        figures.append(canvas.figure)
    return figures
