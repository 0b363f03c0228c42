"""How the comparison was made, and how far it can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.comparison.document import LOST_DATA, NO_COST
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.sections.comparison.outline import heading, section

if TYPE_CHECKING:
    from jobreport.comparison.document import Comparison


@section
def method(comparison: Comparison) -> Fragment:
    """The notes of the comparison, the formulas in words, and the command."""
    html = render(
        "comparison/method",
        heading=heading("method"),
        notes=[note for note in comparison.notes if note.kind not in (NO_COST, LOST_DATA)],
        command=comparison.command,
        repeats=" ".join(f"{label}=RUN{i}" for label in comparison.labels[:2] for i in (1, 2, 3)),
    )
    return Fragment(name="method", html=html)
