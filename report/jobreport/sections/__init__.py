"""What the cells of the notebook call: a report is opened, then each section is one call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jobreport import document
from jobreport.sections.fragment import Fragment
from jobreport.sections.framework import framework
from jobreport.sections.gpu_use import gpu_use
from jobreport.sections.head import contents, head
from jobreport.sections.jupyter import live_figures, style
from jobreport.sections.nodes import nodes
from jobreport.sections.quality import quality
from jobreport.sections.rules import rules
from jobreport.sections.summary import summary
from jobreport.sections.utilisation import utilisation
from jobreport.sections.verdict import findings, verdict

if TYPE_CHECKING:
    from jobreport.document import Report

__all__ = [
    "Fragment",
    "contents",
    "findings",
    "framework",
    "gpu_use",
    "head",
    "live_figures",
    "nodes",
    "open_report",
    "quality",
    "rules",
    "style",
    "summary",
    "utilisation",
    "verdict",
]


def open_report(path: str | Path) -> Report:
    """Read a ``report.json``."""
    return document.load(Path(path))
