"""The head of a page and its contents."""

from __future__ import annotations

from textwrap import shorten
from typing import TYPE_CHECKING

from jobreport.page.kit.fragment import Fragment, render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Characters of the title of a browser's tab.
MAX_TAB = 120


def page_head(
    title: str, about: str, facts: Sequence[tuple[str, str]], *, tab: str, notes: Sequence[str] = ()
) -> Fragment:
    """What the page is about; ``tab`` is the title of the browser's tab."""
    html = render("head", title=title, about=about, facts=facts, notes=notes)
    return Fragment(name="head", html=html, facts={"title": shorten(tab, MAX_TAB, placeholder="…")})


def page_contents(entries: Sequence[Entry], notes: Mapping[str, str]) -> Fragment:
    """Links to sections, with a note behind some of them."""
    return Fragment(name="contents", html=render("contents", entries=entries, notes=notes))


if TYPE_CHECKING:
    #: Anchor, number, and title; the number is 0 if there is none.
    Entry = tuple[str, int, str]
