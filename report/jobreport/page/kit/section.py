"""A section of a page from its blocks: numbers figures and tables, collects live plots, and holds errors."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar

from markupsafe import Markup
from msgspec import Struct, field

from jobreport.page.figures.embed import document_json
from jobreport.page.kit.fragment import Fragment, render
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jobreport.page.figures.models import Plot
    from jobreport.page.kit.blocks import Block, Drawing, Figure

#: What a page is made from.
_D = TypeVar("_D")


class Empty(Struct, frozen=True):
    """The reason for a section without content: a line, which the page joins with those of other sections."""

    reason: str
    #: The page of such a job does not have the section at all.
    absent: bool = False


class Heading(Struct, kw_only=True):
    """A section's place in the page; it counts the section's figures and tables and keeps its live plots."""

    anchor: str
    title: str
    #: 0 for a section without a number.
    number: int = 0
    _figures: int = 0
    _tables: int = 0
    _plots: dict[str, Plot] = field(default_factory=dict)

    @classmethod
    def of(cls, anchor: str, outline: Sequence[tuple[str, str]]) -> Heading:
        """The heading of the section with an anchor on a page with these anchors and titles."""
        for number, (name, title) in enumerate(outline, start=1):
            if name == anchor:
                return cls(anchor=anchor, number=number, title=title)
        return cls(anchor=anchor, title=anchor.capitalize())

    @property
    def html(self) -> Markup:
        """The number and the title as an element."""
        number = Markup('<span class="n">{}</span> ').format(self.number) if self.number else ""
        return Markup('<h2 id="{}-h">{}{}</h2>').format(self.anchor, number, self.title)

    def figure(self) -> str:
        """``Figure 5.1.`` for the first figure of section 5."""
        self._figures += 1
        return f"Figure\u00a0{self.number}.{self._figures}."

    def table(self) -> str:
        """``Table 5.1.``, as figures."""
        self._tables += 1
        return f"Table\u00a0{self.number}.{self._tables}."

    def live(self, drawing: Drawing, figure: Figure) -> str:
        """The id of the element for the live plot of a drawing, which is kept."""
        name = f"live-{drawing.name or figure.name}"
        element = f"{name}-{len(self._plots)}" if name in self._plots else name
        self._plots[element] = drawing.figure.live
        return element

    @property
    def plots(self) -> Markup:
        """All live plots as JSON for a script; empty if there are none."""
        return Markup(document_json(self.anchor, self._plots) if self._plots else "")  # noqa: S704 - escaped there


def sections_of(
    outline: Sequence[tuple[str, str]], stopped: Callable[[_D, str], str] = lambda _document, _anchor: ""
) -> Callable[[Callable[[_D], Content]], Callable[[_D], Fragment]]:
    """The decorator of the sections of a page with these anchors and titles.

    It makes the HTML from the blocks that a function of the anchor's name returns. If the function raises, the
    section is its heading and the error, and ``facts`` has ``failed`` as a sentence. ``stopped`` returns the error
    of the analysis of an empty section; empty if it did not fail.
    """

    def section(function: Callable[[_D], Content]) -> Callable[[_D], Fragment]:
        anchor = function.__name__.replace("_", "-")

        @wraps(function)
        def drawn(document: _D) -> Fragment:
            heading = Heading.of(anchor, outline)
            facts = {}
            try:
                content = function(document)
                if isinstance(content, Fragment):
                    return content
                if isinstance(content, Empty):
                    error = stopped(document, anchor)
                    html = render("empty", heading=heading, empty=content, error=error)
                else:
                    html = render("section", heading=heading, blocks=content)
            except Exception as raised:  # noqa: BLE001 - of any kind
                why = f"{type(raised).__name__}: {escape_name(str(raised), 200)}"
                error = (
                    f"This section could not be drawn: {why}. Other sections are not affected; its numbers are in "
                    "report.json."
                )
                html = render("empty", heading=heading, empty=Empty(""), error=error)
                facts = {"failed": f"{heading.title} ({why})"}
            return Fragment(name=anchor, html=html, facts=facts)

        return drawn

    return section


if TYPE_CHECKING:
    #: What a section returns; a fragment is ready.
    Content = Sequence[Block] | Empty | Fragment
