"""The sections of the page in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.page.kit.section import sections_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobreport.comparison.document import Comparison
    from jobreport.page.kit.section import Content, Section

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


#: Decorates the sections of a comparison.
section: Callable[[Callable[[Comparison], Content]], Section[Comparison]] = sections_of(SECTIONS)


def headings_of(labels: list[str]) -> list[str]:
    """Heads of columns of values: the first label is the base."""
    return [f"{label}, base" if i == 0 else label for i, label in enumerate(labels)]
