"""Single GPUs and cores over time, as lines below the heat map."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from jobreport.page.figures import theme
from jobreport.page.figures.chart import quantity, upward
from jobreport.page.figures.devices.rows import CORE, GPU, full_name, missing
from jobreport.page.figures.models import ColumnDataSource
from jobrules.analyses.devices import NOT_MEASURED

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from jobreport.page.figures.canvas import Figure
    from jobreport.page.figures.devices.rows import HeatMap, Row
    from jobreport.page.figures.models import Range1d

#: Side of the pointer at which the values of each line stand, so that they hardly overlap.
_BESIDE = ("left", "right", "above", "below")


def defaults(heat: HeatMap) -> tuple[Row, ...]:
    """The two devices whose means differ most: of GPUs, or a single GPU and the busiest core."""
    gpus = [row for row in heat.choices if row.what == GPU and len(row.measured)]
    cores = [row for row in heat.choices if row.what == CORE and len(row.measured)]
    if len(gpus) == 1 and cores:
        return gpus[0], max(cores, key=lambda row: row.mean)
    ranked = sorted(gpus or cores, key=lambda row: row.mean)
    return (ranked[0], ranked[-1]) if len(ranked) > 1 else tuple(ranked)


def lines_figure(
    heat: HeatMap, shared: Range1d, chosen: Sequence[Row], sources: Sequence[ColumnDataSource]
) -> Figure:
    """The chosen rows as lines from 0 to 100%, and hidden lines up to the number of series styles.

    The script of the page fills a line by name and tags: the tags of the plot are the ``sources``, that of a line is
    the place of its row in all of them.
    """
    canvas = heat.canvas(upward(100), shared)
    canvas.live.name, canvas.live.tags = "single-devices", list(sources)
    middles = heat.times(np.arange(heat.columns) + 0.5)
    places = {id(row): place for place, row in enumerate(heat.choices)}
    source = ColumnDataSource({"x": heat.x.live(middles)})
    # The script finds the lines in front of all else that is drawn.
    for i, ((style, _), row, side) in enumerate(zip_longest(theme.SERIES, chosen, _BESIDE), start=1):
        values = np.full(heat.columns, np.nan)
        if row is not None:
            values = np.where(row.values == NOT_MEASURED, np.nan, row.values)
        source.data[f"y{i}"] = values.astype(np.float32)
        drawn = canvas.zoomed_line(style, _still(middles, values, heat.bundle), source, f"y{i}")
        drawn.name = full_name(row, several=heat.nodes > 1) if row else ""
        drawn.tags = [places[id(row)]] if row else []
        drawn.visible = row is not None
        tooltip = [("Time", heat.x.told("@x")), ("$name", quantity(f"y{i}", "%", 0))]
        canvas.tooltip(tooltip, [drawn], formatters={"@x": "datetime"}, attachment=side)
    canvas.hatch([tuple(heat.times(run).tolist()) for run in missing(heat.rows, of_all=True)])
    return canvas.figure


def _still(
    times: npt.NDArray[np.float64], values: npt.NDArray[np.float64], size: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The lowest and the highest of every ``size`` points, in their order: on paper they look like all of them."""
    if size < 3:
        return times, values
    table = np.full((-(-len(values) // size), size), np.nan)
    table.flat[: len(values)] = values
    known = ~np.isnan(table)
    places = np.stack(
        [np.where(known, table, np.inf).argmin(axis=1), np.where(known, table, -np.inf).argmax(axis=1)],
        axis=1,
    )
    kept = (np.sort(places, axis=1) + size * np.arange(len(table))[:, None]).ravel()
    return times[kept], values[kept]
