"""Which findings on a training are told inside another that explains them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from jobrules.model import AlsoSeenAs, Note, Severity
from jobrules.model.learning import Training

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Finding
    from jobrules.model.learning import Learning

#: Keys of findings that share a cause, what explains the others first.
CAUSES = (
    "exploding-tensor",
    "not-in-optimizer",
    "poor-weight-initialization",
    "dead-relu",
    "saturated-activation",
    "vanishing-gradient",
    "weight-update-ratio",
    "large-weight-updates",
    "loss-not-decreasing",
    "loss-at-chance",
)
#: Those that show that nothing is learned, and not why.
_UNEXPLAINED = CAUSES[-2:]


def told_once(findings: Sequence[Finding], learning: Learning) -> tuple[Finding, ...]:
    """The findings, those that share a cause as evidence of the first of ``CAUSES``, with the worst severity of them."""
    chain = sorted((one for one in findings if one.key in CAUSES), key=lambda one: CAUSES.index(one.key))
    keys = {one.key for one in chain}
    chain += [one for one in findings if one.key not in keys and keys.intersection(one.because_of)]
    if not chain:
        return tuple(findings)
    first, *others = chain
    seen = (
        "No cause seen in gradients" if Training.GRADIENT in learning.has else "Gradients were not recorded"
    )
    notes = [Note(seen)] if first.key in _UNEXPLAINED else []
    known = replace(
        first,
        severity=min((one.severity for one in chain), key=list(Severity).index),
        evidence=(
            *first.evidence,
            *notes,
            *(AlsoSeenAs(one.title[0].lower() + one.title[1:]) for one in others),
        ),
        rules=tuple(dict.fromkeys(name for one in chain for name in one.rules)),
    )
    explained = {one.key for one in others}
    return tuple(known if one is first else one for one in findings if one.key not in explained)
