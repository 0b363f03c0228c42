"""A report from rule results of SageMaker Debugger alone, for a job directory without samples, steps, and events.

Numbers are those of the results. make-report itself computes only what the results allow: how much of the GPU time
was used and what explains the rest, whether the first step was late, and how far the GPUs' histograms differ.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from jobreport import __version__, document
from jobreport.debugger_report.account import account_of
from jobreport.debugger_report.differences import notes
from jobreport.debugger_report.findings import (
    SECTIONS,
    findings,
    gpus_of,
    has_only_cpus,
    loop_of,
    span_of,
)
from jobreport.debugger_report.rules import evaluate, parsed
from jobreport.document import EXTRA_KEYS, JobFacts, NodeFacts, Origin, Parameter, Report, RuleCard
from jobreport.readers.debugger_results.loop import SOURCE, loop_facts, nodes_of, step_events
from jobreport.readers.debugger_results.rule_results import NAMES
from jobrules import RULES
from jobrules.analyses.gpu_utilization import Box
from jobrules.analyses.time_lines import Columns
from jobrules.analyses.utilization import UsageRow
from jobrules.model import Inferred, Metric, ReasonKind, RuleResult, Status, natural_key, natural_sorted
from jobrules.model.time_parts import named
from jobrules.rule import NO_GPU, ONLY_TRACES, Documentation, parameter_fields
from jobrules.rules.bottleneck_rule import BottleneckRule
from jobrules.rules.dataloader import Dataloader
from jobrules.text import apportion
from jobrules.verdict.findings import in_loop, ranked
from jobrules.verdict.on_cores import Training, free_cores
from jobrules.verdict.phases import JobPhases, Phase
from jobrules.verdict.story import story_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.debugger_report.rules import Evaluation
    from jobreport.readers.debugger_results.details import GpuUse
    from jobreport.readers.debugger_results.rule_results import RuleDocument, RuleResults
    from jobreport.remarks import Quality
    from jobrules.model import Finding, Job
    from jobrules.rule import Rule
    from jobrules.verdict.findings import Verdict
    from jobrules.verdict.story import Account, Story

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


class Answer(Struct, frozen=True, kw_only=True):
    """What SageMaker Debugger's result of a rule says, in a report on samples."""

    card: RuleCard
    result: RuleResult


def build(
    name: str,
    results: RuleResults,
    quality: Quality,
    rules: Sequence[Rule],
    command: str,
    *,
    others: Sequence[RuleCard] = (),
    strict: bool = False,
) -> Report:
    """Build everything the page shows, for the chosen ``rules``.

    ``others`` are the cards of chosen rules that SageMaker Debugger does not have; they come last. A result that
    cannot be read gives an error on its own card, unless ``strict``.
    """
    left_out = {rule.__name__ for rule in RULES} - {rule.name for rule in rules}
    evaluations = {rule: evaluate(rule, results, strict) for rule in NAMES if rule not in left_out}
    cards = (*(_card(rule, evaluation, results[rule]) for rule, evaluation in evaluations.items()), *others)
    found = {rule: evaluation.finding for rule, evaluation in evaluations.items() if evaluation.finding}
    checks = _checks(cards, found, rules)
    account = account_of(results, checks)
    start_us, end_us = span_of(results)
    return Report(
        schema_version=document.SCHEMA_VERSION,
        version=__version__,
        command=command,
        origin=Origin.DEBUGGER_RESULTS,
        job=JobFacts(
            name=name,
            start_us=start_us,
            end_us=end_us,
            nodes=nodes(results, start_us, end_us),
            sources=(results.quality.source,),
            steps=step_events(results),
            finished=None,
        ),
        verdict=_verdict(story_of(account, strict=strict))
        if account
        else replace(
            ranked(checks, ()),
            findings=findings(found, results, _waits(results, rules) or _free_cores(results)),
        ),
        phases=phases(results, account, start_us, end_us),
        utilization=usage(results),
        columns=Columns(start_us=start_us, width_us=1, count=0),
        time_lines=(),
        boxes=boxes(results),
        rules=cards,
        quality=replace(quality, sources=(*quality.sources, results.quality)),
    )


def _waits(results: RuleResults, rules: Sequence[Rule]) -> list[Finding]:
    """Waiting for data, where the results hold no use of GPUs."""
    facts, loader = loop_facts(results), next((rule for rule in rules if isinstance(rule, Dataloader)), None)
    if not (loader and facts.waited):
        return []
    cause = loader.waiting_in_loop(facts, facts.cores or 0, 1)
    return [in_loop(cause, loop_of(results) or span_of(results), natural_sorted(nodes_of(results)))]


def answers_of(
    results: RuleResults, job: Job, rules: Sequence[Rule], own: Sequence[RuleResult], *, strict: bool
) -> dict[str, Answer]:
    """Answers to rules for which the job's own records lack something, or have too little, by the rule's name."""
    found = {}
    for rule, result in zip(rules, own, strict=True):
        # The mean of the cores shows no single one.
        listed = isinstance(rule, BottleneckRule) and rule.stalls(job) is not None
        reason = result.reason
        if rule.name not in NAMES or not (reason or listed) or result.status is Status.ERROR:
            continue
        evaluation = evaluate(rule.name, results, strict)
        # How much is missing, or that nothing is, says more than that the job itself recorded nothing.
        lacks = reason is not None and (
            reason in (NO_GPU, ONLY_TRACES) or reason.kind is ReasonKind.NOT_RECORDED
        )
        if evaluation.reason is None or (lacks and evaluation.reason.kind in _TELLING):
            card = _card(rule.name, evaluation, results[rule.name])
            card = replace(card, notes=(f"According to {SOURCE}.", *card.notes))
            seen = evaluation.finding
            if seen:
                seen = replace(seen, evidence=(*seen.evidence, Inferred(SOURCE)))
            found[rule.name] = Answer(card=card, result=_result(card, seen))
    return found


def documents(cards: Sequence[RuleCard], results: RuleResults) -> dict[str, bytes]:
    """``rules/<RuleName>.json``: the documents of SageMaker Debugger with extra keys, unchanged otherwise.

    A rule without a document gets one that counts nothing.
    """
    written = {}
    for card in cards:
        found = results[card.name]
        values: tuple[Any, ...] = (
            card.status,
            str(card.reason or ""),
            card.severity,
            card.evaluated,
            card.violating,
            card.counted,
            *({},) * 4,  # Figures per series and device, further details, and times are not in the documents.
        )
        extra = dict(zip(EXTRA_KEYS, values, strict=True))
        extra |= {"Origin": Origin.DEBUGGER_RESULTS, "Notes": card.notes}
        content = (found.raw if found else _NO_DOCUMENT) | extra
        written[card.name] = msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
    return written


def _free_cores(results: RuleResults) -> list[Finding]:
    """The finding on a training loop without GPUs that leaves cores free."""
    facts = loop_facts(results)
    if facts.step_s is None or not has_only_cpus(results):
        return []
    return free_cores(
        [
            Training(
                node=node, used=one.p50, cores=facts.cores or 0, step_s=facts.step_s, fetch_s=facts.fetch_s
            )
            for node, one in results.usage["CPU"].items()
            if one
        ]
    )


def _verdict(story: Story) -> Verdict:
    return ranked(story.account.checks, story.findings, story=story)


def _checks(
    cards: Sequence[RuleCard], found: Mapping[str, Finding], rules: Sequence[Rule]
) -> list[tuple[Rule, RuleResult]]:
    """The rules that judge, with their results as rules on samples have them."""
    by_name = {rule.name: rule for rule in rules}
    return [
        (by_name[card.name], _result(card, found.get(card.name)))
        for card in cards
        if card.can_trigger and card.name in by_name
    ]


def _result(card: RuleCard, finding: Finding | None) -> RuleResult:
    """As rules on samples have it."""
    return RuleResult(
        rule=card.name,
        status=card.status,
        reason=card.reason,
        headline=card.headline,
        findings=(finding,) if finding else (),
    )


def _card(name: str, evaluation: Evaluation, found: RuleDocument | None) -> RuleCard:
    rule = next((one for one in RULES if one.__name__ == name), None)
    about = rule.documentation() if rule else Documentation(checks="", why="", advice=())
    return RuleCard(
        name=name,
        title=rule.title if rule else name,
        checks=about.checks,
        why=about.why,
        advice=about.advice,
        parameters=_parameters(rule, found.parameters if found else {}),
        can_trigger=not name.startswith("Overall"),
        status=evaluation.status,
        reason=evaluation.reason,
        headline=evaluation.headline or f"Not evaluated: {evaluation.reason}",
        measure=evaluation.measure,
        triggered=(found.triggered if found else None) or 0,
        violations=(found.violations if found else None) or 0,
        datapoints=(found.datapoints if found else None) or 0,
        evaluated=evaluation.evaluated,
        violating=evaluation.violating,
        counted=evaluation.counted,
        severity=evaluation.violating / evaluation.evaluated if evaluation.evaluated else 0.0,
        first_us=evaluation.first_us,
        last_us=evaluation.last_us,
        section=SECTIONS.get(name, "rules"),
        notes=(*notes(*evaluation.ids), *evaluation.notes) if found else (),
    )


def _parameters(rule: type[Rule] | None, written: dict[str, str]) -> tuple[Parameter, ...]:
    """The thresholds in force, next to the defaults of jobreport's rule."""
    fields = {name: (default, meta) for name, default, meta in parameter_fields(rule)} if rule else {}
    parameters = []
    for name, text in written.items():
        if rule and name in rule.aliases:
            continue
        value = parsed(text)
        default, meta = fields.get(name, (value, {}))
        unit, about = meta.get("unit", ""), meta.get("help", "")
        parameters.append(Parameter(name=name, value=value, unit=unit, help=about, default=default))
    return tuple(parameters)


def phases(results: RuleResults, account: Account | None, start_us: int, end_us: int) -> JobPhases:
    """Phases of the job; the training loop ends where its last step starts."""
    work = account.work if account else None
    # The last step may start after the last sample.
    loop = loop_of(results) if work is None or work.steps_us else None
    basis, inner = "none", None
    if loop:
        basis, inner = "steps", (("loop", named("loop").title, *loop), "last-step-and-after")
    elif work and not work.whole:
        basis, inner = "gpu", (("loop", named("gpu-work").title, work.begin_us, work.end_us), "after")
    spans = [("whole", named("whole").title, start_us, end_us)]
    if inner:
        middle, last = inner
        spans = [
            ("before", named("before").title, start_us, middle[2]),
            middle,
            ("after", named(last).title, middle[3], end_us),
        ]
        spans = [span for span in spans if span[3] > span[2]]
    gpu_us = work.gpu_us if work else None
    parts = apportion([max(end - start, 1) for *_, start, end in spans], 100.0, 1)
    return JobPhases(
        basis=basis,
        phases=tuple(
            Phase(key=key, label=label, start_us=start, end_us=end, percent=part)
            for (key, label, start, end), part in zip(spans, parts, strict=True)
        ),
        gaps=(),
        first_work_us=gpu_us[0] if gpu_us else None,
        last_work_us=gpu_us[1] if gpu_us else None,
    )


def nodes(results: RuleResults, start_us: int, end_us: int) -> tuple[NodeFacts, ...]:
    """All nodes that the results name, with GPUs and cores."""
    gpus = Counter(node for node, _ in gpus_of(results))
    names = nodes_of(results)
    # Cores are the different names of cores on all nodes: with several nodes they belong to none.
    cores = results.loader.cores or 0 if len(names) == 1 else 0
    return tuple(
        NodeFacts(name=name, gpus=gpus[name], cores=cores, interval_s=None, first_us=start_us, last_us=end_us)
        for name in natural_sorted(names)
    )


def usage(results: RuleResults) -> tuple[UsageRow, ...]:
    """Rows of the utilization table."""
    return tuple(
        UsageRow(node=node, label=label, unit=unit, **asdict(found))
        for node in natural_sorted({node for sampled in results.usage.values() for node in sampled})
        for key, label, unit in _METRICS
        if (found := results.usage.get(key, {}).get(node))
    )


def boxes(results: RuleResults) -> tuple[Box, ...]:
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
