"""What rule results of SageMaker Debugger add to a report on records of the job itself, by node and metric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport.debugger_report.account import account_of
from jobreport.debugger_report.findings import findings, has_gpus
from jobreport.debugger_report.report import answers_of, boxes, nodes, phases, usage
from jobreport.readers.debugger_results.loop import loop_facts, nodes_of, step_events
from jobrules.model import Metric, Reason, ReasonKind, natural_sorted
from jobrules.rule import NO_GPU, ONLY_TRACES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.debugger_report.report import Answer
    from jobreport.document import Report
    from jobreport.readers.debugger_results.rule_results import RuleResults
    from jobrules.model import Finding, Job, RuleResult
    from jobrules.rule import Rule
    from jobrules.verdict.story import Account

#: What a rule on GPUs lacks where the job has no samples of them, and the results name some.
_NO_SAMPLES = Reason(kind=ReasonKind.NOT_RECORDED, what="GPU samples", verb="were")


class Beside(Struct, frozen=True, kw_only=True):
    """What the results add."""

    results: RuleResults
    #: Answers to rules that the job's own records cannot answer, by the rule's name.
    answers: Mapping[str, Answer]
    #: The time of the GPUs of nodes without samples of their utilization; None if there are none, or no histograms.
    account: Account | None
    #: Without histograms, what the results say of GPUs that the job has no samples of.
    findings: tuple[Finding, ...] = ()

    def result(self, result: RuleResult) -> RuleResult:
        """The result of a rule; of one on GPUs that were not sampled, what is missing."""
        if result.rule in self.answers:
            return self.answers[result.rule].result
        if result.reason in (NO_GPU, ONLY_TRACES) and has_gpus(self.results):
            return replace(result, reason=_NO_SAMPLES, headline=f"Not evaluated: {_NO_SAMPLES}")
        return result

    def added(self, report: Report) -> Report:
        """The report with nodes, steps, metrics, GPUs, and phases that only the results know."""
        job, own = report.job, {(row.node, row.label) for row in report.utilization}
        start_us, end_us = job.start_us, job.end_us
        if self.account and self.results.start_us and self.results.end_us:
            start_us, end_us = min(start_us, self.results.start_us), max(end_us, self.results.end_us)
        known = {node.name: node for node in nodes(self.results, start_us, end_us)}
        cores = loop_facts(self.results).cores or 0
        for node in job.nodes:
            gpus = known[node.name].gpus if node.name in known else 0
            # A single series is the mean of all cores.
            own_cores = node.cores if node.cores > 1 else max(node.cores, cores)
            known[node.name] = replace(node, gpus=node.gpus or gpus, cores=own_cores)
        rows = [row for row in usage(self.results) if (row.node, row.label) not in own]
        rows.sort(key=lambda row: row.label != Metric.GPU_UTILIZATION.label)
        of_gpus = sum(row.label == Metric.GPU_UTILIZATION.label for row in rows)
        drawn = {(box.node, box.device) for box in report.boxes}
        by_results = bool(report.verdict.use and report.verdict.use.source)
        of_loop = phases(self.results, self.account, start_us, end_us) if by_results else report.phases
        return replace(
            report,
            job=replace(
                job,
                start_us=start_us,
                end_us=end_us,
                nodes=tuple(known[name] for name in natural_sorted({*known})),
                steps=job.steps or step_events(self.results),
            ),
            utilization=tuple(
                row
                for name in natural_sorted({row.node for row in (*rows, *report.utilization)})
                for row in (*rows[:of_gpus], *report.utilization, *rows[of_gpus:])
                if row.node == name
            ),
            boxes=(
                *report.boxes,
                *(box for box in boxes(self.results) if by_results and (box.node, box.device) not in drawn),
            ),
            phases=replace(
                report.phases,
                basis=of_loop.basis,
                phases=of_loop.phases,
                first_work_us=of_loop.first_work_us,
                last_work_us=of_loop.last_work_us,
            ),
        )


def beside(
    found: RuleResults, job: Job, rules: Sequence[Rule], own: Sequence[RuleResult], *, strict: bool
) -> Beside:
    """What the results add to a job whose rules have these results during its work."""
    results = _on_only_node(found, job)
    answers = answers_of(results, job, rules, own, strict=strict)
    checks = [
        (rule, answers[rule.name].result if rule.name in answers else result)
        for rule, result in zip(rules, own, strict=True)
        if rule.can_trigger
    ]
    account = _of_other_gpus(account_of(results, checks), job)
    seen = {}
    if account is None and not job.gpu_count and has_gpus(results):
        seen = {name: one.result.findings[0] for name, one in answers.items() if one.result.findings}
    return Beside(
        results=results, answers=answers, account=account, findings=findings(seen, results) if seen else ()
    )


def _on_only_node(results: RuleResults, job: Job) -> RuleResults:
    """The results under the job's name of a node that is the only one of both; of nodes of other names, nothing by node."""
    names = nodes_of(results)
    if names & {*job.nodes} or (not job.gpu_count and len(job.nodes) != 1):
        return results
    if len(names) == len(job.nodes) == 1:
        (node,) = job.nodes
        return replace(
            results,
            low_gpu={(node, gpu): one for (_, gpu), one in results.low_gpu.items()},
            memory={(node, gpu): one for (_, gpu), one in results.memory.items()},
            small_batch=tuple((node, gpu) for _, gpu in results.small_batch),
            workloads={(node, gpu): one for (_, gpu), one in results.workloads.items()},
            usage={metric: dict.fromkeys([node], *of.values()) for metric, of in results.usage.items() if of},
        )
    if not job.gpu_count:
        return results
    return replace(results, low_gpu={}, memory={}, small_batch=(), workloads={}, usage={})


def _of_other_gpus(account: Account | None, job: Job) -> Account | None:
    """The account of the nodes of whose GPUs the job has no utilization; None without any."""
    sampled = {part.node for part in job.facts for p in part.panels if p.metric is Metric.GPU_UTILIZATION}
    left = tuple(node for node in account.nodes if node.node not in sampled) if account else ()
    return replace(account, nodes=left) if account and left else None
