"""How far CPU, GPU and GPU memory are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading

if TYPE_CHECKING:
    from jobreport.document import Report


def batch_size(report: Report) -> Fragment:
    """How far CPU, GPU and GPU memory are used."""
    return Fragment(
        name="batch-size",
        html=render("batch_size", heading=heading("batch-size"), why_none="No GPU was sampled."),
    )
