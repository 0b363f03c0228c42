"""Parts of most figures: two axes, from which the live plot and the static drawing get the same frame.

The static drawing is a list of marks, placed in percent of the plot. ``templates/sections/chart.html.j2`` writes them
as inline SVG without a ``viewBox``, so text keeps its size on narrow windows and on paper. Only shapes are stretched,
in a box of 1000 × 100. Heights run downwards as in SVG.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec import Struct, field

from jobreport.formats import NBSP, dated
from jobreport.page.figures import theme
from jobreport.page.figures.models import (
    AdaptiveTicker,
    AreaVisuals,
    BoxAnnotation,
    BoxInteractionHandles,
    BoxZoomTool,
    CompositeTicker,
    DatetimeTickFormatter,
    DaysTicker,
    FixedTicker,
    Grid,
    HoverTool,
    LinearAxis,
    Map,
    MonthsTicker,
    NoOverlap,
    PanTool,
    PlainText,
    Plot,
    Range1d,
    ResetTool,
)
from jobreport.page.figures.scales import Tick, ceiling, time_ticks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from jobreport.page.figures.models import GlyphRenderer

US_PER_MS = 1000
_DAY_US = 86_400_000_000
_BOX_WIDTH = 1000
#: Length of names that always fit next to each other.
SHORT = 3


class Axis(Struct, frozen=True, kw_only=True):
    """A stretch of values with its labeled ticks."""

    start: float
    end: float
    ticks: tuple[Tick, ...]
    #: Values are microseconds since the epoch; in a live plot milliseconds.
    time: bool = False
    #: Names in slots that are 1 wide, and not values.
    names: bool = False
    #: Rows of ranks and nodes, which the script of the page can cover: name, and where the row begins and how high it is, in
    #: percent from the top.
    rows: tuple[tuple[str, float, float], ...] = ()

    @property
    def two_rows(self) -> bool:
        """Whether a label has a second row."""
        return any("\n" in tick.label for tick in self.ticks)

    def place(self, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Where values lie, in percent from the start; those outside at its ends, NaN stays."""
        places = 100 * (np.asarray(values, np.float64) - self.start) / (self.end - self.start)
        return np.clip(places, 0, 100)

    def told(self, field: str, style: str = "%F %T") -> str:
        """A time in a tooltip: ``@time{%F %T} UTC`` for the field ``@time``."""
        if dated(int(self.end)):
            return f"{field}{{{style}}} UTC"
        days = f"day {field}{{%j}}, " if self.end >= _DAY_US else ""
        return f"{days}{field}{{%T}} after the start"

    def live(self, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Values as a live plot wants them."""
        array = np.asarray(values, np.float64)
        return array / US_PER_MS if self.time else array


def upward(top: float, parts: int = 2, *, unit: str = "") -> Axis:
    """From 0 to a round number: ``upward(100, unit="%")``, ``upward(ceiling(most))``; the last tick has the unit."""
    ticks = [Tick(at=i / parts, label=_label(top * i / parts)) for i in range(parts + 1)]
    ticks[-1] = Tick(at=1, label=ticks[-1].label + unit)
    return Axis(start=0, end=top, ticks=tuple(ticks))


def along(start: float, end: float, most: int = 6, *, unit: str = "") -> Axis:
    """Plain numbers, ticks at round values inside the stretch; the end must lie above the start.

    The last tick has the unit.
    """
    step = ceiling((end - start) / most)
    # Not beyond the end, as 6 * 0.4 is beyond 2.4.
    places = [
        min(step * i, end) for i in range(math.ceil(start / step - 1e-9), math.floor(end / step + 1e-9) + 1)
    ]
    labels = [_label(value) + (unit if value == places[-1] else "") for value in places]
    ticks = (
        Tick(at=(value - start) / (end - start), label=label)
        for value, label in zip(places, labels, strict=True)
    )
    return Axis(start=start, end=end, ticks=tuple(ticks))


def over_time(start_us: int, end_us: int, most: int = 6) -> Axis:
    """Times of day, UTC; the end must lie after the start."""
    return Axis(start=start_us, end=end_us, ticks=time_ticks(start_us, end_us, most), time=True)


def slots(names: Sequence[str]) -> Axis:
    """A slot 1 wide for each name, the first from 0 to 1; at least one. An empty name has no label."""
    ticks = tuple(Tick(at=(i + 0.5) / len(names), label=name) for i, name in enumerate(names) if name)
    return Axis(start=0, end=len(names), ticks=ticks, names=True)


def downward(names: Sequence[str]) -> Axis:
    """Slots of an upright axis, the first name on top: slot i runs from ``-i`` to ``-i - 1``."""
    n = len(names)
    ticks = tuple(Tick(at=1 - (i + 0.5) / n, label=name) for i, name in enumerate(names) if name)
    high = 100 / n
    rows = ((name, round(i * high, 2), round(high, 2)) for i, name in enumerate(names) if "rank" in name)
    return Axis(start=-n, end=0, ticks=ticks, names=True, rows=tuple(rows))


def _label(value: float) -> str:
    return f"{value:,.6g}" if value else "0"


class Shape(Struct, frozen=True, kw_only=True):
    """A path in the stretched box; ``style`` is a class of ``drawing.css``."""

    style: str
    path: str
    #: Which series it draws, as named in the key; empty for what no switch hides.
    series: str = ""


class Rule(Struct, frozen=True, kw_only=True):
    """A straight line between two places in percent."""

    style: str
    x1: float
    y1: float
    x2: float
    y2: float


class Area(Struct, frozen=True, kw_only=True):
    """A rectangle in percent, for fills that must not be stretched, as the hatch of what was not measured."""

    style: str
    x: float
    y: float
    width: float
    height: float


class Label(Struct, frozen=True, kw_only=True):
    """Words at a place in percent, moved by ``dx`` and ``dy`` in em."""

    text: str
    x: float
    y: float
    anchor: str = "middle"
    dx: float = 0.0
    dy: float = 0.0
    style: str = ""


Mark = Shape | Rule | Area | Label


class Drawing(Struct, frozen=True, kw_only=True):
    """The static twin of a plot: its axes and marks, in the order they are drawn."""

    x: Axis
    y: Axis
    marks: tuple[Mark, ...] = field(default=())
    #: Whether the labels of the x axis are written below.
    labels: bool = True

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Marks in the stretched box."""
        return tuple(mark for mark in self.marks if isinstance(mark, Shape))

    @property
    def areas(self) -> tuple[Area, ...]:
        """Rectangles below everything else."""
        return tuple(mark for mark in self.marks if isinstance(mark, Area))

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Straight lines above the shapes."""
        return tuple(mark for mark in self.marks if isinstance(mark, Rule))

    @property
    def words(self) -> tuple[Label, ...]:
        """Labels inside the plot."""
        return tuple(mark for mark in self.marks if isinstance(mark, Label))


def bars(
    style: str,
    x: Axis,
    y: Axis,
    sides: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike, npt.ArrayLike],
    *,
    series: str = "",
) -> Shape:
    """Filled rectangles as one path; ``sides`` are left, right, bottom, and top: arrays of one length, or numbers."""
    left, right, bottom, top = np.broadcast_arrays(*(np.asarray(side, np.float64) for side in sides))
    # In tenths of a unit of the box, so that what is one number is printed as one.
    xs = np.rint(np.stack([x.place(left), x.place(right)]) * _BOX_WIDTH / 10).astype(np.int64)
    ys = np.rint(1000 - 10 * np.stack([y.place(top), y.place(bottom)])).astype(np.int64)
    parts = [
        f"M{_tenth(a)} {_tenth(c)}H{_tenth(b)}V{_tenth(d)}H{_tenth(a)}z"
        for a, b, c, d in zip(*xs.tolist(), *ys.tolist(), strict=True)
        if b > a and d > c
    ]
    return Shape(style=style, path="".join(parts), series=series)


def line(
    style: str, x: Axis, y: Axis, places: npt.ArrayLike, values: npt.ArrayLike, *, series: str = ""
) -> Shape:
    """A line through points, broken wherever a value is NaN; a point alone is a short stroke."""
    xs = np.rint(x.place(places) * _BOX_WIDTH / 10)
    ys = np.rint(1000 - 10 * y.place(values))
    there = np.isfinite(xs) & np.isfinite(ys)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], there, [False])).astype(np.int8)))
    parts = []
    for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        run_x, run_y = xs[first:end].astype(np.int64), ys[first:end].astype(np.int64)
        steps = zip(np.diff(run_x).tolist(), np.diff(run_y).tolist(), strict=True)
        drawn = " ".join(f"{_tenth(dx)} {_tenth(dy)}" for dx, dy in steps).replace(" -", "-") or ".5 0"
        parts.append(f"M{_tenth(int(run_x[0]))} {_tenth(int(run_y[0]))}l{drawn}")
    return Shape(style=style, path="".join(parts), series=series)


def outline(
    style: str, x: Axis, y: Axis, edges: npt.ArrayLike, values: npt.ArrayLike, *, series: str = ""
) -> Shape:
    """The outline of a histogram from its n + 1 edges and n values, from the floor to the floor."""
    sides = np.repeat(np.asarray(edges, np.float64), 2)
    heights = np.concatenate(([y.start], np.repeat(np.asarray(values, np.float64), 2), [y.start]))
    return line(style, x, y, sides, heights, series=series)


@lru_cache(maxsize=1 << 15)
def _tenth(value: int) -> str:
    """``1.2``, ``-.3``: a path needs no 0 before the point."""
    if 0 < abs(value) < 10:
        return f"-.{-value}" if value < 0 else f".{value}"
    return f"{value / 10:g}"


#: Room for a line at the lowest and highest value of a live plot, as a part of its height.
EDGE = 0.01


def live_plot(
    x: Axis,
    y: Axis,
    *,
    x_range: Range1d | None = None,
    labels: bool = True,
    zoom: bool = False,
    left: int = 0,
) -> Plot:
    """A plot with the frame of the drawing: axes, grid, and with ``zoom`` the tools that move along x.

    Plots that are given the same ``x_range`` zoom together. ``left`` is the room for the labels of
    the y axis in px, ``theme.NAMES_PX`` for names.
    """
    ends = float(x.live(x.start)), float(x.live(x.end))
    shown = x_range or Range1d(start=ends[0], end=ends[1], bounds=ends if zoom else None)
    if x.time and zoom and not shown.name:
        shown.name = "time"  # the script of the page moves all of them together
    look = theme.plot_look() | ({"min_border_left": left} if left else {})
    below = theme.BOTTOM_PX + (18 if x.two_rows else 0)
    # A line of values at either end would lie half outside of the frame.
    edge = 0.0 if y.names else EDGE * (y.end - y.start)
    plot = Plot(
        x_range=shown,
        y_range=Range1d(start=y.start - edge, end=y.end + edge),
        min_border_bottom=below if labels else theme.TOP_PX,
        **look,
    )
    if not y.names:
        plot.add_layout(_grid(y))
    plot.add_layout(_axis(y), "left")
    plot.add_layout(_x_axis(x, labels=labels, zoom=zoom), "below")
    if zoom:
        chosen = _zoom()
        plot.add_tools(chosen, PanTool(dimensions="width"), ResetTool())
        plot.toolbar.active_drag = chosen
    plot.toolbar.logo = None
    return plot


def _places(axis: Axis) -> list[float]:
    return [float(axis.live(axis.start + tick.at * (axis.end - axis.start))) for tick in axis.ticks]


def _grid(y: Axis) -> Grid:
    # Bokeh leaves out a line at the very end of the range; the drawing has it.
    places = [at * (1 - 1e-9) if at == float(y.live(y.end)) else at for at in _places(y)]
    ticker = FixedTicker(ticks=places)
    return Grid(dimension=1, ticker=ticker, grid_line_color=theme.light()["grid"], level="underlay")


def _axis(axis: Axis, **more: Any) -> LinearAxis:
    places = _places(axis)
    made = LinearAxis(**theme.axis_look(ticker=FixedTicker(ticks=places), **more))
    made.major_label_overrides = Map(
        {place: _plain_text(tick.label) for place, tick in zip(places, axis.ticks, strict=True)}
    )
    if axis.names:
        made.major_tick_line_color = None
    return made


@lru_cache(maxsize=1000)
def _plain_text(text: str) -> PlainText:
    """Text that is never taken for a formula, as a string between $$ would be; Bokeh takes long to make one."""
    return PlainText(text=text)


def _x_axis(x: Axis, *, labels: bool, zoom: bool) -> LinearAxis:
    if not labels:
        return LinearAxis(**theme.axis_look(ticker=FixedTicker(ticks=[])))
    if x.time:
        # A ``DatetimeAxis`` is one with other defaults, which are made though they are replaced.
        look = theme.axis_look(ticker=time_ticker(x), formatter=time_formatter(x))
        return LinearAxis(major_label_policy=NoOverlap(min_distance=12), **look)
    if zoom and not x.names:
        return LinearAxis(major_label_policy=NoOverlap(min_distance=12), **theme.axis_look())
    if x.two_rows and all(len(tick.label.partition("\n")[0]) <= SHORT for tick in x.ticks):
        return _axis(x)  # short names over the long name of their group do not overlap for a reader
    return _axis(x, major_label_policy=NoOverlap(min_distance=4))


def time_ticker(x: Axis) -> CompositeTicker:
    """Ticks at every zoom; over the whole range those of the drawing, where these lie less than two days apart.

    Bokeh takes the distance that comes nearest to the wanted number, among those of ``scales.time_ticks``;
    two days and more it counts from the first of each month.
    """
    wanted = round(1 / (x.ticks[1].at - x.ticks[0].at)) if len(x.ticks) > 1 else 1
    second, hour = 1000, 3_600_000
    parts: dict[str, Any] = {"num_minor_ticks": 0}
    return CompositeTicker(
        desired_num_ticks=wanted,
        num_minor_ticks=0,
        tickers=[
            AdaptiveTicker(mantissas=[1, 2, 5], base=10, min_interval=0, max_interval=second / 2, **parts),
            AdaptiveTicker(
                mantissas=[1, 2, 5, 10, 15, 30], base=60, min_interval=second, max_interval=hour / 2, **parts
            ),
            AdaptiveTicker(
                mantissas=[1, 2, 3, 6, 12], base=24, min_interval=hour, max_interval=12 * hour, **parts
            ),
            DaysTicker(days=list(range(1, 32)), **parts),
            DaysTicker(days=[1, 8, 15, 22], **parts),
            MonthsTicker(months=list(range(12)), **parts),
        ],
    )


def hatched(**edges: Any) -> BoxAnnotation:
    """A hatched stretch of a live plot, of its whole height without ``top`` and ``bottom``: nothing was measured."""
    return BoxAnnotation(**edges, fill_color=None, line_color=None, level="underlay", **theme.hatch_look())


def time_formatter(x: Axis) -> DatetimeTickFormatter:
    """Times of day at every zoom; the caption says that they are UTC, or what they count from."""
    exact, minute = "%H:%M:%S", "%H:%M"
    return DatetimeTickFormatter(
        microseconds="%H:%M:%S.%f",
        milliseconds="%H:%M:%S.%3N",
        seconds=exact,
        minsec=exact,
        minutes=minute,
        hourmin=minute,
        hours=minute,
        days="%m-%d" if dated(int(x.end)) else "day %j",
        months="%Y-%m",
        years="%Y",
    )


def _zoom() -> BoxZoomTool:
    """Drag along the time; what was chosen is tinted."""
    colors = theme.light()
    sides = ("left", "right", "top", "bottom")
    overlay = BoxAnnotation(
        syncable=False,
        level="overlay",
        visible=False,
        **dict.fromkeys(sides, math.nan),
        **{f"{side}_units": "canvas" for side in sides},
        fill_color=colors["used3"],
        fill_alpha=0.4,
        line_color=colors["used"],
        line_alpha=1.0,
        line_width=1,
        line_dash=[],
        handles=BoxInteractionHandles(all=AreaVisuals(fill_color="white", hover_fill_color="lightgray")),
    )
    return BoxZoomTool(dimensions="width", overlay=overlay)


def hover(
    rows: Iterable[tuple[str, str]],
    renderers: Sequence[GlyphRenderer],
    *,
    mode: Literal["mouse", "vline", "hline"] = "mouse",
    **more: Any,
) -> HoverTool:
    """Values next to the pointer: pairs of a name and a field such as ``@mean{0.0}``; see ``theme.tooltip``."""
    if "formatters" in more:
        more["formatters"] = Map(more["formatters"])
    return HoverTool(tooltips=theme.tooltip(rows), renderers=list(renderers), mode=mode, **more)


def quantity(column: str, unit: str, digits: int = 1) -> str:
    """The field of a column in a tooltip, with its unit."""
    places = "." + "0" * digits if digits else ""
    return f"@{column}{{0,0{places}}}{'' if unit.startswith('%') else NBSP}{unit}".rstrip()
