"""What the rule results of SageMaker Debugger say: a function per document, which gives the result of jobreport's rule."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.debugger_report.differences import notes
from jobreport.debugger_report.findings import (
    IDLE_ADVICE,
    gpus_of,
    has_gpus,
    has_only_cpus,
    named,
    never_used,
    some_idle,
    span_of,
)
from jobreport.document import Parameter, RuleCard
from jobreport.formats import spread
from jobrules.measures.histograms import distance, normalized
from jobrules.measures.minutes import WIDTH_US
from jobrules.model import (
    SECOND_US,
    Finding,
    Measure,
    Metric,
    Note,
    Reason,
    ReasonKind,
    RuleResult,
    Severity,
    Status,
)
from jobrules.rule import (
    NO_GPU,
    NO_STEPS,
    not_recorded,
    parameter_fields,
    reason_few_samples,
    severity_of,
)
from jobrules.rules.bottleneck_rule import BottleneckRule
from jobrules.rules.load_balancing import ALONE
from jobrules.rules.low_gpu_utilization import LowGPUUtilization
from jobrules.rules.max_initialization_time import MaxInitializationTime
from jobrules.rules.unused_gpu import never_used as were_never_used
from jobrules.text import (
    capitalized,
    clock,
    count,
    duration,
    escape_name,
    number,
    percent,
    share,
    some_of,
    times,
)
from jobrules.verdict.edges import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobreport.readers.debugger_results.details import GPU, StepSeries
    from jobreport.readers.debugger_results.rule_results import RuleDocument, RuleResults
    from jobrules.rule import Rule

_NO_FILE = Reason(kind=ReasonKind.NOT_RECORDED, what="SageMaker Debugger's result")
_NO_COUNTERS = Reason(
    kind=ReasonKind.NOT_RECORDED, what="counters of SageMaker Debugger's result", verb="were"
)
_CONTRADICTION = Reason(kind=ReasonKind.OTHER, what="the counters contradict each other")
_NO_COMPARISON = Reason(kind=ReasonKind.NOT_RECORDED, what="comparison of GPUs")
_NO_LOADING = Reason(kind=ReasonKind.NOT_RECORDED, what="loader events", verb="were")
_NO_LOADERS = Reason(kind=ReasonKind.NOT_RECORDED, what="loader processes and cores", verb="were")
_NO_LOADING_TIME = Reason(kind=ReasonKind.NOT_RECORDED, what="time of data loading")
_NO_START = Reason(kind=ReasonKind.NOT_RECORDED, what="start of the job")
_NO_METRIC = Reason(kind=ReasonKind.NOT_RECORDED, what="samples", verb="were")
#: Pairs grow with the square of the GPUs of a node.
_MAX_COMPARED = 64
#: What the rules wait for; their results do not say it.
_MIN_STEPS, _MIN_SECONDS = 101, 11
#: GPUs whose figures a sentence lists.
_MAX_LISTED = 8
#: Low use of CPU, GPU, and memory is that of the GPU if it was counted at least this often in proportion.
_JOINT_SHARE = 0.5
#: Sections of the page that show more of a rule's numbers than its card.
_SECTIONS = ("gpu-utilization", "summary", "utilization")


class Answer(Struct, frozen=True, kw_only=True):
    """What a rule result says."""

    result: RuleResult
    #: What is known to be wrong with the numbers, and what make-report itself computed.
    notes: tuple[str, ...] = ()
    #: The thresholds in force, next to the defaults of jobreport's rule.
    parameters: tuple[Parameter, ...] = ()

    def on(self, card: RuleCard) -> RuleCard:
        """The card of the result, with what only the document has."""
        section = card.section if card.section in _SECTIONS else "rules"
        return replace(card, parameters=self.parameters, notes=self.notes, section=section)


class _Result(Struct, frozen=True, kw_only=True):
    """Result of one rule with its counters, and the results of all rules."""

    rule: Rule
    document: RuleDocument
    triggered: int
    datapoints: int
    results: RuleResults
    #: Thresholds by name: those of the result; where it has no usable one, the default, which is SageMaker Debugger's.
    limits: dict[str, float]

    def says(
        self, headline: str, *ids: str, found: Finding | None = None, more: tuple[str, ...] = (), **facts: Any
    ) -> Answer:
        """That the rule passed, or what it ``found``; ``ids`` are those of the differences that concern the numbers."""
        result = RuleResult(
            rule=self.rule.name,
            status=Status.TRIGGERED if found else Status.PASSED,
            headline=headline,
            findings=(found,) if found else (),
            **facts,
        )
        return Answer(result=self._counted(result), notes=(*notes(*ids), *more))

    def lacks(self, reason: Reason, *ids: str, more: tuple[str, ...] = (), **facts: Any) -> Answer:
        """Why the rule was not evaluated."""
        result = self.rule.not_evaluated(reason, **facts)
        return Answer(result=self._counted(result), notes=(*notes(*ids), *more))

    def _counted(self, result: RuleResult) -> RuleResult:
        violations = self.document.violations or 0
        return replace(result, triggered=self.triggered, violations=violations, datapoints=self.datapoints)

    @property
    def no_gpu(self) -> Reason:
        """Why no GPU is known: the job has none if its CPUs were sampled."""
        return NO_GPU if has_only_cpus(self.results) else not_recorded(Metric.GPU_UTILIZATION)

    def reason(self, patience: float) -> Reason | None:
        """Why a rule on GPUs checked nothing; None if it did."""
        if self.triggered:
            return None
        if not has_gpus(self.results):
            return self.no_gpu
        few = self.datapoints <= patience
        return reason_few_samples(self.datapoints, int(patience)) if few else None

    def checks(self, patience: float) -> int | None:
        """About how many checks were made, one per minute and GPU after ``patience`` samples."""
        results, gpus = self.results, len(gpus_of(self.results))
        if results.start_us is None or results.end_us is None or not gpus or self.datapoints <= patience:
            return None
        minutes = (results.end_us - results.start_us) / WIDTH_US
        return max(1, math.ceil(minutes * (1 - patience / self.datapoints))) * gpus

    def frequency(self, patience: float) -> tuple[str, Severity]:
        """How often a rule that checks each GPU once per minute triggered, and how bad that is."""
        triggered = f"SageMaker Debugger's rule triggered {times(self.triggered)}"
        checks = self.checks(patience)
        if checks is None:
            return f"{triggered}; it checks each GPU once per minute", Severity.WARNING
        made = max(checks, self.triggered)
        severity = severity_of(self.triggered / made)
        return f"{triggered} in about {count(made, 'check')}, one per minute and GPU", severity

    def finding(self, title: str, severity: Severity, *evidence: str, **facts: Any) -> Finding:
        """The finding of this rule; ``evidence`` are sentences without their periods."""
        section = self.rule.section if self.rule.section in _SECTIONS else "rules"
        known = {"section": section} | facts
        return self.rule.finding(title, *map(Note, evidence), severity=severity, **known)

    def only_of_several_nodes(self, *ids: str) -> tuple[str, ...]:
        """Ids of differences that need several nodes."""
        nodes = {node for node, _ in gpus_of(self.results)}
        nodes |= {node for sampled in self.results.usage.values() for node in sampled}
        return ids if len(nodes) > 1 else ()


def parsed(value: str) -> float | int | str | None:
    """Parse a threshold: a number if it is a finite one, None for ``None``."""
    try:
        found = float(value)
    except ValueError:
        return None if value == "None" else value
    if not abs(found) < 1e15:
        return value
    return int(found) if found == int(found) else found


def _minute(us: int | None) -> list[str]:
    return [f"Last in the minute from {clock(us)}"] if us is not None else []


def _paths(gpus: tuple[GPU, ...]) -> tuple[str, ...]:
    return tuple(f"{node}/{device}" for node, device in gpus)


def _was(n: int) -> str:
    return "was" if n == 1 else "were"


def _who(n: int, total: int) -> str:
    """``The GPU``, ``3 of 4 GPUs``, ``Both GPUs``, ``All 4 GPUs``."""
    return "The GPU" if total == 1 else capitalized(some_of(n, total, "GPU"))


def _low_gpu(result: _Result) -> Answer:
    patience = result.limits["patience"]
    if reason := result.reason(patience):
        return result.lacks(reason)
    if not result.triggered:
        return result.says("No GPU had low or fluctuating utilization")
    results = result.results
    unused, total = never_used(results), len(gpus_of(results))
    # GPUs that were never used are a finding of their own.
    used = {gpu: use for gpu, use in results.low_gpu.items() if gpu not in unused}
    shown = used or results.low_gpu
    p95 = {gpu: use.gpu_95 for gpu, use in shown.items() if use.gpu_95 is not None}
    low = [gpu for gpu in p95 if p95[gpu] < result.limits["threshold_p95"]]
    fluctuating = len(p95) - len(low)
    title = f"Low or fluctuating GPU utilization was counted {times(result.triggered)}"
    if low:
        title = f"{_who(len(low), total)} had low utilization, p95 {spread(p95[gpu] for gpu in low)} in the last window"
        title += f"; {number(fluctuating)} had fluctuating utilization" if fluctuating else ""
    elif p95:
        title = f"{_who(len(p95), total)} had fluctuating utilization, p95 {spread(p95.values())} in the last window"
    headlines = [title] if used or not unused else []
    headlines += [were_never_used(len(unused), total)] if unused else []
    frequency, severity = result.frequency(patience)
    evidence = [frequency, *_minute(results.low_gpu_last_us)]
    if p95:
        figures = [f"{named([gpu])} {percent(value)}" for gpu, value in p95.items()]
        more = f", and {len(figures) - _MAX_LISTED} more" if len(figures) > _MAX_LISTED else ""
        evidence.append(f"p95 of the last window: {', '.join(figures[:_MAX_LISTED])}{more}")
    if unused and used:
        evidence.append("It triggered for the GPUs that were never used, too")
    found = result.finding(
        title,
        severity,
        *evidence,
        seen_as=f"low or fluctuating utilization, counted {times(result.triggered)}",
        because_of=(NEVER,),
        devices=_paths(tuple(shown)),
        **({"advice": IDLE_ADVICE} if some_idle(results) else {}),
    )
    return result.says("; ".join(headlines), "LGU-1", *(["LGU-3"] if unused else []), "LGU-4", found=found)


def _bottleneck(result: _Result) -> Answer:
    rule, limits = result.rule, result.limits
    if reason := result.reason(limits["patience"]):
        return result.lacks(reason)
    stalls, datapoints = result.results.bottlenecks[rule.name], result.datapoints
    hits = stalls.count if result.document.violations is None else result.document.violations
    if not 0 <= hits <= datapoints or not datapoints or not isinstance(rule, BottleneckRule):
        return result.lacks(_CONTRADICTION)
    part = hits / datapoints
    headline, measure = rule.said(part, limits["threshold"])
    evidence = [f"{number(hits)} of {count(datapoints, 'snapshot')} were bottlenecks"]
    if stalls.low and hits <= stalls.low <= datapoints:
        idle = f"A GPU was idle (below {limits['gpu_threshold']:g}%) in {number(stalls.low)}"
        evidence.append(f"{idle}, {share(hits / stalls.low)} of them bottlenecks")
    if (gpus := len(gpus_of(result.results))) > 1:
        evidence.append(f"One idle GPU of {gpus} is enough")
    # A GPU that was never used is always the idle one.
    severity = Severity.WARNING if never_used(result.results) else severity_of(part)
    found = result.finding(headline, severity, *evidence, share=part, share_of="of snapshots")
    return result.says(
        headline,
        "CPU-1",
        "CPU-7",
        *result.only_of_several_nodes("CPU-2"),
        found=found if result.triggered else None,
        measure=measure,
        evaluated=datapoints,
        violating=hits,
        counted="snapshots",
        first_us=stalls.first_us,
        last_us=stalls.last_us,
    )


def _batch_size(result: _Result) -> Answer:
    patience = max(result.limits["patience"], result.limits["window"])
    if reason := result.reason(patience):
        return result.lacks(reason)
    if not result.triggered:
        return result.says("CPU, GPU, and GPU memory activity were never all low")
    small, unused = result.results.small_batch, never_used(result.results)
    which = tuple(gpu for gpu in small if gpu not in unused) or small
    total = len(gpus_of(result.results))
    headline = "CPU, GPU, and GPU memory activity were all low"
    frequency, severity = result.frequency(patience)
    evidence = [frequency]
    if which and total > 1:
        headline += f" on {'every GPU' if len(which) == total else _who(len(which), total)}"
        evidence.append(f"GPUs: {named(which)}")
    low = result.results["LowGPUUtilization"]
    is_joint = result.triggered >= _JOINT_SHARE * ((low and low.triggered) or 0)
    found = result.finding(
        headline,
        severity,
        *evidence,
        because_of=(NEVER, *([LowGPUUtilization().key] if is_joint else [])),
        devices=_paths(which),
    )
    return result.says(headline, "BS-2", "C-18", *(["BS-6"] if unused & set(small) else []), found=found)


def _memory(result: _Result) -> Answer:
    patience = max(result.limits["patience"], result.limits["window"] + 1)
    if reason := result.reason(patience):
        return result.lacks(reason)
    if not result.triggered:
        return result.says("No jump in GPU memory activity was counted", "GMI-1")
    jumps = [
        f"{named([gpu])} by {one.increase:.1f} points, maximum {percent(one.gpu_max)}"
        for gpu, one in itertools.islice(result.results.memory.items(), _MAX_LISTED)
        if one.increase is not None and one.gpu_max is not None
    ]
    samples = f"{count(result.triggered, 'sample')} {_was(result.triggered)}"
    headline = f"GPU memory activity: {samples} counted as a jump"
    found = result.finding(
        headline,
        Severity.INFO,
        *([f"Last jump of each GPU: {'; '.join(jumps)}"] if jumps else []),
        *_minute(result.results.memory_last_us),
        "One jump is counted several times, and noise is counted as a jump",
    )
    return result.says(headline, "GMI-1", "GMI-2", "GMI-5", "C-18", found=found)


def _worst_pair(workloads: dict[GPU, tuple[int, ...]], patience: float) -> tuple[float, GPU, GPU] | None:
    """Distance and names of the two GPUs of a node that differ most; None if no two can be compared."""
    by_node: dict[str, list[GPU]] = {}
    for gpu, bins in workloads.items():
        if sum(bins) > patience:
            by_node.setdefault(gpu[0], []).append(gpu)
    pairs = []
    for gpus in by_node.values():
        compared = gpus[:_MAX_COMPARED]
        shares = normalized(np.array([workloads[gpu] for gpu in compared], np.float64))
        pairs += [
            (float(distance(shares[i], shares[j])), compared[i], compared[j])
            for i, j in itertools.combinations(range(len(compared)), 2)
        ]
    return max(pairs, key=lambda pair: pair[0], default=None)


def _balance(result: _Result) -> Answer:
    workloads = result.results.workloads
    if not workloads:
        return result.lacks(result.no_gpu)
    if len({node for node, _ in workloads}) == len(workloads):
        return result.lacks(ALONE)
    worst = _worst_pair(workloads, result.limits["patience"])
    if worst is None:
        return result.lacks(_NO_COMPARISON, "LB-1", "LB-2")
    largest, one, other = worst
    threshold = result.limits["threshold"]
    names = f"{named([one])} and {escape_name(other[1], 24)}"
    evidence = ["make-report compared SageMaker Debugger's histograms"]
    kept = min(map(sum, workloads.values()))
    if kept < result.datapoints:
        evidence.append(f"Up to {share(1 - kept / result.datapoints)} of a GPU's samples are missing in them")
    found = result.finding(
        f"Utilization of {names} differs: distance {largest:.2f} (threshold {threshold:g})",
        Severity.WARNING,
        *evidence,
    )
    evidence.append(f"Largest distance {largest:.2f} ({names}, threshold {threshold:g})")
    more = tuple(f"{sentence}." for sentence in evidence)
    # The rule itself compared nothing.
    findings = (replace(found, rules=()),) if largest > threshold else ()
    return result.lacks(_NO_COMPARISON, "LB-1", "LB-2", "LB-6", more=more, findings=findings)


def _steps(result: _Result) -> Answer:
    steps, threshold = result.results.steps, result.limits["n_outliers"]
    outliers = {rank: one.number_of_outliers or 0 for rank, one in steps.items()}
    if not result.triggered:
        if not result.datapoints:
            return result.lacks(NO_STEPS)
        if result.datapoints < _MIN_STEPS:
            return result.lacks(reason_few_samples(result.datapoints, _MIN_STEPS - 1, "steps"))
        if all(one.number_of_outliers is None for one in steps.values()):
            what = f"rank has {count(_MIN_STEPS, 'step')} of one mode"
            return result.lacks(Reason(kind=ReasonKind.NO_DEVICE, what=what))
        headline = f"At most {count(max(outliers.values()), 'outlier')} per rank (threshold {threshold:g})"
        return result.says(headline, "SO-2", "SO-3")
    # A step counts in every minute that it touches.
    different = {rank: len(set(steps[rank].step_numbers)) for rank, n in outliers.items() if n > threshold}
    worst = max(different, key=lambda rank: different[rank], default=None)
    severity = Severity.INFO
    if worst is None:
        headline = f"Too many outliers were counted {times(result.triggered)}, the result does not say where"
        evidence = ["The result keeps another mode of the rank than the one that triggered"]
    else:
        headline = _outliers(worst, steps[worst], different[worst])
        evidence = [f"SageMaker Debugger counts {number(outliers[worst])}"]
        if others := len(different) - 1:
            evidence.append(f"{count(others, 'more rank')} {'has' if others == 1 else 'have'} too many")
        if different[worst] > threshold:
            severity = Severity.WARNING
        else:
            evidence.append(f"Without those counted twice, it would not trigger (threshold {threshold:g})")
    found = result.finding(headline, severity, *evidence)
    return result.says(headline, "SO-1", "SO-2", "SO-3", found=found)


def _outliers(rank: str, series: StepSeries, steps: int) -> str:
    """``7 steps of algo-1-33 (EVAL) were outliers: the longest took 8.7 s, the median 21 ms``."""
    mode = escape_name(series.phase.removeprefix("Step:ModeKeys."), 40)
    who = f"{escape_name(rank, 40)} ({mode})" if mode else escape_name(rank, 40)
    headline = f"{count(steps, 'step')} of {who} {_was(steps)} {'an outlier' if steps == 1 else 'outliers'}"
    stats = series.step_stats
    if stats.max is None or stats.p50 is None:
        return headline
    return f"{headline}: the longest took {_seconds(stats.max)}, the median {_seconds(stats.p50)}"


def _seconds(value: float) -> str:
    return f"{1000 * value:.3g}\u00a0ms" if value < 1 else duration(value * SECOND_US)


def _loader(result: _Result) -> Answer:
    if not result.datapoints:
        return result.lacks(_NO_LOADING)
    loader = result.results.loader
    if not loader.cores or loader.dataloaders is None:
        return result.lacks(_NO_LOADERS)
    low, high = result.limits["min_threshold"], result.limits["max_threshold"]
    part = 100 * loader.dataloaders / loader.cores
    # The result does not hold the seconds: if every loader has one event in each, there are this many.
    seconds = math.ceil(result.datapoints / max(loader.dataloaders, 1))
    if not result.triggered and seconds < _MIN_SECONDS:
        what = "data loading"
        return result.lacks(Reason(kind=ReasonKind.TOO_SHORT, what=what, needed=_MIN_SECONDS, have=seconds))
    # Such a number would have triggered, had it been checked.
    if not result.triggered and not low <= part <= high:
        return result.lacks(_NO_LOADING_TIME)
    processes = count(loader.dataloaders, "loader process", "loader processes")
    headline = f"{processes} for {count(loader.cores, 'core')}, {percent(part)}"
    evidence = [f"SageMaker Debugger counts {number(result.datapoints)} loader events and {processes}"]
    severity = Severity.INFO
    if loader.num_workers == 0:
        headline = (
            f"Data is loaded in the training process (`num_workers` is 0), with {count(loader.cores, 'core')}"
        )
        severity = Severity.WARNING
    elif loader.num_workers is not None:
        evidence.append(f"`num_workers` is {loader.num_workers}")
    return result.says(
        headline,
        "DL-1",
        "DL-4",
        *result.only_of_several_nodes("DL-3"),
        found=result.finding(headline, severity, *evidence) if result.triggered else None,
        measure=Measure(
            value=round(part, 1),
            limits=(low, high),
            bad="outside",
            scale=max(1.25 * high, part),
            unit="% of cores",
            limit_text=f"threshold {low:g} to {high:g}%",
        ),
    )


def _first_step(result: _Result) -> Answer:
    first, start = result.results.first_step_us, result.results.start_us
    if first is None:
        return result.lacks(NO_STEPS, "MIT-1")
    if start is None or not start <= first <= span_of(result.results)[1]:
        return result.lacks(_NO_START)
    threshold = result.limits["threshold"]
    headline, measure = MaxInitializationTime.said(first - start, threshold)
    # Like jobrules.MaxInitializationTime, which checks once per minute.
    late = math.floor(threshold) + 1 < (first - start) / WIDTH_US or bool(result.triggered)
    own = "make-report compared SageMaker Debugger's time of the first step with the threshold"
    found = result.finding(
        headline,
        Severity.WARNING,
        f"The threshold is {threshold:g}\u00a0min",
        own,
        start_us=start,
        end_us=first,
    )
    return result.says(
        headline,
        "MIT-1",
        *result.only_of_several_nodes("MIT-3"),
        "MIT-4",
        "MIT-6",
        found=found if late else None,
        more=(f"{own}.",),
        measure=measure,
    )


def _system(result: _Result) -> Answer:
    nodes = {node for sampled in result.results.usage.values() for node in sampled}
    if not nodes:
        return result.lacks(_NO_METRIC)
    headline = count(len(nodes), "node")
    if result.datapoints:
        of = "the first of " if len(nodes) > 1 else ""
        headline = f"{count(result.datapoints, 'snapshot')} on {of}{headline}"
    return result.says(headline, "OSU-1", "OSU-2", "OSU-3")


def _framework(result: _Result) -> Answer:
    phases = result.results.phases
    if not phases:
        return result.lacks(NO_STEPS)
    several_ranks = len(result.results.steps) > 1
    largest = sorted(phases.items(), key=lambda item: -item[1])[:4]
    shares = [f"{escape_name(name.removeprefix('Step:ModeKeys.'), 40)} {percent(n)}" for name, n in largest]
    summed = ["OFM-2"] if several_ranks or min(phases.values()) < 0 else []
    return result.says(f"Share of time: {', '.join(shares)}", "OFM-1", *summed, "C-3")


_ANSWERS: dict[str, Callable[[_Result], Answer]] = {
    "LowGPUUtilization": _low_gpu,
    "CPUBottleneck": _bottleneck,
    "IOBottleneck": _bottleneck,
    "BatchSize": _batch_size,
    "GPUMemoryIncrease": _memory,
    "LoadBalancing": _balance,
    "StepOutlier": _steps,
    "Dataloader": _loader,
    "MaxInitializationTime": _first_step,
    "OverallSystemUsage": _system,
    "OverallFrameworkMetrics": _framework,
}


def answer(rule: Rule, results: RuleResults, *, strict: bool) -> Answer:
    """What the result of a rule says; if reading it raises, that, unless ``strict``."""
    found = results[rule.name]
    # ``documents`` writes a file with this reason for a rule without one.
    if found is None or found.raw.get("Reason") == str(_NO_FILE):
        return Answer(result=rule.not_evaluated(_NO_FILE))
    known = {name: (default, meta) for name, default, meta in parameter_fields(rule)}
    written = {name: parsed(text) for name, text in found.parameters.items() if name not in rule.aliases}
    parameters = tuple(
        _parameter(name, value, *known.get(name, (value, {}))) for name, value in written.items()
    )
    if found.triggered is None or found.datapoints is None:
        return Answer(result=rule.not_evaluated(_NO_COUNTERS), parameters=parameters)
    limits = {name: default for name, (default, _) in known.items() if isinstance(default, int | float)}
    limits |= {
        name: value
        for name, value in written.items()
        if name in limits and isinstance(value, int | float) and value >= 0
    }
    result = _Result(
        rule=rule,
        document=found,
        triggered=found.triggered,
        datapoints=found.datapoints,
        results=results,
        limits=limits,
    )
    try:
        return replace(_ANSWERS[rule.name](result), parameters=parameters)
    except Exception as error:
        if strict:
            raise
        failed = rule.failed(error)
        what = failed.reason.what if failed.reason else ""
        return Answer(
            result=replace(failed, headline=f"Cannot read the result: {what}"), parameters=parameters
        )


def _parameter(name: str, value: Any, default: Any, meta: dict[str, Any]) -> Parameter:
    return Parameter(
        name=name, value=value, unit=meta.get("unit", ""), help=meta.get("help", ""), default=default
    )
