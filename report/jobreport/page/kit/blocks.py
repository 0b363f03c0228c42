"""The blocks of a section; ``templates/sections/section.html.j2`` has a macro for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from msgspec import Struct

from jobreport.page.kit.fragment import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.page.figures import canvas
    from jobreport.page.kit.table import Table


class Html(Struct, frozen=True):
    """Elements that no other block makes, as they are."""

    markup: Markup

    @classmethod
    def of(cls, template: str, **context: Any) -> Html:
        """From a template of ``templates/sections``."""
        return cls(Markup(render(template, **context)))  # noqa: S704 - escaped by the template


class Sentences(Struct, frozen=True):
    """A list of sentences; of one, a paragraph."""

    lines: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.lines)


class Note(Struct, frozen=True):
    """A small gray paragraph."""

    text: str

    def __bool__(self) -> bool:
        return bool(self.text)


class Drawing(Struct, frozen=True, kw_only=True):
    """A drawing of a figure, static and live."""

    figure: canvas.Figure
    #: What it shows, if the figure has several.
    title: str = ""
    #: Text alternative; without, the title and the finding.
    label: str = ""
    #: Classes of its frame.
    style: str = ""
    key: Sequence[Entry] = ()
    #: Id of its live plot after ``live-``; without, the name of the figure, from the second one on with a number.
    name: str = ""
    #: SVG below the marks.
    cells: Markup = Markup("")


class Figure(Struct, frozen=True, kw_only=True):
    """A caption, and below it the key, drawings, their controls and explanation, and tables of the values."""

    #: Its id after ``fig-``.
    name: str
    #: What it shows, for text alternatives and the fold that it is in.
    title: str
    #: The first sentence of the caption: what there is to see.
    finding: str
    #: A second one that helps to read the figure.
    aid: str = ""
    key: Sequence[Entry] = ()
    drawings: Sequence[Block]
    #: What a reader can zoom into, and which drawings do so together; empty for figures without such an axis.
    zoom: str = ""
    together: str = ""
    #: What else explains the figure, in a fold.
    reading: str = ""
    tables: Sequence[Block] = ()
    #: Counted as a table: a figure of nothing but tables.
    of_tables: bool = False


class Side(Struct, frozen=True, kw_only=True):
    """Blocks side by side as far as there is room."""

    blocks: Sequence[Block]
    #: Class of the element around: ``pairs``, ``blocks``, ``multiples``, ``four``.
    style: str = "pairs"


class Column(Struct, frozen=True, kw_only=True):
    """Blocks below one another, with a title."""

    title: str
    blocks: Sequence[Block]


class Subsection(Struct, frozen=True, kw_only=True):
    """A section in the section."""

    title: str
    blocks: Sequence[Block]

    def __bool__(self) -> bool:
        return any(self.blocks)


class Fold(Struct, frozen=True, kw_only=True):
    """Blocks behind a summary; their tables have no number."""

    summary: str
    blocks: Sequence[Block]
    #: Class of the fold: ``on-paper`` prints its blocks.
    style: str = ""


class Terms(Struct, frozen=True):
    """Terms and what there is to say of each, a text or more; a term without a text is left out."""

    entries: Sequence[tuple[str, Sequence[str]]]

    def __bool__(self) -> bool:
        return any(texts for _, texts in self.entries)


if TYPE_CHECKING:
    #: A paragraph, or any other block. None, an empty text, and a table without rows are not shown.
    Block = (
        str
        | Html
        | Sentences
        | Note
        | Table
        | Figure
        | Drawing
        | Side
        | Column
        | Subsection
        | Fold
        | Terms
        | None
    )
    #: Class of the swatch, words, and the series that the entry hides or shows; or all of an entry.
    Entry = tuple[str, str, str] | Markup
