"""The head of a page and its contents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.page.kit.fragment import Fragment, render

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


def page_head(
    title: str, about: str, facts: Sequence[tuple[str, str]], *, tab: str, notes: Sequence[str] = ()
) -> Fragment:
    """What the page is about; ``tab`` is the title of the browser's tab."""
    html = render("head", title=title, about=about, facts=facts, notes=notes)
    return Fragment(name="head", html=html, facts={"title": tab})


def page_contents(
    first: Sequence[tuple[str, str]],
    outline: Sequence[tuple[str, str]],
    notes: Mapping[str, str],
    absent: Collection[str] = (),
) -> Fragment:
    """Links to sections: those without a number first, then those of the outline that are not absent."""
    entries = [(anchor, 0, title) for anchor, title in first]
    entries += [
        (anchor, number, title)
        for number, (anchor, title) in enumerate(outline, start=1)
        if anchor not in absent
    ]
    return Fragment(name="contents", html=render("contents", entries=entries, notes=notes))
