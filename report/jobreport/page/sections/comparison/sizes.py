"""Machines that could run each variant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.page.kit import Empty
from jobreport.page.sections.comparison.outline import section
from jobreport.page.sections.parts.sizes_table import sizes as shown

if TYPE_CHECKING:
    from jobreport.comparison.document import Comparison
    from jobreport.page.kit.section import Content


@section
def sizes(comparison: Comparison) -> Content:
    """For each variant the needs, what it has, and the cheapest machines that come close."""
    currency = comparison.cost.currency if comparison.cost else ""
    blocks = [
        block for label, found in comparison.candidates.items() for block in shown(found, currency, label)
    ]
    return blocks or Empty(
        "A list of machines with GPUs and cores is needed (--prices), and the machine type of each variant "
        "(--set LABEL.instance_type=TYPE)."
    )
