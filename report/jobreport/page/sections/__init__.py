"""Calls of the notebook's cells: a report is opened, and its page made; then a cell shows each section."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jobreport import document
from jobreport.page.kit.fragment import Fragment
from jobreport.page.sections.balance import balance
from jobreport.page.sections.batch_size import batch_size
from jobreport.page.sections.bottlenecks import cpu_bottlenecks, io_bottlenecks
from jobreport.page.sections.captures.allocated_memory import allocated_memory
from jobreport.page.sections.captures.communication import communication
from jobreport.page.sections.captures.idle_time import idle_time
from jobreport.page.sections.captures.kernels import kernels
from jobreport.page.sections.captures.profiled_steps import profiled_steps
from jobreport.page.sections.captures.profiled_time import profiled_time
from jobreport.page.sections.close_ups import close_ups
from jobreport.page.sections.cost import cost
from jobreport.page.sections.data_loading import data_loading
from jobreport.page.sections.devices import devices
from jobreport.page.sections.framework import framework
from jobreport.page.sections.goodput import goodput
from jobreport.page.sections.gpu_memory import gpu_memory
from jobreport.page.sections.gpu_utilization import gpu_utilization
from jobreport.page.sections.head import head
from jobreport.page.sections.identifiers import identifiers
from jobreport.page.sections.jupyter import live_figures, style
from jobreport.page.sections.learning.learning import learning
from jobreport.page.sections.learning.trees import trees
from jobreport.page.sections.nodes import nodes
from jobreport.page.sections.order import page
from jobreport.page.sections.power import power
from jobreport.page.sections.python_code.code_waits import code_waits
from jobreport.page.sections.python_code.profiles import profiles
from jobreport.page.sections.quality import quality
from jobreport.page.sections.rules import rules
from jobreport.page.sections.steps import steps
from jobreport.page.sections.summary import summary
from jobreport.page.sections.utilization import utilization
from jobreport.page.sections.verdict import findings, verdict

if TYPE_CHECKING:
    from jobreport.document import Report

__all__ = [
    "Fragment",
    "allocated_memory",
    "balance",
    "batch_size",
    "close_ups",
    "code_waits",
    "communication",
    "cost",
    "cpu_bottlenecks",
    "data_loading",
    "devices",
    "findings",
    "framework",
    "goodput",
    "gpu_memory",
    "gpu_utilization",
    "head",
    "identifiers",
    "idle_time",
    "io_bottlenecks",
    "kernels",
    "learning",
    "live_figures",
    "nodes",
    "open_report",
    "page",
    "power",
    "profiled_steps",
    "profiled_time",
    "profiles",
    "quality",
    "rules",
    "steps",
    "style",
    "summary",
    "trees",
    "utilization",
    "verdict",
]


def open_report(path: str | Path) -> Report:
    """Read a ``report.json``."""
    return document.load(Path(path))
