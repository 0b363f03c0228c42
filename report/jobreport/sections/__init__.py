"""What the cells of the notebook call: a report is opened, then each section is one call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jobreport import document
from jobreport.sections.balance import balance
from jobreport.sections.batch_size import batch_size
from jobreport.sections.bottlenecks import cpu_bottlenecks, io_bottlenecks
from jobreport.sections.captures.allocated_memory import allocated_memory
from jobreport.sections.captures.communication import communication
from jobreport.sections.captures.idle_time import idle_time
from jobreport.sections.captures.kernels import kernels
from jobreport.sections.captures.profiled_steps import profiled_steps
from jobreport.sections.captures.profiled_time import profiled_time
from jobreport.sections.close_ups import close_ups
from jobreport.sections.cost import cost
from jobreport.sections.data_loading import data_loading
from jobreport.sections.devices import devices
from jobreport.sections.fragment import Fragment
from jobreport.sections.framework import framework
from jobreport.sections.goodput import goodput
from jobreport.sections.gpu_memory import gpu_memory
from jobreport.sections.gpu_utilization import gpu_utilization
from jobreport.sections.head import contents, head
from jobreport.sections.identifiers import identifiers
from jobreport.sections.jupyter import live_figures, style
from jobreport.sections.nodes import nodes
from jobreport.sections.power import power
from jobreport.sections.profiles import profiles
from jobreport.sections.quality import quality
from jobreport.sections.rules import rules
from jobreport.sections.steps import steps
from jobreport.sections.summary import summary
from jobreport.sections.utilization import utilization
from jobreport.sections.verdict import findings, verdict

if TYPE_CHECKING:
    from jobreport.document import Report

__all__ = [
    "Fragment",
    "allocated_memory",
    "balance",
    "batch_size",
    "close_ups",
    "communication",
    "contents",
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
    "live_figures",
    "nodes",
    "open_report",
    "power",
    "profiled_steps",
    "profiled_time",
    "profiles",
    "quality",
    "rules",
    "steps",
    "style",
    "summary",
    "utilization",
    "verdict",
]


def open_report(path: str | Path) -> Report:
    """Read a ``report.json``."""
    return document.load(Path(path))
