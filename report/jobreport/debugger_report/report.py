"""A report from the vendor's rule results alone: its numbers, and what is known to be wrong with them.

Used where a directory holds no samples, steps or events. Nothing is judged again but what the results
themselves allow: the time of the first step, and the histograms that the vendor fills and never compares.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from jobreport import __version__, document
from jobreport.debugger_report.differences import notes
from jobreport.debugger_report.rules import (
    SECTIONS,
    gpus_of,
    named,
    never_used,
    never_worked,
    read_rule,
    some_idle,
    span_of,
    typed,
)
from jobreport.document import EXTRA_KEYS, JobFacts, NodeFacts, Origin, Parameter, Report, RuleCard
from jobreport.readers.debugger_results.rule_results import NAMES
from jobrules import RULES
from jobrules.analyses.gpu_utilization import Box
from jobrules.analyses.time_lines import Columns
from jobrules.analyses.utilization import UsageRow
from jobrules.model import (
    SECOND_US,
    Finding,
    HowMuch,
    Metric,
    Note,
    Reason,
    ReasonKind,
    Severity,
    Status,
    natural_key,
    natural_sorted,
)
from jobrules.rule import Documentation, parameter_fields
from jobrules.text import apportion, duration
from jobrules.verdict.findings import NEVER_USED_ADVICE, Verdict
from jobrules.verdict.not_evaluated import NotEvaluated
from jobrules.verdict.observations import START_ADVICE
from jobrules.verdict.phases import JobPhases, Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.debugger_report.rules import Reading
    from jobreport.readers.debugger_results.rule_results import GpuUse, RuleDocument, RuleResults
    from jobreport.remarks import Quality
    from jobrules.rule import Rule

#: What a rule has that the vendor left no result of.
_NO_DOCUMENT: dict[str, Any] = {
    "RuleTriggered": 0,
    "Violations": 0,
    "Details": {},
    "Datapoints": 0,
    "RuleParameters": "",
}
#: A small batch explains low use where it was seen at least this often as it was.
_JOINT_SHARE = 0.5


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
    """Everything the page shows. A rule of ours that was not selected is left out.

    ``others`` are the cards of chosen rules that the vendor does not have; they follow the vendor's. A rule
    whose result cannot be told costs itself only, unless ``strict``.
    """
    chosen = {rule.name for rule in rules}
    left_out = {rule.__name__ for rule in RULES} - chosen
    readings = {rule: read_rule(rule, results, strict) for rule in NAMES if rule not in left_out}
    cards = (*(_card(rule, reading, results[rule]) for rule, reading in readings.items()), *others)
    judging = [card for card in cards if card.can_trigger]
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
            nodes=_nodes(results, start_us, end_us),
            sources=(results.quality.source,),
            steps=_step_events(results),
            finished=None,
        ),
        verdict=Verdict(
            use=None,
            findings=_findings(readings, results, start_us),
            not_evaluated=tuple(
                NotEvaluated(rule=card.name, status=card.status, reason=card.reason)
                for card in judging
                if card.status in (Status.NOT_EVALUATED, Status.ERROR) and card.reason
            ),
            rules=len(judging),
        ),
        phases=_course(results, start_us, end_us),
        utilization=_usage(results),
        columns=Columns(start_us=start_us, width_us=1, count=0),
        time_lines=(),
        boxes=_boxes(results),
        rules=cards,
        quality=replace(quality, sources=(*quality.sources, results.quality)),
    )


def documents(report: Report, results: RuleResults) -> dict[str, bytes]:
    """``rules/<RuleName>.json``: the vendor's documents, unchanged but for our extra keys.

    A rule without a document has one that counts nothing.
    """
    written = {}
    for card in report.rules:
        found = results[card.name]
        ours: tuple[Any, ...] = (
            card.status,
            str(card.reason or ""),
            card.severity,
            card.evaluated,
            card.violating,
            card.counted,
            {},  # The vendor does not say what its data points belong to.
            {},  # Nor does it answer for each device.
        )
        extra = dict(zip(EXTRA_KEYS, ours, strict=True))
        extra |= {"Origin": report.origin, "Notes": card.notes}
        told = (found.raw if found else _NO_DOCUMENT) | extra
        written[card.name] = msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n"
    return written


def _card(name: str, reading: Reading, found: RuleDocument | None) -> RuleCard:
    rule = next((one for one in RULES if one.__name__ == name), None)
    told = rule.documentation() if rule else Documentation(checks="", why="", advice=())
    fields = {field: (default, meta) for field, default, meta in parameter_fields(rule)} if rule else {}
    parameters = []
    for key, written in (found.parameters if found else {}).items():
        if rule and key in rule.aliases:
            continue
        value = typed(written)
        default, meta = fields.get(key, (value, {}))
        parameters.append(
            Parameter(
                name=key,
                value=value,
                unit=meta.get("unit", ""),
                help=meta.get("help", ""),
                default=default,
            )
        )
    counts = reading.counts
    return RuleCard(
        name=name,
        title=rule.title if rule else name,
        checks=told.checks,
        why=told.why,
        advice=told.advice,
        parameters=tuple(parameters),
        can_trigger=not name.startswith("Overall"),
        status=reading.status,
        reason=_reason(reading),
        headline=reading.headline or f"Not evaluated: {reading.reason}",
        measure=reading.measure,
        triggered=(found.triggered if found else None) or 0,
        violations=(found.violations if found else None) or 0,
        datapoints=(found.datapoints if found else None) or 0,
        evaluated=counts.get("evaluated", 0),
        violating=counts.get("violating", 0),
        counted=counts.get("counted", ""),
        severity=counts["violating"] / counts["evaluated"] if counts.get("evaluated") else 0.0,
        first_us=counts.get("first_us"),
        last_us=counts.get("last_us"),
        section=SECTIONS.get(name, "rules"),
        notes=(*notes(*reading.ids), *reading.aside) if found else (),
    )


def _step_events(results: RuleResults) -> int:
    found = results["MaxInitializationTime"]
    return (found.datapoints if found else None) or 0


def _loop_us(results: RuleResults) -> tuple[int, int] | None:
    first, last = results.first_step_us, results.last_step_us
    start_us, end_us = span_of(results)
    return (first, last) if first and last and start_us <= first < last <= end_us else None


def _course(results: RuleResults, start_us: int, end_us: int) -> JobPhases:
    """Phases as the vendor has them: training ends where its last step begins."""
    loop = _loop_us(results)
    named: tuple[tuple[str, str, int, int], ...] = (("whole", "Whole job", start_us, end_us),)
    if loop:
        named = (
            ("before", "Before the first step", start_us, loop[0]),
            ("loop", "Training loop", *loop),
            ("after", "From the start of the last step", loop[1], end_us),
        )
        named = tuple(one for one in named if one[3] > one[2])
    parts = apportion([max(end - start, 1) for *_, start, end in named], 100.0, 1)
    return JobPhases(
        basis="steps" if loop else "none",
        phases=tuple(
            Phase(key=key, label=label, start_us=start, end_us=end, percent=part)
            for (key, label, start, end), part in zip(named, parts, strict=True)
        ),
        gaps=(),
        first_work_us=None,
        last_work_us=None,
    )


def _nodes(results: RuleResults, start_us: int, end_us: int) -> tuple[NodeFacts, ...]:
    gpus = gpus_of(results)
    of_node = Counter(node for node, _ in gpus)
    names = {*of_node} | {node for nodes in results.usage.values() for node in nodes}
    # Cores are the different names of cores on all nodes: with several nodes they are those of none.
    cores = results.loader.cores or 0 if len(names) == 1 else 0
    return tuple(
        NodeFacts(
            name=name,
            gpus=of_node[name],
            cores=cores,
            interval_s=None,
            first_us=start_us,
            last_us=end_us,
        )
        for name in natural_sorted(names)
    )


def _usage(results: RuleResults) -> tuple[UsageRow, ...]:
    metrics = (
        ("GPU", Metric.GPU_UTILIZATION.label, "%"),
        ("CPU", Metric.CPU_UTILIZATION.label, "%"),
        ("I/O", Metric.IO_WAIT.label, "%"),
        ("CPU memory", Metric.HOST_MEMORY.label, "%"),
        ("GPU memory", Metric.GPU_MEMORY_ACTIVITY.label, "%"),
        ("Network", "Network", "B/s"),
    )
    nodes = natural_sorted({node for nodes in results.usage.values() for node in nodes})
    return tuple(
        UsageRow(
            node=node,
            label=label,
            unit=unit,
            min=found.min,
            p50=found.p50,
            p95=found.p95,
            p99=found.p99,
            max=found.max,
        )
        for node in nodes
        for key, label, unit in metrics
        if (found := results.usage.get(key, {}).get(node))
    )


def _boxes(results: RuleResults) -> tuple[Box, ...]:
    order = sorted(results.low_gpu, key=lambda gpu: tuple(map(natural_key, gpu)))
    made = (_box(node, device, results.low_gpu[node, device]) for node, device in order)
    return tuple(box for box in made if box)


def _box(node: str, device: str, use: GpuUse) -> Box | None:
    """The box of a GPU; none where a figure is missing."""
    if use.p25 is None or use.p50 is None or use.p75 is None or use.p95 is None:
        return None
    if use.lower is None or use.upper is None or use.gpu_max is None:
        return None
    return Box(
        node=node,
        device=device,
        metric=Metric.GPU_UTILIZATION,
        unit="%",
        basis="whole job",
        lower=use.lower,
        p25=use.p25,
        p50=use.p50,
        p75=use.p75,
        p95=use.p95,
        upper=use.upper,
        max=use.gpu_max,
    )


def _reason(reading: Reading) -> Reason | None:
    if not reading.reason:
        return None
    kind = ReasonKind.ERROR if reading.status is Status.ERROR else ReasonKind.OTHER
    return Reason(kind=kind, what=reading.reason)


def _findings(readings: dict[str, Reading], results: RuleResults, start_us: int) -> tuple[Finding, ...]:
    """GPUs that never worked, then worst first; a small batch that explains low use is told with it."""
    found = {name: reading.finding for name, reading in readings.items() if reading.finding}
    unused = _never_used(found, results)
    low, small = found.get("LowGPUUtilization"), found.get("BatchSize")
    if low and small and _times(results, "BatchSize") >= _JOINT_SHARE * _times(results, "LowGPUUtilization"):
        found["LowGPUUtilization"] = replace(
            low,
            title=f"{low.title}; CPU and GPU memory were little used too",
            evidence=low.evidence + small.evidence,
            advice=low.advice if some_idle(results) else small.advice,
            rules=low.rules + small.rules,
        )
        del found["BatchSize"]
    findings = [*found.values(), *_long_start(results, start_us)]
    order = list(Severity)
    return (*unused, *sorted(findings, key=lambda f: (order.index(f.severity), -(f.share or 0))))


def _never_used(found: dict[str, Finding], results: RuleResults) -> list[Finding]:
    """The finding on GPUs that never worked; takes out of ``found`` what says the same of these alone."""
    unused, whole = never_used(results), gpus_of(results)
    if not unused:
        return []
    devices = tuple(f"{node}/{device}" for node, device in results.low_gpu if (node, device) in unused)
    about_gpus = (found.get("LowGPUUtilization"), found.get("BatchSize"))
    same = [
        one
        for one in about_gpus
        if one and (set(one.devices) <= set(devices) if one.devices else unused == whole)
    ]
    for one in same:
        for rule in one.rules:
            del found[rule]
    return [
        Finding(
            key="gpu-never-used",
            severity=Severity.CRITICAL,
            title=never_worked(len(unused), len(whole)),
            evidence=(
                Note(f"{named(unused)}: no sample above 0% until LowGPUUtilization last triggered"),
                *(fact for one in same for fact in one.evidence),
            ),
            advice=NEVER_USED_ADVICE,
            rules=tuple(rule for one in same for rule in one.rules),
            section="gpu-utilization",
            devices=devices,
            share=len(unused) / len(whole),
            share_of="of GPUs",
        )
    ]


def _times(results: RuleResults, rule: str) -> int:
    found = results[rule]
    return (found.triggered if found else None) or 0


def _long_start(results: RuleResults, start_us: int) -> list[Finding]:
    loop = _loop_us(results)
    if not loop or loop[0] - start_us <= loop[1] - loop[0]:
        return []
    before, training = loop[0] - start_us, loop[1] - loop[0]
    return [
        Finding(
            key="long-start",
            severity=Severity.WARNING,
            title=f"{duration(before)} passed before the first step, longer than the training",
            evidence=(HowMuch("From the first to the last recorded step", training / SECOND_US, "s"),),
            advice=START_ADVICE,
            rules=(),
            section="summary",
            start_us=start_us,
            end_us=loop[0],
        )
    ]
