"""Metrics over time: means as lines over bands from the lowest to the highest sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobreport.formats import escape_name
from jobreport.page.figures import chart, over_columns
from jobreport.page.figures.over_time import SharedTime, TimeCanvas
from jobreport.page.figures.over_time import bundled as bundled_columns
from jobreport.page.figures.scales import ceiling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.formats import Scale
    from jobreport.page.figures.canvas import Figure
    from jobreport.page.figures.over_columns import Floats
    from jobrules.analyses.time_lines import Apart, Columns, TimeLine
    from jobrules.verdict.phases import JobPhases

#: Columns of a plot: of one node, and of several, which are drawn narrower.
MAX_COLUMNS = (600, 300)
#: Classes of the lines of devices that differ.
APART = ("s3", "s4")
#: Classes of line and band: of a line alone, and of two in one plot.
_ALONE = (("line", "band"),)
_PAIR = (("s1", "band"), ("s2", "band2"))


def size_of(columns: Columns, most: int) -> int:
    """How many columns are bundled into one so that at most ``most`` remain."""
    return max(1, -(-columns.count // most))


def bundled(line: TimeLine | Apart, size: int) -> tuple[Floats, Floats, Floats]:
    """Mean of means, lowest low, highest high of every ``size`` columns; NaN where none was measured."""
    mean, low, high = _tables((line.mean, line.low, line.high), size)
    return _means(mean), np.fmin.reduce(low, axis=1), np.fmax.reduce(high, axis=1)


def _tables(lists: Sequence[Sequence[float | None]], size: int) -> Floats:
    """(lists, bundles, size) values, NaN for what was not measured and beyond the end."""
    count = len(lists[0])
    tables = np.full((len(lists), -(-count // size) * size), np.nan)
    tables[:, :count] = np.array(lists, np.float64)
    return tables.reshape(len(lists), -1, size)


def _means(table: Floats) -> Floats:
    """(bundles,) mean of what was measured."""
    known = ~np.isnan(table)
    means: Floats = np.divide(
        np.where(known, table, 0).sum(axis=1),
        known.sum(axis=1),
        out=np.full(len(table), np.nan),
        where=known.any(axis=1),
    )
    return means


def unmeasured(
    lines: Sequence[TimeLine], columns: Columns, phases: JobPhases, size: int
) -> list[tuple[int, int]]:
    """When none of the lines, which are of one node, was measured: its gaps, and columns without a sample."""
    missing = np.logical_and.reduce([np.isnan(bundled(line, size)[0]) for line in lines])
    holes = over_columns.holes(bundled_columns(columns, size), np.where(missing, np.nan, 0.0))
    gaps = [(gap.start_us, gap.end_us) for gap in phases.gaps if gap.node == lines[0].node]
    end_us = over_columns.end_us(columns)
    return over_columns.merged((start, min(stop, end_us)) for start, stop in holes + gaps)


def time_line(
    lines: Sequence[TimeLine],
    time: SharedTime,
    phases: JobPhases,
    scale: Scale,
    top: float,
    *,
    labels: bool,
    odd: Sequence[str] = (),
) -> Figure:
    """One or two lines of one node; ``top`` is the upper end of the axis in the unit of ``scale``.

    Devices that differ have lines of their own, in the order of ``odd``, and line and band are those of the others.
    """
    several = len(lines) > 1
    canvas = TimeCanvas(time, chart.upward(top), labels=labels, whole=scale.unit == "%")
    canvas.hatch(unmeasured(lines, time.all_columns, phases, time.bundle))
    values = [[part / scale.factor for part in bundled(line.apart or line, time.bundle)] for line in lines]
    looks = _PAIR if several else _ALONE
    names = [line.key if several else "" for line in lines]
    bands = [
        canvas.band(band, low, high, series=name)
        for (_, low, high), (_, band), name in zip(values, looks, names, strict=True)
    ]
    means = [
        canvas.curve(style, mean, series=name)
        for (mean, _, _), (style, _), name in zip(values, looks, names, strict=True)
    ]
    rows = []
    for line, mean, band in zip(lines, means, bands, strict=True):
        rows += _rows(line, scale.unit, mean, band, several=several)
    for one in (one for line in lines if line.apart for one in line.apart.devices):
        heights = _means(_tables((one.mean,), time.bundle)[0]) / scale.factor
        own = canvas.curve(APART[odd.index(one.device)], heights)
        rows.append((escape_name(one.device, 20), chart.quantity(own, scale.unit)))
    canvas.phases(phases)
    canvas.values_at(rows, means[0])
    return canvas.figure


def _rows(
    line: TimeLine, unit: str, mean: str, band: tuple[str, str], *, several: bool
) -> list[tuple[str, str]]:
    """The rows of the tooltip for one line."""
    digits = 0 if unit == "%" else 1
    of = "Mean of the others" if line.apart else "Mean of the devices" if line.devices > 1 else "Mean"
    first = line.label if several else of
    ends = ("lowest", "highest") if several else ("Lowest sample", "Highest sample")
    rows = [(first, chart.quantity(mean, unit))]
    if band[0] != band[1]:
        rows += [(end, chart.quantity(name, unit, digits)) for end, name in zip(ends, band, strict=True)]
    return rows


def top_of(lines: Sequence[TimeLine], scale: Scale) -> float:
    """The upper end of the axis for lines that are compared: 100 for percent, otherwise a round number."""
    if scale.unit == "%":
        return 100.0
    values = [v for line in lines for v in line.high if v is not None]
    return ceiling(max(values, default=0.0) / scale.factor)
