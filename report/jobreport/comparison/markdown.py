"""``comparison.md`` for the text field of a ticket, and the verdict for a terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from jobreport.comparison import words
from jobreport.comparison.budgets import BROKEN, INCONCLUSIVE
from jobreport.comparison.document import JUDGED, NO_COST
from jobreport.comparison.measures import LOSS
from jobreport.cost.words import origin
from jobreport.markdown import MAX_CHARACTERS, document, escape, table
from jobrules.text import between, capitalized, count, escape_name, join_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.comparison.document import Comparison, Measure


def markdown(comparison: Comparison) -> str:
    """The verdict, budgets, and every measure that was judged; untested ones are in the page."""
    learned = "" if comparison.compares(LOSS) else " How well the model learned is not compared."
    labels = " against ".join((", ".join(comparison.others), comparison.base))
    blocks = [
        f"# {escape(labels)}: comparison of runs",
        *(f"**{escape(line)}**" for line in [*_of_state(comparison, BROKEN), comparison.answer]),
        *([escape(comparison.verdict)] if comparison.verdict != comparison.answer else []),
        escape(comparison.next),
        escape(f"What is left to win in {comparison.left}" if comparison.left else ""),
        _runs(comparison),
        _budgets(comparison),
        _measures(comparison),
        _cost(comparison),
        "\n".join(f"- {escape(note.text)}" for note in comparison.notes if note.kind != NO_COST),
        f"Full comparison: comparison.html.{learned}",
    ]
    kept: list[str] = []
    for block in filter(None, blocks):
        if sum(map(len, kept)) + len(block) < MAX_CHARACTERS:
            kept.append(block)
    return document(kept)


def _of_state(comparison: Comparison, state: str) -> list[str]:
    """A sentence on the budgets of a state, if there are any."""
    found = [one for one in comparison.budgets if one.state == state]
    named = join_names(
        [f"{one.measure} of {one.label}{f' ({one.reason})' if one.reason else ''}" for one in found]
    )
    how_many = capitalized(count(len(found), "budget is", "budgets are"))
    return [f"{how_many} {state}: {named}."] if found else []


def _runs(comparison: Comparison) -> str:
    rows = [
        # A trace whose clock counts from the start of the machine has no date.
        [
            variant.label,
            escape_name(run.name),
            between(run.start_us, run.end_us) if run.end_us else "not known",
        ]
        for variant in comparison.variants
        for run in variant.runs
    ]
    return table(["Variant", "Run", "Time"], rows)


def _budgets(comparison: Comparison) -> str:
    by_key = {one.key: one for one in comparison.measures}
    rows = []
    for one in comparison.budgets:
        measure = by_key.get(one.measure)
        found = words.value(one.value, measure.unit, comparison.cost) if measure else "–"
        state = f"{one.state} ({one.reason})" if one.reason else one.state
        rows.append(
            [measure.label if measure else one.measure, one.limit, one.label, found, state, one.level]
        )
    return table(["Budget", "Limit", "Variant", "Value", "State", "Level"], rows)


def _measures(comparison: Comparison) -> str:
    shown = [one for one in comparison.measures if any(c.word in JUDGED for c in one.against.values())]
    rows = [
        [one.label, *cells, words.outcome(one, change)]
        for one in shown
        for cells, change in zip(words.compared(one, comparison.cost), one.against.values(), strict=True)
    ]
    heads = ["Measure", "Variant", comparison.base, "Value", "Change", "95% interval", "Result"]
    return "\n\n".join(filter(None, (table(heads, rows), escape(_left_out(comparison, shown)))))


def _left_out(comparison: Comparison, shown: Sequence[Measure]) -> str:
    """How many measures are not in the table, by the reason of the first variant; empty if all are."""
    changes = [next(iter(one.against.values())) for one in comparison.measures if one not in shown]
    reasons = Counter(f"{one.word}{f' ({one.reason})' if one.reason else ''}" for one in changes)
    named = "; ".join(f"{n} {reason}" for reason, n in reasons.most_common())
    return (
        f"{capitalized(count(len(changes), 'measure'))} could not be tested: {named}. The page has their values."
        if named
        else ""
    )


def _cost(comparison: Comparison) -> str:
    if comparison.cost is None:
        return escape(comparison.no_cost)
    rows = words.cost_rows(comparison.cost, words.refused_costs(comparison))
    return f"{table(words.COST_HEADS, rows)}\n\n{escape(origin(comparison.cost))}"


def terminal(comparison: Comparison) -> list[str]:
    """At most six lines, broken budgets first."""
    details = comparison.verdict if comparison.verdict != comparison.answer else ""
    lines = [*_of_state(comparison, BROKEN), comparison.answer, details, comparison.next]
    lines += [*_of_state(comparison, INCONCLUSIVE), comparison.no_cost]
    return [line for line in lines if line]
