"""Results of rules during the work of a job: what the verdict and the page are about."""

from __future__ import annotations

from collections.abc import Sequence

from jobrules.measures.work import Work
from jobrules.model import Job, RuleResult
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
    return tuple(next(again) if rule.of_work else result for rule, result in zip(rules, results, strict=True))
