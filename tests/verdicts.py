"""The verdict on a job as the report comes to it, and what to read in it."""

from __future__ import annotations

from jobrules import RULES, Rule
from jobrules.model import Finding, Job
from jobrules.rule import run_rules
from jobrules.verdict.findings import Verdict, judge
from jobrules.verdict.in_work import results_in_work
from jobrules.verdict.phases import job_phases


def verdict_of(job: Job, *rules: Rule) -> Verdict:
    """By the given rules, or by all of them at their defaults."""
    rules = rules or tuple(rule() for rule in RULES)
    results = results_in_work(rules, run_rules(rules, job, strict=True), job, strict=True)
    return judge(job, rules, results, job_phases(job))


def keys(verdict: Verdict) -> list[str]:
    """The keys of all findings, the first one first."""
    return [finding.key for finding in verdict.findings]


def found(verdict: Verdict, key: str) -> Finding:
    """The one finding of a key."""
    (one,) = (finding for finding in verdict.findings if finding.key == key)
    return one


def parts(verdict: Verdict) -> dict[str, float]:
    """Percent of the device time by the key of the part."""
    assert verdict.use is not None
    return {part.key: part.percent for part in verdict.use.parts}
