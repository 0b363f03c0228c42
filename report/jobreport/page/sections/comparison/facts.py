"""Facts that differ between the variants; results are in other sections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport.comparison import words
from jobreport.formats import NBSP
from jobreport.page.kit import Side, Table, Terms
from jobreport.page.kit.marks import unbroken
from jobreport.page.sections.comparison.outline import headings_of, section
from jobrules.text import join_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.comparison.document import Comparison, Fact
    from jobreport.page.kit.section import Content


@section
def facts(comparison: Comparison) -> Content:
    """Facts that differ as a table; the same and the unknown ones as a sentence."""
    different, same, unknown = (
        [one for one in comparison.differences if one.kind == kind]
        for kind in ("different", "same", "unknown")
    )
    named_same = "; ".join(f"{one.label}: {words.plain(next(iter(one.values.values())))}" for one in same)
    return [
        Side(
            blocks=[
                _table(comparison, different) if different else "No recorded fact differs.",
                Terms(
                    [
                        ("The same", [f"{named_same}."] if same else []),
                        ("Not known", [_to_add(one) for one in unknown]),
                    ]
                ),
            ],
            style="side",
        )
    ]


def _table(comparison: Comparison, different: Sequence[Fact]) -> Table:
    """Values of each variant, of two with the ratio."""
    two = len(comparison.labels) == 2
    names = [
        one.label[0].lower() + one.label[1:] if one.label[1:2].islower() else one.label for one in different
    ]
    caption = f"Different: {join_names(names)}."
    if len(names) > 1:
        caption += " The runs alone cannot separate their effects."
    ratio = [f"{comparison.others[0]} to {comparison.base}"] if two else []
    return Table(
        label="What differs",
        heads=[":Fact", *headings_of(comparison.labels), *ratio],
        rows=[
            [one.label, *map(words.plain, one.values.values()), *([_ratio(one)] if two else [])]
            for one in different
        ],
        caption=caption,
        style="named",
    )


def _to_add(fact: Fact) -> Markup:
    """The option that gives the value of a fact."""
    labels = [label for label, value in fact.values.items() if value is None]
    option = unbroken(f"--set {labels[0]}.{fact.key}=VALUE")
    return Markup("{} of {}: add it with <code>{}</code>.").format(fact.label, join_names(labels), option)


def _ratio(fact: Fact) -> str:
    """``× 2``, ``÷ 6``; ``–`` for texts."""
    base, other = fact.values.values()
    if not isinstance(base, int | float) or not isinstance(other, int | float) or not base or not other:
        return "–"
    ratio = max(other / base, base / other)
    return f"{'×' if other > base else '÷'}{NBSP}{ratio:.{3 if ratio >= 1.1 else 4}g}"
