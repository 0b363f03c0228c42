"""The answer for a reader with ten seconds, and the findings behind it."""

from __future__ import annotations

import itertools
import re
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.ended import ENDED, Ended
from jobreport.headline import headline, learned
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.sections.outline import ANCHORS, has_edges, section
from jobrules.model import SECOND_US, Severity, Status, in_words
from jobrules.model.time_parts import ROLES, TimePart, named
from jobrules.text import NBSP, duration
from jobrules.verdict.profiled import coverage, profiled_lost, profiled_used

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jobreport.document import Report
    from jobrules.model import Finding
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


#: Several lost parts that are smaller are one in the bar, in percent.
SMALL_PERCENT = 1.5


class Segment(Struct, frozen=True, kw_only=True):
    """A part of the bar."""

    part: TimePart
    fill: str
    #: Where it starts, in percent of the bar.
    at: float
    #: With its unit.
    amount: str
    #: What the name of the part means.
    about: str
    #: Anchor of the finding that explains it; None if none does.
    link: str | None


class Bar(Struct, frozen=True, kw_only=True):
    """A time in parts; a part without width keeps its line in the legend."""

    label: str
    segments: Sequence[Segment]


@section
def verdict(report: Report) -> Fragment:
    """Used share of the device time, main cause of the rest, advice, and what was not checked."""
    verdict, said = report.verdict, headline(report)
    use, profiled, lead = verdict.use, verdict.profiled or None, verdict.lead
    html = render(
        "verdict",
        said=said,
        learned=learned(report),
        use_bar=_use_bar(report),
        # Beside samples, the time in traces has a line of its own.
        profiled=f"{profiled_used(profiled)}. {profiled_lost(profiled)}" if use and profiled else "",
        profiled_percent=formats.percent(profiled.of("used")) if profiled else "",
        profiled_bar=_bar(
            report,
            f"{formats.number(profiled.gpu_s, profiled.digits)} profiled GPU-seconds",
            profiled.parts,
            lambda part: f"{formats.number(part.amount, profiled.digits)}{NBSP}GPU-s",
        )
        if profiled
        else None,
        coverage=coverage(profiled) if profiled else (),
        verdict=verdict,
        evidence=anchors(verdict.findings)[lead.key] if lead else "",
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
            # The verdict shows the advice of the lead.
            "advice": () if finding is verdict.lead else finding.advice,
            "anchor": anchor,
            "sign": SIGNS[finding.severity],
            "link": finding.section if finding.section in ANCHORS else None,
            "amount": _lost_with(report.ended)
            if report.ended and finding.key == ENDED
            else _amount(finding, verdict.use),
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


def _use_bar(report: Report) -> Bar | None:
    """The time of the GPUs; without samples of them the time of the job by what training did, or else of the cores."""
    use, found = report.verdict.use, report.goodput
    if found and not (use and use.device == "GPU"):
        whole = f"{formats.seconds(found.seconds)} of the job"
        parts = sorted(found.parts, key=lambda part: (ROLES.index(part.role), -part.amount))
        return _bar(report, whole, parts, lambda part: formats.seconds(part.amount))
    if not use:
        return None
    hours = partial(formats.part_hours, use, report.phases)
    whole = f"{use.amount(use.hours)} {use.units}"
    return _bar(report, whole, use.parts, lambda part: f"{hours(part)}{NBSP}{use.unit}")


def _bar(report: Report, whole: str, parts: Sequence[TimePart], amount: Callable[[TimePart], str]) -> Bar:
    links = anchors(report.verdict.findings)
    parts = _with_small_ones_joined([part for part in parts if part.percent or part.role == "used"])
    starts = itertools.accumulate((part.percent for part in parts), initial=0.0)
    shares = ", ".join(f"{part.label} {formats.percent(part.percent)}" for part in parts)
    return Bar(
        label=f"{whole}: {shares}",
        segments=[
            Segment(
                part=part,
                fill=named(part.key).fill,
                about=named(part.key).about,
                at=round(at, 1),
                amount=amount(part),
                link=links.get(part.finding or part.key),
            )
            for part, at in zip(parts, starts, strict=False)
        ],
    )


def _with_small_ones_joined(parts: Sequence[TimePart]) -> list[TimePart]:
    """Of several small lost parts, one that stands last of the lost ones."""
    other = "other-causes"
    small = [p for p in parts if p.role == "lost" and (p.percent < SMALL_PERCENT or p.key == other)]
    if len(small) < 2:
        return list(parts)
    joined = TimePart(
        key=other,
        label=named(other).of_device,
        role="lost",
        amount=sum(part.amount for part in small),
        percent=round(sum(part.percent for part in small), 1),
    )
    left = [part for part in parts if part not in small]
    after = max((i for i, part in enumerate(left) if part.role in ("used", "lost")), default=-1) + 1
    return [*left[:after], joined, *left[after:]]


def _lost_with(end: Ended) -> tuple[str, str]:
    """The training that was lost with the job."""
    return (duration(end.lost_s * SECOND_US), "of training lost") if end.lost_steps else ("", "")


def _amount(finding: Finding, use: TimeUse | None) -> tuple[str, str]:
    """(large, small): the hours with their share below, or the share with what it is of."""
    hours, part = formats.amount(finding, use)
    if hours or finding.share is None:
        return hours, part
    return formats.share(finding.share), finding.share_of
