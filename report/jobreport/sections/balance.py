"""How alike the GPUs are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading

if TYPE_CHECKING:
    from jobreport.document import Report


def balance(report: Report) -> Fragment:
    """How alike the GPUs are loaded."""
    return Fragment(
        name="balance", html=render("balance", heading=heading("balance"), why_none="No GPU was sampled.")
    )
