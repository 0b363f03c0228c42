"""What rule results of SageMaker Debugger add to a report, by node and metric: to one on records of the job itself what
only they know, and to one without such records all of it.

Numbers are those of the results. make-report itself computes only what the results allow: how much of the GPU time
was used and what explains the rest, whether the first step was late, and how far the GPUs' histograms differ.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from jobreport.debugger_report.account import account_of
from jobreport.debugger_report.findings import findings, gpus_of, has_gpus, has_only_cpus, loop_of, span_of
from jobreport.debugger_report.rules import answer
from jobreport.document import EXTRA_KEYS, NodeFacts, Origin
from jobreport.readers.debugger_results.loop import SOURCE, loop_facts, nodes_of, step_events
from jobreport.readers.debugger_results.rule_results import NAMES
from jobrules.analyses.gpu_utilization import Box
from jobrules.analyses.time_lines import Columns
from jobrules.analyses.utilization import UsageRow
from jobrules.model import (
    Inferred,
    Metric,
    Reason,
    ReasonKind,
    Status,
    natural_key,
    natural_sorted,
)
from jobrules.rule import NO_GPU, ONLY_TRACES, needs_gpus
from jobrules.rules.bottleneck_rule import BottleneckRule
from jobrules.rules.learning.learning_rule import NO_LEARNING
from jobrules.rules.traces.shares import NO_CAPTURES, CaptureRule
from jobrules.verdict.phases import JobPhases, phases_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.debugger_report.rules import Answer
    from jobreport.document import Report
    from jobreport.readers.debugger_results.details import GpuUse
    from jobreport.readers.debugger_results.rule_results import RuleResults
    from jobrules.model import Finding, Job, RuleResult
    from jobrules.rule import Rule
    from jobrules.verdict.story import Account

#: What a rule on GPUs lacks where the job has no samples of them, and the results name some.
_NO_GPU_SAMPLES = Reason(kind=ReasonKind.NOT_RECORDED, what="GPU samples", verb="were")
#: What a rule that SageMaker Debugger does not have lacks where there is nothing but results.
_NO_SAMPLES = Reason(kind=ReasonKind.NOT_RECORDED, what="samples", verb="were")
#: The document of a rule without a result.
_NO_DOCUMENT: dict[str, Any] = {
    "RuleTriggered": 0,
    "Violations": 0,
    "Details": {},
    "Datapoints": 0,
    "RuleParameters": "",
}
_TELLING = (ReasonKind.TOO_FEW, ReasonKind.TOO_SHORT, ReasonKind.NOT_APPLICABLE)
#: Metrics of OverallSystemUsage: name, label, unit.
_METRICS = (
    ("GPU", Metric.GPU_UTILIZATION.label, "%"),
    ("CPU", Metric.CPU_UTILIZATION.label, "%"),
    ("I/O", Metric.IO_WAIT.label, "%"),
    ("CPU memory", Metric.HOST_MEMORY.label, "%"),
    ("GPU memory", Metric.GPU_MEMORY_ACTIVITY.label, "%"),
    ("Network", "Network", "B/s"),
)


class Beside(Struct, frozen=True, kw_only=True):
    """What the results add."""

    results: RuleResults
    #: True if the job has no records of its own.
    alone: bool
    #: Answers to rules that the job's own records cannot answer, by the rule's name.
    answers: Mapping[str, Answer]
    #: The time of the GPUs of nodes without samples of their utilization; None if there are none, or no histograms.
    account: Account | None
    #: Without such an account, what the results say.
    findings: tuple[Finding, ...] = ()

    def result(self, result: RuleResult) -> RuleResult:
        """The result of a rule; of one on GPUs that were not sampled, what is missing."""
        if result.rule in self.answers:
            return self.answers[result.rule].result
        if result.reason in (NO_GPU, ONLY_TRACES) and not self.alone and has_gpus(self.results):
            return replace(result, reason=_NO_GPU_SAMPLES, headline=f"Not evaluated: {_NO_GPU_SAMPLES}")
        return result

    def documents(self) -> dict[str, bytes]:
        """``rules/<RuleName>.json``: the documents of SageMaker Debugger with extra keys, unchanged otherwise.

        A rule without a document gets one that counts nothing.
        """
        written = {}
        for name, one in self.answers.items():
            found, result = self.results[name], one.result
            values: tuple[Any, ...] = (
                result.status,
                str(result.reason or ""),
                result.severity,
                result.evaluated,
                result.violating,
                result.counted,
                *({},)
                * 4,  # Figures per series and device, further details, and times are not in the documents.
            )
            extra = dict(zip(EXTRA_KEYS, values, strict=True))
            extra |= {"Origin": Origin.DEBUGGER_RESULTS, "Notes": one.notes}
            content = (found.raw if found else _NO_DOCUMENT) | extra
            written[name] = msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
        return written

    def added(self, report: Report) -> Report:
        """The report with nodes, steps, metrics, GPUs, and phases that only the results know."""
        job, results, own = report.job, self.results, {(row.node, row.label) for row in report.utilization}
        start_us, end_us = job.start_us, job.end_us
        if self.alone:
            start_us, end_us = span_of(results)
            width = Columns(start_us=start_us, width_us=1, count=0)
            report = replace(report, origin=Origin.DEBUGGER_RESULTS, columns=width, nodes=None)
        elif self.account and results.start_us and results.end_us:
            start_us, end_us = min(start_us, results.start_us), max(end_us, results.end_us)
        known = {node.name: node for node in _nodes(results, start_us, end_us)}
        cores = loop_facts(results).cores or 0
        for node in job.nodes:
            gpus = known[node.name].gpus if node.name in known else 0
            # A single series is the mean of all cores.
            own_cores = node.cores if node.cores > 1 else max(node.cores, cores)
            known[node.name] = replace(node, gpus=node.gpus or gpus, cores=own_cores)
        rows = [row for row in _usage(results) if (row.node, row.label) not in own]
        rows.sort(key=lambda row: row.label != Metric.GPU_UTILIZATION.label)
        of_gpus = sum(row.label == Metric.GPU_UTILIZATION.label for row in rows)
        drawn = {(box.node, box.device) for box in report.boxes}
        by_results = self.alone or bool(report.verdict.use and report.verdict.use.source)
        of_loop = _phases(results, self.account, start_us, end_us) if by_results else report.phases
        return replace(
            report,
            rules=tuple(
                self.answers[card.name].on(card) if card.name in self.answers else card
                for card in report.rules
            ),
            job=replace(
                job,
                start_us=start_us,
                end_us=end_us,
                nodes=tuple(known[name] for name in natural_sorted({*known})),
                steps=job.steps or step_events(results),
            ),
            utilization=tuple(
                row
                for name in natural_sorted({row.node for row in (*rows, *report.utilization)})
                for row in (*rows[:of_gpus], *report.utilization, *rows[of_gpus:])
                if row.node == name
            ),
            boxes=(
                *report.boxes,
                *(box for box in _boxes(results) if by_results and (box.node, box.device) not in drawn),
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
    results, alone = _on_only_node(found, job), not (job.nodes or job.captures)
    answers = {
        rule.name: one
        for rule, result in zip(rules, own, strict=True)
        if rule.name in NAMES and (one := _answer(rule, result, results, job, alone=alone, strict=strict))
    }
    checks = [
        (rule, answers[rule.name].result if rule.name in answers else result)
        for rule, result in zip(rules, own, strict=True)
        if rule.can_trigger
    ]
    account = _of_other_gpus(account_of(results, checks), job)
    answered = [(rule, result) for rule, result in checks if rule.name in answers]
    return Beside(
        results=results,
        alone=alone,
        answers=answers,
        account=account,
        findings=() if account or job.gpu_count else findings(answered, results, alone=alone),
    )


def without_samples(rule: Rule, results: RuleResults) -> RuleResult:
    """The result of a rule on a job of which there is nothing but results."""
    if isinstance(rule, CaptureRule):
        return rule.not_evaluated(NO_CAPTURES)
    if rule.of_learning:
        return rule.not_evaluated(NO_LEARNING)
    return rule.not_evaluated(NO_GPU if needs_gpus(rule) and has_only_cpus(results) else _NO_SAMPLES)


def _answer(
    rule: Rule, own: RuleResult, results: RuleResults, job: Job, *, alone: bool, strict: bool
) -> Answer | None:
    """What the results say of a rule for which the job's own records lack something, or have too little."""
    if alone:
        return answer(rule, results, strict=strict)
    # The mean of the cores shows no single one.
    listed = isinstance(rule, BottleneckRule) and rule.stalls(job) is not None
    if not (own.reason or listed) or own.status is Status.ERROR:
        return None
    found = answer(rule, results, strict=strict)
    lacks = own.reason
    # How much is missing, or that nothing is, says more than that the job itself recorded nothing.
    tells = found.result.reason is None or (
        lacks is not None
        and (lacks in (NO_GPU, ONLY_TRACES) or lacks.kind is ReasonKind.NOT_RECORDED)
        and found.result.reason.kind in _TELLING
    )
    if not tells:
        return None
    seen = [replace(one, evidence=(*one.evidence, Inferred(SOURCE))) for one in found.result.findings]
    return replace(
        found,
        result=replace(found.result, findings=tuple(seen)),
        notes=(f"According to {SOURCE}.", *found.notes),
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


def _phases(results: RuleResults, account: Account | None, start_us: int, end_us: int) -> JobPhases:
    """Phases of the job; the training loop ends where its last step starts."""
    work = account.work if account else None
    # The last step may start after the last sample.
    loop = loop_of(results) if work is None or work.steps_us else None
    basis, spans = "none", [("whole", "whole", start_us, end_us)]
    middle, last = loop or (0, 0), "last-step-and-after"
    if loop:
        basis = "steps"
    elif work and not work.whole:
        basis, middle, last = "gpu", (work.begin_us, work.end_us), "after"
    if basis != "none":
        spans = [
            ("before", "before", start_us, middle[0]),
            ("loop", "loop" if loop else "gpu-work", *middle),
            ("after", last, middle[1], end_us),
        ]
    gpu_us = work.gpu_us if work else None
    return JobPhases(
        basis=basis,
        phases=phases_of([span for span in spans if span[3] > span[2] or basis == "none"]),
        gaps=(),
        first_work_us=gpu_us[0] if gpu_us else None,
        last_work_us=gpu_us[1] if gpu_us else None,
    )


def _nodes(results: RuleResults, start_us: int, end_us: int) -> tuple[NodeFacts, ...]:
    """All nodes that the results name, with GPUs and cores."""
    gpus = Counter(node for node, _ in gpus_of(results))
    names = nodes_of(results)
    # Cores are the different names of cores on all nodes: with several nodes they belong to none.
    cores = results.loader.cores or 0 if len(names) == 1 else 0
    return tuple(
        NodeFacts(name=name, gpus=gpus[name], cores=cores, interval_s=None, first_us=start_us, last_us=end_us)
        for name in natural_sorted(names)
    )


def _usage(results: RuleResults) -> tuple[UsageRow, ...]:
    """Rows of the utilization table."""
    return tuple(
        UsageRow(node=node, label=label, unit=unit, **asdict(found))
        for node in natural_sorted({node for sampled in results.usage.values() for node in sampled})
        for key, label, unit in _METRICS
        if (found := results.usage.get(key, {}).get(node))
    )


def _boxes(results: RuleResults) -> tuple[Box, ...]:
    """Boxes of the GPUs on which LowGPUUtilization triggered."""
    order = sorted(results.low_gpu, key=lambda gpu: tuple(map(natural_key, gpu)))
    made = (_box(node, device, results.low_gpu[node, device]) for node, device in order)
    return tuple(box for box in made if box)


def _box(node: str, device: str, use: GpuUse) -> Box | None:
    """The box of a GPU; None if a figure is missing."""
    figures: dict[str, Any] = {
        name: getattr(use, name) for name in ("lower", "p25", "p50", "p75", "p95", "upper")
    }
    figures["max"] = use.gpu_max
    if None in figures.values():
        return None
    return Box(
        node=node, device=device, metric=Metric.GPU_UTILIZATION, unit="%", basis="whole job", **figures
    )
