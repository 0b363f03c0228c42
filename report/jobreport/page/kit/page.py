"""A page from its sections, which are numbered as they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.kit.section import Empty

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobreport.page.kit.head import Entry
    from jobreport.page.kit.section import Content, Section

#: Anchor and name of the line on sections without content.
NOTHING = "nothing-to-show"

_D = TypeVar("_D")


def numbered(contents: Sequence[tuple[Section[_D], Content]]) -> tuple[list[Fragment], list[Entry]]:
    """Sections in their order, and their entries in the contents; those without content are one line at the end."""
    shown = [pair for pair in contents if not isinstance(pair[1], Empty)]
    fragments = [one.drawn(content, number) for number, (one, content) in enumerate(shown, start=1)]
    entries = [(one.anchor, number, one.title) for number, (one, _) in enumerate(shown, start=1)]
    empty = [
        (one.anchor, one.title, _within_sentence(one.title), content.reason)
        for one, content in contents
        if isinstance(content, Empty) and not content.absent
    ]
    if empty:
        fragments.append(Fragment(name=NOTHING, html=render("nothing", sections=empty)))
        entries.append((NOTHING, 0, "Nothing to show"))
    return fragments, entries


def page_of(fragments: Iterable[Fragment]) -> dict[str, Fragment]:
    """The fragments by their names; each knows its place, to which the cell of the notebook moves."""
    return {
        one.name: replace(one, facts={**one.facts, "place": str(place)})
        for place, one in enumerate(fragments)
    }


def _within_sentence(title: str) -> str:
    """``steps``, but ``GPU memory`` and ``Python profiles``."""
    word = title.split(maxsplit=1)[0]
    return title if not word[1:].islower() or word == "Python" else title[0].lower() + title[1:]
