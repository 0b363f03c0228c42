"""The budgets, broken ones first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.comparison import words
from jobreport.comparison.budgets import BROKEN, INCONCLUSIVE, MET
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.sections.comparison.outline import section
from jobrules.text import capitalized, count

if TYPE_CHECKING:
    from jobreport.comparison.document import Budget, Comparison

#: Class of each state; a broken budget of level error is critical.
_SIGNS = {BROKEN: "warn", INCONCLUSIVE: "off", MET: "pass"}


@section
def budgets(comparison: Comparison) -> Fragment:
    """A row for each limit and variant; empty without budgets."""
    rows = [
        {
            "name": comparison.measure(one.measure).label if one.value is not None else one.measure,
            "key": one.measure,
            "limit": _limit(comparison, one),
            "label": one.label,
            "value": _value(comparison, one),
            "sign": "crit" if one.state == BROKEN and one.level == "error" else _SIGNS[one.state],
            "state": capitalized(one.state),
            "reason": one.reason,
            "level": one.level,
        }
        for one in comparison.budgets
    ]
    counts = {state: sum(one.state == state for one in comparison.budgets) for state in _SIGNS}
    lead = ", ".join(f"{n} {state}" for state, n in counts.items() if n)
    html = (
        render("comparison/budgets", rows=rows, lead=f"{count(len(rows), 'budget')}: {lead}.") if rows else ""
    )
    return Fragment(name="budgets", html=html)


def _value(comparison: Comparison, one: Budget) -> str:
    if one.value is None:
        return "–"
    return words.value(one.value, comparison.measure(one.measure).unit, comparison.cost)


def _limit(comparison: Comparison, one: Budget) -> str:
    """The limit as it was given, with the change that it limits."""
    if one.value is None or not one.limit.endswith(("more", "less")):
        return one.limit
    return f"{one.limit} than {comparison.base} ({words.change(comparison.measure(one.measure).against[one.label])})"
