"""The head of the page and its first screen: the sentence, its numbers, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup
from msgspec import Struct

from jobreport import formats
from jobreport.comparison import words
from jobreport.comparison.budgets import BROKEN
from jobreport.comparison.document import CHANGED, LOST_DATA, Word
from jobreport.cost.words import money
from jobreport.formats import NBSP
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.kit.head import page_contents, page_head
from jobreport.page.sections.comparison import marks
from jobreport.page.sections.comparison.outline import section
from jobrules.text import count, join_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.comparison.document import Comparison, Measure, Variant
    from jobreport.cost.document import CostRow
    from jobreport.page.kit.head import Entry

#: Runs of a variant that have a link.
MAX_LINKS = 4


def head(comparison: Comparison) -> Fragment:
    """The variants: machines, times, and links to their reports."""
    runs = sum(len(variant.runs) for variant in comparison.variants)
    return page_head(
        _title(comparison),
        f"Comparison of {count(len(comparison.variants), 'variant')} in {count(runs, 'run')}.",
        [
            (f"{one.label}, base" if one.label == comparison.base else one.label, _with_links(one))
            for one in comparison.variants
        ],
        tab=comparison.answer,
        notes=[note.text for note in comparison.notes if note.kind == LOST_DATA],
    )


def _with_links(variant: Variant) -> Markup:
    """The facts of a variant and links to the reports of its runs."""
    pages = [(i, run.page) for i, run in enumerate(variant.runs, start=1) if run.page][:MAX_LINKS]
    several = len(variant.runs) > 1
    links = [
        Markup('<a href="{}">report{}</a>').format(quote(page), f" {i}" if several else "")
        for i, page in pages
    ]
    return Markup(", ").join([_about(variant), *links])


def _title(comparison: Comparison) -> str:
    return f"{join_names(comparison.others)} compared with {comparison.base}"


def _about(variant: Variant) -> str:
    """``3 × p3.8xlarge, 12 GPUs, 96 cores, 2021-02-01 09:12:40 UTC``."""
    facts = variant.facts
    runs = count(len(variant.runs), "run")
    first = min(run.start_us for run in variant.runs)
    # A trace whose clock counts from the start of the machine has no date.
    began = [formats.date_time(first)] if first else []
    if facts.get("nodes") is None and facts.get("profiled_steps") is not None:
        shown = [
            _counted(facts[f"profiled_{key}"], noun)
            for key, noun in (("ranks", "profiled rank"), ("gpus", "GPU"), ("steps", "step"))
        ]
        return ", ".join([*shown, runs, *began])
    nodes, machine = words.plain(facts.get("nodes")), facts.get("instance_type")
    noun = formats.escape_name(str(machine)) if machine else "node" if nodes == "1" else "nodes"
    parts = [f"{nodes}{' ×' if machine else ''} {noun}"]
    parts += [
        f"{words.plain(facts[key])} {name if facts[key] == 1 else f'{name}s'}"
        for key, name in (("gpus", "GPU"), ("cores", "core"))
        if facts.get(key)
    ]
    return ", ".join([*parts, runs, *began])


def _counted(fact: str | float | None, noun: str) -> str:
    """``2 GPUs``; ``1 to 2 GPUs`` of runs that differ."""
    return count(round(fact), noun) if isinstance(fact, int | float) else f"{words.plain(fact)} {noun}s"


def contents(comparison: Comparison, entries: Sequence[Entry]) -> Fragment:
    """Links to all sections."""
    broken = sum(one.state == BROKEN for one in comparison.budgets)
    changed = sum(rule.changed for rule in comparison.rules)
    different = sum(fact.kind == "different" for fact in comparison.differences)
    notes = {
        "budgets": f"{broken} broken" if broken else "",
        "facts": str(different) if different else "",
        "rules": f"{changed} changed" if changed else "",
    }
    budgets = [("budgets", 0, "Budgets")] if comparison.budgets else []
    return page_contents([("verdict", 0, "Verdict"), *budgets, *entries], notes)


class Number(Struct, frozen=True, kw_only=True):
    """One of the large numbers."""

    label: str
    #: With its sign, and the unit after it; empty for what cannot be compared.
    number: str
    unit: str
    #: True for what did not change, or what nobody tested.
    calm: bool
    #: Name, bar, and value of each variant; empty if there is an interval.
    bars: tuple[tuple[str, Markup, str], ...]
    #: With its axis.
    interval: Markup
    note: Markup


@section
def verdict(comparison: Comparison) -> Fragment:
    """The answer for a reader with ten seconds; of more than two variants, a row of numbers for each."""
    known = {measure.key for measure in comparison.measures}
    keys = ("cost" if comparison.cost else "gpu_hours", "duration_s", comparison.headline)
    if not known & {"cost", "gpu_hours", "duration_s"}:
        keys = (comparison.headline, "profiled_compute_percent", "profiled_idle_percent")
    found = [comparison.measure(key) for key in dict.fromkeys(keys) if key in known]
    shown = [one for one in found if any(c.word is not Word.NOT_MEASURED for c in one.against.values())]
    other = comparison.others[0]
    two = len(comparison.others) == 1
    broken = [one for one in comparison.budgets if one.state == BROKEN]
    html = render(
        "comparison/verdict",
        comparison=comparison,
        broken=len(broken),
        first_broken=comparison.measure(broken[0].measure).label if broken else "",
        numbers=[_number(comparison, measure, other) for measure in shown] if two else (),
        rows=[] if two else _rows(comparison, shown),
        measures=shown,
        factors=_factors(comparison, other) if two else (),
    )
    return Fragment(name="verdict", html=html)


def _number(comparison: Comparison, measure: Measure, label: str) -> Number:
    change = measure.against[label]
    text = words.change(change)
    number, unit = (
        (text[:-1], "%") if text.endswith("%") else (text.partition(NBSP)[0], text.partition(NBSP)[2])
    )
    if text.startswith("×"):
        number, unit = text, ""
    if change.word is Word.REFUSED:
        number, unit = "", ""
    tested = change.low is not None and change.word is not Word.REFUSED
    scale = marks.Scale.of([change])
    values = [value or 0.0 for value in measure.values.values()]
    bars = tuple(
        (one, marks.value_bar(value, max(values), "f2" if i == 0 else "u"), shown)
        for i, (value, (one, shown)) in enumerate(
            zip(values, words.of_variants(measure, comparison.cost).items(), strict=True)
        )
    )
    note = marks.outcome(measure, change)
    is_sharp = formats.signed(change.low) == formats.signed(change.high)
    detail = "; ".join(filter(None, ("" if is_sharp else words.interval(change), change.reason)))
    return Number(
        label=measure.label,
        number=number,
        unit=unit,
        calm=change.word not in CHANGED and not _is_large_untested(measure, label),
        bars=() if tested else bars,
        interval=Markup("{}{}").format(marks.interval(scale, measure, change), marks.axis(scale, inside=True))
        if tested
        else Markup(""),
        note=Markup("{}{}").format(note, f": {detail}." if detail else "."),
    )


def _is_large_untested(measure: Measure, label: str) -> bool:
    """True for a cost that changed by more than counts: it follows from the prices and the duration."""
    change = measure.against[label]
    return measure.unit == "money" and change.word is Word.NOT_TESTED and abs(change.change or 0.0) > 10


def _rows(comparison: Comparison, shown: list[Measure]) -> list[tuple[str, list[Markup]]]:
    """For each variant its values, with the change."""
    rows = []
    values = {measure.key: words.of_variants(measure, comparison.cost) for measure in shown}
    for label in comparison.labels:
        cells = []
        for measure in shown:
            value = values[measure.key][label]
            change = measure.against.get(label)
            tail = (
                Markup("")
                if change is None
                else Markup('<span class="m">{}</span> {}').format(
                    words.change(change) if change.word is not Word.REFUSED else "",
                    marks.outcome(measure, change),
                )
            )
            cells.append(Markup("<b>{}</b> {}").format(value, tail))
        rows.append((label, cells))
    return rows


def _factors(comparison: Comparison, label: str) -> list[tuple[str, str, str, str, str]]:
    """Class, sign, number, name, and details of each term of ``$6.16 × 1.00 × 0.167 × 1.04 = $1.07``.

    Empty without prices, and if the costs cannot be compared.
    """
    cost = comparison.cost
    if cost is None or comparison.measure("cost").against[label].word is Word.REFUSED:
        return []
    base, row = cost.rows[0], next(one for one in cost.rows if one.label == label)
    found = cost.factors[label]
    noun = "GPU" if found.of_gpus else "machine"
    numbers = [one.gpus if found.of_gpus else one.nodes for one in (base, row)]
    duration = comparison.measure("duration_s").values
    durations = words.durations(*(duration[one] or 0.0 for one in (comparison.base, label)))
    prices = [
        money(one.per_hour * one.nodes / number, cost.currency)
        for one, number in zip((base, row), numbers, strict=True)
    ]
    factors = {
        "time": (found.time, "time", durations),
        "count": (found.count, f"{noun}s", map(words.plain, numbers)),
        "price": (found.price, f"price of a {noun}-hour", prices),
    }
    return [
        ("", "", money(base.cost, cost.currency), base.label, _machines(base)),
        *(
            ("major" if key == found.main else "", "×", f"{factor:.3g}", name, " → ".join(details))
            for key, (factor, name, details) in factors.items()
        ),
        ("sum", "=", money(row.cost, cost.currency), row.label, _machines(row)),
    ]


def _machines(row: CostRow) -> str:
    return f"{row.nodes:g} × {formats.escape_name(row.machine, 40) or 'nodes'}"
