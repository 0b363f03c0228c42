"""The answer for a reader with ten seconds, and the findings behind it."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import ANCHORS
from jobrules.model import Severity, Status
from jobrules.verdict.findings import by_reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobrules.model import Finding
    from jobrules.verdict.findings import ReasonGroup
    from jobrules.verdict.time_use import TimeUse

#: Classes that fill the parts of lost time by their kind, the same in every report: shades of one color.
LOST_FILLS = {
    "before-first-step": "l2",
    "idle-before": "l2",
    "idle-after": "l2",
    "idle": "l3",
    "partly": "l4",
    "other-gpus": "l4",
}
#: The shade of a cause.
CAUSE_FILL = "l"
#: The same for CPU cores, whose free time is no loss: shades that are neither good nor bad.
FREE_FILLS = {"idle": "n1", "partly": "f2", "idle-before": "f3", "idle-after": "f3"}
#: Reasons that are listed for what was not checked.
MOST_REASONS = 4
#: Class and word of a status or severity.
SIGNS = {
    Severity.CRITICAL: ("crit", "Critical"),
    Severity.WARNING: ("warn", "Warning"),
    Severity.INFO: ("info", "Info"),
    Status.PASSED: ("pass", "Passed"),
    Status.NOT_EVALUATED: ("off", "Not evaluated"),
    Status.ERROR: ("err", "Error"),
}


class Segment(Struct, frozen=True, kw_only=True):
    """A part of the bar, in percent of its width."""

    fill: str
    label: str
    at: float
    width: float
    hours: str
    percent: float
    #: Anchor of the finding that tells it; none where none does.
    link: str | None


@error_boundary
def verdict(report: Report) -> Fragment:
    """How much of the device time was used, why not more, what to try, what was not checked."""
    use = report.verdict.use
    first = report.verdict.main_finding
    cause = report.verdict.has_cause
    hours, part = formats.amount(first, use) if first else ("", "")
    html = render(
        "verdict",
        use=use,
        vendor=_vendor(report) if report.origin is Origin.DEBUGGER_RESULTS else None,
        number=f"{use.of('used')[1]:.1f}" if use else "",
        lost=_hours(use, use.of("lost")[0]) if use else "",
        unknown=_hours(use, use.of("unknown")[0]) if use and use.of("unknown")[0] else "",
        whole=_hours(use, use.hours) if use else "",
        never=use is not None and not use.unknown and formats.never_used(use, report.phases),
        segments=_segments(report, use) if use else (),
        bar_label=_bar_label(use) if use else "",
        why_none=_why_none(report),
        first=first,
        cause=cause,
        link=anchors(report.verdict.findings).get(first.key) if first else None,
        amount=", ".join(filter(None, (hours, part))),
        wins=hours if cause else "",
        advice=_first_sentence(first.advice) if first else ("", ""),
        unanswered=len(report.verdict.not_evaluated),
        open=_not_checked(report)[0],
        left=_not_checked(report)[1],
        rules=report.verdict.rules,
        signs=SIGNS,
    )
    return Fragment(name="verdict", html=html)


@error_boundary
def findings(report: Report) -> Fragment:
    """Everything worth telling, worst first, each with a link to its evidence."""
    use = report.verdict.use
    rows = [
        {
            "finding": finding,
            "anchor": anchor,
            "sign": SIGNS[finding.severity],
            "link": finding.section if finding.section in ANCHORS else None,
            "amount": _amount(finding, use),
        }
        for finding, anchor in zip(report.verdict.findings, _anchors(report.verdict.findings), strict=True)
    ]
    cards = {card.name for card in report.rules}
    return Fragment(
        name="findings",
        html=render(
            "findings",
            rows=rows,
            cards=cards,
            unanswered=len(report.verdict.not_evaluated),
            vendor=report.origin is Origin.DEBUGGER_RESULTS,
        ),
    )


def _not_checked(report: Report) -> tuple[list[ReasonGroup], str]:
    """Rules by reason, and how many are left out; four lines at most."""
    groups = by_reason(report.verdict.not_evaluated)
    kept = groups if len(groups) <= MOST_REASONS else groups[: MOST_REASONS - 1]
    left = groups[len(kept) :]
    rules = formats.count(sum(len(one.rules) for one in left), "more rule")
    return list(kept), f"{rules} for {len(left)} other reasons" if left else ""


def _hours(use: TimeUse, hours: float) -> str:
    return formats.number(hours, use.digits)


def anchors(findings: Sequence[Finding]) -> dict[str, str]:
    """The anchor of each finding by its key; of the first where two share one."""
    found: dict[str, str] = {}
    for finding, anchor in zip(findings, _anchors(findings), strict=True):
        found.setdefault(finding.key, anchor)
    return found


def _anchors(findings: Sequence[Finding]) -> list[str]:
    """``f-low-gpu-utilization``, and ``f-low-gpu-utilization-2`` for the second of one key."""
    used: set[str] = set()
    result = []
    for finding in findings:
        name = "f-" + re.sub(r"[^A-Za-z0-9_-]", "-", finding.key)
        numbered = (f"{name}-{i}" for i in itertools.count(2))
        anchor = next(one for one in itertools.chain([name], numbered) if one not in used)
        used.add(anchor)
        result.append(anchor)
    return result


def _segments(report: Report, use: TimeUse) -> list[Segment]:
    """Parts side by side; what has no width on the bar keeps its line in the legend."""
    links = anchors(report.verdict.findings)
    segments, at = [], 0.0
    for part in use.parts:
        fill = {"used": "u", "unknown": "x"}.get(part.role)
        if fill is None:
            fill = (
                LOST_FILLS.get(part.key, CAUSE_FILL)
                if use.device == "GPU"
                else FREE_FILLS.get(part.key, "n1")
            )
        segments.append(
            Segment(
                fill=fill,
                label=part.label,
                at=round(at, 1),
                width=part.percent,
                hours=formats.part_hours(use, report.phases, part),
                percent=part.percent,
                link=links.get(part.finding) if part.finding else None,
            )
        )
        at += part.percent
    return segments


def _bar_label(use: TimeUse) -> str:
    parts = ", ".join(f"{part.label} {formats.percent(part.percent)}" for part in use.parts)
    return f"{_hours(use, use.hours)} {use.noun}-hours: {parts}"


class Vendor(Struct, frozen=True, kw_only=True):
    """What the vendor's numbers allow to say of the use; empty where they hold none."""

    device: str
    p50: str
    p95: str
    nodes: int


def _vendor(report: Report) -> Vendor:
    for device in ("GPU", "CPU"):
        rows = [row for row in report.utilization if row.label == device]
        if rows:
            p50, p95 = (formats.spread(getattr(row, q) for row in rows) for q in ("p50", "p95"))
            return Vendor(device=device, p50=p50.partition(formats.NBSP)[0], p95=p95, nodes=len(rows))
    return Vendor(device="", p50="", p95="", nodes=0)


def _why_none(report: Report) -> str:
    if not any(row.label in ("GPU", "CPU") for row in report.utilization):
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
