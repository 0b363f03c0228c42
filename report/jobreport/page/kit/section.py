"""A section of a page from its blocks: numbers figures and tables, collects live plots, and holds errors."""

from __future__ import annotations

from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Generic, TypeVar

from markupsafe import Markup
from msgspec import Struct, field

from jobreport.page.figures.embed import document_json
from jobreport.page.kit.fragment import Fragment, render
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jobreport.page.figures.models import Plot
    from jobreport.page.kit.blocks import Block, Drawing, Figure

#: What a page is made from.
_D = TypeVar("_D")


class Empty(Struct, frozen=True):
    """The reason for a section without content: a line, which the page joins with those of other sections."""

    reason: str
    #: The page of such a job does not have the section at all.
    absent: bool = False


class Failed(Struct, frozen=True):
    """What stands in the place of a section that failed."""

    error: str
    #: The kind of the exception and its text, if it is the section's own.
    why: str = ""


class Heading(Struct, kw_only=True):
    """A section's place in the page; it counts the section's figures and tables and keeps its live plots."""

    anchor: str
    title: str
    #: 0 for a section without a number.
    number: int = 0
    _figures: int = 0
    _tables: int = 0
    _plots: dict[str, Plot] = field(default_factory=dict)

    @property
    def html(self) -> Markup:
        """The number and the title as an element."""
        number = Markup('<span class="n">{}</span> ').format(self.number) if self.number else ""
        return Markup('<h2 id="{}-h">{}{}</h2>').format(self.anchor, number, self.title)

    def figure(self) -> str:
        """``Figure 5.1.`` for the first figure of section 5."""
        self._figures += 1
        return self._numbered("Figure", self._figures)

    def table(self) -> str:
        """``Table 5.1.``, as figures."""
        self._tables += 1
        return self._numbered("Table", self._tables)

    def _numbered(self, noun: str, n: int) -> str:
        section = f"{self.number}." if self.number else ""
        return f"{noun}\u00a0{section}{n}."

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


class Section(Generic[_D]):
    """A section of a page, from a function that returns its content."""

    def __init__(
        self, function: Callable[[_D], Content], titles: Mapping[str, str], stopped: Callable[[_D, str], str]
    ) -> None:
        self.anchor = function.__name__.replace("_", "-")
        self.title = titles.get(self.anchor, self.anchor.capitalize())
        self._function, self._stopped = function, stopped
        update_wrapper(self, function)

    def __call__(self, document: _D) -> Fragment:
        """The section alone, without a number."""
        return self.drawn(self.content(document))

    def content(self, document: _D) -> Content:
        """What the section says; if that fails, the error."""
        try:
            content = self._function(document)
        except Exception as raised:  # noqa: BLE001 - of any kind
            return _failed(raised)
        if isinstance(content, Empty) and (error := self._stopped(document, self.anchor)):
            return Failed(error)
        return content

    def drawn(self, content: Content, number: int = 0) -> Fragment:
        """The HTML of the content; ``facts`` has ``failed`` as a sentence if the section or its drawing failed."""
        if isinstance(content, Fragment):
            return content
        heading = Heading(anchor=self.anchor, title=self.title, number=number)
        if not isinstance(content, Empty | Failed):
            try:
                return Fragment(name=self.anchor, html=render("section", heading=heading, blocks=content))
            except Exception as raised:  # noqa: BLE001 - of any kind
                content = _failed(raised)
        facts = {}
        if isinstance(content, Failed) and content.why:
            facts["failed"] = f"{self.title} ({content.why})"
        return Fragment(name=self.anchor, html=render("empty", heading=heading, content=content), facts=facts)


def _failed(raised: Exception) -> Failed:
    why = f"{type(raised).__name__}: {escape_name(str(raised), 200)}"
    return Failed(
        f"This section could not be drawn: {why}. Other sections are not affected; its numbers are in report.json.",
        why,
    )


def sections_of(
    outline: Sequence[tuple[str, str]], stopped: Callable[[_D, str], str] = lambda _document, _anchor: ""
) -> Callable[[Callable[[_D], Content]], Section[_D]]:
    """The decorator of the sections of a page with these anchors and titles.

    The name of the function is the anchor. ``stopped`` returns the error of the analysis of an empty section; empty if
    it did not fail.
    """
    return partial(Section, titles=dict(outline), stopped=stopped)


if TYPE_CHECKING:
    #: What a section returns; a fragment is ready.
    Content = Sequence[Block] | Empty | Failed | Fragment
