"""What each of the vendor's rule results says, in our words, with what is known to be wrong with it."""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from jobreport.formats import spread
from jobreport.readers.debugger_results.rule_results import LONGEST_S
from jobrules import RULES
from jobrules.measures.histograms import distance, normalized
from jobrules.measures.minutes import WIDTH_US
from jobrules.model import SECOND_US, Finding, Measure, Metric, Note, Severity, Status, natural_key
from jobrules.rule import reason_few_samples, severity_of
from jobrules.text import clock, count, duration, escape_name, join_names, number, percent, share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jobreport.readers.debugger_results.rule_results import RuleDocument, RuleResults

_NO_FILE = "the vendor's results hold no file of this rule"
_NO_COUNTERS = "the vendor's result lacks its counters"
_NO_GPU = f"{Metric.GPU_UTILIZATION.label} was not sampled"
#: No threshold is higher; one that is NaN, infinite or negative is none either.
_HIGHEST_LIMIT = 1e15
#: Bins of 2 % from 0 to 98, and GPUs of a node that are compared at most.
_BINS, _MOST_COMPARED = 49, 64
#: Steps and seconds that the vendor waits for; it prints neither.
_STEPS_BEFORE, _SECONDS_BEFORE = 100, 10


class Reading(Struct, frozen=True, kw_only=True):
    """What a rule's result says, in our words."""

    status: Status
    headline: str = ""
    reason: str = ""
    measure: Measure | None = None
    #: Ids of the differences that concern the number.
    ids: tuple[str, ...] = ()
    #: Further notes.
    aside: tuple[str, ...] = ()
    finding: Finding | None = None
    counts: dict[str, Any] = field(default_factory=dict)


#: Sections that hold more of a rule's numbers than its card.
SECTIONS = {
    "LowGPUUtilization": "gpu-utilization",
    "MaxInitializationTime": "summary",
    "OverallSystemUsage": "utilization",
}
_IDLE_ADVICE = (
    "Start one process per GPU, each on its own device: some GPUs are almost unused.",
    "Otherwise use a machine with fewer GPUs.",
)


def typed(value: str) -> float | int | str | None:
    """A threshold as a number where it is one; none for ``None``."""
    try:
        found = float(value)
    except ValueError:
        return None if value == "None" else value
    if not abs(found) < 1e15:
        return value
    return int(found) if found == int(found) else found


def span_of(results: RuleResults) -> tuple[int, int]:
    """First and last moment that a result names of samples or steps; (0, 0) where none does."""
    sampled = [us for us in (results.start_us, results.end_us) if us is not None]
    stepped = [us for us in (results.first_step_us, results.last_step_us) if us is not None]
    times = sampled + stepped
    # A step of a damaged file, years away, is no part of the job.
    if times and max(times) - min(times) > LONGEST_S * SECOND_US:
        times = sampled
    return (min(times), max(times)) if times else (0, 0)


def gpus_of(results: RuleResults) -> set[tuple[str, str]]:
    """All GPUs (node, name) that a result names."""
    return {*results.low_gpu, *results.memory, *results.small_batch, *results.workloads}


def never_used(results: RuleResults) -> set[tuple[str, str]]:
    """GPUs without a sample above 0% until the last trigger; none of a node whose use says otherwise."""
    zero = {gpu for gpu, use in results.low_gpu.items() if use.gpu_max == 0}
    worked = {node for node, use in results.usage.get("GPU", {}).items() if use.max > 0}
    at_work = {node for node, _ in gpus_of(results) - zero}
    return {(node, device) for node, device in zero if node in at_work or node not in worked}


def never_worked(unused: int, whole: int) -> str:
    """``The GPU never worked``, ``2 of 4 GPUs never worked``."""
    return "The GPU never worked" if whole == 1 else f"{unused} of {whole} GPUs never worked"


def some_idle(results: RuleResults) -> bool:
    """Whether some GPUs hardly ever worked, and others did."""
    idle = {gpu for gpu, use in results.low_gpu.items() if use.p95 == 0} - never_used(results)
    return 0 < len(idle) < len(gpus_of(results))


class _Counted(Struct, frozen=True):
    """A rule's result with its counters."""

    found: RuleDocument
    triggered: int
    datapoints: int

    @property
    def status(self) -> Status:
        return Status.TRIGGERED if self.triggered else Status.PASSED

    def limit(self, name: str, default: float) -> float:
        """A threshold by its name; the vendor's default where the result says none that can be."""
        value = typed(self.found.parameters.get(name, ""))
        return value if isinstance(value, int | float) and 0 <= value <= _HIGHEST_LIMIT else default

    def waits(self, more_than: float) -> str:
        """Why the vendor gave no answer: too few samples; empty where there are enough."""
        if self.triggered or self.datapoints > more_than:
            return ""
        return (
            str(reason_few_samples(self.datapoints, int(more_than)))
            if self.datapoints
            else "no sample was counted"
        )

    def finding(self, title: str, evidence: str, severity: Severity, **facts: Any) -> Finding:
        name = self.found.rule
        rule = next((one for one in RULES if one.__name__ == name), None)
        return Finding(
            key=re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower(),
            title=title,
            evidence=(Note(evidence.removesuffix(".")),),
            severity=severity,
            **{
                "advice": rule.documentation().advice if rule else (),
                "rules": (name,),
                "section": SECTIONS.get(name, "rules"),
            }
            | facts,
        )


def _not_evaluated(reason: str, *ids: str, aside: tuple[str, ...] = ()) -> Reading:
    return Reading(status=Status.NOT_EVALUATED, reason=reason, ids=ids, aside=aside)


def _has_gpu(results: RuleResults) -> bool:
    low = (one.low for one in results.bottlenecks.values())
    return bool(gpus_of(results) or results.usage.get("GPU")) or any(low)


def _several(results: RuleResults, *ids: str) -> tuple[str, ...]:
    """Differences that there are only with several nodes."""
    nodes = {node for node, _ in gpus_of(results)} | {n for nodes in results.usage.values() for n in nodes}
    return ids if len(nodes) > 1 else ()


def _checks(counted: _Counted, results: RuleResults, patience: float) -> float | None:
    """The vendor checks each GPU once a minute after its patience: about how many checks it made."""
    gpus = len(gpus_of(results))
    if results.start_us is None or results.end_us is None or not gpus or counted.datapoints <= patience:
        return None
    minutes = (results.end_us - results.start_us) / (60 * SECOND_US)
    return max(1, math.ceil(minutes * (1 - patience / counted.datapoints))) * gpus


def _fired(counted: _Counted, checks: float | None) -> tuple[str, Severity]:
    """How often a rule that checks each GPU once a minute fired, and how bad that is."""
    times = count(counted.triggered, "time")
    if checks is None:
        return f"The vendor's rule fired {times}, a time for each minute and GPU.", Severity.WARNING
    checked = max(int(checks), counted.triggered)
    told = f"The vendor's rule fired {times} in about {count(checked, 'check')}, one a minute and GPU."
    return told, severity_of(counted.triggered / checked)


def _last(us: int | None) -> str:
    return f" Last at {clock(us)}, the start of that minute." if us is not None else ""


def named(gpus: Iterable[tuple[str, str]]) -> str:
    """The GPUs as ``algo-1 gpu0``, in their natural order, in words."""
    ordered = sorted(gpus, key=lambda gpu: tuple(map(natural_key, gpu)))
    return join_names([f"{escape_name(node, 40)} {escape_name(device, 24)}" for node, device in ordered])


def _low_gpu(counted: _Counted, results: RuleResults) -> Reading:
    patience = counted.limit("patience", 1000)
    if not (_has_gpu(results) or counted.triggered):
        return _not_evaluated(_NO_GPU)
    if reason := counted.waits(patience):
        return _not_evaluated(reason)
    if not counted.triggered:
        return Reading(status=Status.PASSED, headline="No GPU was found little used or fluctuating")
    limit = counted.limit("threshold_p95", 70)
    unused = never_used(results)
    # Those that never worked are a finding of their own.
    told = {gpu: use for gpu, use in results.low_gpu.items() if gpu not in unused} or results.low_gpu
    low = [gpu for gpu, use in told.items() if use.gpu_95 is not None and use.gpu_95 < limit]
    others = [gpu for gpu, use in told.items() if use.gpu_95 is not None and use.gpu_95 >= limit]
    whole = len(gpus_of(results))
    headline = f"Low or fluctuating use was counted {count(counted.triggered, 'time')}"
    if low or others:
        kind, word = (low, "little used") if low else (others, "used on and off")
        headline = f"{_of(len(kind), whole)} {word}"
        if p95 := spread(known for gpu in kind if (known := results.low_gpu[gpu].gpu_95) is not None):
            headline += f", p95 {p95}"
        if low and others:
            headline += f"; {number(len(others))} on and off"
    title = headline
    if unused:
        never = never_worked(len(unused), whole)
        headline = never if told is results.low_gpu else f"{headline}; {never}"
    fired, severity = _fired(counted, _checks(counted, results, patience))
    figures = [f"{named([gpu])} {percent(use.gpu_95)}" for gpu, use in told.items() if use.gpu_95 is not None]
    evidence = f"{fired}{_last(results.low_gpu_last_us)}"
    if figures:
        more = f" and {len(figures) - 8} more" if len(figures) > 8 else ""
        evidence += f" p95 of the last window: {', '.join(figures[:8])}{more}."
    if unused and told is not results.low_gpu:
        evidence += " It fired for the GPUs that never worked too (LGU-3)."
    return Reading(
        status=Status.TRIGGERED,
        headline=headline,
        ids=("LGU-1", *(["LGU-3"] if unused else []), "LGU-4"),
        finding=counted.finding(
            title,
            evidence,
            severity,
            devices=tuple(f"{node}/{device}" for node, device in told),
            **({"advice": _IDLE_ADVICE} if some_idle(results) else {}),
        ),
    )


def _of(n: int, whole: int) -> str:
    """``The GPU was``, ``3 of 4 GPUs were``, ``All 4 GPUs were``."""
    if whole == 1:
        return "The GPU was"
    if n == whole:
        return f"{'Both' if n == 2 else f'All {n}'} GPUs were"
    return f"{n} of {count(whole, 'GPU')} {'was' if n == 1 else 'were'}"


def _bottleneck(what: str, *ids: str) -> Callable[[_Counted, RuleResults], Reading]:
    def read(counted: _Counted, results: RuleResults) -> Reading:
        if not (_has_gpu(results) or counted.triggered):
            return _not_evaluated(_NO_GPU, "CPU-6")
        if reason := counted.waits(counted.limit("patience", 1000)):
            return _not_evaluated(reason)
        found = results.bottlenecks[counted.found.rule]
        hits = counted.found.violations if counted.found.violations is not None else found.count
        limit = counted.limit("threshold", 50)
        if not 0 <= hits <= counted.datapoints or not counted.datapoints:
            return _not_evaluated("its counters contradict each other")
        part = hits / counted.datapoints
        headline = f"A GPU idled while {what}: {number(hits)} of {count(counted.datapoints, 'snapshot')}"
        evidence = f"{share(part)} by the vendor's numbers"
        if found.low is not None and hits <= found.low <= counted.datapoints:
            idle = f"under {counted.limit('gpu_threshold', 10):g}%"
            of_idle = f", {share(hits / found.low)} of these with the cause" if found.low else ""
            evidence += f". A GPU was idle, {idle}, in {number(found.low)}{of_idle}"
        if len(gpus_of(results)) > 1:
            evidence += f". One idle GPU of {len(gpus_of(results))} is enough"
        finding = counted.finding(
            headline, f"{evidence}.", severity_of(part), share=part, share_of="of snapshots"
        )
        return Reading(
            status=counted.status,
            headline=headline,
            measure=Measure(
                value=round(100 * part, 1),
                limits=(limit,),
                scale=100.0,
                unit="% of snapshots",
                limit_text=f"triggers above {limit:g}%",
            ),
            ids=(*ids, *_several(results, "CPU-2")),
            finding=finding if counted.triggered else None,
            counts={
                "evaluated": counted.datapoints,
                "violating": hits,
                "counted": "snapshots",
                "first_us": found.first_us,
                "last_us": found.last_us,
            },
        )

    return read


def _batch_size(counted: _Counted, results: RuleResults) -> Reading:
    patience = max(counted.limit("patience", 1000), counted.limit("window", 500))
    if not (_has_gpu(results) or counted.triggered):
        return _not_evaluated(_NO_GPU)
    if reason := counted.waits(patience):
        return _not_evaluated(reason)
    if not counted.triggered:
        headline = "CPU, GPU and GPU memory were never found little used together"
        return Reading(status=Status.PASSED, headline=headline)
    unused = never_used(results)
    which = tuple(gpu for gpu in results.small_batch if gpu not in unused) or results.small_batch
    whole = len(gpus_of(results))
    headline = "CPU, GPU and GPU memory were all little used"
    if which and whole > 1:
        headline += (
            f" on {number(len(which))} of {count(whole, 'GPU')}" if len(which) < whole else " on every GPU"
        )
    fired, severity = _fired(counted, _checks(counted, results, patience))
    evidence = f"CPU, GPU and GPU memory below their limits together: {fired[0].lower()}{fired[1:]}"
    if which and whole > 1:
        evidence += f" GPUs: {named(which)}."
    return Reading(
        status=Status.TRIGGERED,
        headline=headline,
        ids=("BS-2", "C-18", *(["BS-6"] if unused & set(results.small_batch) else [])),
        finding=counted.finding(
            headline,
            f"{evidence} The time of the last one is not known (BS-2).",
            severity,
            devices=tuple(f"{node}/{device}" for node, device in which),
        ),
    )


def _memory(counted: _Counted, results: RuleResults) -> Reading:
    window = counted.limit("window", 10)
    if not (_has_gpu(results) or counted.triggered):
        return _not_evaluated(_NO_GPU)
    if reason := counted.waits(max(counted.limit("patience", 1000), window + 1)):
        return _not_evaluated(reason)
    if not counted.triggered:
        headline = "No sample was counted as an increase of GPU memory utilization"
        return Reading(status=Status.PASSED, headline=headline, ids=("GMI-1",))
    headline = f"{count(counted.triggered, 'sample')} {_was(counted.triggered)} counted as an increase of GPU memory utilization"
    told = [
        f"{named([gpu])} by {one.increase:.1f} points, at most {percent(one.gpu_max)}"
        for gpu, one in itertools.islice(results.memory.items(), 4)
        if one.increase is not None and one.gpu_max is not None
    ]
    evidence = f"The vendor's last count of each GPU: {'; '.join(told)}." if told else ""
    evidence += (
        f"{_last(results.memory_last_us)} One jump gives several counts and noise gives them too "
        "(GMI-1, GMI-2), so the number says little by itself."
    )
    return Reading(
        status=Status.TRIGGERED,
        headline=headline,
        ids=("GMI-1", "GMI-2", "GMI-5", "C-18"),
        finding=counted.finding(headline, evidence.strip(), Severity.INFO),
    )


def _was(n: int) -> str:
    return "was" if n == 1 else "were"


class _Pair(Struct, frozen=True, kw_only=True):
    node: str
    one: str
    other: str
    distance: float


def _worst_pair(counted: _Counted, results: RuleResults) -> _Pair | None:
    """The two GPUs of a node whose final histograms differ most; none where no two can be compared."""
    patience = counted.limit("patience", 1000)
    by_node: dict[str, dict[str, tuple[int, ...]]] = {}
    for (node, device), bins in results.workloads.items():
        if len(bins) == _BINS and sum(bins) > patience:
            by_node.setdefault(node, {})[device] = bins
    pairs = []
    for node, histograms in by_node.items():
        names = list(histograms)[:_MOST_COMPARED]
        shares = normalized(np.array([histograms[name] for name in names], np.float64))
        for i, j in itertools.combinations(range(len(names)), 2):
            apart = float(distance(shares[i], shares[j]))
            pairs.append(_Pair(node=node, one=names[i], other=names[j], distance=apart))
    return max(pairs, key=lambda pair: pair.distance, default=None)


def _balance(counted: _Counted, results: RuleResults) -> Reading:
    nodes = [node for node, _ in results.workloads]
    if not nodes:
        return _not_evaluated(_NO_GPU)
    if len(set(nodes)) == len(nodes):
        return _not_evaluated("only one GPU on each node")
    reason = "the vendor's rule never compares anything"
    worst = _worst_pair(counted, results)
    if worst is None:
        return _not_evaluated(reason, "LB-1", "LB-2")
    reason += "; see our own reading"
    limit = counted.limit("threshold", 0.2)
    names = f"{named([(worst.node, worst.one)])} and {escape_name(worst.other, 24)}"
    kept = min(sum(bins) for bins in results.workloads.values())
    lost = 1 - kept / counted.datapoints if counted.datapoints > kept else 0
    told = (
        f"Our own reading of its histograms: distance {worst.distance:.2f} at most, {names}; limit {limit:g}."
    )
    if lost:
        told += f" Up to {share(lost)} of a GPU's samples are missing in them."
    finding = counted.finding(
        "By our own reading of the vendor's histograms, the GPUs of a node are used differently: "
        f"distance {worst.distance:.2f} at most, limit {limit:g}",
        f"{names}. The vendor fills these histograms and never compares them (LB-1)"
        + (f"; up to {share(lost)} of a GPU's samples are missing in them (LB-2)." if lost else "."),
        Severity.WARNING,
        rules=(),
    )
    return replace(
        _not_evaluated(reason, "LB-1", "LB-2", "LB-6", aside=(told,)),
        finding=finding if worst.distance > limit else None,
    )


def _steps(counted: _Counted, results: RuleResults) -> Reading:
    if not counted.datapoints:
        return _not_evaluated("no step events")
    if not counted.triggered and counted.datapoints <= _STEPS_BEFORE:
        return _not_evaluated(f"only {number(counted.datapoints)} of {count(_STEPS_BEFORE + 1, 'step')}")
    series = [one for one in results.steps.values() if one.number_of_outliers is not None]
    if not counted.triggered and not series:
        return _not_evaluated(f"no worker has {count(_STEPS_BEFORE + 1, 'step')} of one phase")
    limit = counted.limit("n_outliers", 10)
    if not counted.triggered:
        most = max(one.number_of_outliers or 0 for one in series)
        headline = f"{count(most, 'outlier')} of a worker at most, in the phase that was kept"
        return Reading(status=Status.PASSED, headline=headline, ids=("SO-2", "SO-3"))
    guilty = [(name, one) for name, one in results.steps.items() if (one.number_of_outliers or 0) > limit]
    if not guilty:
        headline = f"Too many long steps were counted {count(counted.triggered, 'time')}, the result does not hold where"
        evidence = (
            "The phase that triggered was overwritten by another of the same worker (SO-2), so neither the "
            "steps nor their lengths are known."
        )
        return Reading(
            status=Status.TRIGGERED,
            headline=headline,
            ids=("SO-1", "SO-2", "SO-3"),
            finding=counted.finding(headline, evidence, Severity.INFO),
        )
    worker, worst = max(guilty, key=lambda one: len(set(one[1].step_numbers)))
    different = len(set(worst.step_numbers))
    phase = escape_name(worst.phase.removeprefix("Step:ModeKeys."), 40)
    headline = f"{count(different, 'step')} of {escape_name(worker, 40)}{f' ({phase})' if phase else ''}"
    headline += f" {_was(different)} {'an outlier' if different == 1 else 'outliers'}"
    stats = worst.step_stats
    if stats.max is not None and stats.p50 is not None:
        headline += f": the longest took {_seconds(stats.max)}, the median step {_seconds(stats.p50)}"
    evidence = f"The vendor counts {number(worst.number_of_outliers or 0)}"
    if len(guilty) > 1:
        evidence += (
            f"; {count(len(guilty) - 1, 'more worker')} {'has' if len(guilty) == 2 else 'have'} too many"
        )
    if different <= limit:
        evidence += f". Without those counted twice (SO-3) it would not trigger: limit {limit:g}"
    return Reading(
        status=Status.TRIGGERED,
        headline=headline,
        ids=("SO-1", "SO-2", "SO-3"),
        finding=counted.finding(
            headline, f"{evidence}.", Severity.WARNING if different > limit else Severity.INFO
        ),
    )


def _seconds(value: float) -> str:
    return f"{1000 * value:.3g}\u00a0ms" if value < 1 else duration(value * SECOND_US)


def _loader(counted: _Counted, results: RuleResults) -> Reading:
    if not counted.datapoints:
        return _not_evaluated("no data loader events")
    loader = results.loader
    needed = count(_SECONDS_BEFORE + 1, "second")
    if not counted.triggered and counted.datapoints <= _SECONDS_BEFORE:
        return _not_evaluated(f"at most {number(counted.datapoints)} of {needed} with loader events")
    if loader.cores is None or loader.dataloaders is None or not loader.cores:
        return _not_evaluated("the result does not hold loader processes and cores")
    low, high = counted.limit("min_threshold", 70), counted.limit("max_threshold", 200)
    part = 100 * loader.dataloaders / loader.cores
    if not counted.triggered and not low <= part <= high:
        return _not_evaluated(f"fewer than {needed} with loader events")
    # The seconds are not told: where every loader has one event in each, there are this many.
    if not counted.triggered and counted.datapoints / max(loader.dataloaders, 1) <= _SECONDS_BEFORE:
        return _not_evaluated(f"perhaps fewer than {needed} with loader events")
    headline = (
        f"{count(loader.dataloaders, 'loader process', 'loader processes')} "
        f"for {count(loader.cores, 'core')}, {percent(part)}"
    )
    measure = Measure(
        value=round(part, 1),
        limits=(low, high),
        scale=max(1.25 * high, part),
        unit="% of cores",
        limit_text=f"triggers below {low:g} or above {high:g}%",
    )
    evidence = f"The vendor's count of {number(counted.datapoints)} loader events"
    severity = Severity.INFO
    if loader.num_workers == 0:
        headline = (
            f"Data is loaded in the training process: `num_workers` is 0, with {count(loader.cores, 'core')}"
        )
        severity = Severity.WARNING
    elif loader.num_workers is not None:
        evidence += f"; `num_workers` is {loader.num_workers}"
    evidence += f". Its processes are counted too low (DL-1): {loader.dataloaders}."
    return Reading(
        status=counted.status,
        headline=headline,
        measure=measure,
        ids=("DL-1", "DL-4", *_several(results, "DL-3")),
        finding=counted.finding(headline, evidence, severity) if counted.triggered else None,
    )


def _first_step(counted: _Counted, results: RuleResults) -> Reading:
    first, start = results.first_step_us, results.start_us
    if first is None:
        return _not_evaluated("no step events", "MIT-1")
    if start is None or not start <= first <= span_of(results)[1]:
        return _not_evaluated("the start of the job is not known")
    took, limit = first - start, counted.limit("threshold", 20)
    in_minutes = took / WIDTH_US
    headline = f"The first step began after {duration(took)}"
    finding = counted.finding(
        headline,
        f"The limit is {limit:g}\u00a0min. The vendor's rule cannot trigger (MIT-1); this is its own time of the first step.",
        Severity.WARNING,
        start_us=start,
        end_us=first,
    )
    # As our own rule: late is what the first look past the limit, a whole minute, still does not see.
    late = (math.floor(limit) + 1) * WIDTH_US < took
    return Reading(
        status=Status.TRIGGERED if late or counted.triggered else Status.PASSED,
        headline=headline,
        measure=Measure(
            value=round(in_minutes, 4),
            limits=(limit,),
            scale=max(2 * limit, in_minutes, 1.0),
            unit="min",
            limit_text=f"limit {limit:g}\u00a0min",
        ),
        ids=("MIT-1", *_several(results, "MIT-3"), "MIT-4", "MIT-6"),
        aside=("Judged here, by the vendor's own time of the first step.",),
        finding=finding if late or counted.triggered else None,
    )


def _system(counted: _Counted, results: RuleResults) -> Reading:
    nodes = {node for found in results.usage.values() for node in found}
    if not nodes:
        return _not_evaluated("no metric was sampled")
    headline = f"Use of {count(len(nodes), 'node')}"
    if counted.datapoints:
        headline += f", {count(counted.datapoints, 'snapshot')}{' of the first' if len(nodes) > 1 else ''}"
    return Reading(status=Status.PASSED, headline=headline, ids=("OSU-1", "OSU-2", "OSU-3"))


def _framework(_: _Counted, results: RuleResults) -> Reading:
    if not results.phases:
        return _not_evaluated("no step events")
    largest = sorted(results.phases.items(), key=lambda item: -item[1])[:4]
    told = [
        f"{escape_name(name.removeprefix('Step:ModeKeys.'), 40)} {percent(part)}" for name, part in largest
    ]
    return Reading(
        status=Status.PASSED,
        headline=f"Time by phase: {', '.join(told)}",
        ids=("OFM-1", *(["OFM-2"] if len(results.steps) > 1 else []), "C-3"),
        aside=("No share can be below zero.",) if min(results.phases.values()) < 0 else (),
    )


_READERS: dict[str, Callable[[_Counted, RuleResults], Reading]] = {
    "LowGPUUtilization": _low_gpu,
    "CPUBottleneck": _bottleneck("a core was saturated", "CPU-1", "CPU-7"),
    "IOBottleneck": _bottleneck("a core waited for storage", "CPU-1", "CPU-7"),
    "BatchSize": _batch_size,
    "GPUMemoryIncrease": _memory,
    "LoadBalancing": _balance,
    "StepOutlier": _steps,
    "Dataloader": _loader,
    "MaxInitializationTime": _first_step,
    "OverallSystemUsage": _system,
    "OverallFrameworkMetrics": _framework,
}


def read_rule(name: str, results: RuleResults, strict: bool) -> Reading:
    """What the result of a rule says; a rule that raises says so, unless ``strict``."""
    found = results[name]
    # The second is what we wrote ourselves where there was none.
    if found is None or found.raw.get("Reason") == _NO_FILE:
        return Reading(status=Status.NOT_EVALUATED, reason=_NO_FILE)
    if found.triggered is None or found.datapoints is None:
        return Reading(status=Status.NOT_EVALUATED, reason=_NO_COUNTERS)
    try:
        return _READERS[name](_Counted(found, found.triggered, found.datapoints), results)
    except Exception as error:
        if strict:
            raise
        reason = escape_name(f"{type(error).__name__}: {error}", 200)
        return Reading(status=Status.ERROR, headline=f"The result cannot be told: {reason}", reason=reason)
