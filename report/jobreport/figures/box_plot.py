"""Box plots of devices: p25 to p75 with the median, p95, and whiskers, in groups."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    FixedTicker,
    Grid,
    HoverTool,
    LinearAxis,
    NoOverlap,
    PlainText,
    Plot,
    Quad,
    Range1d,
    Segment,
)
from bokeh.models.annotations.geometry import Span
from msgspec import Struct

from jobreport.figures import theme
from jobreport.formats import escape_name, known
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bokeh.models.renderers.glyph_renderer import GlyphRenderer
    from bokeh.models.renderers.renderer import DataRenderer

    from jobrules.analyses.gpu_utilization import Box

WHOLE, LOOP = "whole job", "training loop"
#: Fill and outline of a box by what it covers.
_COLORS = {WHOLE: ("line", "ink2"), LOOP: ("used2", "used")}
#: Labels that fit next to each other.
_MAX_LABELS = 24
#: Length of names that always fit next to each other.
_SHORT = 3


class Slot(Struct, frozen=True, kw_only=True):
    """A place on the x axis for one device, with its boxes from left to right."""

    #: Name of the node or metric whose slots are next to each other.
    group: str
    device: str
    boxes: tuple[Box, ...]


#: Group of a box, and the name of its slot.
Grouping = Callable[["Box"], tuple[str, str]]


def by_node(box: Box) -> tuple[str, str]:
    """Devices are grouped by node."""
    return box.node, box.device


def slots(boxes: Sequence[Box], grouping: Grouping = by_node) -> tuple[Slot, ...]:
    """One slot per device in the order of the boxes, the whole job before the training loop."""
    by_device: dict[tuple[str, str], list[Box]] = {}
    for box in boxes:
        by_device.setdefault(grouping(box), []).append(box)
    return tuple(
        Slot(group=group, device=device, boxes=tuple(sorted(found, key=lambda b: b.basis != WHOLE)))
        for (group, device), found in by_device.items()
    )


def extent(slot: int, place: int, of: int, slots: int) -> tuple[float, float]:
    """Left and right edge of one of the ``of`` boxes of a slot; slots are 1 wide, and less filled if they are few."""
    width = min(0.64 if of > 1 else 0.5, 0.12 * slots) / of
    left = slot + 0.5 - width * of / 2 + width * place
    margin = width / 10 if of > 1 else 0
    return left + margin, left + width - margin


def borders(places: Sequence[Slot]) -> tuple[int, ...]:
    """Numbers of the slots at which a new group begins."""
    return tuple(i for i in range(1, len(places)) if places[i].group != places[i - 1].group)


def limit_lines(places: Sequence[Slot], limits: Mapping[str, float]) -> tuple[tuple[int, int, float], ...]:
    """(first slot, end, value) of the limit of each group that has one."""
    edges = [0, *borders(places), len(places)]
    return tuple(
        (start, end, limits[places[start].group])
        for start, end in itertools.pairwise(edges)
        if places and places[start].group in limits
    )


def box_plot(
    boxes: Sequence[Box], grouping: Grouping = by_node, limits: Mapping[str, float] | None = None
) -> Plot | None:
    """Boxes from p25 to p75 with the median, whiskers, and p95; None without a box.

    ``limits`` are drawn as lines over their group, by its name.
    """
    places = slots(boxes, grouping)
    if not places:
        return None
    colors = theme.light()
    plot = Plot(
        x_range=Range1d(start=0, end=len(places)),
        y_range=Range1d(start=0, end=100),
        **theme.plot_look(),
        min_border_bottom=theme.BOTTOM_PX + (18 if borders(places) else 0),
    )
    ticks = FixedTicker(ticks=[0, 25, 50, 75, 100])
    plot.add_layout(Grid(dimension=1, ticker=ticks, grid_line_color=colors["grid"], level="underlay"))
    drawn = [_draw(plot, places, basis) for basis in _COLORS]
    for border in borders(places):
        plot.add_layout(Span(location=border, dimension="height", line_color=colors["line"]))
    if lines := limit_lines(places, limits or {}):
        start, end, value = (np.array(column, np.float32) for column in zip(*lines, strict=True))
        look = Segment(
            x0="start",
            x1="end",
            y0="limit",
            y1="limit",
            line_color=colors["ink"],
            line_dash=[5, 3],
            line_width=1.5,
        )
        plot.add_glyph(ColumnDataSource({"start": start, "end": end, "limit": value}), look)
    plot.add_layout(LinearAxis(**theme.axis_look(ticker=ticks)), "left")
    plot.add_layout(_device_axis(places), "below")
    plot.add_tools(_hover([renderer for renderer in drawn if renderer], _known_mean(boxes)))
    return plot


def _known_mean(boxes: Iterable[Box]) -> tuple[str, ...]:
    return ("mean",) if all(box.mean is not None for box in boxes) else ()


def _draw(plot: Plot, places: Sequence[Slot], basis: str) -> GlyphRenderer[Quad] | None:
    """Draw the boxes of one basis; returns the renderer that responds to the pointer."""
    chosen = [
        (box, extent(i, j, len(slot.boxes), len(places)))
        for i, slot in enumerate(places)
        for j, box in enumerate(slot.boxes)
        if box.basis == basis
    ]
    if not chosen:
        return None
    left, right = np.array([edges for _, edges in chosen], dtype=np.float32).T
    quantities = ["lower", "p25", "p50", "p75", "p95", "upper", *_known_mean(box for box, _ in chosen)]
    columns = {q: np.array([getattr(box, q) for box, _ in chosen], dtype=np.float32) for q in quantities}
    source = ColumnDataSource(
        columns
        | {
            "left": left,
            "right": right,
            "middle": (left + right) / 2,
            "mark_left": left + (right - left) / 4,
            "mark_right": right - (right - left) / 4,
            "name": [_name(box) for box, _ in chosen],
            "samples": [known(box.n, 0) for box, _ in chosen],
        }
    )
    colors = theme.light()
    fill, outline = (colors[token] for token in _COLORS[basis])
    whisker = Segment(x0="middle", x1="middle", y0="lower", y1="upper", line_color=outline)
    body = Quad(left="left", right="right", bottom="p25", top="p75", fill_color=fill, line_color=outline)
    median = Segment(x0="left", x1="right", y0="p50", y1="p50", line_color=colors["ink"], line_width=2.5)
    mark = Segment(
        x0="mark_left", x1="mark_right", y0="p95", y1="p95", line_color=colors["ink"], line_width=1.5
    )
    plot.add_glyph(source, whisker)
    drawn = plot.add_glyph(source, body)
    plot.add_glyph(source, median)
    plot.add_glyph(source, mark)
    return drawn


def _name(box: Box) -> str:
    memory = " memory activity" if box.metric == Metric.GPU_MEMORY_ACTIVITY else ""
    return f"{escape_name(box.node, 40)} {escape_name(box.device, 24)}{memory}, {box.basis}"


def labels(places: Sequence[Slot]) -> dict[int, str]:
    """Slot → label: the device, and with several groups, the group's name below its middle device.

    If there are too many devices, only groups are named.
    """
    several = bool(borders(places))
    middle = {}
    edges = [0, *borders(places), len(places)]
    for start, end in itertools.pairwise(edges):
        name = escape_name(places[start].group, 16)
        # A device with the name of its group, such as the CPU, needs no second label.
        if end - start > 1 or places[start].device != places[start].group or len(places) > _MAX_LABELS:
            middle[(start + end - 1) // 2] = name
    if len(places) <= _MAX_LABELS:
        return {
            i: escape_name(slot.device, 12) + ("\n" + middle[i] if several and i in middle else "")
            for i, slot in enumerate(places)
        }
    if several:
        return {i: "\n" + name for i, name in middle.items()}
    step = -(-len(places) // _MAX_LABELS)
    return {i: escape_name(places[i].device, 12) for i in range(0, len(places), step)}


def _device_axis(places: Sequence[Slot]) -> LinearAxis:
    named = labels(places)
    axis = LinearAxis(**theme.axis_look(ticker=FixedTicker(ticks=[i + 0.5 for i in named])))
    # A short name below the long name of its group does not overlap for a reader.
    if any(len(place.device) > _SHORT for place in places):
        axis.major_label_policy = NoOverlap(min_distance=2)
    # Plain text is never rendered as a formula, unlike a string between $$.
    axis.major_label_overrides = {i + 0.5: PlainText(text=text) for i, text in named.items()}
    axis.major_tick_line_color = None
    return axis


def _hover(renderers: list[DataRenderer], mean: tuple[str, ...]) -> HoverTool:
    def value(name: str) -> str:
        return f"@{name}{{0.0}}%"

    return HoverTool(
        renderers=renderers,
        tooltips=theme.tooltip(
            [
                ("Of", "@name"),
                ("p95", value("p95")),
                ("p75", value("p75")),
                ("Median", value("p50")),
                ("p25", value("p25")),
                ("Whiskers", f"{value('lower')} to {value('upper')}"),
                *(("Mean", value(name)) for name in mean),
                ("Samples", "@samples"),
            ]
        ),
    )
