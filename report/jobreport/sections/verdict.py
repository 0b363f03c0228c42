"""The answer for a reader with ten seconds, and the findings behind it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.document import Origin
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import ANCHORS
from jobrules.result import Severity, Status

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobrules.result import Finding, TimeUse

#: Class that fills a part of the bar; lost time in four shades of one colour.
FILLS = {
    "used": "u",
    "idle": "l",
    "partly": "l2",
    "idle-before": "l3",
    "idle-after": "l4",
    "unmeasured": "x",
}
#: The same for CPU cores, whose free time is no loss: shades that are neither good nor bad.
CPU_FILLS = FILLS | {"idle": "n1", "partly": "f2", "idle-before": "f3", "idle-after": "f3"}
#: Class and word of a status or severity.
SIGNS = {
    Severity.CRITICAL: ("crit", "Critical"),
    Severity.WARNING: ("warn", "Warning"),
    Severity.INFO: ("info", "Info"),
    Status.PASSED: ("pass", "Passed"),
    Status.NOT_EVALUATED: ("off", "Not evaluated"),
    Status.ERROR: ("err", "Error"),
}


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A part of the bar, in percent of its width."""

    fill: str
    label: str
    at: float
    width: float
    hours: str
    percent: float


def verdict(report: Report) -> Fragment:
    """How much of the device time was used, why not more, what to try, what was not checked."""
    use = report.verdict.use
    findings = report.verdict.findings
    first = findings[0] if findings else None
    html = render(
        "verdict",
        use=use,
        vendor=_vendor(report) if report.origin is Origin.VENDOR else None,
        number=f"{use.of('used')[1]:.1f}" if use else "",
        lost=_hours(use, use.of("lost")[0]) if use else "",
        unknown=_hours(use, use.of("unknown")[0]) if use and use.of("unknown")[0] else "",
        whole=_hours(use, use.hours) if use else "",
        never=use is not None and use.device == "GPU" and report.course.first_work_us is None,
        segments=_segments(use) if use else (),
        bar_label=_bar_label(use) if use else "",
        why_none=_why_none(report),
        first=first,
        amount=", ".join(filter(None, formats.amount(first, use))) if first else "",
        advice=_first_sentence(first.advice) if first else ("", ""),
        unanswered=report.verdict.unanswered,
        rules=report.verdict.rules,
        signs=SIGNS,
    )
    return Fragment(name="verdict", html=html)


def findings(report: Report) -> Fragment:
    """Everything worth telling, worst first, each with a link to its evidence."""
    use = report.verdict.use
    rows = [
        {
            "finding": finding,
            "sign": SIGNS[finding.severity],
            "link": finding.section if finding.section in ANCHORS else None,
            "amount": _amount(finding, use),
        }
        for finding in report.verdict.findings
    ]
    cards = {card.name for card in report.rules}
    return Fragment(
        name="findings",
        html=render(
            "findings",
            rows=rows,
            cards=cards,
            unanswered=len(report.verdict.unanswered),
            vendor=report.origin is Origin.VENDOR,
        ),
    )


def _hours(use: TimeUse, hours: float) -> str:
    return formats.number(hours, use.digits)


def _segments(use: TimeUse) -> list[Segment]:
    """Parts side by side; what has no width on the bar keeps its line in the legend."""
    fills = FILLS if use.device == "GPU" else CPU_FILLS
    segments, at = [], 0.0
    for part in use.parts:
        segments.append(
            Segment(
                fill=fills.get(part.key, "x" if part.role == "unknown" else "l"),
                label=part.label,
                at=round(at, 1),
                width=part.percent,
                hours=_hours(use, part.hours) if part.hours else f"under {10**-use.digits:g}",
                percent=part.percent,
            )
        )
        at += part.percent
    return segments


def _bar_label(use: TimeUse) -> str:
    parts = ", ".join(f"{part.label} {formats.percent(part.percent)}" for part in use.parts)
    return f"{_hours(use, use.hours)} {use.noun}-hours: {parts}"


@dataclass(frozen=True, kw_only=True)
class Vendor:
    """What the vendor's numbers allow to say of the use; empty where they hold none."""

    device: str
    p50: str
    p95: str
    nodes: int


def _vendor(report: Report) -> Vendor:
    for device in ("GPU", "CPU"):
        rows = [row for row in report.usage if row.label == device]
        if rows:
            p50, p95 = (formats.spread(getattr(row, q) for row in rows) for q in ("p50", "p95"))
            return Vendor(device=device, p50=p50.partition(formats.NBSP)[0], p95=p95, nodes=len(rows))
    return Vendor(device="", p50="", p95="", nodes=0)


def _why_none(report: Report) -> str:
    if not any(row.label in ("GPU", "CPU") for row in report.usage):
        return "neither GPUs nor CPU cores were sampled"
    return "the samples cover no time"


def _amount(finding: Finding, use: TimeUse | None) -> tuple[str, str]:
    """(large, small): the amount with its share below it, or the share's number with what it is of."""
    hours, part = formats.amount(finding, use)
    if hours:
        return hours, part
    large, _, small = part.partition(" ")
    return large, small


def _first_sentence(text: str) -> tuple[str, str]:
    head, end, rest = re.sub(r"\s+", " ", text).partition(". ")
    return (head + end.rstrip(), rest) if rest else (text, "")
