"""Where Python code spent its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading

if TYPE_CHECKING:
    from jobreport.document import Report


def profiles(report: Report) -> Fragment:
    """Where Python code spent its time."""
    return Fragment(
        name="profiles",
        html=render("profiles", heading=heading("profiles"), why_none="No Python profile was recorded."),
    )
