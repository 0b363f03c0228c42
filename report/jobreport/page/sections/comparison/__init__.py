"""Calls of the cells of a comparison's notebook: a comparison is opened, and its page made; then a cell shows each section."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jobreport import assets
from jobreport.comparison import document
from jobreport.page.kit.fragment import Fragment
from jobreport.page.kit.page import numbered, page_of
from jobreport.page.sections import jupyter
from jobreport.page.sections.comparison.cost import cost, sizes
from jobreport.page.sections.comparison.facts import facts, method, rules
from jobreport.page.sections.comparison.measures import budgets, measures
from jobreport.page.sections.comparison.steps import steps, use
from jobreport.page.sections.comparison.time import time
from jobreport.page.sections.comparison.verdict import contents, head, verdict
from jobreport.page.sections.jupyter import live_figures

if TYPE_CHECKING:
    from jobreport.comparison.document import Comparison

__all__ = [
    "budgets",
    "cost",
    "facts",
    "head",
    "live_figures",
    "measures",
    "method",
    "open_comparison",
    "page",
    "rules",
    "sizes",
    "steps",
    "style",
    "time",
    "use",
    "verdict",
]

#: What the page adds to the style of a report.
STYLE = "style/comparison.css"


def open_comparison(path: str | Path) -> Comparison:
    """Read a ``comparison.json``."""
    return document.from_json(Path(path).read_bytes())


def page(comparison: Comparison) -> dict[str, Fragment]:
    """All pieces of the page by their names, in its order."""
    sections = (facts, measures, cost, time, steps, use, rules, sizes, method)
    fragments, entries = numbered([(one, one.content(comparison)) for one in sections])
    first = [head(comparison), verdict(comparison), budgets(comparison), contents(comparison, entries)]
    return page_of([*first, *fragments])


def style() -> Fragment:
    """As for a report, with what a comparison adds."""
    found = jupyter.style()
    return Fragment(name="style", html=f"{found.html}<style>{assets.text(STYLE)}</style>")
