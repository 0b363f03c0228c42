"""Figures of values in time columns: they share one axis, one range, and one table of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jobreport.page.figures import chart, over_columns, theme
from jobreport.page.figures.canvas import FILLS, Canvas, stroke
from jobreport.page.figures.models import ColumnDataSource, Line, Range1d, VBar
from jobrules.analyses.time_lines import Columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from jobreport.page.figures.chart import Axis, Shape
    from jobreport.page.figures.models import Glyph, GlyphRenderer
    from jobreport.page.figures.over_columns import Floats
    from jobrules.verdict.phases import JobPhases


def boundaries(phases: JobPhases) -> tuple[int, ...]:
    """Where one phase ends and the next begins."""
    return tuple(phase.start_us for phase in phases.phases[1:])


def axis_of(columns: Columns) -> Axis:
    """The time that the columns cover."""
    return chart.over_time(columns.start_us, over_columns.end_us(columns), most=5)


def bundled(columns: Columns, size: int) -> Columns:
    """Every ``size`` columns as one; the last one may reach beyond the end."""
    count = -(-columns.count // size)
    return Columns(start_us=columns.start_us, width_us=size * columns.width_us, count=count)


class SharedTime:
    """The time axis of several figures, the range with which they zoom, and the values of their live plots.

    ``bundle`` columns are one in the values; the last bundle may reach beyond the end of the axis.
    """

    def __init__(self, columns: Columns, bundle: int = 1) -> None:
        self.axis, self.all_columns = axis_of(columns), columns
        self.bundle, self.columns = bundle, bundled(columns, bundle)
        start, end = float(self.axis.live(self.axis.start)), float(self.axis.live(self.axis.end))
        self.width = float(self.axis.live(self.columns.width_us))
        shortest = min(end - start, 4 * self.width)
        self.range = Range1d(start=start, end=end, bounds=(start, end), min_interval=shortest)
        left, right = over_columns.edges(self.columns)
        self.source = ColumnDataSource({"time": self.axis.live((left + right) / 2)})

    def column(self, values: npt.NDArray[Any]) -> str:
        """The name of the column with these values; equal columns are kept once."""
        nan = values.dtype != np.uint8
        kept: Any
        for name, kept in self.source.data.items():
            if kept.dtype == values.dtype and np.array_equal(kept, values, equal_nan=nan):
                return str(name)
        name = f"v{len(self.source.data)}"
        self.source.data[name] = values
        return name


class TimeCanvas(Canvas):
    """Lines and bands over time columns; ``whole`` live bands end at whole numbers, to take few bytes."""

    def __init__(self, time: SharedTime, y: Axis, *, labels: bool = True, whole: bool = False) -> None:
        super().__init__(time.axis, y, labels=labels, x_range=time.range, zoom=True)
        self._time, self._whole = time, whole

    def phases(self, phases: JobPhases) -> None:
        """Dotted lines where phases of the job begin, and solid ones where traces of PyTorch's profiler begin and end."""
        self.upright("dots", [us for us in boundaries(phases) if self.x.start < us < self.x.end])
        self.upright("axis", [us for span in phases.profiled for us in span])

    def band(self, style: str, low: Floats, high: Floats, *, series: str = "") -> tuple[str, str]:
        """The area between two values per column; returns the names of both columns."""
        self._marks.append(
            over_columns.band(style, self.x, self.y, self._time.columns, low, high, series=series)
        )
        names = self._end(low, np.floor), self._end(high, np.ceil)
        color = theme.light()[FILLS[style]]
        bar = VBar(x="time", width=self._time.width, bottom=names[0], top=names[1])
        bar.update(fill_color=color, line_color=color, line_width=1)
        self._on_time(bar, series)
        return names

    def curve(self, style: str, values: Floats, *, series: str = "") -> str:
        """A line through the middles of the columns; returns the name of its column."""
        self._marks.append(curve(style, self.x, self.y, self._time.columns, values, series=series))
        name = self._time.column(values.astype(np.float32))
        self._on_time(Line(x="time", y=name, **stroke(style)), series)
        return name

    def values_at(self, rows: Sequence[tuple[str, str]], name: str) -> None:
        """A tooltip with the rows at the pointer's time; it stays if series are switched off."""
        target = self._on_time(Line(x="time", y=name, line_alpha=0), "")
        shown = [("Time", self.x.told("@time")), *rows]
        self.tooltip_over_time(shown, [target], "@time", attachment="horizontal")

    def _end(self, values: Floats, outwards: Any) -> str:
        if not self._whole:
            return self._time.column(values.astype(np.float32))
        whole = outwards(values)
        return self._time.column(whole.astype(np.float32 if np.isnan(whole).any() else np.uint8))

    def _on_time(self, glyph: Glyph, series: str) -> GlyphRenderer:
        return self.live.add_glyph(self._time.source, glyph, **({"name": series} if series else {}))


def curve(style: str, x: Axis, y: Axis, columns: Columns, values: Floats, *, series: str = "") -> Shape:
    """A line through the middles of the columns in a drawing, from the first edge to the last of each run."""
    places, heights = over_columns.points(columns, values)
    level = np.diff(np.rint(10 * y.place(heights))) == 0  # as printed; NaN equals nothing
    kept = np.ones(len(heights), np.bool_)
    # Points inside a level stretch change nothing and cost bytes.
    kept[1:-1] = ~(level[:-1] & level[1:])
    return chart.line(style, x, y, places[kept], heights[kept], series=series)
