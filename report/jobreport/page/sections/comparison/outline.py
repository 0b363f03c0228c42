"""The sections of the page in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.page.sections.error_boundary import guarded_by
from jobreport.page.sections.outline import Heading

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobreport.comparison.document import Comparison
    from jobreport.page.sections.fragment import Fragment

SECTIONS = (
    ("facts", "What differs"),
    ("measures", "Measures"),
    ("cost", "Cost"),
    ("time", "Where the time went"),
    ("steps", "Steps"),
    ("use", "Utilization"),
    ("rules", "Rules"),
    ("sizes", "Right-sizing"),
    ("method", "Method and data quality"),
)


def heading(anchor: str) -> Heading:
    """The heading of the section with an anchor."""
    number, title = next((i, title) for i, (name, title) in enumerate(SECTIONS, start=1) if name == anchor)
    return Heading(anchor=anchor, number=number, title=title)


def section(function: Callable[[Comparison], Fragment]) -> Callable[[Comparison], Fragment]:
    """The section; if it raises, its heading and the error."""
    return guarded_by(SECTIONS, function)


def headings_of(labels: list[str]) -> list[str]:
    """Heads of columns of values: the first label is the base."""
    return [f"{label}, base" if i == 0 else label for i, label in enumerate(labels)]
