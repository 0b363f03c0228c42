"""Cost of the variants, the factors by which they differ, and machines that could run each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.comparison import words
from jobreport.cost.words import money, origin
from jobreport.page.kit import Empty, Note, Table
from jobreport.page.sections.comparison.outline import section
from jobreport.page.sections.parts.sizes_table import NOT_HELD
from jobreport.page.sections.parts.sizes_table import sizes as shown_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobreport.comparison.document import Comparison
    from jobreport.cost.document import Cost
    from jobreport.page.kit.section import Content

_DRAWN = Markup(':<span class="vh">Drawn</span>')


@section
def cost(comparison: Comparison) -> Content:
    """The costs, and a waterfall of the factors as a table."""
    found = comparison.cost
    if found is None:
        return Empty(comparison.no_cost)
    return [
        _costs(found, words.refused_costs(comparison)),
        _factors(found),
        *(_monthly(comparison.base, found, label, saved) for label, saved in found.monthly.items()),
        Note(NOT_HELD),
    ]


def _monthly(base: str, cost: Cost, label: str, saved: float) -> str:
    amount = money(abs(saved), cost.currency)
    effect = f"save {amount}" if saved >= 0 else f"cost {amount} more"
    return f"{cost.runs_per_month:,.6g} runs of {label} instead of {base} {effect}."


def _costs(cost: Cost, refused: Mapping[str, str]) -> Table:
    return Table(
        label="Cost",
        heads=[":Variant", ":Machine", *words.COST_HEADS[2:]],
        rows=words.cost_rows(cost, refused),
        caption=f"{_finding(cost, refused)} {origin(cost)}",
    )


def _finding(cost: Cost, refused: Mapping[str, str]) -> str:
    """The cheapest variant of those that can be compared; otherwise why none can."""
    cheapest = min((row for row in cost.rows if row.label not in refused), key=lambda row: row.cost)
    if len(refused) == len(cost.rows) - 1:
        return f"Which costs less is not known: {next(iter(refused.values()))}."
    if cheapest.label == cost.rows[0].label:
        return f"{cheapest.label} costs least."
    return f"{cheapest.label} costs least, {100 * cost.saving[cheapest.label]:.1f}% less than {cost.rows[0].label}."


def _factors(cost: Cost) -> Table:
    """The cost after each factor, on a log scale: a factor has one length wherever it stands."""
    base = cost.rows[0]
    # Name, factor, and the costs before and after it.
    stages: dict[str, list[tuple[str, str, float, float]]] = {}
    for label, found in cost.factors.items():
        noun = "GPU" if found.of_gpus else "Machine"
        amount = base.cost
        own = stages[label] = [(f"Cost of {base.label}", "–", amount, amount)]
        price = f"Price of a {noun if found.of_gpus else noun.lower()}-hour"
        for name, value in (("Time", found.time), (f"{noun}s", found.count), (price, found.price)):
            own.append((name, f"×{formats.NBSP}{value:.3g}", amount, amount * value))
            amount *= value
    logs = [math.log(after) for own in stages.values() for *_, after in own]
    low, span = min(logs), max(logs) - min(logs) or 1.0

    def place(amount: float) -> float:
        return 100 * (0.04 + (math.log(amount) - low) / span) / 1.08

    rows: list[str | list[str]] = []
    for label, own in stages.items():
        rows += [label] if len(stages) > 1 else []
        rows += [
            [name, factor, money(after, cost.currency), _step(place(before), place(after))]
            for name, factor, before, after in own
        ]
    return Table(
        label="Factors of the cost",
        heads=[":Factor", "Factor", "Cost after it", _DRAWN],
        rows=rows,
        caption="Cost after each factor, on a log scale. Blue lowers the cost, orange raises it.",
        style="waterfall",
    )


def _step(before: float, after: float) -> Markup:
    style = "u" if after < before else "l"
    left, width = min(before, after), abs(after - before)
    return Markup(
        '<svg class="glyph" aria-hidden="true"><rect class="{}" x="{:.2f}%" width="{:.2f}%" y="20%" height="60%"/>'
        '<line class="mark" x1="{:.2f}%" x2="{:.2f}%" y1="0" y2="100%"/></svg>'
    ).format(style, left, width, after, after)


@section
def sizes(comparison: Comparison) -> Content:
    """For each variant the needs, what it has, and the cheapest machines that come close."""
    currency = comparison.cost.currency if comparison.cost else ""
    blocks = [
        block
        for label, found in comparison.candidates.items()
        for block in shown_sizes(found, currency, label)
    ]
    return blocks or Empty(
        "A list of machines with GPUs and cores is needed (--prices), and the machine type of each variant "
        "(--set LABEL.instance_type=TYPE)."
    )
