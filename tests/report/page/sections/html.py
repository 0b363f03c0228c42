"""What a test wants to know of a page, read with the parser of the standard library."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import nbformat
from nbformat import NotebookNode

from jobreport.page.sections import Fragment

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}
#: Elements whose text stands apart from what follows.
BLOCKS = {"td", "th", "dt", "dd", "p", "li", "h1", "h2", "h3", "figcaption", "strong"}
ADDRESSES = {"src", "href", "action", "data", "poster", "srcset", "xlink:href"}


@dataclass
class Page(HTMLParser):
    """Elements in order, the text outside scripts and styles, and whatever does not nest."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    scripts: list[tuple[dict[str, str | None], str]] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[str] = []

    @classmethod
    def of(cls, html: str) -> Page:
        page = cls()
        page.feed(html)
        page.close()
        page.faults += [f"<{tag}> is never closed" for tag in page._open]
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in BLOCKS:
            self.pieces.append(" ")
        if not self._open or self._open[-1] != tag:
            self.faults.append(f"</{tag}> closes {self._open[-3:]}")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif inside == "style":
            self.styles.append(data)
        else:
            self.pieces.append(data)

    @property
    def text(self) -> str:
        """All text a reader sees, blanks joined."""
        return " ".join("".join(self.pieces).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def ids(self) -> list[str]:
        return [str(a["id"]) for _, a in self.elements if "id" in a]

    @property
    def links(self) -> list[str]:
        return [str(a[name]) for _, a in self.elements for name in ADDRESSES if name in a]


def notebook_of(fragments: Iterable[Fragment]) -> NotebookNode:
    """A notebook that was run, with a cell for each section."""
    v4: Any = nbformat.v4
    shown = ((one, v4.new_output("display_data", data={"text/html": one.html})) for one in fragments)
    found: NotebookNode = v4.new_notebook(
        cells=[v4.new_code_cell(id=one.name, outputs=[output]) for one, output in shown]
    )
    return found


def read(fragment: Fragment) -> Page:
    """What a section's HTML holds."""
    return Page.of(fragment.html)


class Cells(HTMLParser):
    """The texts of the table cells of a page, or of other elements that do not hold their like."""

    def __init__(self, tags: tuple[str, ...]) -> None:
        super().__init__(convert_charrefs=True)
        self.tags = tags
        self.found: list[str] = []
        self._inside = ""

    @classmethod
    def of(cls, html: str, *tags: str) -> list[str]:
        """All texts of ``td``, or of the tags given, blanks joined where they may break."""
        parser = cls(tags or ("td",))
        parser.feed(html)
        parser.close()
        return [" ".join(re.split("[ \n]+", text)).strip() for text in parser.found]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self._inside and tag in self.tags:
            self.found.append("")
            self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found[-1] += data
