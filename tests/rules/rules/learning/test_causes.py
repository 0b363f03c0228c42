"""Findings on one cause are told once, in the one that explains the others."""

from __future__ import annotations

import pytest

from jobrules.model import AlsoSeenAs, Finding, Note, Severity
from jobrules.model.learning import Learning
from jobrules.rules.learning import LEARNING_RULES
from jobrules.rules.learning.causes import CAUSES, told_once
from tests.learning_data import matrix, tensors


def finding(key: str, severity: Severity = Severity.WARNING, because_of: tuple[str, ...] = ()) -> Finding:
    return Finding(
        key=key,
        severity=severity,
        title=f"Title of {key}",
        evidence=(Note("seen"),),
        advice=(),
        because_of=because_of,
        rules=(key,),
        section="learning",
    )


def test_the_first_cause_holds_all_others_and_the_worst_severity() -> None:
    low, loss = finding("weight-update-ratio"), finding("loss-not-decreasing", Severity.CRITICAL)
    start, other = finding("poor-weight-initialization"), finding("loss-spike")
    part = finding("unchanged-tensor", because_of=("vanishing-gradient",))
    vanishing = finding("vanishing-gradient")

    found = told_once([loss, vanishing, low, part, start, other], Learning())

    assert [one.key for one in found] == ["poor-weight-initialization", "loss-spike"]
    assert found[0].severity is Severity.CRITICAL
    assert found[0].evidence == (
        Note("seen"),
        *(AlsoSeenAs(f"title of {one.key}") for one in (vanishing, low, loss, part)),
    )
    assert len(found[0].rules) == 5
    assert found[1] is other


@pytest.mark.parametrize("key", CAUSES[:-2])
def test_a_cause_alone_stays_as_it_is(key: str) -> None:
    found = [finding(key), finding("unchanged-tensor"), finding("loss-spike")]

    assert told_once(found, Learning()) == tuple(found)


@pytest.mark.parametrize("key", CAUSES[-2:])
def test_what_has_no_cause_says_whether_gradients_were_seen(key: str) -> None:
    (unknown,) = told_once([finding(key)], Learning())
    gradients = tensors({matrix("w"): [{"rms": 1.0}]})
    (unseen,) = told_once([finding(key)], Learning(tensors=gradients))

    assert unknown.evidence[1:] == (Note("Gradients were not recorded"),)
    assert unseen.evidence[1:] == (Note("No cause seen in gradients"),)


def test_the_causes_are_findings_of_rules() -> None:
    of_rules = {kind().key for kind in LEARNING_RULES} | {"not-in-optimizer", "large-weight-updates"}

    assert of_rules.issuperset(CAUSES)
