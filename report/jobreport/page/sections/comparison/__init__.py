"""Calls of the cells of a comparison's notebook: a comparison is opened, then each section is one call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jobreport import assets
from jobreport.comparison import document
from jobreport.page.kit.fragment import Fragment
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
    "contents",
    "cost",
    "facts",
    "head",
    "live_figures",
    "measures",
    "method",
    "open_comparison",
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


def style() -> Fragment:
    """As for a report, with what a comparison adds."""
    found = jupyter.style()
    return Fragment(name="style", html=f"{found.html}<style>{assets.text(STYLE)}</style>")
