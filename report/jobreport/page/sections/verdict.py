"""The answer for a reader with ten seconds, and the findings behind it."""

from __future__ import annotations

import itertools
import re
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.cost import words
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.sections.outline import ANCHORS, has_edges, section
from jobrules.model import Severity, Status, in_words
from jobrules.model.time_parts import named
from jobrules.verdict.not_evaluated import by_reason
from jobrules.verdict.profiled import coverage, profiled_lost, profiled_used

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jobreport.document import Report
    from jobrules.model import Finding
    from jobrules.model.time_parts import TimePart
    from jobrules.verdict.time_use import TimeUse

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
    """A part of the bar."""

    part: TimePart
    fill: str
    #: Where it starts, in percent of the bar.
    at: float
    amount: str
    #: Anchor of the finding that explains it; None if none does.
    link: str | None


class Bar(Struct, frozen=True, kw_only=True):
    """A time in parts; a part without width keeps its line in the legend."""

    label: str
    #: ``GPU-h``, or ``GPU-s`` of the profiled time.
    unit: str
    segments: Sequence[Segment]


@section
def verdict(report: Report) -> Fragment:
    """Used share of the device time, main cause of the rest, advice, and what was not checked."""
    use = report.verdict.use
    first = report.verdict.main_finding
    cause, second = report.verdict.has_cause, report.verdict.second_cause
    profiled = report.verdict.profiled or None
    hours, part = formats.amount(first, use) if first else ("", "")
    html = render(
        "verdict",
        use=use,
        debugger=report.of_debugger,
        median=formats.median(report.utilization),
        number=f"{use.of('used')[1]:.1f}" if use else "",
        lost=formats.lost(report.verdict, use, report.phases) if use else "",
        money=words.lost_money(report.cost) if report.cost else "",
        use_bar=_bar(
            report,
            f"{use.amount(use.hours)} {use.units}",
            use.parts,
            partial(formats.part_hours, use, report.phases),
            use.unit,
        )
        if use
        else None,
        profiled=profiled,
        profiled_number=f"{profiled.of('used'):.1f}" if profiled else "",
        profiled_used=profiled_used(profiled) if profiled else "",
        profiled_lost=profiled_lost(profiled) if profiled else "",
        profiled_bar=_bar(
            report,
            f"{formats.number(profiled.gpu_s, profiled.digits)} profiled GPU-seconds",
            profiled.parts,
            lambda part: formats.number(part.amount, profiled.digits),
            "GPU-s",
        )
        if profiled
        else None,
        coverage=coverage(profiled) if profiled else (),
        first=first,
        verdict=report.verdict,
        advice=report.verdict.advice,
        cause=cause,
        second=second,
        second_amount=", ".join(filter(None, formats.amount(second, use))) if second else "",
        links=anchors(report.verdict.findings),
        amount=", ".join(filter(None, (hours, part))),
        gain=hours if cause else "",
        without_finding=report.verdict.without_finding,
        evaluated=_is_evaluated(report),
        how_many=report.verdict.how_many,
        groups=by_reason(report.verdict.not_evaluated),
    )
    return Fragment(name="verdict", html=html)


@section
def findings(report: Report) -> Fragment:
    """All findings, worst first, each with a link to its evidence."""
    verdict = report.verdict
    rows = [
        {
            "finding": finding,
            "evidence": in_words(finding.evidence),
            # The verdict shows the advice of the main finding.
            "advice": () if finding is verdict.main_finding else finding.advice,
            "anchor": anchor,
            "sign": SIGNS[finding.severity],
            "link": finding.section if finding.section in ANCHORS else None,
            "amount": _amount(finding, verdict.use),
        }
        for finding, anchor in zip(verdict.findings, _anchors(verdict.findings), strict=True)
    ]
    html = render(
        "findings",
        rows=rows,
        whole=verdict.use.time if verdict.use and has_edges(report) and not report.of_debugger else "",
        cards={card.name for card in report.rules},
        debugger=report.of_debugger,
    )
    return Fragment(name="findings", html=html)


def _is_evaluated(report: Report) -> bool:
    """True if any rule was evaluated; that none was is said under "Not checked"."""
    return report.verdict.missing < report.verdict.rules


def anchors(findings: Sequence[Finding]) -> dict[str, str]:
    """The anchor of each finding by its key; of the first if two share one."""
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


def _bar(
    report: Report, whole: str, parts: Sequence[TimePart], amount: Callable[[TimePart], str], unit: str
) -> Bar:
    links = anchors(report.verdict.findings)
    starts = itertools.accumulate((part.percent for part in parts), initial=0.0)
    shares = ", ".join(f"{part.label} {formats.percent(part.percent)}" for part in parts)
    return Bar(
        label=f"{whole}: {shares}",
        unit=unit,
        segments=[
            Segment(
                part=part,
                fill=named(part.key).fill,
                at=round(at, 1),
                amount=amount(part),
                link=links.get(part.finding),
            )
            for part, at in zip(parts, starts, strict=False)
        ],
    )


def _amount(finding: Finding, use: TimeUse | None) -> tuple[str, str]:
    """(large, small): the hours with their share below, or the share with what it is of."""
    hours, part = formats.amount(finding, use)
    if hours or finding.share is None:
        return hours, part
    return formats.share(finding.share), finding.share_of
