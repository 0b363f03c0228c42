"""A table of the page: heads, and rows of cells as printed."""

from __future__ import annotations

import re
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from jobreport import formats

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What a row is about, by the heads of the columns that name it.
_ABOUT = {"Node": "node", "Rank": "rank", "GPU": "GPU", "Device": "device"}
#: Of as many rows on devices, ranks, or nodes, those that do not differ noticeably are one. A number differs noticeably if it
#: is farther from the median of its column than 5% and than the last digit behind its point; words and marks differ always.
MANY, NOTICEABLE = 9, 0.05
#: Of more rows on devices, ranks, or nodes all are folded.
MAX_OPEN = 16
#: As many rows with equal numbers are folded.
EQUAL = 3
_NUMBER = re.compile(r"([−-]?[\d,]*\.?\d+)(\D*)")


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
    rows: Sequence[Row]
    caption: str = ""
    #: A second sentence of the caption that helps to read the table.
    aid: str = ""
    #: Summary of the fold that closes the table; a closed table has no number.
    fold: str = ""
    #: Classes of the table.
    style: str = ""
    #: Rows are blocks where the screen is narrow: roles and heads are written out.
    as_blocks: bool = False
    #: All rows, below a table of some.
    every: Table | None = None

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
    def shown(self) -> Table:
        """The table as it stands on the page: rows that say the same are one, with all rows in a fold, or are folded."""
        if any(isinstance(row, str) or len(row) < len(self.heads) for row in self.rows):
            return self
        if few := self._with_alike_as_one():
            fold = f"all {len(self.rows)} rows"
            every = replace(self, label=f"{self.label}, {fold}", fold=fold, caption="", aid="")
            return replace(self, rows=few, every=every)
        if self.fold:
            return self
        if self._are_equal():
            about = within_sentence((self.caption or self.label).removesuffix("."))
            return replace(self, fold=f"{len(self.rows)} rows with equal numbers ({about})")
        is_long = self._names and len(self.rows) > MAX_OPEN
        return replace(self, fold=within_sentence(self.label)) if is_long else self

    @property
    def _names(self) -> list[str]:
        """What the first columns name, as ``node`` and ``rank``; empty if rows are not about devices, ranks, or nodes."""
        nouns = [_ABOUT.get(head.lstrip(":")) for head in self.heads]
        return [noun for noun in nouns[: nouns.index(None) if None in nouns else None] if noun]

    def _are_equal(self) -> bool:
        numbers = [i for i, head in enumerate(self.heads) if i and not head.startswith(":")]
        equal = all(len({str(row[i]) for row in self.rows}) == 1 for i in numbers)
        return bool(numbers) and equal and len(self.rows) >= EQUAL

    def _with_alike_as_one(self) -> list[Row]:
        """Rows that stand out, then a row for the others; none if that saves nothing."""
        names = len(self._names)
        if not names or len(self.rows) < MANY:
            return []
        groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for i, row in enumerate(self.rows):
            groups[tuple(map(_kind, row[names:]))].append(i)
        joined = [near for places in groups.values() if len(near := self._near(places, names)) >= MANY]
        alike = {i for near in joined for i in near}
        odd = [row for i, row in enumerate(self.rows) if i not in alike]
        few = [
            *odd,
            *(self._joined([self.rows[i] for i in near], "other " if odd else "") for near in joined),
        ]
        return few if joined and len(few) <= MAX_OPEN else []

    def _near(self, places: Sequence[int], names: int) -> list[int]:
        """Of rows of one kind, those of which all numbers are near the median of their column."""
        near = {*places}
        for column in zip(*(self.rows[i][names:] for i in places), strict=True):
            if found := [number for cell in column if (number := _number(cell))]:
                middle = median(value for value, _ in found)
                near -= {
                    i
                    for i, (value, digit) in zip(places, found, strict=True)
                    if abs(value - middle) > max(NOTICEABLE * abs(middle), 1.001 * digit)
                }
        return sorted(near)

    def _joined(self, rows: Sequence[Row], other: str) -> Row:
        """``62 other ranks``, and of each number the range."""
        *outer, noun = self._names
        columns = [*zip(*rows, strict=True)]
        nodes = [
            column[0] if len({*map(_text, column)}) == 1 else formats.count(len({*map(_text, column)}), name)
            for column, name in zip(columns, outer, strict=False)
        ]
        if all(_text(cell).startswith("rank ") for cell in columns[len(outer)]):
            noun = "rank"
        who = formats.count(len(rows), f"{other}{noun}")
        return [*nodes, who, *map(_range, columns[len(self._names) :])]

    def __bool__(self) -> bool:
        """A table without rows is not shown."""
        return bool(self.rows)


def _text(cell: str | Cell) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def _number(cell: str | Cell) -> tuple[float, float] | None:
    """The number of a cell, and how much its last digit behind the point counts; None for words, times, and bars."""
    found = None if isinstance(cell, Markup) else _NUMBER.fullmatch(_text(cell))
    if found is None:
        return None
    number = found[1].replace(",", "").replace("−", "-")
    digits = len(number.partition(".")[2])
    return float(number), 10.0**-digits if digits else 0.0


def _kind(cell: str | Cell) -> str:
    """What cells of alike rows have in common: marks, and the unit of a number, or the words; a bar has the length of a number."""
    if isinstance(cell, Markup) and "<svg" in cell:
        return "bar"
    kind = _NUMBER.sub(r"number \2", _text(cell)) if _number(cell) else _text(cell)
    return f"{cell.style} {kind}" if isinstance(cell, Cell) else kind


def _range(cells: Sequence[str | Cell]) -> str | Cell:
    """``53.9–54.4``, with the unit once; what is no number is that of the middle row."""
    found = sorted((number[0], i) for i, cell in enumerate(cells) if (number := _number(cell)))
    if not found:
        return cells[len(cells) // 2]
    low, high = (cells[found[at][1]] for at in (0, -1))
    first = _NUMBER.sub(r"\1", _text(low))
    text = _text(low) if _text(low) == _text(high) else f"{first}–{_text(high)}"
    return replace(low, text=text) if isinstance(low, Cell) else text


def within_sentence(title: str) -> str:
    """``steps``, but ``GPU memory`` and ``Python profiles``."""
    word = title.split(maxsplit=1)[0]
    return title if not word[1:].islower() or word in ("Horovod", "Python") else title[0].lower() + title[1:]


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


if TYPE_CHECKING:
    #: Cells; a text alone is a title.
    Row = Sequence[str | Cell]
