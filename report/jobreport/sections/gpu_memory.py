"""GPU memory over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading

if TYPE_CHECKING:
    from jobreport.document import Report


def gpu_memory(report: Report) -> Fragment:
    """GPU memory over time."""
    return Fragment(
        name="gpu-memory",
        html=render("gpu_memory", heading=heading("gpu-memory"), why_none="GPU memory was not sampled."),
    )
