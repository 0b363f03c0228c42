"""A page from its sections, which are numbered as they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from jobreport.page.kit.blocks import Column, Figure, Fold, Side, Subsection
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.kit.section import Empty, Failed
from jobreport.page.kit.table import Table, within_sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobreport.page.kit.blocks import Block
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
        (one.anchor, one.title, within_sentence(one.title), content.reason)
        for one, content in contents
        if isinstance(content, Empty) and not content.absent
    ]
    if empty:
        fragments.append(Fragment(name=NOTHING, html=render("nothing", sections=empty)))
        entries.append((NOTHING, 0, "Sections without data"))
    return fragments, entries


def page_of(fragments: Iterable[Fragment]) -> dict[str, Fragment]:
    """The fragments by their names; each knows its place, to which the cell of the notebook moves."""
    return {
        one.name: replace(one, facts={**one.facts, "place": str(place)})
        for place, one in enumerate(fragments)
    }


def folded(content: Content, *, quiet: bool = False) -> Content:
    """A section up to its first figure or table, if ``quiet`` without that; what follows is behind a fold that names it."""
    if isinstance(content, Empty | Failed | Fragment):
        return content
    first = next((i for i, block in enumerate(content) if _is_shown(block)), len(content))
    head, rest = [*content[:first]], [*content[first:]]
    if rest and not quiet:
        head.append(_without_tables(rest.pop(0)))
    elif rest and isinstance(rest[0], Figure) and not any(head):
        head = [rest[0].finding]
    if not any(map(_is_shown, rest)):
        return [*head, *rest]
    return [*head, Fold(summary=f"More: {_named(rest)}", blocks=rest)]


def _without_tables(block: Block) -> Block:
    """A figure with its tables in folds."""
    if not isinstance(block, Figure) or block.of_tables:
        return block
    tables = [
        replace(one, fold=within_sentence(one.label), caption="", aid="")
        if isinstance(one, Table) and not one.fold
        else one
        for one in block.tables
    ]
    return replace(block, tables=tables)


def _is_shown(block: Block) -> bool:
    """True for figures, tables, and what holds them."""
    return isinstance(block, Figure | Side | Subsection | Table) and bool(block)


def _named(blocks: Sequence[Block]) -> str:
    """``steps by duration; slow steps``: what figures, tables, and parts of a section show."""
    names = [
        name
        for one in blocks
        if one
        for name in (
            [_named(one.blocks)]
            if isinstance(one, Column | Side)
            else [within_sentence(one.title)]
            if isinstance(one, Figure | Subsection)
            else [within_sentence(one.label)]
            if isinstance(one, Table)
            else []
        )
    ]
    # A table of what a figure shows needs no name of its own.
    return "; ".join(
        name for i, name in enumerate(names) if not any(name.startswith(one) for one in names[:i])
    )
