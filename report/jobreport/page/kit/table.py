"""A table of the page: heads, and rows of cells as printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec import Struct

from jobreport import formats

if TYPE_CHECKING:
    from collections.abc import Sequence


#: As many rows with equal numbers are folded.
ALIKE = 3


class Cell(Struct, frozen=True):
    """A cell with classes of its own."""

    text: str
    style: str


class Table(Struct, frozen=True, kw_only=True):
    """The first cell of a row is its head; columns of words stand left, others hold numbers."""

    #: Name of the scrolling region, and the caption where there is no other.
    label: str
    #: A head that begins with ``:`` is one of words, with ``::`` of words that may take several lines.
    heads: Sequence[str]
    #: Cells; a text alone is the title of the rows that follow, a cell alone a title below it.
    rows: Sequence[Sequence[str | Cell]]
    caption: str = ""
    #: A second sentence of the caption that helps to read the table.
    aid: str = ""
    #: Summary of the fold that closes the table; a closed table has no number.
    fold: str = ""
    #: Classes of the table.
    style: str = ""
    #: Rows are blocks where the screen is narrow: roles and heads are written out.
    as_blocks: bool = False

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """Head of each column, and whether it holds words."""
        return [(head.lstrip(":"), head.startswith(":")) for head in self.heads]

    @property
    def body(self) -> list[str | list[tuple[str, str]]]:
        """Cells of each row, each with its classes; titles as they are."""
        styles = ["tl wrap" if head.startswith("::") else "tl" * head.startswith(":") for head in self.heads]
        return [
            row
            if isinstance(row, str)
            else [
                (cell.text, cell.style) if isinstance(cell, Cell) else (cell, style)
                for cell, style in zip(row, styles if len(row) > 1 else [""], strict=True)
            ]
            for row in self.rows
        ]

    @property
    def alike(self) -> int:
        """How many rows say the same, if all do: their numbers are equal; 0 if they are not, or stand under titles."""
        rows = [row for row in self.rows if not isinstance(row, str)]
        if len(rows) < len(self.rows):
            return 0
        numbers = [i for i, head in enumerate(self.heads) if i and not head.startswith(":")]
        if len(rows) < ALIKE or not numbers or any(len(row) < len(self.heads) for row in rows):
            return 0
        return len(rows) if all(len({str(row[i]) for row in rows}) == 1 for i in numbers) else 0

    def __bool__(self) -> bool:
        """A table without rows is not shown."""
        return bool(self.rows)


def node_heads(*heads: str, several: bool) -> list[str]:
    """Heads of a table of devices, with the node if there are several."""
    return [":Node", *heads] if several else [*heads]


def node_cells(node: str, name: str, *, several: bool) -> list[str]:
    """The first cells of a device or rank, with its node if there are several."""
    cells = [formats.escape_name(node, 32)] if several else []
    return [*cells, formats.escape_name(name, 24)]


def device_name(node: str, device: str, *, several: bool) -> str:
    """The name of a device in a sentence, with its node if there are several."""
    name = formats.escape_name(device, 24)
    return f"{formats.escape_name(node, 40)} {name}" if several else name


#: Head of a column of bars.
PERCENT_SCALE = Markup(':<span class="scale"><span>0</span><span>50</span><span>100%</span></span>')


def bar(*parts: tuple[str, float]) -> Markup:
    """Bars of 0 to 100%, one below the other: the class and the length of each."""
    height = 90 / len(parts)
    bars = (
        Markup('<rect class="{}" x="0" width="{}%" y="{:g}%" height="{:g}%"/>').format(
            style, percent, 5 + i * height, height
        )
        for i, (style, percent) in enumerate(parts)
    )
    return Markup('<svg class="glyph" aria-hidden="true">{}</svg>').format(Markup("").join(bars))


def range_bar(low: float, middle: float, high: float) -> Markup:
    """A range on a rail from 0 to 100%, with a mark."""
    return Markup(
        '<svg class="glyph" aria-hidden="true"><line class="rail" x1="0" x2="100%" y1="50%" y2="50%"/>'
        '<rect class="u3" x="{}%" width="{:.1f}%" y="30%" height="40%"/>'
        '<rect class="u" x="{}%" width="3" y="10%" height="80%" transform="translate(-1.5)"/></svg>'
    ).format(round(low, 1), max(0.0, round(high, 1) - round(low, 1)), round(middle, 1))


def swatch(style: str, words: str) -> Markup:
    """Words behind the color that they explain."""
    square = Markup('<rect class="{}" width="10" height="10"/>').format(style)
    return Markup('<svg class="sw" viewBox="0 0 10 10" aria-hidden="true">{}</svg>{}').format(square, words)


def as_code(name: str) -> Markup:
    """A name from data as code."""
    return Markup("<code>{}</code>").format(formats.escape_name(name, 60))
