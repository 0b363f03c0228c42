"""``summary.md``: verdict and findings for the text field of a ticket; and the same for a terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.document import Origin
from jobrules.model import Severity, Status
from jobrules.text import between, count, duration, escape_name
from jobrules.verdict.findings import by_reason, use_sentence

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobrules.model import Finding
    from jobrules.verdict.findings import Verdict

#: Text fields of trackers hold at least this many characters.
MOST_CHARACTERS = 10_000

#: Reasons that are listed for what was not checked, and the rules of each that are named.
MOST_REASONS, MOST_RULES = 4, 4
#: Code in our texts, in one or two backticks; narrow, so that nothing else from data escapes escaping.
_CODE = re.compile(r"(?<!`)(`{1,2})(?! )([\w .,:;=()/*+-]+)(?<! )\1(?!`)")
#: The colon of ``https://`` and the dot of ``www.`` too: trackers make links of bare addresses.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+|~@&!$]|:(?=//)|(?<=www)\.)", re.IGNORECASE)


def escape(text: str) -> str:
    """Text as Markdown that shows it unchanged: no emphasis, formula, image, link, tag or mention."""
    return _MARKUP.sub(r"\\\1", text)


def prose(text: str) -> str:
    """A text of a finding as Markdown: its code is a code span, all else is shown unchanged."""
    parts, end = [], 0
    for found in _CODE.finditer(text):
        parts += [escape(text[end : found.start()]), f"`{found[2]}`"]
        end = found.end()
    return "".join([*parts, escape(text[end:])])


def markdown(report: Report) -> str:
    """The verdict, where the time went, then the findings, worst first, under 10,000 characters."""
    job = report.job
    blocks = [
        f"# Training job report: {escape(escape_name(job.name))}",
        f"**{escape(answer(report))}**",
        *_parts(report),
        f"{_ran(report)}{_machines(report)}. Source: {', '.join(job.sources)}.",
    ]
    if report.origin is Origin.DEBUGGER_RESULTS:
        blocks.append(
            "All numbers are the vendor's, from the rule results that its service left behind; no sample was "
            "judged. What is called our own reading is ours, made from these results. "
            "They end with the last full minute (C-1). Ids as LGU-4 name known defects: see report.html."
        )
    findings = report.verdict.findings
    blocks.append("## Findings" if findings else _none(report.verdict))
    tail = [
        _unanswered(report),
        "Details: report.html. For information; check the advice against your own job.",
    ]
    room = MOST_CHARACTERS - sum(len(block) + 2 for block in [*blocks, *tail]) - 80
    for number, finding in enumerate(findings):
        block = _finding(finding, report.verdict)
        room -= len(block) + 2
        if room < 0:
            blocks.append(f"{count(len(findings) - number, 'more finding')} in report.html.")
            break
        blocks.append(block)
    return "\n\n".join([*blocks, *(t for t in tail if t)]) + "\n"


def terminal(report: Report) -> list[str]:
    """The verdict in at most four lines."""
    lines = [answer(report)]
    main = report.verdict.main_finding
    if main:
        head = "Main cause, " if report.verdict.has_cause else ""
        amount = ", ".join(filter(None, formats.amount(main, report.verdict.use)))
        title = f"{head}{main.severity}: {main.title}{f' ({amount})' if amount else ''}."
        told = title[0].upper() + title[1:], f"Try: {main.advice}"
        lines += [_CODE.sub(r"\2", line) for line in told]
    else:
        lines.append(_none(report.verdict))
    return [*lines, *_unanswered(report, "; ").splitlines()]


def answer(report: Report) -> str:
    """How well the machine was used, in a sentence or two; of rule results, what they allow to say."""
    if report.origin is Origin.SAMPLES:
        return use_sentence(report.verdict.use)
    figures = formats.use_figures(report.utilization)
    told = f"By the vendor's numbers: {figures}." if figures else "Made from the vendor's rule results."
    return f"{told} GPU-hours used and lost cannot be told without samples."


def _ran(report: Report) -> str:
    start_us, end_us = report.job.start_us, report.job.end_us
    if report.origin is Origin.DEBUGGER_RESULTS and not end_us:
        return "When it ran is not in the results, "
    return f"Ran {between(start_us, end_us)}, {duration(end_us - start_us)}, "


def _parts(report: Report) -> list[str]:
    """How the time was spent, a line a part, with the numbers of the bar of the verdict."""
    use = report.verdict.use
    if use is None:
        return []
    lines = []
    for part in use.parts:
        amount = f"{formats.part_hours(use, report.phases, part)}{formats.NBSP}{use.noun}-h, {formats.percent(part.percent)}"
        lines.append(f"- {escape(part.label)}: {amount}")
    return ["\n".join(lines)]


def _finding(finding: Finding, verdict: Verdict) -> str:
    main = verdict.has_cause and finding is verdict.main_finding
    head = f"{finding.severity.capitalize()}{', main cause' if main else ''}"
    told = f"- **{head}: {prose(finding.title)}.**"
    rules = f" Rules: {', '.join(finding.rules)}." if finding.rules else ""
    amount = ", ".join(filter(None, formats.amount(finding, verdict.use)))
    figure = f" {amount}." if amount else ""
    return f"{told}{figure} {prose(finding.evidence)}{rules}\n  *Try:* {prose(finding.advice)}"


def _none(verdict: Verdict) -> str:
    judged = len(verdict.not_evaluated) < verdict.rules
    return "No finding." if judged else "No finding: no rule could judge."


def _unanswered(report: Report, gap: str = "\n- ") -> str:
    """What was not checked, by the reason; four reasons at most."""
    groups = by_reason(report.verdict.not_evaluated)
    if not groups:
        return ""
    kept = groups if len(groups) <= MOST_REASONS else groups[: MOST_REASONS - 1]
    told = [
        f"{one.reason if one.status is not Status.ERROR else 'error'}: "
        f"{', '.join(one.rules) if len(one.rules) <= MOST_RULES else count(len(one.rules), 'rule')}"
        for one in kept
    ]
    if left := groups[len(kept) :]:
        told.append(f"{count(sum(len(one.rules) for one in left), 'rule')} for {len(left)} other reasons")
    whole = f"Not checked, {len(report.verdict.not_evaluated)} of {count(report.verdict.rules, 'rule')}:"
    first = gap if gap.startswith("\n") else " "
    return f"{whole}{first}{gap.join(told)}"


def _machines(report: Report) -> str:
    nodes = report.job.nodes
    gpus, cores = sum(n.gpus for n in nodes), sum(n.cores for n in nodes)
    parts = [
        count(len(nodes), "node") if nodes else "machines not known",
        *([count(gpus, "GPU")] if gpus else []),
        *([count(cores, "core")] if cores else []),
    ]
    return ", ".join(parts)


def worst_severity(report: Report) -> Severity | None:
    """The severity of the worst finding; none without findings."""
    return report.verdict.findings[0].severity if report.verdict.findings else None


def reaches(worst: Severity, limit: str) -> bool:
    """Whether a severity is as bad as the named one, or worse."""
    order = list(Severity)
    return order.index(worst) <= order.index(Severity(limit))
