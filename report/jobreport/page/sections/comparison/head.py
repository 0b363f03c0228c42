"""The head of the page and its contents."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

from jobreport import formats
from jobreport.comparison import words
from jobreport.comparison.budgets import BROKEN
from jobreport.comparison.document import LOST_DATA
from jobreport.page.kit.head import page_contents, page_head
from jobreport.page.sections.comparison.outline import SECTIONS
from jobrules.text import count, join_names

if TYPE_CHECKING:
    from jobreport.comparison.document import Comparison, Variant
    from jobreport.page.kit.fragment import Fragment

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
        tab=comparison.verdict,
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


def contents(comparison: Comparison) -> Fragment:
    """Links to all sections."""
    broken = sum(one.state == BROKEN for one in comparison.budgets)
    changed = sum(rule.changed for rule in comparison.rules)
    different = sum(fact.kind == "different" for fact in comparison.differences)
    notes = {
        "budgets": f"{broken} broken" if broken else "",
        "facts": str(different) if different else "",
        "rules": f"{changed} changed" if changed else "",
    }
    budgets = [("budgets", "Budgets")] if comparison.budgets else []
    return page_contents([("verdict", "Verdict"), *budgets], SECTIONS, notes)
