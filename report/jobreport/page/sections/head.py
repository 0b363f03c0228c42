"""The head of the page and its contents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.kit import code
from jobreport.page.kit.head import page_contents, page_head
from jobreport.page.sections.parts.throughput import in_short
from jobreport.sentences import bad_end, is_running, unread, without_steps
from jobrules.rules.traces.shares import profiled_gpus
from jobrules.verdict.observations import LOST_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.fragment import Fragment
    from jobreport.page.kit.head import Entry

#: Characters of the job's name; report.json has the whole of it.
MAX_NAME, MAX_TAB_NAME = 120, 60


def head(report: Report) -> Fragment:
    """The job: name, time, duration, hardware, sources."""
    job = report.job
    name = formats.escape_name(job.name, MAX_NAME)
    about = "Training job report." + f" {formats.times(job.end_us)}" * report.has_times
    running = is_running(report)
    return page_head(
        name,
        about,
        _facts(report),
        tab="So far: " * bool(running) + page_title(report),
        notes=[running] if running else [],
    )


def page_title(report: Report) -> str:
    """The name of the browser's tab: the verdict, then the job."""
    use = report.verdict.use
    name = formats.escape_name(report.job.name, MAX_TAB_NAME)
    if report.of_debugger and use is None:
        return f"Training job report from SageMaker Debugger's results: {name}"
    if use is None and report.verdict.profiled:
        return f"{formats.percent(report.verdict.profiled.of('used'))} of profiled GPU time used: {name}"
    if use is None:
        return f"Training job report: {name}"
    return f"{formats.percent(use.of('used')[1])} of {use.time} used: {name}"


def contents(report: Report, entries: Sequence[Entry]) -> Fragment:
    """Links to the verdict, the findings, and all sections."""
    judging = [card for card in report.rules if card.can_trigger]
    triggered = sum(card.status == "triggered" for card in judging)
    notes = {
        "findings": str(len(report.verdict.findings)),
        "rules": f"{triggered} of {report.verdict.rules} triggered" if judging else "",
    }
    return page_contents([("verdict", 0, "Verdict"), ("findings", 0, "Findings"), *entries], notes)


def _facts(report: Report) -> list[tuple[str, str]]:
    job = report.job
    if report.of_debugger:
        return _debugger_facts(report)
    ran = [("Ran", _ran(job.start_us, job.end_us)), ("Duration", formats.duration(job.end_us - job.start_us))]
    facts = [
        *(ran if report.has_times else [("Ran", "not recorded")]),
        ("Hardware", hardware(report)),
        *([] if report.only_traces or report.only_learning else [("Sampling interval", _interval(report))]),
        ("Sources", ", ".join(job.sources) or "none"),
    ]
    if run := formats.reported_run(report.quality.runs):
        facts.insert(0, ("Run", run))
    if job.steps and report.steps is None and report.has_debugger:
        facts.append(("Steps", _steps_of_results(job.steps)))
    elif job.steps:
        facts.append(("Steps", formats.number(job.steps, 0)))
    elif steps := without_steps(report):
        facts.append(("Steps", code(steps)))
    if lost := next((one.title for one in report.verdict.findings if one.key == LOST_SAMPLES), ""):
        facts.append(("Lost", lost))
    if report.throughput:
        facts.append(("Throughput", in_short(report.throughput)))
    if report.share_of_peak and (share := report.share_of_peak.mfu_percent) is not None:
        guess = " (estimated)" if report.share_of_peak.source == "estimated" else ""
        facts.append(("MFU", f"{formats.percent(share)}{guess}"))
    if others := unread(report):
        facts.append(("Not read", others))
    if end := bad_end(report):
        facts.append(("End", end))
    elif job.finished is False and not report.made_us:
        facts.append(("End", "not recorded: the job may have continued"))
    return facts


def _debugger_facts(report: Report) -> list[tuple[str, str]]:
    job = report.job
    facts = []
    if job.end_us:
        facts += [
            ("Ran", f"{_ran(job.start_us, job.end_us)}, or up to a minute longer"),
            ("Duration", formats.duration(job.end_us - job.start_us)),
        ]
    else:
        facts.append(("Ran", "not in the results"))
    known = hardware(report) if job.nodes else "not in the results"
    facts += [("Hardware", known), ("Sources", "SageMaker Debugger's rule results, no samples")]
    if job.steps:
        facts.append(("Steps", _steps_of_results(job.steps)))
    return facts


def _steps_of_results(steps: int) -> str:
    return f"{formats.count(steps, 'step event')}, some possibly counted twice"


def _ran(start_us: int, end_us: int) -> str:
    return formats.date_time(start_us) if start_us == end_us else formats.between(start_us, end_us)


def hardware(report: Report) -> str:
    """``2 nodes × 4 GPUs, 8 cores each``; totals if the nodes differ."""
    nodes = report.job.nodes
    if not nodes:
        gpus = len(profiled_gpus(report.captures or ()))
        return formats.count(gpus, "profiled GPU") if gpus else "not recorded"
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
    return f"{formats.count(len(nodes), 'node')}, {text} in total"


def _interval(report: Report) -> str:
    found = sorted({node.interval_s for node in report.job.nodes if node.interval_s})
    if not found:
        return "unknown"
    text = f"{found[0]:g}" if len(found) == 1 else f"{found[0]:g} to {found[-1]:g}"
    return f"{text}{formats.NBSP}s"
