"""Boosted trees: importance of features, and depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.kit import Empty, Table
from jobreport.page.kit.table import PERCENT_SCALE, as_code, bar
from jobreport.page.sections.outline import section
from jobrules.text import count, percent

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobreport.page.kit.section import Content


@section
def trees(report: Report) -> Content:
    """Tables of features by their gain, and of trees by their depth."""
    found = (report.learning and report.learning.trees) or None
    if found is None:
        return Empty("No boosted trees were recorded.", absent=True)
    number = sum(n for _, n in found.depths)
    allowed = f", of at most {found.max_depth} that were allowed" if found.max_depth else ""
    first = found.features[0] if found.features else None
    lead = (
        f"Feature of most gain: {formats.escape_name(first[0], 40)} ({percent(100 * first[1])}). "
        if first
        else ""
    )
    deepest = (
        f"Depth of {count(number, 'tree')}: up to {found.depths[-1][0]}{allowed}." if found.depths else ""
    )
    return [
        f"{lead}{deepest}",
        Table(
            label="Features by their gain",
            caption=f"Features by their share of the gain.{formats.not_shown(found.features_left, 'feature')}",
            heads=(":Feature", "Gain (%)", PERCENT_SCALE),
            rows=[
                [as_code(name), formats.number(100 * share), bar(("u", 100 * share))]
                for name, share in found.features
            ],
        )
        if found.features
        else None,
        Table(
            label="Trees by their depth",
            caption=f"Trees by their depth{allowed}.",
            heads=("Depth", "Trees", PERCENT_SCALE),
            rows=[
                [str(depth), formats.number(n, 0), bar(("u", 100 * n / number))] for depth, n in found.depths
            ],
        )
        if found.depths
        else None,
    ]
