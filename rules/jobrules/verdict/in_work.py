"""Results of rules during the work of a job: what the verdict and the page are about."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from jobrules.measures.work import Work
from jobrules.model import Job, ReasonKind, RuleResult
from jobrules.model.result import ITS_WORK, THIS_JOB
from jobrules.rule import Rule, run_rules


def results_in_work(
    rules: Sequence[Rule], results: Sequence[RuleResult], job: Job, *, strict: bool = False
) -> tuple[RuleResult, ...]:
    """The results in the work of the job, from those of the whole job."""
    work = Work.of(job)
    if work is None or not job.gpu_count or work.whole:
        return tuple(results)
    part = job.within({node: work.span_us(node) for node in job.nodes})
    again = iter(run_rules([rule for rule in rules if rule.of_work], part, strict=strict))
    return tuple(
        _of_work(next(again), result) if rule.of_work else result
        for rule, result in zip(rules, results, strict=True)
    )


def _of_work(during: RuleResult, whole: RuleResult) -> RuleResult:
    """The result during the work; if the work has less than the job of what the rule needs, the reason says so."""
    reason = during.reason
    if reason is None or reason.whose != THIS_JOB or reason == whole.reason:
        return during
    if reason.kind not in (ReasonKind.TOO_FEW, ReasonKind.TOO_SHORT):
        return during
    reason = replace(reason, whose=ITS_WORK)
    return replace(during, reason=reason, headline=f"Not evaluated: {reason}")
