"""How data was loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading

if TYPE_CHECKING:
    from jobreport.document import Report


def loading(report: Report) -> Fragment:
    """How data was loaded."""
    return Fragment(
        name="loading",
        html=render("loading", heading=heading("loading"), why_none="Nothing of data loading was recorded."),
    )
