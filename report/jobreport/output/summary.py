"""``summary.md``: verdict and findings for the text field of a ticket; and the verdict for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.cost import words
from jobreport.headline import headline, learned
from jobreport.markdown import CODE, MAX_CHARACTERS, document, escape, prose
from jobreport.output.step_tree import step_tree
from jobreport.sentences import goodput_sentence, is_running, loss_sentence, mixed, unread, without_steps
from jobrules.model import Severity, in_words
from jobrules.text import NBSP, between, count, duration, escape_name, percent
from jobrules.verdict.not_evaluated import by_reason
from jobrules.verdict.profiled import coverage, profiled_lost, profiled_used

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobrules.model import Finding
    from jobrules.verdict.findings import Verdict
    from jobrules.verdict.profiled import ProfiledTime


def markdown(report: Report) -> str:
    """The verdict in a few lines, then where the time went, and the findings with their evidence, the worst first."""
    findings = report.verdict.findings
    blocks = [
        f"# {escape(escape_name(report.job.name))}: training job report",
        *([running] if (running := is_running(report)) else []),
        *_verdict(report),
        *_parts(report),
        *([goodput_sentence(report.goodput)] if report.goodput else []),
        *_learned(report),
        *_cost(report),
        *_profiled(report.verdict),
        f"{_ran(report)} on {_machines(report)}. Sources: {', '.join(report.job.sources)}.",
        *([f"Run {escape(run)}"] if (run := formats.reported_run(report.quality.runs)) else []),
        *([prose(steps)] if (steps := without_steps(report)) else []),
        *(escape(one) for one in (mixed(report), unread(report)) if one),
    ]
    if report.of_debugger:
        blocks.append(
            "All numbers are from SageMaker Debugger's rule results, up to the last full minute. Known errors are "
            "listed on each card of report.html."
        )
    blocks += ["## Findings"] if findings else []
    tail = [
        *_not_evaluated(report.verdict),
        "Full report: report.html. Check the advice against your own job.",
    ]
    room = MAX_CHARACTERS - sum(len(block) + 2 for block in [*blocks, *tail]) - 80
    for number, finding in enumerate(findings):
        block = _finding(finding, report.verdict)
        room -= len(block) + 2
        if room < 0:
            blocks.append(f"{count(len(findings) - number, 'more finding')} in report.html.")
            break
        blocks.append(block)
    return document([*blocks, *tail])


def _verdict(report: Report) -> list[str]:
    """What the main finding is, how much time it is about, what to try, and how many rules were not evaluated."""
    verdict, said = report.verdict, headline(report)
    lines = [f"**{prose(said.sentence)}**", f"{prose(said.second)}" if said.second else ""]
    if verdict.advice:
        lines.append(f"*{verdict.advice_head}:* {prose(' '.join(verdict.advice))}")
    lines.append(f"{verdict.how_many}.")
    return [line for line in lines if line]


def terminal(report: Report) -> list[str]:
    """The verdict in at most five lines, with a typical step; then the run of several, that machines are mixed, and what is not read."""
    verdict, said = report.verdict, headline(report)
    advice = verdict.advice
    lines = [said.sentence, said.second]
    if verdict.use and verdict.profiled:
        lines[1] += f" Traces: {profiled_headline(verdict.profiled)}"
    # What to record is of no use without the way to record it.
    known = advice[:1] if verdict.advice_head == "Try first" else advice
    lines.append(f"{verdict.advice_head}: {' '.join(known)}" if known else "")
    lines += step_tree(report)
    lines.append(_counted(verdict.findings))
    if groups := by_reason(verdict.not_evaluated):
        rules = f"{verdict.missing} of {count(verdict.rules, 'rule')}"
        not_checked = f"Not checked: {rules}." if verdict.missing else f"{verdict.how_many}."
        lines.append(" ".join([not_checked, *(group.brief for group in groups)]))
    if report.cost and report.cost.missing:
        lines.append(words.no_cost(report.cost))
    if run := formats.reported_run(report.quality.runs):
        lines.append(f"Run {run}")
    lines += [without_steps(report), mixed(report), unread(report)]
    return [CODE.sub(r"\g<code>", line) for line in lines if line]


def _counted(findings: Sequence[Finding]) -> str:
    """``Findings: 1 critical, 2 info.``; empty if there are none."""
    counts = {severity: sum(one.severity is severity for one in findings) for severity in Severity}
    kinds = [
        f"{n} {severity}{'s' * (severity is Severity.WARNING and n > 1)}"
        for severity, n in counts.items()
        if n
    ]
    return f"Findings: {', '.join(kinds)}." if kinds else ""


def profiled_headline(profiled: ProfiledTime) -> str:
    """``59.4% of the profiled time of 1 GPU (0.99 s) was used for computing. 40.6% was lost, …``."""
    return f"{percent(profiled.of('used'))} {profiled_used(profiled)}. {profiled_lost(profiled)}."


def _ran(report: Report) -> str:
    start_us, end_us = report.job.start_us, report.job.end_us
    if report.of_debugger and not end_us:
        return "Ran at a time that the results do not contain,"
    if not report.has_times:
        return "Ran at a time that was not recorded,"
    return f"Ran {between(start_us, end_us)} ({duration(end_us - start_us)})"


def _parts(report: Report) -> list[str]:
    """How the time was spent, a line per part, with the numbers of the verdict's bar."""
    use = report.verdict.use
    if use is None:
        return []
    lines = []
    for part in use.parts:
        amount = (
            f"{formats.part_hours(use, report.phases, part)}{NBSP}{use.unit}, {formats.percent(part.percent)}"
        )
        lines.append(f"- {escape(part.label)}: {amount}")
    return [f"## Where the {use.noun} time went", "\n".join(lines)]


def _learned(report: Report) -> list[str]:
    """How much time did not improve the model, and what the loss did, if the verdict does not say so."""
    said = loss_sentence(report.learning) if report.learning else ""
    return [*filter(None, (learned(report), "" if said in headline(report).second else said))]


def _cost(report: Report) -> list[str]:
    """What the job cost, and by which price."""
    if not report.cost:
        return []
    found = report.cost
    if found.run is None:
        return [escape(words.no_cost(found))]
    price = words.price(found.run.per_hour, found.currency)
    hours = f"{formats.number(found.run.nodes * found.run.hours, 3)}{NBSP}node-hours"
    machine = f" of {formats.escape_name(found.machine, 40)}" if found.machine else ""
    cost = words.money(found.run.cost, found.currency)
    return [escape(f"The job cost {cost}: {hours}{machine} at {price} an hour. {words.origin(found)}")]


def _profiled(verdict: Verdict) -> list[str]:
    """How the profiled time was spent, a line per part, and how much of the job that is."""
    profiled = verdict.profiled
    if not profiled:
        return []
    lines = [
        f"- {escape(part.label)}: {formats.number(part.amount, profiled.digits)}{NBSP}GPU-s, {percent(part.percent)}"
        for part in profiled.parts
    ]
    said = [*([profiled_headline(profiled)] if verdict.use else []), *coverage(profiled)]
    return ["## Where the profiled time went", *([escape(" ".join(said))] if said else []), "\n".join(lines)]


def _finding(finding: Finding, verdict: Verdict) -> str:
    rules = f"Rules: {', '.join(finding.rules)}." if finding.rules else ""
    evidence = " ".join(filter(None, [_amount(finding, verdict), prose(in_words(finding.evidence)), rules]))
    main = finding is verdict.lead
    advice = f"\n  *Try:* {prose(' '.join(finding.advice))}" if finding.advice and not main else ""
    return f"- **{finding.severity.capitalize()}: {prose(finding.title)}.** {evidence}{advice}"


def _amount(finding: Finding, verdict: Verdict) -> str:
    """``Explains 0.309 GPU-h, 61.8% of GPU time.`` of a cause; the amount alone of any other finding."""
    amount = ", ".join(filter(None, formats.amount(finding, verdict.use)))
    return f"{'Explains ' if verdict.is_cause(finding) else ''}{amount}." if amount else ""


def _not_evaluated(verdict: Verdict) -> list[str]:
    """Every rule that was not evaluated, by the reason."""
    groups = by_reason(verdict.not_evaluated)
    return ["## Not evaluated", " ".join(prose(str(group)) for group in groups)] if groups else []


def _machines(report: Report) -> str:
    """``1 node with 2 GPUs and 8 cores``."""
    nodes = report.job.nodes
    if not nodes:
        return "machines that are not known"
    gpus, cores = sum(n.gpus for n in nodes), sum(n.cores for n in nodes)
    devices = [count(n, noun) for n, noun in ((gpus, "GPU"), (cores, "core")) if n]
    return f"{count(len(nodes), 'node')}{' with ' if devices else ''}{' and '.join(devices)}"


def worst_severity(report: Report) -> Severity | None:
    """The severity of the worst finding; None without findings."""
    return report.verdict.findings[0].severity if report.verdict.findings else None


def reaches(worst: Severity, limit: str) -> bool:
    """True if ``worst`` is at least as severe as ``limit``."""
    order = list(Severity)
    return order.index(worst) <= order.index(Severity(limit))
