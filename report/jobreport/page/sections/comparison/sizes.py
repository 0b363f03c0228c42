"""Which machines could run each variant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.sections.comparison.outline import heading, section
from jobreport.page.sections.parts.sizes_table import sizes as shown

if TYPE_CHECKING:
    from jobreport.comparison.document import Comparison


@section
def sizes(comparison: Comparison) -> Fragment:
    """For each variant the needs, what it has, and the cheapest machines that come close."""
    currency = comparison.cost.currency if comparison.cost else ""
    variants = [shown(found, currency, label) for label, found in comparison.candidates.items()]
    html = render("comparison/sizes", heading=heading("sizes"), variants=variants)
    return Fragment(name="sizes", html=html)
