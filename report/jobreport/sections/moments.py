"""Samples above events, at moments worth a close look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading

if TYPE_CHECKING:
    from jobreport.document import Report


def moments(report: Report) -> Fragment:
    """Samples above events, at moments worth a close look."""
    return Fragment(
        name="moments",
        html=render(
            "moments", heading=heading("moments"), why_none="Neither steps nor events were recorded."
        ),
    )
