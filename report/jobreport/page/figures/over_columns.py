"""Values in time columns as lines, bands, and hatches, live and static."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from jobreport.page.figures.chart import Shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobreport.page.figures.chart import Axis
    from jobrules.analyses.time_lines import Columns

Floats = npt.NDArray[np.float64]

#: Stretches of one hatch: many boxes in a live plot take the square of their number.
MAX_STRETCHES = 500


def numbers(values: Iterable[float | None]) -> Floats:
    """An array, with NaN for what was not measured."""
    return np.array([np.nan if value is None else value for value in values], np.float64)


def end_us(columns: Columns) -> int:
    """Where the last column ends."""
    return columns.start_us + columns.count * columns.width_us


def edges(columns: Columns) -> tuple[Floats, Floats]:
    """Left and right edge of every column, in microseconds since the epoch."""
    left = columns.start_us + np.arange(columns.count, dtype=np.float64) * columns.width_us
    return left, left + columns.width_us


def points(columns: Columns, values: Floats) -> tuple[Floats, Floats]:
    """A line through the middles of the columns, drawn out to the edges where values begin or end.

    NaN stands between two runs, so that nothing is joined; a column alone is as wide as it is.
    """
    left, right = edges(columns)
    times, heights = [np.empty(0)], [np.empty(0)]
    for first, stop in runs(~np.isnan(values)):
        run = slice(first, stop)
        times.append(np.concatenate(([left[first]], (left[run] + right[run]) / 2, [right[stop - 1], np.nan])))
        heights.append(np.concatenate(([values[first]], values[run], [values[stop - 1], np.nan])))
    return np.concatenate(times)[:-1], np.concatenate(heights)[:-1]


def holes(columns: Columns, values: Floats) -> list[tuple[int, int]]:
    """From when to when the columns have no value."""
    start, width = columns.start_us, columns.width_us
    return [(start + first * width, start + stop * width) for first, stop in runs(np.isnan(values))]


def merged(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same times as at most 500 stretches that neither touch nor overlap, in order.

    Of more, the longer ones are as they are. The others are drawn as a gray is by black points: of 500 parts of the
    time between the longer ones, each a pixel or two wide, as many as they fill.
    """
    found = _united(stretches)
    if len(found) <= MAX_STRETCHES:
        return found
    by_length = sorted(found, key=lambda one: one[0] - one[1])
    longer, others = sorted(by_length[: MAX_STRETCHES // 2]), sorted(by_length[MAX_STRETCHES // 2 :])
    time = np.concatenate(([found[0][0]], np.ravel(longer), [found[-1][1]]))
    # How much of the time so far the longer ones leave.
    left = np.append(0, np.cumsum(np.diff(time) * (np.arange(len(time) - 1) % 2 == 0)))
    bounds = np.interp(np.ravel(others), time, left)
    filled = np.cumsum(np.diff(bounds, prepend=bounds[0]) * (np.arange(len(bounds)) % 2))
    edges = np.linspace(0, left[-1], MAX_STRETCHES + 1)
    # A part is hatched where what they fill so far comes to one part more.
    parts = np.rint(np.interp(edges, bounds, filled) / edges[1])
    ends = np.flatnonzero(np.diff(np.diff(parts) > 0, prepend=False, append=False)).reshape(-1, 2)
    points = np.interp(edges[ends], left, time)
    return _united([*longer, *((int(start), int(stop)) for start, stop in points.tolist())])


def _united(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, stop in sorted(stretches):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found


def band(
    style: str, x: Axis, y: Axis, columns: Columns, low: Floats, high: Floats, *, series: str = ""
) -> Shape:
    """The area from low to high, a step at every column as live plots have it: a path for each run without NaN."""
    left, right = edges(columns)
    # In tenths of a unit of the box, so that what is one number is printed as one.
    xs = np.rint(100 * np.append(x.place(left), x.place(right[-1:]))).astype(np.int64)
    tops, floors = (np.rint(1000 - 10 * y.place(side)) for side in (high, low))
    parts = []
    for first, stop in runs(~np.isnan(low)):
        widths = np.diff(xs[first : stop + 1])
        there = _steps(widths, tops[first:stop])
        back = _steps(-widths[::-1], floors[first:stop][::-1])
        down = int(floors[stop - 1] - tops[stop - 1])
        parts.append(
            f"M{xs[first] / 10:g} {tops[first] / 10:g}{there}{f'v{down / 10:g}' if down else ''}{back}z"
        )
    return Shape(style=style, path="".join(parts), series=series)


def _steps(widths: npt.NDArray[np.int64], heights: Floats) -> str:
    """Along and up or down, once for neighbors of one height."""
    at = np.flatnonzero(np.append(True, np.diff(heights) != 0))
    along, rises = np.add.reduceat(widths, at).tolist(), np.append(0, np.diff(heights[at])).tolist()
    parts = (f"{f'v{up / 10:g}' if up else ''}h{wide / 10:g}" for up, wide in zip(rises, along, strict=True))
    return "".join(parts)


def runs(chosen: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and end of each run of True."""
    at = np.flatnonzero(np.diff(np.concatenate(([False], chosen, [False])).astype(np.int8)))
    return list(zip(at[::2].tolist(), at[1::2].tolist(), strict=True))
