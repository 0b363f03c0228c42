"""Method and data quality: definitions, parameters, what was read and what was not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.document import Origin
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import covers_time, heading

if TYPE_CHECKING:
    from jobreport.document import Parameter, Report, RuleCard
    from jobreport.remarks import Remark

#: Gaps with a row of their own; a job that pauses all day does not make the page longer.
MOST_GAPS = 50
#: Remarks with a line of their own in a table.
MOST_REMARKS = 50


@error_boundary
def quality(report: Report) -> Fragment:
    """What was read, skipped and missing; what the words mean; how to make the report again."""
    gaps = sorted(report.phases.gaps, key=lambda gap: gap.start_us - gap.end_us)
    html = render(
        "quality",
        heading=heading("quality", report),
        covers=covers_time(report) and report.origin is Origin.SAMPLES,
        report=report,
        remarks=_told,
        most_remarks=MOST_REMARKS,
        gaps=sorted(gaps[:MOST_GAPS], key=lambda gap: (gap.start_us, gap.node)),
        gaps_left=max(0, len(gaps) - MOST_GAPS),
        with_day=formats.spans_days(report.job.start_us, report.job.end_us),
        changed=_parameters(report, changed=True),
        usual=_parameters(report, changed=False),
        definitions=_definitions(report),
    )
    return Fragment(name="quality", html=html)


def _parameters(report: Report, *, changed: bool) -> list[tuple[RuleCard, list[Parameter]]]:
    """The parameters of each rule that are, or are not, at their defaults."""
    found = [
        (card, [p for p in card.parameters if (p.value != p.default) is changed]) for card in report.rules
    ]
    return [(card, held) for card, held in found if held]


def _told(remark: Remark) -> str:
    """``12 lines skipped: not a complete JSON object (first: a/b.json:7)``."""
    unit = remark.unit[:-1] if remark.count == 1 and remark.unit.endswith("s") else remark.unit
    where = f" (first: {formats.escape_name(remark.place, 120)})" if remark.place else ""
    return f"{formats.number(remark.count, 0)}{formats.NBSP}{unit} {remark.action}: {remark.reason}{where}"


def _definitions(report: Report) -> list[tuple[str, str]]:
    use, job = report.verdict.use, report.job
    told = []
    if report.origin is Origin.DEBUGGER_RESULTS:
        return [
            ("Vendor's number", "As the vendor's service wrote it, not computed again from samples."),
            (
                "Ids as LGU-4",
                "Known defects of the vendor's numbers; jobreport's documentation lists them all in "
                "differences.md, with what our own numbers do.",
            ),
            _P95,
            _WHISKERS,
        ]
    if use:
        word = "GPUs" if use.device == "GPU" else "cores"
        total = f"{formats.number(use.hours, use.digits)}{formats.NBSP}{use.noun}-hours"
        told += [
            (
                f"{use.device} time",
                f"{formats.count(use.count, word[:-1], word)} × {formats.duration(job.end_us - job.start_us)} = {total}",
            ),
            (
                "Used",
                f"Utilization of each {word[:-1]}, summed over its samples; a sample holds until the next one. "
                + (
                    "It says that a kernel was running, not how well it filled the GPU."
                    if use.device == "GPU"
                    else "The rest was free."
                ),
            ),
        ]
        if use.device == "GPU":
            told.append(
                (
                    "Lost",
                    "What is left of the measured time. Each moment of a GPU is told once: with the first cause "
                    "that holds, or as unexplained, idle (a sample under "
                    "10%) or partly used.",
                )
            )
    told += [
        (
            "Not measured",
            f"Time without samples for more than 60{formats.NBSP}s and more than ten sampling intervals. "
            "Shares of GPU and core time are of all of it, measured or not.",
        ),
        ("Snapshot", "What the sampler of one node read at the same moment from all its GPUs and cores."),
        _P95,
        _WHISKERS,
    ]
    return told


_P95 = ("p95", "95% of the values lie at or below it; p50 is the median.")
_WHISKERS = ("Whiskers", "The farthest samples, but at most 1.5 times the height of the box away from it.")
