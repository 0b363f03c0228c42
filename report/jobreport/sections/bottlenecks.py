"""When GPUs idled while cores could not go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading

if TYPE_CHECKING:
    from jobreport.document import Report


def cpu_bottlenecks(report: Report) -> Fragment:
    """Moments in which a GPU idled while a core was full."""
    return _bottlenecks(report, "cpu")


def io_bottlenecks(report: Report) -> Fragment:
    """Moments in which a GPU idled while a core waited for storage."""
    return _bottlenecks(report, "io")


def _bottlenecks(report: Report, key: str) -> Fragment:
    name = f"{key}-bottlenecks"
    return Fragment(
        name=name,
        html=render("bottlenecks", heading=heading(name), why_none="No node has samples of GPU and cores."),
    )
