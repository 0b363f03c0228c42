"""The budgets, broken ones first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport.comparison import words
from jobreport.comparison.budgets import BROKEN, INCONCLUSIVE, MET
from jobreport.page.kit import Fragment, Table
from jobreport.page.kit.marks import status
from jobreport.page.sections.comparison.outline import section
from jobrules.text import capitalized, count

if TYPE_CHECKING:
    from jobreport.comparison.document import Budget, Comparison
    from jobreport.page.kit.section import Content

#: Class of each state; a broken budget of level error is critical.
_SIGNS = {BROKEN: "warn", INCONCLUSIVE: "off", MET: "pass"}


@section
def budgets(comparison: Comparison) -> Content:
    """A row for each limit and variant; empty without budgets."""
    if not comparison.budgets:
        return Fragment(name="budgets", html="")
    states = [one.state for one in comparison.budgets]
    counts = ", ".join(f"{states.count(state)} {state}" for state in _SIGNS if state in states)
    return [
        f"{count(len(states), 'budget')}: {counts}.",
        Table(
            label="Limits and their state",
            heads=[":Budget", ":State", ":Variant", "Value", ":Limit", ":Level"],
            rows=[_row(comparison, one) for one in comparison.budgets],
            style="cmp bud",
        ),
    ]


def _row(comparison: Comparison, one: Budget) -> list[str]:
    name = comparison.measure(one.measure).label if one.value is not None else one.measure
    sign = "crit" if one.state == BROKEN and one.level == "error" else _SIGNS[one.state]
    state = status(sign, capitalized(one.state))
    if one.reason:
        state = Markup('{} <span class="s m">{}</span>').format(state, one.reason)
    return [
        Markup("{} <code>{}</code>").format(name, one.measure),
        state,
        one.label,
        _value(comparison, one),
        _limit(comparison, one),
        one.level,
    ]


def _value(comparison: Comparison, one: Budget) -> str:
    if one.value is None:
        return "–"
    return words.value(one.value, comparison.measure(one.measure).unit, comparison.cost)


def _limit(comparison: Comparison, one: Budget) -> str:
    """The limit as it was given, with the change that it limits."""
    if one.value is None or not one.limit.endswith(("more", "less")):
        return one.limit
    return f"{one.limit} than {comparison.base} ({words.change(comparison.measure(one.measure).against[one.label])})"
