"""The rules of all variants, those with other results first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.page.kit import Empty, Note, Table
from jobreport.page.kit.marks import status
from jobreport.page.sections.comparison.outline import headings_of, section
from jobreport.page.sections.verdict import SIGNS
from jobrules.model import Status

if TYPE_CHECKING:
    from jobreport.comparison.document import Comparison, Rule, RuleResult
    from jobreport.page.kit.section import Content

_SIGNS = {str(result): sign for result, sign in SIGNS.items()}


@section
def rules(comparison: Comparison) -> Content:
    """A table of the rules that any variant evaluated; the others as a sentence."""
    evaluated = [
        one for one in comparison.rules if any(r.status != Status.NOT_EVALUATED for r in one.results.values())
    ]
    if not evaluated:
        return Empty("No rule was evaluated in any run.")
    changed = sum(one.changed for one in evaluated)
    silent = formats.count(len(comparison.rules) - len(evaluated), "more rule")
    return [
        Table(
            label="Rules",
            heads=[":Rule", *(f":{head}" for head in headings_of(comparison.labels)), ":Change"],
            rows=[
                [
                    Markup('<code>{}</code> <span class="m">{}</span>').format(one.name, one.title),
                    *(_cell(one.results.get(label)) for label in comparison.labels),
                    _change(comparison, one),
                ]
                for one in evaluated
            ],
            caption=f"{changed} of {formats.count(len(evaluated), 'rule')} changed.",
            aid="Share of what each rule checked that is in violation.",
            style="named",
        ),
        Note(f"{silent} could be evaluated in no run; the reports say why.")
        if len(evaluated) < len(comparison.rules)
        else None,
    ]


def _cell(result: RuleResult | None) -> Markup:
    """The status, and the share in violation."""
    if result is None:
        return status("off", "Not run")
    sign = status(*_SIGNS[result.status])
    if result.percent is None:
        return sign
    return Markup('{} <span class="m s">{}</span>').format(sign, formats.percent(result.percent))


def _change(comparison: Comparison, rule: Rule) -> str:
    if rule.other_thresholds:
        return "judged by other thresholds"
    base = rule.results.get(comparison.base)
    parts = []
    for label in comparison.others:
        result = rule.results.get(label)
        if base and result and base.status != result.status:
            prefix = f"{label}: " if len(comparison.others) > 1 else ""
            parts.append(
                f"{prefix}{'now passes' if result.status == Status.PASSED else f'now {result.status}'}"
            )
    return "; ".join(parts) or "–"
