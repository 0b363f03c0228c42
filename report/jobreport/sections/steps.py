"""How long steps took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading

if TYPE_CHECKING:
    from jobreport.document import Report


def steps(report: Report) -> Fragment:
    """How long steps took."""
    return Fragment(
        name="steps", html=render("steps", heading=heading("steps"), why_none="No step was recorded.")
    )
