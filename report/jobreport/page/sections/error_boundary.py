"""A section that raises an exception shows the error in its place."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar

from jobreport.page.sections.fragment import Fragment, render
from jobreport.page.sections.outline import SECTIONS
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: What a page is made from.
_D = TypeVar("_D")


def error_boundary(section: Callable[[_D], Fragment]) -> Callable[[_D], Fragment]:
    """The section, or if it raises, its heading and the error; ``facts`` then has ``failed`` as a sentence."""
    return guarded_by(SECTIONS, section)


def guarded_by(
    sections: Sequence[tuple[str, str]], section: Callable[[_D], Fragment]
) -> Callable[[_D], Fragment]:
    """The same on a page with these anchors and titles."""

    @wraps(section)
    def guarded(document: _D) -> Fragment:
        try:
            return section(document)
        except Exception as error:  # noqa: BLE001 - of any kind
            anchor = section.__name__.replace("_", "-")
            numbered = {name: (number, title) for number, (name, title) in enumerate(sections, start=1)}
            number, title = numbered.get(anchor, (None, anchor.capitalize()))
            why = f"{type(error).__name__}: {escape_name(str(error), 200)}"
            html = render("stopped", anchor=anchor, number=number, title=title, why=why)
            return Fragment(name=section.__name__, html=html, facts={"failed": f"{title} ({why})"})

    return guarded
