"""One card a rule, also the quiet ones; a line for what could not be judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import ANCHORS, heading
from jobreport.sections.verdict import SIGNS
from jobrules.model import Severity, Status

if TYPE_CHECKING:
    from jobreport.document import Report, RuleCard
    from jobrules.model import Measure

#: Reasons that a card tells.
MOST_REASONS = 4

_ORDER = [*Severity, Status.ERROR, Status.PASSED, Status.NOT_EVALUATED]


class Bullet(Struct, frozen=True, kw_only=True):
    """A value against its limits, in percent of the bar."""

    width: float
    limits: tuple[float, ...]
    value: str
    limit: str


class Card(Struct, frozen=True, kw_only=True):
    """A rule as printed."""

    card: RuleCard
    style: str
    word: str
    bullet: Bullet | None
    link: str | None
    #: Which devices were not judged, and why; empty where all were, or none for the one reason of the rule.
    missing: str
    #: When it was first and last in violation, as two parts that do not break; empty where that is not known.
    when: tuple[str, ...]


@error_boundary
def rules(report: Report) -> Fragment:
    """Cards by severity, then errors, then what passed; a line each for what was not evaluated."""
    judging = [card for card in report.rules if card.can_trigger]
    ranked = sorted(judging, key=lambda card: (_ORDER.index(_sign(report, card)), -card.severity, card.name))
    silent = [card for card in ranked if card.status is Status.NOT_EVALUATED]
    html = render(
        "rules",
        heading=heading("rules", report),
        lead=_lead(report, judging),
        cards=[_card(report, card) for card in ranked if card not in silent],
        silent=[_card(report, card) for card in silent],
        summaries=[card for card in report.rules if not card.can_trigger],
        signs=SIGNS,
        vendor=report.origin is Origin.DEBUGGER_RESULTS,
    )
    return Fragment(name="rules", html=html)


def _sign(report: Report, card: RuleCard) -> Severity | Status:
    """A triggered rule is as severe as the worst finding that it belongs to."""
    if card.status is not Status.TRIGGERED:
        return card.status
    found = [f.severity for f in report.verdict.findings if card.name in f.rules]
    return min(found, key=list(Severity).index, default=Severity.WARNING)


def _card(report: Report, card: RuleCard) -> Card:
    sign = _sign(report, card)
    style, word = SIGNS[sign]
    answered = card.status in (Status.TRIGGERED, Status.PASSED)
    section = card.section if card.section in ANCHORS - {"rules"} else None
    return Card(
        card=card,
        style=style,
        word=f"Triggered, {sign}" if card.status is Status.TRIGGERED else word,
        bullet=_bullet(card.measure) if card.measure and answered else None,
        link=section if answered else None,
        missing=_missing(card),
        when=_when(card, with_day=formats.spans_days(report.job.start_us, report.job.end_us)),
    )


def _when(card: RuleCard, *, with_day: bool) -> tuple[str, ...]:
    """``08:26:31``, ``11:22:49 UTC``; with dates in a job of several days."""
    if card.first_us is None or card.last_us is None:
        return ()
    first = formats.column_time(card.first_us, with_day=with_day)
    return first, formats.moment(card.last_us, with_day=with_day)


def _missing(card: RuleCard) -> str:
    """Devices by the reason why they were not judged."""
    by_reason: dict[str, list[str]] = {}
    for device in card.devices:
        if device.status is Status.NOT_EVALUATED and device.reason != card.reason:
            by_reason.setdefault(device.reason, []).append(device.name)
    told = [f"{formats.join_names(names)} ({reason})" for reason, names in by_reason.items()]
    more = f"; {formats.count(len(told) - MOST_REASONS, 'more reason')} in report.json"
    return "; ".join(told[:MOST_REASONS]) + (more if len(told) > MOST_REASONS else "")


def _bullet(measure: Measure) -> Bullet:
    def place(value: float) -> float:
        return round(min(100.0, max(0.0, 100 * value / measure.scale)), 1) if measure.scale > 0 else 0.0

    if measure.unit == "min":  # as in the headline
        value = formats.duration(60e6 * measure.value)
    else:
        digits = 2 if measure.scale < 10 else 1
        value = f"{formats.number(measure.value, digits)}{formats.NBSP}{measure.unit}".strip()
    return Bullet(
        width=place(measure.value),
        limits=tuple(place(limit) for limit in measure.limits),
        value=value,
        limit=measure.limit_text,
    )


def _lead(report: Report, judging: list[RuleCard]) -> str:
    """How many rules said what, and the one that matters most."""
    if not judging:
        return "No rule was selected."
    counts = {status: sum(card.status is status for card in judging) for status in Status}
    total = formats.count(len(judging), "rule")
    told = [f"{counts[Status.TRIGGERED] or 'None'} of {total} triggered"]
    for status, word in (
        (Status.PASSED, "passed"),
        (Status.NOT_EVALUATED, "not evaluated"),
        (Status.ERROR, "stopped with an error"),
    ):
        n = counts[status]
        verb = "" if status is not Status.NOT_EVALUATED else "was " if n == 1 else "were "
        if n:
            told.append(f"{n} {verb}{word}")
    text = ", ".join(told) + "."
    if report.origin is Origin.DEBUGGER_RESULTS:
        text += (
            " All numbers here are the vendor's; nothing was judged again but what a card says. Thresholds are those that the "
            "vendor's service ran with. Every count ends "
            "with the last full minute (C-1). Below a card stands what its number is known to get wrong."
        )
    joined = next((f for f in report.verdict.findings if len(f.rules) > 1), None)
    if joined:
        text += f" {formats.join_names(joined.rules)} are told as one finding."
    return text
