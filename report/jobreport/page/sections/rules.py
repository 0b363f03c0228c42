"""A card per rule that was evaluated, a line per other rule; in folds, but for what triggered or failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec import Struct

from jobreport import formats
from jobreport.page.kit import Html
from jobreport.page.kit.marks import unbroken
from jobreport.page.sections.outline import ANCHORS, has_edges, section
from jobreport.page.sections.verdict import SIGNS
from jobrules.model import ReasonKind, Status
from jobrules.rule import with_unit

if TYPE_CHECKING:
    from jobreport.document import Report, RuleCard
    from jobreport.page.kit.section import Content
    from jobrules.model import Measure, Reason

#: Reasons of devices that a card lists.
MAX_REASONS = 4

#: Share of GPU time that the card of a rule that passed names.
WORTH_NAMING = 0.005

#: What a reader sees without opening a fold.
_OPEN = (Status.TRIGGERED, Status.ERROR)


class Bullet(Struct, frozen=True, kw_only=True):
    """A value against its thresholds, in percent of the bar."""

    width: float
    limits: tuple[float, ...]
    #: Left end and width of what is bad; without, there is no bar.
    bad: tuple[tuple[float, float], ...]
    value: str
    limit: str


class Card(Struct, frozen=True, kw_only=True):
    """A rule as printed."""

    card: RuleCard
    style: str
    word: str
    bullet: Bullet | None
    link: str | None
    #: Why a rule was not evaluated; empty if it was.
    reason: str
    #: What it explains if that is too little for a finding; empty otherwise.
    explains: str
    #: Devices that were not evaluated, and why; empty if all were, or none for the one reason of the rule.
    missing: str
    #: First and last violation, as two parts that do not break; empty if not known.
    when: tuple[str, ...]
    #: ``threshold=50%``.
    parameters: tuple[str, ...]


class NotEvaluated(Struct, frozen=True, kw_only=True):
    """Rules that were not evaluated for one reason."""

    names: tuple[str, ...]
    reason: str
    missing: str
    notes: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.names)


@section
def rules(report: Report) -> Content:
    """Cards by severity, then errors; folds of what passed, was not evaluated, or does not apply."""
    judging = report.judging
    summaries = [card for card in report.rules if not card.can_trigger]
    silent = [card for card in judging if card.status is Status.NOT_EVALUATED]
    inapplicable: dict[str, list[RuleCard]] = {}
    for card in silent:
        if card.reason and not _applies(card):
            inapplicable.setdefault(card.reason.sentence, []).append(card)
    return [
        Markup('{} <span class="m">Advice and details of a rule: <code>{}</code>.</span>').format(
            _lead(report, judging), unbroken("make-report --explain RULE")
        ),
        Html.of(
            "rules",
            cards=[_card(report, card) for card in judging if card.status in _OPEN],
            passed=[_card(report, card) for card in judging if card.status is Status.PASSED],
            sign=SIGNS[Status.NOT_EVALUATED],
            silent=_by_reason([card for card in silent if _applies(card)]),
            inapplicable=inapplicable,
            summaries=[_card(report, card) for card in summaries if card.status is not Status.NOT_EVALUATED],
            no_summaries=_by_reason([card for card in summaries if card.status is Status.NOT_EVALUATED]),
            debugger=report.of_debugger,
        ),
    ]


def _by_reason(silent: list[RuleCard]) -> list[NotEvaluated]:
    """The rules with one reason together, in the order of the first of each."""
    names: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for card in silent:
        key = (card.reason.sentence if card.reason else "", _missing(card), tuple(card.notes))
        names.setdefault(key, []).append(card.name)
    return [
        NotEvaluated(names=tuple(found), reason=reason, missing=missing, notes=notes)
        for (reason, missing, notes), found in names.items()
    ]


def _applies(card: RuleCard) -> bool:
    return card.reason is None or card.reason.kind is not ReasonKind.NOT_APPLICABLE


def _card(report: Report, card: RuleCard) -> Card:
    sign = report.sign(card)
    style, word = SIGNS[sign]
    section = card.section if card.section in ANCHORS - {"rules"} else None
    return Card(
        card=card,
        style=style,
        word=f"Triggered, {sign}" if card.status is Status.TRIGGERED else word,
        bullet=_bullet(card, card.measure)
        if card.measure and card.measure.bad and card.was_evaluated
        else None,
        link=section if card.was_evaluated else None,
        reason=card.reason.sentence if card.reason else "",
        explains=_explains(report, card),
        missing=_missing(card),
        when=_when(card, with_day=report.job.spans_days),
        parameters=tuple(f"{one.name}={with_unit(one.value, one.unit)}" for one in card.parameters),
    )


def _explains(report: Report, card: RuleCard) -> str:
    """``Explains 1.4% of GPU time.`` if that is too little for a finding."""
    share = report.verdict.explains.get(card.name, 0.0)
    named = any(card.name in finding.rules for finding in report.verdict.findings)
    if named or not card.was_evaluated or (card.status is Status.PASSED and share < WORTH_NAMING):
        return ""
    return f"Explains {formats.share(share)} of GPU time." if card.name in report.verdict.explains else ""


def _when(card: RuleCard, *, with_day: bool) -> tuple[str, ...]:
    """``08:26:31``, ``11:22:49 UTC``; with dates in a job of several days."""
    if card.first_us is None or card.last_us is None:
        return ()
    first = formats.column_time(card.first_us, with_day=with_day)
    return first, formats.moment(card.last_us, with_day=with_day)


def _missing(card: RuleCard) -> str:
    """Devices that were not evaluated, by reason."""
    by_reason: dict[Reason, list[str]] = {}
    for device in card.devices:
        if device.reason and device.status is Status.NOT_EVALUATED and device.reason != card.reason:
            by_reason.setdefault(device.reason, []).append(device.name)
    rows = [f"{formats.join_names(names)} ({reason})" for reason, names in by_reason.items()]
    more = [formats.count(len(rows) - MAX_REASONS, "more reason")] if len(rows) > MAX_REASONS else []
    return "; ".join([*rows[:MAX_REASONS], *more])


def _bullet(card: RuleCard, measure: Measure) -> Bullet:
    """The bar of a value that the rule judged: a value of more than one condition may be bad where the rule passed."""

    def place(value: float) -> float:
        return round(min(100.0, max(0.0, 100 * value / measure.scale)), 1) if measure.scale > 0 else 0.0

    if measure.unit == "min":  # as in the headline
        value = formats.duration(60e6 * measure.value)
    else:
        digits = 2 if measure.scale < 10 else 1
        space = "" if measure.unit.startswith("%") else formats.NBSP
        value = f"{formats.number(measure.value, digits)}{space}{measure.unit}".strip()
    is_judged = measure.is_bad == (card.status is Status.TRIGGERED)
    return Bullet(
        width=place(measure.value),
        limits=tuple(place(limit) for limit in measure.limits),
        bad=tuple((place(start), place(end) - place(start)) for start, end in measure.bad_parts)
        if is_judged
        else (),
        value=value,
        limit=measure.limit_text,
    )


#: What becomes of rules that did not trigger.
_OUTCOMES = {Status.PASSED: "passed", Status.NOT_EVALUATED: "not evaluated", Status.ERROR: "failed"}


def _lead(report: Report, judging: list[RuleCard]) -> str:
    """``3 of 18 rules triggered, 8 passed, 7 were not evaluated.``, and which of them form one finding."""
    if not judging:
        return "No rule was selected."
    apply = [card for card in judging if _applies(card)]
    n = {status: sum(card.status is status for card in apply) for status in Status}
    outcomes = [f"{n[Status.TRIGGERED]} of {formats.count(len(apply), 'rule')} triggered"]
    outcomes += [f"{n[status]} {word}" for status, word in _OUTCOMES.items() if n[status]]
    sentences = [f"{', '.join(outcomes)}."]
    if has_edges(report) and any(card.was_evaluated for card in judging) and not report.of_debugger:
        of_others = "; those of SageMaker Debugger do not" if report.has_debugger else ""
        sentences.append(
            f"Results leave out start-up and wind-down{of_others}; rules/*.json hold those of the whole job."
        )
    if report.of_debugger:
        sentences.append(
            "All numbers are from SageMaker Debugger's rule results, up to the last full minute. Known errors are "
            "listed on each card."
        )
    joined = next((f for f in report.verdict.findings if len(f.rules) > 1), None)
    if joined:
        sentences.append(f"{formats.join_names(joined.rules)} form one finding.")
    return " ".join(sentences)
