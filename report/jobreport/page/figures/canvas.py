"""A figure that is drawn once: every mark goes into the static drawing and into the live plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobreport.page.figures import chart, theme
from jobreport.page.figures.chart import Area, Axis, Drawing, Label, Mark, Rule
from jobreport.page.figures.models import ColumnDataSource, Line, Plot, Quad, Segment, Span, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    from jobreport.page.figures.models import Glyph, GlyphRenderer

    #: Left, right, bottom, and top of rectangles: arrays of one length, or numbers.
    Sides = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]

#: Class of ``drawing.css`` → token of the fill.
FILLS = {
    "u": "used",
    "u2": "used2",
    "u3": "used3",
    "u4": "used4",
    "l": "lost",
    **{f"l{i}": f"lost{i}" for i in range(2, 12)},
    "f2": "rest2",
    "f3": "rest3",
    "n1": "line",
    "n2": "ink2",
    "band": "used3",
    "band2": "line",
    "box-whole": "line",
    "box-loop": "used2",
    **{f"h{i}": f"h{i}" for i in range(10)},
}
#: Class → token, dash, and width of a line.
STROKES: dict[str, tuple[str, Any, float]] = {
    **{token: (token, dash, 1.5) for token, dash in theme.SERIES},
    "s0": ("ink2", [5, 3], 1.5),
    "line": ("used", "solid", 1.5),
    "all": ("ink2", "solid", 1.5),
    "dots": ("ink2", [2, 3], 1),
    "limit": ("ink", [5, 3], 1.5),
    "mark": ("ink", "solid", 2),
    "axis": ("ink2", "solid", 1),
    "rail": ("line", "solid", 1),
    "box-whole": ("ink2", "solid", 1),
    "box-loop": ("used", "solid", 1),
    "median": ("ink", "solid", 2.5),
    "tick95": ("ink", "solid", 1.5),
}
#: Dashes by their names.
DASHES = {"solid": [], "dashed": [6], "dotted": [2, 4], "dotdash": [2, 4, 6, 4]}
#: Class of what was not measured, which is hatched.
UNKNOWN = "x"
_EM_PX = 12
#: Distance of the middle of a line of text from its base, in em.
_MIDDLE_EM = 0.32
_ALIGN: dict[str, Any] = {"start": "left", "middle": "center", "end": "right"}


class Figure(Struct, frozen=True, kw_only=True):
    """A static drawing and its live plot."""

    drawing: Drawing
    live: Plot


def stroke(style: str) -> dict[str, Any]:
    """Properties of a live line that looks like a class of ``drawing.css``."""
    token, name, width = STROKES[style]
    dash = DASHES[name] if isinstance(name, str) else name
    return {"line_color": theme.light()[token], "line_dash": dash, "line_width": width}


class Canvas:
    """Two axes and what is drawn between them; options as those of ``chart.live_plot``."""

    def __init__(self, x: Axis, y: Axis, *, labels: bool = True, **options: Any) -> None:
        self.x, self.y = x, y
        self.live = chart.live_plot(x, y, labels=labels, **options)
        self._labels = labels
        self._marks: list[Mark] = []

    @property
    def figure(self) -> Figure:
        """What was drawn so far."""
        drawing = Drawing(x=self.x, y=self.y, marks=tuple(self._marks), labels=self._labels)
        return Figure(drawing=drawing, live=self.live)

    def bars(
        self,
        style: str,
        sides: Sides,
        columns: Mapping[str, Any] | None = None,
        *,
        series: str = "",
        apart: bool = False,
    ) -> GlyphRenderer:
        """Rectangles; ``columns`` are for the tooltip, and ``apart`` parts neighbors by a line of paper.

        Without a style, nothing is drawn, but the live plot answers to the pointer.
        """
        look: dict[str, Any] = {"fill_color": None, "line_color": None}
        if style == UNKNOWN:
            self._marks += self._areas(sides)
            look |= theme.hatch_look()
        elif style:
            name = f"{style} stroke" if apart else style
            self._marks.append(chart.bars(name, self.x, self.y, sides, series=series))
            look["fill_color"] = theme.light()[FILLS[style]]
            outline = "paper" if apart else STROKES[style][0] if style in STROKES else ""
            look["line_color"] = theme.light()[outline] if outline else None
        data: dict[str, Any] = dict(columns or {})
        for name, side in zip(("left", "right", "bottom", "top"), sides, strict=True):
            places = (self.x if name in ("left", "right") else self.y).live(side)
            if places.ndim:
                data[name] = places
            look[name] = name if places.ndim else float(places)
        return self._add(data, Quad(**look), series)

    def line(
        self,
        style: str,
        places: npt.ArrayLike,
        values: npt.ArrayLike,
        columns: Mapping[str, Any] | None = None,
        *,
        series: str = "",
    ) -> GlyphRenderer:
        """A line through points, broken at NaN; ``columns`` are for the tooltip."""
        self._marks.append(chart.line(style, self.x, self.y, places, values, series=series))
        data = {"x": self.x.live(places), "y": np.asarray(values, np.float32), **(columns or {})}
        return self._add(data, Line(x="x", y="y", **stroke(style)), series)

    def zoomed_line(
        self, style: str, still: tuple[npt.ArrayLike, npt.ArrayLike], source: ColumnDataSource, field: str
    ) -> GlyphRenderer:
        """A line through a column of many points, which share their places ``x``; through fewer of them without zoom."""
        self._marks.append(chart.line(style, self.x, self.y, *still))
        return self.live.add_glyph(source, Line(x="x", y=field, **stroke(style)))

    def outline(
        self, style: str, edges: npt.ArrayLike, values: npt.ArrayLike, *, series: str = ""
    ) -> GlyphRenderer:
        """The outline of a histogram from its n + 1 edges and n values."""
        heights = np.concatenate(([0], np.repeat(np.asarray(values, np.float64), 2), [0]))
        return self.line(style, np.repeat(np.asarray(edges, np.float64), 2), heights, series=series)

    def upright(self, style: str, places: Iterable[float]) -> None:
        """Lines from the bottom to the top of the plot."""
        for place in places:
            at = float(self.x.place(place))
            self._marks.append(Rule(style=style, x1=at, x2=at, y1=0, y2=100))
            span = Span(location=float(self.x.live(place)), dimension="height", **stroke(style))
            self.live.add_layout(span)

    def level(self, style: str, height: float) -> None:
        """A line across the plot."""
        at = 100 - float(self.y.place(height))
        self._marks.append(Rule(style=style, x1=0, x2=100, y1=at, y2=at))
        self.live.add_layout(Span(location=height, dimension="width", **stroke(style)))

    def text(
        self,
        words: Sequence[tuple[float, float, str]],
        *,
        anchor: str = "middle",
        dx: float = 0.0,
        dy: float = _MIDDLE_EM,
        style: str = "strong",
        series: str = "",
    ) -> None:
        """Words at places, moved by ``dx`` and ``dy`` in em from where their base would begin."""
        if not words:
            return
        for x, y, text in words:
            at, height = float(self.x.place(x)), 100 - float(self.y.place(y))
            mark = Label(text=text, x=at, y=height, anchor=anchor, dx=dx, dy=dy, style=style)
            self._marks.append(mark)
        xs, ys, texts = zip(*words, strict=True)
        color = "paper" if style == "inside" else "ink" if style else "ink2"
        glyph = Text(
            x="x",
            y="y",
            text="text",
            x_offset=round(dx * _EM_PX),
            y_offset=round((dy - _MIDDLE_EM) * _EM_PX),
            text_align=_ALIGN[anchor],
            text_baseline="middle",
            text_color=theme.light()[color],
            text_font=theme.font(),
            text_font_size=theme.FONT_SIZE,
        )
        self._add({"x": self.x.live(xs), "y": list(ys), "text": list(texts)}, glyph, series)

    def segments(self, style: str, ends: Sides) -> None:
        """Straight lines; ``ends`` are the two places along x and the two heights of each."""
        x1, x2, y1, y2 = np.broadcast_arrays(*(np.asarray(end, np.float64) for end in ends))
        places = (self.x.place(x1), self.x.place(x2), 100 - self.y.place(y1), 100 - self.y.place(y2))
        self._marks += [
            Rule(style=style, x1=a, x2=b, y1=c, y2=d)
            for a, b, c, d in zip(*(np.ravel(side).tolist() for side in places), strict=True)
        ]
        data = {"x0": self.x.live(x1), "x1": self.x.live(x2), "y0": self.y.live(y1), "y1": self.y.live(y2)}
        packed = {name: np.ravel(side).astype(np.float32) for name, side in data.items()}
        self._add(packed, Segment(x0="x0", x1="x1", y0="y0", y1="y1", **stroke(style)), "")

    def hatch(self, stretches: Iterable[tuple[float, float]]) -> None:
        """Stretches along x in which nothing was measured, over the whole height."""
        inside = [(a, b) for a, b in stretches if b > self.x.start and a < self.x.end]
        if inside:
            left, right = np.clip(np.array(inside, np.float64).T, self.x.start, self.x.end)
            self.bars(UNKNOWN, (left, right, self.y.start, self.y.end)).level = "underlay"

    def tooltip(self, rows: Iterable[tuple[str, str]], drawn: Sequence[Any], **options: Any) -> None:
        """Values next to the pointer on what was drawn; see ``chart.hover``."""
        self.live.add_tools(chart.hover(rows, drawn, **options))

    def tooltip_over_time(
        self, rows: Iterable[tuple[str, str]], drawn: Sequence[Any], field: str, **options: Any
    ) -> None:
        """The same for all that stands at one time."""
        self.tooltip(rows, drawn, mode="vline", formatters={field: "datetime"}, **options)

    def _areas(self, sides: Sides) -> list[Area]:
        """Rectangles whose hatch is not stretched with the drawing."""
        left, right, bottom, top = np.broadcast_arrays(
            *(axis.place(side) for axis, side in zip((self.x, self.x, self.y, self.y), sides, strict=True))
        )
        return [
            Area(style=UNKNOWN, x=a, y=100 - d, width=b - a, height=d - c)
            for a, b, c, d in zip(
                *(side.ravel().tolist() for side in (left, right, bottom, top)), strict=True
            )
            if b > a and d > c
        ]

    def _add(self, data: Mapping[str, Any], glyph: Glyph, series: str) -> GlyphRenderer:
        named = {"name": series} if series else {}
        return self.live.add_glyph(ColumnDataSource(dict(data)), glyph, **named)
