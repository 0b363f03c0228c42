"""Facts that differ between the variants; results are in other sections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.comparison import words
from jobreport.formats import NBSP
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.kit.table import Table
from jobreport.page.sections.comparison.outline import heading, headings_of, section
from jobrules.text import capitalized, join_names

if TYPE_CHECKING:
    from jobreport.comparison.document import Comparison, Fact


@section
def facts(comparison: Comparison) -> Fragment:
    """Facts that differ as a table; the same and the unknown ones as a sentence."""
    by_kind = {
        kind: [one for one in comparison.differences if one.kind == kind]
        for kind in ("different", "same", "unknown")
    }
    two = len(comparison.labels) == 2
    heads = [
        ":Fact",
        *headings_of(comparison.labels),
        *([f"{comparison.others[0]} to {comparison.base}"] if two else []),
    ]
    rows = [
        [one.label, *(words.plain(value) for value in one.values.values()), *([_ratio(one)] if two else [])]
        for one in by_kind["different"]
    ]
    named = [
        one.label[0].lower() + one.label[1:] if one.label[1:2].islower() else one.label
        for one in by_kind["different"]
    ]
    caption = f"{capitalized(join_names(named))} differ{'s' if len(named) == 1 else ''}."
    if len(named) > 1:
        caption += " The runs alone cannot separate their effects."
    table = (
        Table(label="What differs", heads=heads, rows=rows, caption=caption, style="named") if rows else None
    )
    html = render(
        "comparison/facts",
        heading=heading("facts"),
        table=table,
        same=[f"{one.label}: {words.plain(next(iter(one.values.values())))}" for one in by_kind["same"]],
        unknown=[
            (one.label, one.key, [label for label, value in one.values.items() if value is None])
            for one in by_kind["unknown"]
        ],
    )
    return Fragment(name="facts", html=html)


def _ratio(fact: Fact) -> str:
    """``× 2``, ``÷ 6``; ``–`` for texts."""
    base, other = fact.values.values()
    if not isinstance(base, int | float) or not isinstance(other, int | float) or not base or not other:
        return "–"
    ratio = max(other / base, base / other)
    return f"{'×' if other > base else '÷'}{NBSP}{ratio:.{3 if ratio >= 1.1 else 4}g}"
