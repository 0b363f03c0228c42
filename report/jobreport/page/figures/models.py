"""Models of BokehJS as plain objects: their properties are those that were set, every other has BokehJS's default.

Bokeh's own classes check each value when it is set, which takes longer than all else of a page; a test loads what is
written with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class Model:
    """Any model; a property that was not set reads as None."""

    def __init__(self, **properties: Any) -> None:
        vars(self).update(properties)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    if TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            """Any property can be set."""

    def update(self, **properties: Any) -> None:
        """Set some properties."""
        vars(self).update(properties)


class Map(dict[Any, Any]):
    """A property with keys of any type."""


class Glyph(Model):
    """What is drawn for the rows of a source. A text that names a column stands for its values."""

    #: Properties that may have a column; of None all.
    columns: tuple[str, ...] | None = None


class Image(Glyph):
    """Tables of numbers as colors."""

    columns = ("x", "y", "dw", "dh", "image")


class Line(Glyph):
    """A line through points."""

    columns = ("x", "y")


class Quad(Glyph):
    """Rectangles by their sides."""


class Segment(Glyph):
    """Straight lines."""


class Text(Glyph):
    """Words at points."""


class VBar(Glyph):
    """Bars of one width."""


class AdaptiveTicker(Model):
    """Ticks at multiples of round numbers."""


class BoxAnnotation(Model):
    """A rectangle that belongs to no data."""


class BoxZoomTool(Model):
    """Drag to zoom."""


class AreaVisuals(Model):
    """Looks of a handle."""


class BoxInteractionHandles(Model):
    """Handles of a box."""


class ColumnDataSource(Model):
    """A table of columns by name."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data=Map(data))


class CompositeTicker(Model):
    """Several tickers by their distances."""


class DatetimeTickFormatter(Model):
    """Times as text."""


class DaysTicker(Model):
    """Ticks at days of a month."""


class DocumentConfig(Model):
    """Settings of a document."""


class FixedTicker(Model):
    """Ticks at places."""


class GlyphRenderer(Model):
    """A glyph with its source."""


class Grid(Model):
    """Lines of a grid."""


class HoverTool(Model):
    """Values at the pointer."""


class LinearAxis(Model):
    """An axis."""


class LinearColorMapper(Model):
    """Colors of numbers."""


class MonthsTicker(Model):
    """Ticks at months of a year."""


class NoOverlap(Model):
    """Labels that would overlap are left out."""


class PanTool(Model):
    """Drag to move."""


class PlainText(Model):
    """Text that is no formula."""


class Range1d(Model):
    """Two ends."""


class ResetTool(Model):
    """Back to the whole range."""


class Span(Model):
    """A line across the plot."""


class Toolbar(Model):
    """The tools of a plot."""


class Plot(Model):
    """A plot; its parts are added one by one."""

    def __init__(self, **properties: Any) -> None:
        super().__init__(**properties, renderers=[], toolbar=Toolbar(tools=[]))

    def add_glyph(self, source: ColumnDataSource, glyph: Glyph, **properties: Any) -> GlyphRenderer:
        """Draw a glyph for each row of a source."""
        made = GlyphRenderer(data_source=source, glyph=glyph, **properties)
        self.renderers.append(made)
        return made

    def add_layout(self, part: Model, place: str = "center") -> None:
        """Put an axis next to the plot, or another part into it."""
        vars(self).setdefault(place, []).append(part)

    def add_tools(self, *tools: Model) -> None:
        """Add to the tools."""
        self.toolbar.tools.extend(tools)
