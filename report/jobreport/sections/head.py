"""The head of the page and its contents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.document import Origin
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import SECTIONS

if TYPE_CHECKING:
    from jobreport.document import Report

#: A longer name is cut in the middle; the whole of it stands in report.json.
MOST_NAME = 120


def head(report: Report) -> Fragment:
    """Whose report this is: name, when, how long, which machines, from what."""
    job = report.job
    html = render(
        "head",
        name=formats.escape_name(job.name, MOST_NAME),
        facts=_facts(report),
        vendor=report.origin is Origin.DEBUGGER_RESULTS,
    )
    return Fragment(name="head", html=html, facts={"title": page_title(report)})


def page_title(report: Report) -> str:
    """The name of the browser's tab: the verdict, then the job."""
    use = report.verdict.use
    name = formats.escape_name(report.job.name, MOST_NAME)
    if report.origin is Origin.DEBUGGER_RESULTS:
        return f"Training job report from the vendor's results: {name}"
    if use is None:
        return f"Training job report: {name}"
    return f"{formats.percent(use.of('used')[1])} of {use.time} used: {name}"


def contents(report: Report) -> Fragment:
    """Links to all sections."""
    judging = [card for card in report.rules if card.can_trigger]
    triggered = sum(card.status == "triggered" for card in judging)
    notes = {
        "findings": str(len(report.verdict.findings)),
        "rules": f"{triggered} of {len(judging)}" if judging else "",
    }
    entries = [("verdict", "", "Verdict"), ("findings", "", "Findings")]
    entries += [(anchor, str(number), title) for number, (anchor, title) in enumerate(SECTIONS, start=1)]
    return Fragment(name="contents", html=render("contents", entries=entries, notes=notes))


def _facts(report: Report) -> list[tuple[str, str]]:
    job = report.job
    if report.origin is Origin.DEBUGGER_RESULTS:
        return _vendor_facts(report)
    facts = [
        ("Ran", _ran(job.start_us, job.end_us)),
        ("Duration", formats.duration(job.end_us - job.start_us)),
        ("Machines", machines(report)),
        ("Samples", _interval(report)),
        ("Source", ", ".join(job.sources) or "none"),
    ]
    if job.steps:
        facts.append(("Steps", formats.count(job.steps, "recorded step")))
    if job.finished is False:
        facts.append(("End", "not recorded, the job may have gone on"))
    return facts


def _vendor_facts(report: Report) -> list[tuple[str, str]]:
    job = report.job
    facts = []
    if job.end_us:
        facts += [
            ("Ran", f"{_ran(job.start_us, job.end_us)} or up to a minute longer"),
            ("Duration", formats.duration(job.end_us - job.start_us)),
        ]
    else:
        facts.append(("Ran", "not in the results"))
    known = machines(report) if job.nodes else "not in the results"
    facts += [("Machines", known), ("Source", "the vendor's rule results, not samples")]
    if job.steps:
        facts.append(("Steps", f"{formats.count(job.steps, 'step event')}, some perhaps counted twice (C-3)"))
    return facts


def _ran(start_us: int, end_us: int) -> str:
    return formats.date_time(start_us) if start_us == end_us else formats.between(start_us, end_us)


def machines(report: Report) -> str:
    """``2 nodes × 4 GPUs, 8 cores each``; sums where the nodes differ."""
    nodes = report.job.nodes
    if not nodes:
        return "none recorded"
    kinds = {(node.gpus, node.cores) for node in nodes}
    several = len(nodes) > 1
    gpus, cores = (sum(node.gpus for node in nodes), sum(node.cores for node in nodes))
    if len(kinds) == 1:
        gpus, cores = kinds.pop()
    parts = [formats.count(gpus, "GPU") if gpus else "no GPU"]
    if cores:
        parts.append(formats.count(cores, "core"))
    text = ", ".join(parts)
    if not several:
        return f"{formats.count(1, 'node')}, {text}"
    if len({(node.gpus, node.cores) for node in nodes}) == 1:
        return f"{formats.count(len(nodes), 'node')} × {text} each"
    return f"{formats.count(len(nodes), 'node')}, {text} in all"


def _interval(report: Report) -> str:
    found = sorted({node.interval_s for node in report.job.nodes if node.interval_s})
    if not found:
        return "interval not known"
    text = f"{found[0]:g}" if len(found) == 1 else f"{found[0]:g} to {found[-1]:g}"
    return f"every {text}{formats.NBSP}s"
