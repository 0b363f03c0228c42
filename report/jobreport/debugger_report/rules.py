"""What each rule result of SageMaker Debugger says, with what is known to be wrong with it."""

from __future__ import annotations

import itertools
import math
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.debugger_report.findings import (
    IDLE_ADVICE,
    SECTIONS,
    finding,
    gpus_of,
    has_gpus,
    has_only_cpus,
    in_words,
    named,
    never_used,
    some_idle,
    span_of,
    was_never_used,
)
from jobreport.formats import spread
from jobrules import RULES
from jobrules.measures.histograms import distance, normalized
from jobrules.measures.minutes import WIDTH_US
from jobrules.model import SECOND_US, Finding, Measure, Metric, Reason, ReasonKind, Severity, Status
from jobrules.rule import NO_GPU, NO_STEPS, not_recorded, reason_few_samples, severity_of
from jobrules.text import clock, count, duration, escape_name, number, percent, share, times

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobreport.readers.debugger_results.details import GPU, StepSeries
    from jobreport.readers.debugger_results.rule_results import RuleDocument, RuleResults

_NO_FILE = Reason(kind=ReasonKind.NOT_RECORDED, what="SageMaker Debugger's result")
_NO_COUNTERS = Reason(
    kind=ReasonKind.NOT_RECORDED, what="counters of SageMaker Debugger's result", verb="were"
)
_CONTRADICTION = Reason(kind=ReasonKind.OTHER, what="the counters contradict each other")
_ONE_GPU = Reason(kind=ReasonKind.NOT_APPLICABLE, what="every node has 1 GPU")
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


class Evaluation(Struct, frozen=True, kw_only=True):
    """What a rule result says."""

    status: Status
    headline: str = ""
    #: Why the rule was not evaluated; None if it was.
    reason: Reason | None = None
    measure: Measure | None = None
    #: Ids of the differences that concern the numbers.
    ids: tuple[str, ...] = ()
    #: Further notes for the card.
    notes: tuple[str, ...] = ()
    finding: Finding | None = None
    #: How much was evaluated, of what ``counted`` says, how much of it violates, and from when to when.
    evaluated: int = 0
    violating: int = 0
    counted: str = ""
    first_us: int | None = None
    last_us: int | None = None


def parsed(value: str) -> float | int | str | None:
    """Parse a threshold: a number if it is a finite one, None for ``None``."""
    try:
        found = float(value)
    except ValueError:
        return None if value == "None" else value
    if not abs(found) < 1e15:
        return value
    return int(found) if found == int(found) else found


class _Result(Struct, frozen=True, kw_only=True):
    """Result of one rule with its counters, and the results of all rules."""

    document: RuleDocument
    triggered: int
    datapoints: int
    results: RuleResults

    @property
    def status(self) -> Status:
        return Status.TRIGGERED if self.triggered else Status.PASSED

    def threshold(self, name: str, default: float) -> float:
        """A parameter by its name; SageMaker Debugger's default if the result has no usable one."""
        value = parsed(self.document.parameters.get(name, ""))
        return value if isinstance(value, int | float) and value >= 0 else default

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
            return f"{triggered}; it checks each GPU once per minute.", Severity.WARNING
        made = max(checks, self.triggered)
        severity = severity_of(self.triggered / made)
        return f"{triggered} in about {count(made, 'check')}, one per minute and GPU.", severity

    def finding(self, title: str, severity: Severity, *evidence: str, **facts: Any) -> Finding:
        """The finding of this rule; ``evidence`` are sentences."""
        name = self.document.rule
        rule = next((one for one in RULES if one.__name__ == name), None)
        return finding(
            key=re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower(),
            title=title,
            severity=severity,
            evidence=evidence,
            **{
                "advice": rule.documentation().advice if rule else (),
                "rules": (name,),
                "section": SECTIONS.get(name, "rules"),
            }
            | facts,
        )

    def only_of_several_nodes(self, *ids: str) -> tuple[str, ...]:
        """Ids of differences that need several nodes."""
        nodes = {node for node, _ in gpus_of(self.results)}
        nodes |= {node for sampled in self.results.usage.values() for node in sampled}
        return ids if len(nodes) > 1 else ()


def _not_evaluated(reason: Reason, *ids: str, notes: tuple[str, ...] = ()) -> Evaluation:
    return Evaluation(status=Status.NOT_EVALUATED, reason=reason, ids=ids, notes=notes)


def _minute(us: int | None) -> list[str]:
    return [f"Last in the minute from {clock(us)}."] if us is not None else []


def _paths(gpus: tuple[GPU, ...]) -> tuple[str, ...]:
    return tuple(f"{node}/{device}" for node, device in gpus)


def _was(n: int) -> str:
    return "was" if n == 1 else "were"


def _low_gpu(result: _Result) -> Evaluation:
    patience = result.threshold("patience", 1000)
    if reason := result.reason(patience):
        return _not_evaluated(reason)
    if not result.triggered:
        return Evaluation(status=Status.PASSED, headline="No GPU had low or fluctuating utilization")
    results = result.results
    unused, total = never_used(results), len(gpus_of(results))
    # GPUs that were never used are a finding of their own.
    used = {gpu: use for gpu, use in results.low_gpu.items() if gpu not in unused}
    shown = used or results.low_gpu
    p95 = {gpu: use.gpu_95 for gpu, use in shown.items() if use.gpu_95 is not None}
    threshold = result.threshold("threshold_p95", 70)
    low = [gpu for gpu in p95 if p95[gpu] < threshold]
    fluctuating = len(p95) - len(low)
    title = f"Low or fluctuating GPU utilization was counted {times(result.triggered)}"
    if low:
        title = f"{in_words(len(low), total)} had low utilization, p95 {spread(p95[gpu] for gpu in low)} in the last window"
        title += f"; {number(fluctuating)} had fluctuating utilization" if fluctuating else ""
    elif p95:
        title = f"{in_words(len(p95), total)} had fluctuating utilization, p95 {spread(p95.values())} in the last window"
    headlines = [title] if used or not unused else []
    headlines += [was_never_used(len(unused), total)] if unused else []
    frequency, severity = result.frequency(patience)
    evidence = [frequency, *_minute(results.low_gpu_last_us)]
    if p95:
        figures = [f"{named([gpu])} {percent(value)}" for gpu, value in p95.items()]
        more = f", and {len(figures) - _MAX_LISTED} more" if len(figures) > _MAX_LISTED else ""
        evidence.append(f"p95 of the last window: {', '.join(figures[:_MAX_LISTED])}{more}.")
    if unused and used:
        evidence.append("It triggered for the GPUs that were never used, too.")
    advice = {"advice": IDLE_ADVICE} if some_idle(results) else {}
    return Evaluation(
        status=Status.TRIGGERED,
        headline="; ".join(headlines),
        ids=("LGU-1", *(["LGU-3"] if unused else []), "LGU-4"),
        finding=result.finding(
            title,
            severity,
            *evidence,
            seen_as=f"low or fluctuating utilization, counted {times(result.triggered)}",
            devices=_paths(tuple(shown)),
            **advice,
        ),
    )


def _bottleneck(result: _Result, core: str) -> Evaluation:
    if reason := result.reason(result.threshold("patience", 1000)):
        return _not_evaluated(reason)
    found, datapoints = result.results.bottlenecks[result.document.rule], result.datapoints
    hits = found.count if result.document.violations is None else result.document.violations
    if not 0 <= hits <= datapoints or not datapoints:
        return _not_evaluated(_CONTRADICTION)
    part = hits / datapoints
    headline = f"A GPU was idle while a CPU core {core} in {share(part)} of snapshots"
    evidence = [f"{number(hits)} of {count(datapoints, 'snapshot')} were bottlenecks."]
    if found.low and hits <= found.low <= datapoints:
        idle = f"A GPU was idle (below {result.threshold('gpu_threshold', 10):g}%) in {number(found.low)}"
        evidence.append(f"{idle}, {share(hits / found.low)} of them bottlenecks.")
    if (gpus := len(gpus_of(result.results))) > 1:
        evidence.append(f"One idle GPU of {gpus} is enough.")
    threshold = result.threshold("threshold", 50)
    return Evaluation(
        status=result.status,
        headline=headline,
        measure=Measure(
            value=round(100 * part, 1),
            limits=(threshold,),
            scale=100.0,
            unit="% of snapshots",
            limit_text=f"threshold {threshold:g}%",
        ),
        ids=("CPU-1", "CPU-7", *result.only_of_several_nodes("CPU-2")),
        finding=result.finding(headline, severity_of(part), *evidence, share=part, share_of="of snapshots")
        if result.triggered
        else None,
        evaluated=datapoints,
        violating=hits,
        counted="snapshots",
        first_us=found.first_us,
        last_us=found.last_us,
    )


def _batch_size(result: _Result) -> Evaluation:
    patience = max(result.threshold("patience", 1000), result.threshold("window", 500))
    if reason := result.reason(patience):
        return _not_evaluated(reason)
    if not result.triggered:
        headline = "CPU, GPU, and GPU memory activity were never all low"
        return Evaluation(status=Status.PASSED, headline=headline)
    small, unused = result.results.small_batch, never_used(result.results)
    which = tuple(gpu for gpu in small if gpu not in unused) or small
    total = len(gpus_of(result.results))
    headline = "CPU, GPU, and GPU memory activity were all low"
    frequency, severity = result.frequency(patience)
    evidence = [frequency]
    if which and total > 1:
        headline += f" on {'every GPU' if len(which) == total else in_words(len(which), total)}"
        evidence.append(f"GPUs: {named(which)}.")
    return Evaluation(
        status=Status.TRIGGERED,
        headline=headline,
        ids=("BS-2", "C-18", *(["BS-6"] if unused & set(small) else [])),
        finding=result.finding(headline, severity, *evidence, devices=_paths(which)),
    )


def _memory(result: _Result) -> Evaluation:
    patience = max(result.threshold("patience", 1000), result.threshold("window", 10) + 1)
    if reason := result.reason(patience):
        return _not_evaluated(reason)
    if not result.triggered:
        headline = "No jump in GPU memory activity was counted"
        return Evaluation(status=Status.PASSED, headline=headline, ids=("GMI-1",))
    jumps = [
        f"{named([gpu])} by {one.increase:.1f} points, maximum {percent(one.gpu_max)}"
        for gpu, one in itertools.islice(result.results.memory.items(), _MAX_LISTED)
        if one.increase is not None and one.gpu_max is not None
    ]
    evidence = [f"Last jump of each GPU: {'; '.join(jumps)}."] if jumps else []
    evidence += _minute(result.results.memory_last_us)
    evidence.append("One jump is counted several times, and noise is counted as a jump.")
    samples = f"{count(result.triggered, 'sample')} {_was(result.triggered)}"
    headline = f"GPU memory activity: {samples} counted as a jump"
    return Evaluation(
        status=Status.TRIGGERED,
        headline=headline,
        ids=("GMI-1", "GMI-2", "GMI-5", "C-18"),
        finding=result.finding(headline, Severity.INFO, *evidence),
    )


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


def _balance(result: _Result) -> Evaluation:
    workloads = result.results.workloads
    if not workloads:
        return _not_evaluated(result.no_gpu)
    if len({node for node, _ in workloads}) == len(workloads):
        return _not_evaluated(_ONE_GPU)
    worst = _worst_pair(workloads, result.threshold("patience", 1000))
    if worst is None:
        return _not_evaluated(_NO_COMPARISON, "LB-1", "LB-2")
    largest, one, other = worst
    threshold = result.threshold("threshold", 0.2)
    names = f"{named([one])} and {escape_name(other[1], 24)}"
    evidence = ["make-report compared SageMaker Debugger's histograms."]
    kept = min(map(sum, workloads.values()))
    if kept < result.datapoints:
        evidence.append(
            f"Up to {share(1 - kept / result.datapoints)} of a GPU's samples are missing in them."
        )
    found = result.finding(
        f"Utilization of {names} differs: distance {largest:.2f} (threshold {threshold:g})",
        Severity.WARNING,
        *evidence,
        rules=(),
    )
    note = f"Largest distance {largest:.2f} ({names}, threshold {threshold:g})."
    return replace(
        _not_evaluated(_NO_COMPARISON, "LB-1", "LB-2", "LB-6", notes=(*evidence, note)),
        finding=found if largest > threshold else None,
    )


def _steps(result: _Result) -> Evaluation:
    steps = result.results.steps
    threshold = result.threshold("n_outliers", 10)
    outliers = {rank: one.number_of_outliers or 0 for rank, one in steps.items()}
    if not result.triggered:
        if not result.datapoints:
            return _not_evaluated(NO_STEPS)
        if result.datapoints < _MIN_STEPS:
            return _not_evaluated(reason_few_samples(result.datapoints, _MIN_STEPS - 1, "steps"))
        if all(one.number_of_outliers is None for one in steps.values()):
            what = f"rank has {count(_MIN_STEPS, 'step')} of one mode"
            return _not_evaluated(Reason(kind=ReasonKind.NO_DEVICE, what=what))
        headline = f"At most {count(max(outliers.values()), 'outlier')} per rank (threshold {threshold:g})"
        return Evaluation(status=Status.PASSED, headline=headline, ids=("SO-2", "SO-3"))
    # A step counts in every minute that it touches.
    different = {rank: len(set(steps[rank].step_numbers)) for rank, n in outliers.items() if n > threshold}
    worst = max(different, key=lambda rank: different[rank], default=None)
    if worst is None:
        headline = f"Too many outliers were counted {times(result.triggered)}, the result does not say where"
        evidence = ["The result keeps another mode of the rank than the one that triggered."]
        severity = Severity.INFO
    else:
        headline = _outliers(worst, steps[worst], different[worst])
        evidence = [f"SageMaker Debugger counts {number(outliers[worst])}."]
        if others := len(different) - 1:
            evidence.append(f"{count(others, 'more rank')} {'has' if others == 1 else 'have'} too many.")
        severity = Severity.WARNING
        if different[worst] <= threshold:
            evidence.append(f"Without those counted twice, it would not trigger (threshold {threshold:g}).")
            severity = Severity.INFO
    return Evaluation(
        status=Status.TRIGGERED,
        headline=headline,
        ids=("SO-1", "SO-2", "SO-3"),
        finding=result.finding(headline, severity, *evidence),
    )


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


def _loader(result: _Result) -> Evaluation:
    if not result.datapoints:
        return _not_evaluated(_NO_LOADING)
    loader = result.results.loader
    if not loader.cores or loader.dataloaders is None:
        return _not_evaluated(_NO_LOADERS)
    low, high = result.threshold("min_threshold", 70), result.threshold("max_threshold", 200)
    part = 100 * loader.dataloaders / loader.cores
    # The result does not hold the seconds: if every loader has one event in each, there are this many.
    seconds = math.ceil(result.datapoints / max(loader.dataloaders, 1))
    if not result.triggered and seconds < _MIN_SECONDS:
        what = "data loading"
        return _not_evaluated(Reason(kind=ReasonKind.TOO_SHORT, what=what, needed=_MIN_SECONDS, have=seconds))
    # Such a number would have triggered, had it been checked.
    if not result.triggered and not low <= part <= high:
        return _not_evaluated(_NO_LOADING_TIME)
    processes = count(loader.dataloaders, "loader process", "loader processes")
    headline = f"{processes} for {count(loader.cores, 'core')}, {percent(part)}"
    evidence = [f"SageMaker Debugger counts {number(result.datapoints)} loader events and {processes}."]
    severity = Severity.INFO
    if loader.num_workers == 0:
        headline = (
            f"Data is loaded in the training process (`num_workers` is 0), with {count(loader.cores, 'core')}"
        )
        severity = Severity.WARNING
    elif loader.num_workers is not None:
        evidence.append(f"`num_workers` is {loader.num_workers}.")
    return Evaluation(
        status=result.status,
        headline=headline,
        measure=Measure(
            value=round(part, 1),
            limits=(low, high),
            scale=max(1.25 * high, part),
            unit="% of cores",
            limit_text=f"threshold {low:g} to {high:g}%",
        ),
        ids=("DL-1", "DL-4", *result.only_of_several_nodes("DL-3")),
        finding=result.finding(headline, severity, *evidence) if result.triggered else None,
    )


def _first_step(result: _Result) -> Evaluation:
    first, start = result.results.first_step_us, result.results.start_us
    if first is None:
        return _not_evaluated(NO_STEPS, "MIT-1")
    if start is None or not start <= first <= span_of(result.results)[1]:
        return _not_evaluated(_NO_START)
    threshold = result.threshold("threshold", 20)
    minutes = (first - start) / WIDTH_US
    headline = f"The first step started after {duration(first - start)}"
    # Like jobrules.MaxInitializationTime, which checks once per minute.
    late = math.floor(threshold) + 1 < minutes or bool(result.triggered)
    own = "make-report compared SageMaker Debugger's time of the first step with the threshold."
    return Evaluation(
        status=Status.TRIGGERED if late else Status.PASSED,
        headline=headline,
        measure=Measure(
            value=round(minutes, 4),
            limits=(threshold,),
            scale=max(2 * threshold, minutes, 1.0),
            unit="min",
            limit_text=f"threshold {threshold:g}\u00a0min",
        ),
        ids=("MIT-1", *result.only_of_several_nodes("MIT-3"), "MIT-4", "MIT-6"),
        notes=(own,),
        finding=result.finding(
            headline,
            Severity.WARNING,
            f"The threshold is {threshold:g}\u00a0min.",
            own,
            start_us=start,
            end_us=first,
        )
        if late
        else None,
    )


def _system(result: _Result) -> Evaluation:
    nodes = {node for sampled in result.results.usage.values() for node in sampled}
    if not nodes:
        return _not_evaluated(_NO_METRIC)
    headline = count(len(nodes), "node")
    if result.datapoints:
        of = "the first of " if len(nodes) > 1 else ""
        headline = f"{count(result.datapoints, 'snapshot')} on {of}{headline}"
    return Evaluation(status=Status.PASSED, headline=headline, ids=("OSU-1", "OSU-2", "OSU-3"))


def _framework(result: _Result) -> Evaluation:
    phases = result.results.phases
    if not phases:
        return _not_evaluated(NO_STEPS)
    several_ranks = len(result.results.steps) > 1
    largest = sorted(phases.items(), key=lambda item: -item[1])[:4]
    shares = [f"{escape_name(name.removeprefix('Step:ModeKeys.'), 40)} {percent(n)}" for name, n in largest]
    return Evaluation(
        status=Status.PASSED,
        headline=f"Share of time: {', '.join(shares)}",
        ids=("OFM-1", *(["OFM-2"] if several_ranks or min(phases.values()) < 0 else []), "C-3"),
    )


_EVALUATIONS: dict[str, Callable[[_Result], Evaluation]] = {
    "LowGPUUtilization": _low_gpu,
    "CPUBottleneck": partial(_bottleneck, core="was saturated"),
    "IOBottleneck": partial(_bottleneck, core="waited for I/O"),
    "BatchSize": _batch_size,
    "GPUMemoryIncrease": _memory,
    "LoadBalancing": _balance,
    "StepOutlier": _steps,
    "Dataloader": _loader,
    "MaxInitializationTime": _first_step,
    "OverallSystemUsage": _system,
    "OverallFrameworkMetrics": _framework,
}


def evaluate(name: str, results: RuleResults, strict: bool) -> Evaluation:
    """Read the result of a rule; if that raises, the evaluation says so, unless ``strict``."""
    found = results[name]
    # ``documents`` writes a file with this reason for a rule without one.
    if found is None or found.raw.get("Reason") == str(_NO_FILE):
        return _not_evaluated(_NO_FILE)
    if found.triggered is None or found.datapoints is None:
        return _not_evaluated(_NO_COUNTERS)
    result = _Result(document=found, triggered=found.triggered, datapoints=found.datapoints, results=results)
    try:
        return _EVALUATIONS[name](result)
    except Exception as error:
        if strict:
            raise
        what = escape_name(f"{type(error).__name__}: {error}", 200)
        reason = Reason(kind=ReasonKind.ERROR, what=what)
        return Evaluation(status=Status.ERROR, headline=f"Cannot read the result: {what}", reason=reason)
