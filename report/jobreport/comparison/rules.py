"""The rules of all variants next to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.comparison.document import Rule, RuleResult
from jobrules.model import Severity, Status
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobreport.comparison.facts import RunOf
    from jobreport.document import Report, RuleCard

#: The worst first.
ORDER = (
    *(Severity.CRITICAL, Severity.WARNING, Severity.INFO),
    *(Status.ERROR, Status.PASSED, Status.NOT_EVALUATED),
)


def rules(variants: Mapping[str, Sequence[RunOf]]) -> list[Rule]:
    """Every rule that can trigger and that any run has, those with other results first."""
    found = list(_rules(variants))
    return sorted(found, key=lambda rule: not rule.changed)


def _rules(variants: Mapping[str, Sequence[RunOf]]) -> Iterator[Rule]:
    cards = {
        label: [{card.name: card for card in run.report.rules if card.can_trigger} for run in runs]
        for label, runs in variants.items()
    }
    every = {name: card for runs in cards.values() for own in runs for name, card in own.items()}
    for name, card in every.items():
        results = {}
        for label, runs in variants.items():
            known = [
                _result(run.report, own[name])
                for run, own in zip(runs, cards[label], strict=True)
                if name in own
            ]
            if known:
                results[label] = min(known, key=lambda one: ORDER.index(one.status))
        thresholds = {
            tuple((one.name, one.value) for one in own[name].parameters)
            for runs in cards.values()
            for own in runs
            if name in own
        }
        yield Rule(
            name=escape_name(name),
            title=escape_name(card.title, 200),
            results=results,
            other_thresholds=len(thresholds) > 1,
            changed=len({one.status for one in results.values()}) > 1,
        )


def _result(report: Report, card: RuleCard) -> RuleResult:
    status: str = card.status
    if card.status is Status.TRIGGERED:
        finding = next((one for one in report.verdict.findings if card.name in one.rules), None)
        status = finding.severity if finding else Severity.INFO
    return RuleResult(status=status, percent=100 * card.severity if card.evaluated else None)
