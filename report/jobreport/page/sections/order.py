"""The page of a report: its sections in the order of its findings, behind the evidence of the main one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.page.kit.page import folded, numbered, page_of
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
from jobreport.page.sections.evidence import with_evidence
from jobreport.page.sections.framework import framework
from jobreport.page.sections.goodput import goodput
from jobreport.page.sections.gpu_memory import gpu_memory
from jobreport.page.sections.gpu_utilization import gpu_utilization
from jobreport.page.sections.head import contents, head
from jobreport.page.sections.identifiers import identifiers
from jobreport.page.sections.learning.learning import learning
from jobreport.page.sections.learning.trees import trees
from jobreport.page.sections.nodes import nodes
from jobreport.page.sections.outline import LAST, SECTIONS
from jobreport.page.sections.power import power
from jobreport.page.sections.python_code.code_waits import code_waits
from jobreport.page.sections.python_code.profiles import profiles
from jobreport.page.sections.quality import quality
from jobreport.page.sections.rules import rules
from jobreport.page.sections.steps import steps
from jobreport.page.sections.summary import summary
from jobreport.page.sections.utilization import utilization
from jobreport.page.sections.verdict import findings, verdict
from jobrules.model import Status

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobreport.page.kit.fragment import Fragment

#: By their anchors.
BY_ANCHOR = {
    one.anchor: one
    for one in (
        summary,
        utilization,
        framework,
        steps,
        learning,
        trees,
        goodput,
        gpu_utilization,
        balance,
        data_loading,
        batch_size,
        code_waits,
        cpu_bottlenecks,
        io_bottlenecks,
        gpu_memory,
        nodes,
        devices,
        close_ups,
        profiled_time,
        idle_time,
        communication,
        profiled_steps,
        kernels,
        allocated_memory,
        profiles,
        power,
        cost,
        rules,
        quality,
        identifiers,
    )
}

#: Sections that are not folded behind their first figure or table, even if no finding names them.
_WHOLE = ("cost", *LAST)


def page(report: Report) -> dict[str, Fragment]:
    """All pieces of the page by their names, in its order."""
    said = {anchor: BY_ANCHOR[anchor].content(report) for anchor in _order(report)}
    whole, evidence = with_evidence(report, said)
    named = {finding.section for finding in report.verdict.findings}
    said = {
        anchor: content
        if anchor in named or anchor in _WHOLE
        else folded(content, quiet=_is_quiet(report, anchor) or content is not said[anchor])
        for anchor, content in whole.items()
    }
    fragments, entries = numbered([(BY_ANCHOR[anchor], content) for anchor, content in said.items()])
    first = [head(report), verdict(report), *evidence, findings(report), contents(report, entries)]
    return page_of([*first, *fragments])


def _is_quiet(report: Report, anchor: str) -> bool:
    """True for a section on rules of which none triggered or failed."""
    found = {card.status for card in report.rules if card.section == anchor and card.can_trigger}
    return (
        bool(found)
        and found <= {Status.PASSED, Status.NOT_EVALUATED}
        and anchor not in ("summary", "learning")
    )


def _order(report: Report) -> list[str]:
    """Sections that findings name, the worst finding first; then the others."""
    named = dict.fromkeys(finding.section for finding in report.verdict.findings)
    others = dict.fromkeys(anchor for anchor, _ in SECTIONS)
    return [anchor for anchor in {**named, **others} if anchor in others and anchor not in LAST] + [*LAST]
