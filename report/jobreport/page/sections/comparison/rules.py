"""The rules of all variants, those with other results first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.sections.comparison.outline import heading, headings_of, section
from jobreport.page.sections.verdict import SIGNS
from jobrules.model import Status

if TYPE_CHECKING:
    from jobreport.comparison.document import Comparison, Rule, RuleResult


@section
def rules(comparison: Comparison) -> Fragment:
    """A table of the rules that any variant evaluated; the others as a sentence."""
    evaluated = [
        one for one in comparison.rules if any(r.status != Status.NOT_EVALUATED for r in one.results.values())
    ]
    rows = [
        (
            one.name,
            one.title,
            [_cell(one.results.get(label)) for label in comparison.labels],
            _change(comparison, one),
        )
        for one in evaluated
    ]
    changed = sum(one.changed for one in evaluated)
    html = render(
        "comparison/rules",
        heading=heading("rules"),
        heads=headings_of(comparison.labels),
        rows=rows,
        finding=f"{changed} of {formats.count(len(evaluated), 'rule')} changed.",
        silent=len(comparison.rules) - len(evaluated),
    )
    return Fragment(name="rules", html=html)


def _cell(result: RuleResult | None) -> tuple[str, str, str]:
    """Class and word of the status, and the share in violation."""
    if result is None:
        return ("off", "Not run", "")
    signs = {str(status): sign for status, sign in SIGNS.items()}
    share = "" if result.percent is None else formats.percent(result.percent)
    return (*signs[result.status], share)


def _change(comparison: Comparison, rule: Rule) -> Markup:
    if rule.other_thresholds:
        return Markup("judged by other thresholds")
    base = rule.results.get(comparison.base)
    parts = []
    for label in comparison.others:
        result = rule.results.get(label)
        if base and result and base.status != result.status:
            prefix = f"{label}: " if len(comparison.others) > 1 else ""
            parts.append(
                f"{prefix}{'now passes' if result.status == Status.PASSED else f'now {result.status}'}"
            )
    return Markup("{}").format("; ".join(parts) or "–")
