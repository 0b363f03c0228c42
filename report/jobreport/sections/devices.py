"""Every GPU and core over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading

if TYPE_CHECKING:
    from jobreport.document import Report


def devices(report: Report) -> Fragment:
    """Every GPU and core over time."""
    return Fragment(
        name="devices",
        html=render("devices", heading=heading("devices"), why_none="No use was sampled."),
    )
