"""The verdict: how the time was spent, and findings that are joined by cause and ranked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from jobrules.batch_size import BatchSize
from jobrules.cpu_bottleneck import CPUBottleneck
from jobrules.gpu_memory_full import totals
from jobrules.idle_gaps import IdleGaps
from jobrules.io_bottleneck import IOBottleneck
from jobrules.low_gpu_utilization import LowGPUUtilization
from jobrules.low_mean_utilization import LowMeanUtilization
from jobrules.max_initialization_time import MaxInitializationTime
from jobrules.measures.clock_offsets import Clocks
from jobrules.model import (
    SECOND_US,
    AlsoSeenAs,
    Fact,
    Finding,
    HowMuch,
    Job,
    Metric,
    Note,
    RuleResult,
    Severity,
    Status,
    Where,
    natural_sorted,
)
from jobrules.rule import Rule
from jobrules.slow_clock import SlowClock
from jobrules.text import clock, count, some_of
from jobrules.unused_gpu import UnusedGPU, never_used
from jobrules.verdict.attribution import BEFORE_STEP, END, NEVER, START, Ends, causes_of
from jobrules.verdict.device_time import LABELS, Cause, DeviceTime, spent_per_device
from jobrules.verdict.not_evaluated import NotEvaluated, how_many
from jobrules.verdict.observations import (
    NO_EARLY_WORK,
    NO_LATE_WORK,
    NOT_MEASURED,
    RELEVANT_PERCENT,
    clock_offsets,
    disjoint_times,
    late_first_step,
    pauses,
    start_and_end,
)
from jobrules.verdict.phases import JobPhases
from jobrules.verdict.time_use import UNEXPLAINED, TimeUse, in_parts, time_use


class Verdict(Struct, frozen=True, kw_only=True):
    """The answer for a reader with ten seconds."""

    #: None if neither GPU nor CPU samples exist, or if they cover no time.
    use: TimeUse | None
    #: All findings, worst first; findings of one cause are one.
    findings: tuple[Finding, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    #: Number of rules without the summaries.
    rules: int
    #: Key of the main finding; empty for the first one.
    main: str = ""

    @property
    def main_finding(self) -> Finding | None:
        """The finding that explains most of the lost GPU time, otherwise the first; None without findings."""
        return next((f for f in self.findings if f.key == self.main), next(iter(self.findings), None))

    @property
    def has_cause(self) -> bool:
        """True if the main finding is a cause of lost time: it explains a part of the bar."""
        parts = self.use.parts if self.use else ()
        return bool(self.main) and any(
            part.finding == self.main for part in parts if part.key not in UNEXPLAINED
        )

    @property
    def without_finding(self) -> str:
        """What stands in place of findings: ``No problem found. 9 of 18 rules were not evaluated, so …``."""
        missing = len(self.not_evaluated)
        evaluated = how_many(missing, self.rules)
        if missing == self.rules:
            return f"{evaluated}."
        return (
            f"No problem found. {evaluated}, so what they look for is not ruled out."
            if missing
            else "No problem found."
        )


NEVER_USED_ADVICE = (
    "Check that the framework sees the GPUs (driver, CUDA build, device placement).",
    "Start as many processes as there are GPUs, or use a machine with fewer GPUs.",
)

MEMORY_HELD_ADVICE = (
    "Start one process per GPU, each on its own device: a process has memory on these GPUs, so it sees them.",
    "Otherwise use a machine with fewer GPUs.",
)

#: A process sees a GPU with more of its memory in use than this, in percent.
MEMORY_HELD_PERCENT = 5.0

#: What holds a GPU back for this share of its busy samples explains its median clock.
MOSTLY_HELD_PERCENT = 50.0

#: Bottlenecks in this share of the snapshots are named with low utilization, though the rule passed.
NEARLY_PERCENT = 20.0

#: A cause of less than this share of the GPU time is an info, and not the main one.
SMALL_SHARE = 0.01

_ORDER = list(Severity)

_OTHERS = "other-gpus"

#: Causes and findings on the start and the end of the job.
_EDGES = (NO_EARLY_WORK, NO_LATE_WORK, "max-initialization-time")

_STARTS = (BEFORE_STEP, START)

#: The rules with their results.
_Results = Sequence[tuple[Rule, RuleResult]]


def judge(job: Job, rules: Sequence[Rule], results: Sequence[RuleResult], phases: JobPhases) -> Verdict:
    """The verdict on a job, from the results of its rules and its phases."""
    checks = [(rule, result) for rule, result in zip(rules, results, strict=True) if rule.can_trigger]
    use, explained, unmeasured_us = _explained(job, checks)
    explained = _slow_clock_with_reason(explained, checks)
    unmeasured = pauses(job, phases, use, unmeasured_us)
    if use and use.device == "GPU" and unmeasured:
        parts = (replace(p, finding=NOT_MEASURED) if p.role == "unknown" else p for p in use.parts)
        use = replace(use, parts=tuple(parts))
    findings = sorted([*explained, *unmeasured, *clock_offsets(job), *disjoint_times(job)], key=_rank)
    causes = [f for f in findings if use and _explains(f, use) and (f.share or 0) >= SMALL_SHARE]
    return Verdict(
        use=use,
        findings=tuple(findings),
        not_evaluated=tuple(
            NotEvaluated(rule=rule.name, status=result.status, reason=result.reason)
            for rule, result in checks
            if result.status in (Status.NOT_EVALUATED, Status.ERROR) and result.reason
        ),
        rules=len(checks),
        main=max(causes, key=lambda f: f.gpu_s or 0).key if causes else "",
    )


def _rank(finding: Finding) -> tuple[int, bool, float, float]:
    """Worst first; time that was not measured is no loss, so it comes after others of its severity."""
    unmeasured = finding.key == NOT_MEASURED
    return _ORDER.index(finding.severity), unmeasured, -(finding.gpu_s or 0), -(finding.share or 0)


def _explains(finding: Finding, use: TimeUse) -> bool:
    return any(part.finding == finding.key for part in use.parts if part.role == "lost")


def _joined(home: Finding, other: Finding, *, amounts: bool = False) -> Finding:
    """``home`` with ``other`` in its evidence, with the numbers and notes of ``other`` if asked for."""
    seen = [AlsoSeenAs(other.seen_as)] if other.seen_as else []
    more = [
        f for f in other.evidence if isinstance(f, AlsoSeenAs) or (amounts and isinstance(f, HowMuch | Note))
    ]
    return replace(home, evidence=(*home.evidence, *seen, *more), rules=home.rules + other.rules)


def _worse(one: Finding, other: Finding) -> Severity:
    return min(one.severity, other.severity, key=_ORDER.index)


class _Draft:
    """The findings of a job while they are joined, and the parts of the lost time that each explains."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = list(findings)
        self.by_part: dict[str, Finding] = {}

    def replace(self, old: Finding, new: Finding, absorbed: Finding | None = None) -> None:
        """Put ``new`` in place of ``old``; ``absorbed`` is no finding of its own any more."""
        self.findings = [new if f is old else f for f in self.findings if f is not absorbed]
        self.by_part = {key: new if f is old else f for key, f in self.by_part.items() if f is not absorbed}

    def assign(self, start: Finding | None) -> None:
        """Give each part of the lost time to its finding; ``start`` is what a rule found about the start."""
        self.by_part = {f.key: f for f in reversed(self.findings)}
        opening = start or self.by_part.get(NO_EARLY_WORK)
        if opening:
            self.by_part |= dict.fromkeys(_STARTS, opening)
        if NO_LATE_WORK in self.by_part:
            self.by_part[END] = self.by_part[NO_LATE_WORK]

    def causes(self, causes: Mapping[str, Cause]) -> dict[str, Finding]:
        """The findings on causes, by the key of the cause."""
        return {key: finding for key, finding in self.by_part.items() if key in causes}


def _explained(job: Job, checks: _Results) -> tuple[TimeUse | None, list[Finding], float]:
    """How the time was spent; the findings, each with the lost GPU time that it explains; time not measured."""
    found = [finding for _, result in checks for finding in result.findings]
    if not job.gpu_count or not job.covers_time or not Clocks.of(job).length_us:
        return time_use(job), [*found, *late_first_step(job, started=_start_of(checks) is not None)], 0.0
    ends = Ends.of(job)
    claiming = causes_of(job, checks, ends)
    causes = {cause.key: cause for cause in claiming if cause.key not in UNEXPLAINED}
    spent = spent_per_device(job, causes=claiming)
    draft = _Draft(_never_used_once(job, checks, spent))
    low = _join_low_utilization(draft, checks)
    _add_start_and_end(draft, checks, job, spent, ends)
    unexplained: tuple[str, ...] = UNEXPLAINED
    has_cause = False
    if low:
        low, has_cause = _join_low_with_cause(draft, low, causes, spent, checks)
    gaps = next(((f, r) for rule, r in checks if isinstance(rule, IdleGaps) for f in r.findings), None)
    if gaps:
        alone = low if low and not has_cause else None
        home = _home(*gaps, spent, draft.causes(causes), alone)
        if home is None:
            unexplained = tuple(key for key in UNEXPLAINED if key != gaps[0].key)
        else:
            # With a cause, the gaps are one more fact; with low utilization, they are what is known of it.
            own = _joined(home, gaps[0], amounts=home is alone)
            spent = spent if home is alone else tuple(map(_without_gaps, spent))
            draft.replace(home, own, absorbed=gaps[0])
            low = own if home is low else low
    if low and not has_cause:
        spent = _split_unexplained(spent, low, unexplained)
        draft.by_part |= dict.fromkeys(unexplained, low)
    use = in_parts(job, "GPU", spent, _labels(claiming, spent))
    if use is None:
        return None, draft.findings, 0.0
    use = _with_findings(use, draft.by_part, claiming)
    amounts = {
        key: sum(one.lost.get(key, 0.0) for one in spent) / SECOND_US for one in spent for key in one.lost
    }
    findings = [
        _with_amount(f, use, {k: amounts.get(k, 0.0) for k, one in draft.by_part.items() if one is f}, causes)
        for f in draft.findings
    ]
    return use, findings, sum((one.unmeasured for one in spent), 0.0)


def _start_of(checks: _Results) -> Finding | None:
    """What MaxInitializationTime found."""
    return next(
        (f for rule, r in checks if isinstance(rule, MaxInitializationTime) for f in r.findings), None
    )


def _add_start_and_end(
    draft: _Draft, checks: _Results, job: Job, spent: Sequence[DeviceTime], ends: Ends | None
) -> None:
    """Add the findings on the start and the end of the job, and assign the parts of the lost time."""
    start = _start_of(checks)
    if ends is None:
        return draft.assign(start)
    if ends.recorded_late and start:
        # The GPUs were training before the first recorded step.
        active = f"GPUs were active from {clock(ends.first_work_us)}: steps may have been recorded late"
        late = replace(start, severity=Severity.INFO, evidence=(*start.evidence, Note(active)))
        draft.replace(start, late)
        start = None
    draft.findings += start_and_end(
        spent, ends, some_unknown=bool(job.gpus_unknown), started=start is not None
    )
    return draft.assign(start)


def _with_findings(use: TimeUse, by_part: Mapping[str, Finding], causes: Sequence[Cause]) -> TimeUse:
    """The parts with their finding, and when they were lost."""
    when = {cause.key: cause.when for cause in causes}
    parts = (
        replace(
            part,
            finding=by_part[part.key].key if part.key in by_part else part.finding,
            when=when.get(part.key, ""),
        )
        for part in use.parts
    )
    return replace(use, parts=tuple(parts))


def _never_used_once(job: Job, checks: _Results, spent: Sequence[DeviceTime]) -> list[Finding]:
    """All findings of rules, with one instead of all those on never-used GPUs."""
    found = [finding for _, result in checks for finding in result.findings]
    unused = [one for one in spent if not one.worked]
    if not unused:
        return found
    names = {one.name for one in unused}
    about_unused = [
        finding
        for kind in (UnusedGPU, LowGPUUtilization | LowMeanUtilization | BatchSize)
        for rule, result in checks
        if isinstance(rule, kind)
        for finding in result.findings
        if finding.devices and set(finding.devices) <= names
    ]
    rules = tuple(rule for finding in about_unused for rule in finding.rules)
    return [*(f for f in found if f not in about_unused), _never_used(job, unused, len(spent), rules)]


def _slow_clock_with_reason(found: Sequence[Finding], checks: _Results) -> list[Finding]:
    """The findings, with a low clock joined to the heat or the power limit that explains it.

    It does if it holds for most of the GPU's busy time: a median clock has no other cause.
    """
    known = {f.key: f for f in found}
    slow = known.get("slow-clock")
    tables = next((r.details for rule, r in checks if isinstance(rule, SlowClock)), {})
    figures = {f"{node}/{device}": one for node, gpus in tables.items() for device, one in gpus.items()}
    reason = next(
        (
            known[key]
            for key, figure in (("thermal-throttling", "heat"), ("power-cap", "power_limit"))
            if slow
            and key in known
            and {*slow.devices} <= {*known[key].devices}
            and all((figures.get(gpu, {}).get(figure) or 0) >= MOSTLY_HELD_PERCENT for gpu in slow.devices)
        ),
        None,
    )
    if slow is None or reason is None:
        return list(found)
    own = replace(_joined(reason, slow, amounts=True), severity=_worse(reason, slow))
    return [own if f is reason else f for f in found if f is not slow]


def _join_low_utilization(draft: _Draft, checks: _Results) -> Finding | None:
    """Join the findings on low utilization; the one with most GPUs leads, unless it is the mean of all.

    Causes explain it. A finding of a user's own rule stays as it is.
    """
    kinds = (UnusedGPU, LowGPUUtilization, LowMeanUtilization)
    low = [
        next(f for f in result.findings if f in draft.findings)
        for kind in kinds
        for rule, result in checks
        if isinstance(rule, kind) and any(f in draft.findings for f in result.findings)
    ]
    if not low:
        return None
    low.sort(key=lambda f: (f.rules == (LowMeanUtilization.__name__,), -len(f.devices)))
    first, *others = low
    own = first
    for other in others:
        own = replace(_joined(own, other), severity=_worse(own, other))
    own = replace(own, devices=natural_sorted({device for f in low for device in f.devices}))
    draft.findings = [own if f == first else f for f in draft.findings if f not in others]
    return own


def _join_low_with_cause(
    draft: _Draft, low: Finding, causes: Mapping[str, Cause], spent: Sequence[DeviceTime], checks: _Results
) -> tuple[Finding, bool]:
    """Low utilization joined to its main cause, and True; without a cause, with what nearly was one, and False."""
    cause = _main_cause(low, spent, draft.causes(causes))
    if cause is None:
        own = _with_near_misses(low, checks)
        draft.replace(low, own)
        return own, False
    own = _low_with_cause(low, cause, fluctuating=_fluctuating(low, checks))
    draft.replace(cause, own, absorbed=low)
    return own, True


def _main_cause(low: Finding, spent: Sequence[DeviceTime], causes: Mapping[str, Finding]) -> Finding | None:
    """The cause of most of the loss of the GPUs with low utilization; None if more of the loss is unexplained.

    A slow start or end says nothing of the time between, so it counts for little if windows in between were checked.
    """
    own = [one for one in spent if one.name in low.devices]
    windows = LowGPUUtilization.__name__ in low.rules
    edge = (RELEVANT_PERCENT / 100 if windows else 1.0) * sum(one.total for one in own)
    lost: dict[str, float] = {}
    for key, finding in causes.items():
        us = lost.get(finding.key, 0.0) + sum(one.lost.get(key, 0.0) for one in own)
        lost[finding.key] = min(us, edge) if finding.key in _EDGES else us
    key = max(lost, key=lost.__getitem__, default="")
    rest = sum(one.lost.get(part, 0.0) for part in UNEXPLAINED for one in own)
    return next(f for f in causes.values() if f.key == key) if lost.get(key, 0.0) > rest else None


def _with_near_misses(low: Finding, checks: _Results) -> Finding:
    """Low utilization without a known cause, with the bottlenecks that stayed just below their threshold."""
    near = [
        Note(result.headline)
        for rule, result in checks
        if isinstance(rule, CPUBottleneck | IOBottleneck)
        and result.status is Status.PASSED
        and result.measure
        and result.measure.value >= NEARLY_PERCENT
    ]
    return replace(low, evidence=(*low.evidence, *near))


def _fluctuating(low: Finding, checks: _Results) -> bool:
    """True if most of the windows with low utilization fluctuated."""
    details: dict[str, int] = {}
    if LowGPUUtilization.__name__ in low.rules:
        details = next(r.details for rule, r in checks if isinstance(rule, LowGPUUtilization))
    return bool(details.get("fluctuating", 0) > details.get("low", 0))


def _low_with_cause(low: Finding, cause: Finding, *, fluctuating: bool) -> Finding:
    """Low utilization and its cause as one finding, with the title of the cause."""
    # Start-up is a part of any job.
    usual = cause.key in _EDGES and low.rules == (LowGPUUtilization.__name__,)
    # Between bursts a GPU waits for something, and a larger batch alone would not end that.
    waits = fluctuating and cause.key == "batch-size"
    return replace(
        _joined(cause, low),
        severity=cause.severity if usual else _worse(low, cause),
        advice=low.advice if waits else cause.advice,
    )


def _home(
    gaps: Finding,
    result: RuleResult,
    spent: Sequence[DeviceTime],
    causes: Mapping[str, Finding],
    low: Finding | None,
) -> Finding | None:
    """The finding that idle gaps belong to; None if they are one of their own.

    If causes claimed more than half of the gaps it is the largest of these; otherwise low utilization of the same
    GPUs without a cause.
    """
    own = [one for one in spent if one.worked and one.name in gaps.devices]
    whole_us = sum(result.details[one.node]["idle_s"] for one in own) * SECOND_US
    lost = {
        key: sum(one.lost.get(key, 0.0) for one in own)
        for key, finding in causes.items()
        if finding.key not in _EDGES
    }
    left_us = sum(one.lost.get(gaps.key, 0.0) for one in own)
    key = max(lost, key=lost.__getitem__, default="")
    if lost.get(key) and left_us < whole_us / 2:
        return causes[key]
    return low if low and not set(gaps.devices).isdisjoint(low.devices) else None


def _without_gaps(one: DeviceTime) -> DeviceTime:
    """With the rest of the idle gaps as plain idle time."""
    lost = {key: us for key, us in one.lost.items() if key != "idle-gaps"}
    return replace(one, lost=lost | {"idle": lost["idle"] + one.lost.get("idle-gaps", 0.0)})


def _split_unexplained(
    spent: Sequence[DeviceTime], low: Finding, unexplained: Sequence[str]
) -> tuple[DeviceTime, ...]:
    """With the unexplained time of GPUs without low utilization as a part of its own."""
    result = []
    for one in spent:
        rest = sum(one.lost.get(key, 0.0) for key in unexplained)
        lost = {key: us for key, us in one.lost.items() if key not in unexplained} | {_OTHERS: rest}
        result.append(one if one.name in low.devices else replace(one, lost=lost))
    return tuple(result)


def _labels(causes: Sequence[Cause], spent: Sequence[DeviceTime]) -> dict[str, str]:
    """Names of the lost parts in the order of the bar: causes, the largest first, then what is unexplained."""
    sums = {cause.key: sum(one.lost.get(cause.key, 0.0) for one in spent) for cause in causes}
    names = {cause.key: cause.label for cause in causes}
    labels = {key: names[key] for key in sorted(sums, key=lambda key: (key in UNEXPLAINED, -sums[key]))}
    return (
        labels | {key: LABELS[key] for key in ("idle", "partly")} | {_OTHERS: "Lost: unexplained, other GPUs"}
    )


def _with_amount(
    finding: Finding, use: TimeUse, seconds: Mapping[str, float], causes: Mapping[str, Cause]
) -> Finding:
    """The finding with the GPU time of its parts of the bar; ``seconds`` are those of each part.

    A finding on a cause that claimed nothing has no share of GPU time; any other stays as it is.
    """
    parts = [part for part in use.parts if part.key in seconds]
    cause = next((causes[key] for key in seconds if key in causes), None)
    severity = finding.severity
    explained = sum(part.percent for part in parts)
    if cause and not cause.partial and explained < 100 * SMALL_SHARE:
        severity = Severity.INFO
    elif cause and not cause.partial and cause.key != NEVER and explained < RELEVANT_PERCENT:
        severity = max(severity, Severity.WARNING, key=_ORDER.index)
    if not parts:
        none = cause is not None and finding.share_of.startswith("of GPU time")
        share = None if none else finding.share
        return replace(finding, severity=severity, share=share, share_of="" if none else finding.share_of)
    counts = [Note(cause.counts)] if cause and cause.counts else []
    return replace(
        finding,
        severity=severity,
        evidence=(*finding.evidence, *counts),
        share=round(explained / 100, 3),
        share_of=f"of {use.time}",
        gpu_s=round(sum(seconds[part.key] for part in parts), 1),
    )


def _never_used(job: Job, unused: Sequence[DeviceTime], known: int, rules: tuple[str, ...]) -> Finding:
    gpus = known + job.gpus_unknown
    held = sum(job.gathered(_holds_memory, frozenset(one.name for one in unused)))
    evidence: list[Fact] = [Where(tuple(f"{one.node} {one.device}" for one in unused))]
    if known < gpus:
        evidence.append(Note(f"Utilization of {count(gpus - known, 'GPU')} was not recorded"))
    if held:
        evidence.append(Note(f"Memory was in use on {some_of(held, len(unused), 'GPU')}"))
    return Finding(
        key=NEVER,
        severity=Severity.CRITICAL,
        title=f"{never_used(len(unused), gpus)} (no sample above 0%)",
        evidence=tuple(evidence),
        advice=MEMORY_HELD_ADVICE if held == len(unused) else NEVER_USED_ADVICE,
        rules=rules,
        section="gpu-utilization",
        devices=tuple(one.name for one in unused),
    )


def _holds_memory(part: Job, names: frozenset[str]) -> Iterator[bool]:
    """For each of the GPUs ``names`` with a known memory size: True if its memory was ever in use."""
    for panel in part.panels_of(Metric.GPU_MEMORY_USED):
        total = totals(part.panel(panel.node, Metric.GPU_MEMORY_TOTAL))
        for i, device in enumerate(panel.devices):
            if f"{panel.node}/{device}" in names and device in total:
                yield bool(100 * panel.series(i)[1].max() > MEMORY_HELD_PERCENT * total[device])
