"""The answer to "how well was the machine used, why, and what first": findings joined by cause."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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
from jobrules.measures.clock_offsets import Clocks, offsets
from jobrules.model import SECOND_US, Finding, Job, Metric, RuleResult, Severity, Status, natural_sorted
from jobrules.rule import Rule
from jobrules.slow_clock import SlowClock
from jobrules.text import between, clock, count, duration, join_names, percent
from jobrules.unused_gpu import UnusedGPU
from jobrules.verdict.attribution import BEFORE_STEP, END, NEVER, START, Ends, causes_of, loop_us
from jobrules.verdict.device_time import Cause, DeviceTime, spent_per_device
from jobrules.verdict.phases import JobPhases
from jobrules.verdict.time_use import REST, TimeUse, in_parts, time_use


class NotEvaluated(Struct, frozen=True, kw_only=True):
    """A rule that gave no answer."""

    rule: str
    status: Status
    reason: str


class Verdict(Struct, frozen=True, kw_only=True):
    """The answer for a reader with ten seconds."""

    #: None where neither GPU nor CPU samples exist, or where they cover no time.
    use: TimeUse | None
    #: Everything worth telling, worst first; findings of one cause are one.
    findings: tuple[Finding, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    #: Rules that judge; the two summaries are not among them.
    rules: int
    #: Key of the finding that a reader with ten seconds should see; empty for the first one.
    main: str = ""

    @property
    def main_finding(self) -> Finding | None:
        """The finding that explains most of the lost GPU time, else the first; none without findings."""
        return next((f for f in self.findings if f.key == self.main), next(iter(self.findings), None))

    @property
    def has_cause(self) -> bool:
        """Whether the main finding is a cause of lost time: it tells a part of the bar."""
        parts = self.use.parts if self.use else ()
        return bool(self.main) and any(part.finding == self.main for part in parts if part.key not in REST)


#: A start-up that is told as a warning: the vendor's 20 minutes, or a fifth of the job, which is
#: what the vendor's own text calls long.
LONG_START_US = 20 * 60_000_000

LONG_START_SHARE = 0.2

NEVER_USED_ADVICE = (
    "Check that the framework sees the GPU (driver, CUDA build, device placement) and that "
    "as many processes run as there are GPUs; or take a machine without the idle ones."
)

START_ADVICE = "Stage or stream the data, use a smaller container image, cache compiled kernels."

MEMORY_HELD_ADVICE = (
    "Place work on every GPU: one process for each, and each on a device of its own. A process sees these "
    "GPUs, as it holds memory on them. Or take a machine without the idle ones."
)

#: A GPU with more of its memory in use than this, in percent, is seen by a process.
MEMORY_HELD_PERCENT = 5.0

#: What holds a GPU back for this share of its samples at work explains its median clock.
MOSTLY_HELD_PERCENT = 50.0

#: Bottlenecks in this share of the snapshots are told with low use, though the rule's limit is higher.
NEARLY_PERCENT = 20.0

#: Below this share of the GPU time an idle start or end is not worth a line,
WORTH_TELLING_PERCENT = 5.0

#: nor is one that is shorter than this and no fifth of the job: every job begins and ends.
USUAL_EDGE_US = 2 * 60_000_000

#: A cause of less than this share of the GPU time is told as an info, and is not the main one.
SMALL_SHARE = 0.01

_ORDER = list(Severity)

#: The finding on time that was not measured: no loss, so it comes after the others of its severity.
_GAP = "not-measured"

_OTHERS = "other-gpus"

#: Causes and findings on the start and the end of the job.
_EDGES = ("late-first-work", "idle-end", "max-initialization-time")

_STARTS = (BEFORE_STEP, START)


def judge(job: Job, rules: Sequence[Rule], results: Sequence[RuleResult], course: JobPhases) -> Verdict:
    """Findings of all rules and of the job's course, worst first, and the rules that gave no answer."""
    judging = [(rule, result) for rule, result in zip(rules, results, strict=True) if rule.can_trigger]
    use, told, unmeasured_us = _explained(job, judging)
    told = _slow_once(told, judging)
    unmeasured = _unmeasured(job, course, use, unmeasured_us)
    if use and use.device == "GPU" and unmeasured:
        parts = (replace(p, finding=_GAP) if p.role == "unknown" else p for p in use.parts)
        use = replace(use, parts=tuple(parts))
    findings = sorted([*told, *unmeasured, *_clocks(job), *_apart(job)], key=_rank)
    explaining = [f for f in findings if use and _explains(f, use) and (f.share or 0) >= SMALL_SHARE]
    return Verdict(
        use=use,
        findings=tuple(findings),
        not_evaluated=tuple(
            NotEvaluated(rule=rule.name, status=result.status, reason=result.reason)
            for rule, result in judging
            if result.status in (Status.NOT_EVALUATED, Status.ERROR)
        ),
        rules=len(judging),
        main=max(explaining, key=lambda f: f.gpu_s or 0).key if explaining else "",
    )


def _rank(finding: Finding) -> tuple[int, bool, float, float]:
    gap = finding.key == _GAP
    return _ORDER.index(finding.severity), gap, -(finding.gpu_s or 0), -(finding.share or 0)


def _explains(finding: Finding, use: TimeUse) -> bool:
    return any(part.finding == finding.key for part in use.parts if part.role == "lost")


def _explained(
    job: Job, judging: Sequence[tuple[Rule, RuleResult]]
) -> tuple[TimeUse | None, list[Finding], float]:
    """How the time was spent; the findings, each with the lost GPU time that is its own; time not measured."""
    found = [finding for _, result in judging for finding in result.findings]
    if not job.gpu_count or not job.covers_time or not Clocks.of(job).length_us:
        return time_use(job), [*found, *_late_first_step(job, judging)], 0.0
    ends = Ends.of(job)
    causes = causes_of(job, judging, ends)
    spent = spent_per_device(job, causes=causes)
    start = next(
        (f for rule, r in judging if isinstance(rule, MaxInitializationTime) for f in r.findings), None
    )
    low, more, rest = _little_used(_unused_once(job, judging, spent), judging)
    if ends and ends.recorded_late:
        rest = [_recorded_late(f, ends) if f is start else f for f in rest]
        start = None
    if ends:
        nobody = "No GPU whose use is known" if job.gpus_unknown else "No GPU"
        rest += _start_and_end(spent, ends, nobody, started=start is not None)
    by_part = _by_part(rest, start)
    counts = {cause.key: cause for cause in causes if cause.key not in REST}
    alone = False
    if low:
        cause = _main_cause(low, spent, {key: f for key, f in by_part.items() if key in counts})
        alone = cause is None
        own = _nearly(low, judging) if cause is None else _joined(low, more, cause, _bursts(low, judging))
        of = low if cause is None else cause
        rest = [own if f is of else f for f in rest if f is not low or alone]
        by_part = {key: own if f is of else f for key, f in by_part.items()}
        low = own
    gaps = next(((f, r) for rule, r in judging if isinstance(rule, IdleGaps) for f in r.findings), None)
    unexplained: tuple[str, ...] = REST
    if gaps:
        told = {key: f for key, f in by_part.items() if key in counts}
        home = _home(*gaps, spent, told, low if alone else None)
        if home is None:
            unexplained = tuple(key for key in REST if key != gaps[0].key)
        else:
            # With a cause the gaps are no more than a fact; with low use they are what is known of it.
            own = _with_gaps(home, gaps[0], at_length=alone and home is low)
            spent = spent if alone and home is low else tuple(map(_without_gaps, spent))
            rest = [own if f is home else f for f in rest if f is not gaps[0]]
            by_part = {key: own if f is home else f for key, f in by_part.items() if f is not gaps[0]}
            low = own if home is low else low
    if low and alone:
        spent = _apart_from(spent, low, unexplained)
        by_part |= dict.fromkeys(unexplained, low)
    use = in_parts(job, "GPU", spent, _labels(causes, spent))
    if use is None:
        return None, rest, 0.0
    parts = tuple(replace(p, finding=by_part[p.key].key) if p.key in by_part else p for p in use.parts)
    use = replace(use, parts=parts)
    keys = {key for one in spent for key in one.lost}
    amounts = {key: sum(one.lost.get(key, 0.0) for one in spent) / SECOND_US for key in keys}
    findings = [
        _with_amount(f, use, {k: amounts.get(k, 0.0) for k, one in by_part.items() if one is f}, counts)
        for f in rest
    ]
    return use, findings, sum((one.unmeasured for one in spent), 0.0)


def _by_part(found: Sequence[Finding], start: Finding | None) -> dict[str, Finding]:
    """What tells of each part of the bar; ``start`` is what a rule says of the start."""
    by_part = {f.key: f for f in reversed(found)}
    opening = start or by_part.get("late-first-work")
    if opening:
        by_part |= dict.fromkeys(_STARTS, opening)
    if "idle-end" in by_part:
        by_part[END] = by_part["idle-end"]
    return by_part


def _unused_once(
    job: Job, judging: Sequence[tuple[Rule, RuleResult]], spent: Sequence[DeviceTime]
) -> list[Finding]:
    """All findings of rules, where those on GPUs that never worked are one: that they are little used is no news."""
    found = [finding for _, result in judging for finding in result.findings]
    unused = [one for one in spent if not one.worked]
    if not unused:
        return found
    names = {one.name for one in unused}
    theirs = [
        finding
        for kind in (UnusedGPU, LowGPUUtilization | LowMeanUtilization | BatchSize)
        for rule, result in judging
        if isinstance(rule, kind)
        for finding in result.findings
        if finding.devices and set(finding.devices) <= names
    ]
    rules = tuple(rule for finding in theirs for rule in finding.rules)
    return [*(f for f in found if f not in theirs), _never_used(job, unused, len(spent), rules)]


def _slow_once(found: Sequence[Finding], judging: Sequence[tuple[Rule, RuleResult]]) -> list[Finding]:
    """The findings, where a low clock of some GPUs is told with the heat or the power limit that holds them back.

    It does so for most of their time at work: a median clock has no other cause.
    """
    known = {f.key: f for f in found}
    slow = known.get("slow-clock")
    tables = next((r.details for rule, r in judging if isinstance(rule, SlowClock)), {})
    figures = {f"{node}/{device}": one for node, gpus in tables.items() for device, one in gpus.items()}
    why = next(
        (
            known[key]
            for key, reason in (("thermal-throttling", "heat"), ("power-cap", "power_limit"))
            if slow
            and key in known
            and {*slow.devices} <= {*known[key].devices}
            and all((figures.get(gpu, {}).get(reason) or 0) >= MOSTLY_HELD_PERCENT for gpu in slow.devices)
        ),
        None,
    )
    if slow is None or why is None:
        return list(found)
    own = replace(
        why,
        severity=min(why.severity, slow.severity, key=_ORDER.index),
        evidence=f"{why.evidence} {slow.title}. {slow.evidence}",
        rules=why.rules + slow.rules,
    )
    return [own if f is why else f for f in found if f is not slow]


def _little_used(
    found: Sequence[Finding], judging: Sequence[tuple[Rule, RuleResult]]
) -> tuple[Finding | None, list[str], list[Finding]]:
    """What several rules say of little use as one finding, the titles in it but the first, all findings with it.

    It is what the causes explain: what a rule of a user's own says is a finding as any other. The one of most
    GPUs leads, but for the mean of all.
    """
    kinds = (UnusedGPU, LowGPUUtilization, LowMeanUtilization)
    told = [
        next(f for f in result.findings if f in found)
        for kind in kinds
        for rule, result in judging
        if isinstance(rule, kind) and any(f in found for f in result.findings)
    ]
    if len(told) < 2:
        return next(iter(told), None), [], list(found)
    told.sort(key=lambda f: (f.rules == (LowMeanUtilization.__name__,), -len(f.devices)))
    first, *others = told
    more = [f"{f.title}." for f in others]
    low = replace(
        first,
        severity=min((f.severity for f in told), key=_ORDER.index),
        evidence=" ".join([first.evidence, *more]),
        rules=tuple(rule for f in told for rule in f.rules),
        devices=natural_sorted({device for f in told for device in f.devices}),
    )
    return low, more, [low if f == first else f for f in found if f not in others]


def _main_cause(low: Finding, spent: Sequence[DeviceTime], told: dict[str, Finding]) -> Finding | None:
    """The cause of most of the loss of the GPUs of low use; none where more of it has no cause.

    A slow start or end says nothing of the time between them, so it counts for next to nothing where windows
    in between were judged. ``told`` are the findings by the key of what they explain.
    """
    mine = [one for one in spent if one.name in low.devices]
    windows = LowGPUUtilization.__name__ in low.rules
    edge = (WORTH_TELLING_PERCENT / 100 if windows else 1.0) * sum(one.total for one in mine)
    lost: dict[str, float] = {}
    for key, finding in told.items():
        us = lost.get(finding.key, 0.0) + sum(one.lost.get(key, 0.0) for one in mine)
        lost[finding.key] = min(us, edge) if finding.key in _EDGES else us
    key = max(lost, key=lost.__getitem__, default="")
    rest = sum(one.lost.get(part, 0.0) for part in REST for one in mine)
    return next(f for f in told.values() if f.key == key) if lost.get(key, 0.0) > rest else None


def _nearly(low: Finding, judging: Sequence[tuple[Rule, RuleResult]]) -> Finding:
    """Low use without a known cause, with what stayed just below the limit of a bottleneck rule."""
    seen = []
    for rule, result in judging:
        if (
            isinstance(rule, CPUBottleneck | IOBottleneck)
            and result.status is Status.PASSED
            and result.measure
            and result.measure.value >= NEARLY_PERCENT
        ):
            did = "a core was full" if isinstance(rule, CPUBottleneck) else "a core waited for I/O"
            seen.append(
                f"A GPU idled while {did} in {percent(result.measure.value)} of the snapshots, "
                f"below {rule.name}'s limit of {rule.threshold:g}%."
            )
    return replace(low, evidence=" ".join([low.evidence, *seen]))


def _bursts(low: Finding, judging: Sequence[tuple[Rule, RuleResult]]) -> bool:
    """Whether most windows in violation of low use fluctuated."""
    details: dict[str, int] = {}
    if LowGPUUtilization.__name__ in low.rules:
        details = next(r.details for rule, r in judging if isinstance(rule, LowGPUUtilization))
    return bool(details.get("fluctuating", 0) > details.get("low", 0))


def _home(
    gaps: Finding,
    result: RuleResult,
    spent: Sequence[DeviceTime],
    told: dict[str, Finding],
    low: Finding | None,
) -> Finding | None:
    """The finding that times without work of any GPU are told with; none where they are one of their own.

    Where causes claimed more than half of these times it is the largest cause in between; else low use
    of the same GPUs that has no cause.
    """
    mine = [one for one in spent if one.worked and one.name in gaps.devices]
    whole_us = sum(result.details[one.node]["idle_s"] for one in mine) * SECOND_US
    lost = {key: sum(one.lost.get(key, 0.0) for one in mine) for key in told if told[key].key not in _EDGES}
    left_us = sum(one.lost.get(gaps.key, 0.0) for one in mine)
    key = max(lost, key=lost.__getitem__, default="")
    if lost.get(key) and left_us < whole_us / 2:
        return told[key]
    return low if low and not set(gaps.devices).isdisjoint(low.devices) else None


def _with_gaps(home: Finding, gaps: Finding, *, at_length: bool) -> Finding:
    more = f"{gaps.title}. {gaps.evidence}" if at_length else f"{gaps.title}."
    return replace(home, evidence=f"{home.evidence} {more}", rules=home.rules + gaps.rules)


def _without_gaps(one: DeviceTime) -> DeviceTime:
    """With what is left of the times without work of any GPU as plain idle time."""
    lost = {key: us for key, us in one.lost.items() if key != "idle-gaps"}
    return replace(one, lost=lost | {"idle": lost["idle"] + one.lost.get("idle-gaps", 0.0)})


def _apart_from(
    spent: Sequence[DeviceTime], low: Finding, unexplained: Sequence[str]
) -> tuple[DeviceTime, ...]:
    """What GPUs lost that are not of low use, without a cause, as a part of its own."""
    result = []
    for one in spent:
        rest = sum(one.lost.get(key, 0.0) for key in unexplained)
        lost = {key: us for key, us in one.lost.items() if key not in unexplained} | {_OTHERS: rest}
        result.append(one if one.name in low.devices else replace(one, lost=lost))
    return tuple(result)


def _labels(causes: Sequence[Cause], spent: Sequence[DeviceTime]) -> dict[str, str]:
    """Names of the lost parts in the order of the bar: causes, the largest first, then what has none."""
    sums = {cause.key: sum(one.lost.get(cause.key, 0.0) for one in spent) for cause in causes}
    names = {cause.key: cause.label for cause in causes}
    labels = {key: names[key] for key in sorted(sums, key=lambda key: (key in REST, -sums[key]))}
    return labels | {
        "idle": "Unexplained: idle, under 10%",
        "partly": "Unexplained: partly used",
        _OTHERS: "Unexplained: other GPUs, idle or partly used",
    }


def _with_amount(
    finding: Finding, use: TimeUse, seconds: dict[str, float], causes: dict[str, Cause]
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
    elif cause and not cause.partial and cause.key != NEVER and explained < WORTH_TELLING_PERCENT:
        severity = max(severity, Severity.WARNING, key=_ORDER.index)
    if not parts:
        none = cause is not None and finding.share_of.startswith("of GPU time")
        share = None if none else finding.share
        return replace(finding, severity=severity, share=share, share_of="" if none else finding.share_of)
    return replace(
        finding,
        severity=severity,
        evidence=f"{finding.evidence} {cause.counts if cause else ''}".rstrip(),
        share=round(explained / 100, 3),
        share_of=f"of {use.time}",
        gpu_s=round(sum(seconds[part.key] for part in parts), 1),
    )


def _joined(low: Finding, more: Sequence[str], cause: Finding, bursts: bool) -> Finding:
    """Low use and its cause as one finding: the fact is the cause's."""
    # Of the whole job the start is a part.
    edge = cause.key in _EDGES and low.rules == (LowGPUUtilization.__name__,)
    # Between bursts a GPU waits for something, and a larger batch alone would not end that.
    waits = bursts and cause.key == "batch-size"
    return replace(
        cause,
        severity=cause.severity if edge else min(low.severity, cause.severity, key=_ORDER.index),
        evidence=" ".join([cause.evidence, f"{low.title}.", *more]),
        advice=low.advice if waits else cause.advice,
        rules=cause.rules + low.rules,
    )


def _never_used(job: Job, unused: Sequence[DeviceTime], known: int, rules: tuple[str, ...]) -> Finding:
    gpus = known + job.gpus_unknown
    held = sum(job.gathered(_holds_memory, frozenset(one.name for one in unused)))
    evidence = f"{join_names([f'{one.node} {one.device}' for one in unused])}: no sample above 0%."
    if known < gpus:
        evidence += f" The use of {count(gpus - known, 'GPU')} was not sampled."
    if held:
        evidence += f" Memory was in use on {'all of them' if held == len(unused) else count(held, 'GPU')}."
    return Finding(
        key=NEVER,
        severity=Severity.CRITICAL,
        title="The GPU never worked" if gpus == 1 else f"{len(unused)} of {gpus} GPUs never worked",
        evidence=evidence,
        advice=MEMORY_HELD_ADVICE if held == len(unused) else NEVER_USED_ADVICE,
        rules=rules,
        section="gpu-utilization",
        devices=tuple(one.name for one in unused),
    )


def _holds_memory(part: Job, names: frozenset[str]) -> Iterator[bool]:
    """Of each of some GPUs, as ``node/device``, of which it is known, whether its memory was ever in use."""
    for panel in part.panels_of(Metric.GPU_MEMORY_USED):
        total = totals(part.panel(panel.node, Metric.GPU_MEMORY_TOTAL))
        for i, device in enumerate(panel.devices):
            if f"{panel.node}/{device}" in names and device in total:
                yield bool(100 * panel.series(i)[1].max() > MEMORY_HELD_PERCENT * total[device])


def _recorded_late(start: Finding, ends: Ends) -> Finding:
    """The first step came late, but the GPUs were training by then."""
    before = f"GPUs were at work from {clock(ends.first_work_us)} on: steps may have been recorded late."
    return replace(start, severity=Severity.INFO, evidence=f"{start.evidence} {before}")


def _start_and_end(spent: Sequence[DeviceTime], ends: Ends, nobody: str, *, started: bool) -> list[Finding]:
    """Idle time of the GPUs that worked, before the first step and work, and after the last work of any.

    ``started`` tells that a rule told the start already.
    """
    start_us, end_us = ends.clocks.start_us, ends.clocks.end_us
    first_us, last_us, ready_us = ends.first_work_us, ends.last_work_us, ends.start_up_us
    findings = []
    before = _Edge.of(spent, _STARTS, end_us - start_us)
    if before.worth_telling and not started:
        long = before.each_us > LONG_START_US or before.long
        title = f"{nobody} worked in the first {before.told(first_us - start_us)}"
        evidence = f"{between(start_us, first_us)}."
        if ready_us > first_us:
            waited = duration(ready_us - start_us)
            title = (
                f"GPUs idled for {duration(before.each_us)} before the first step, which came after {waited}"
            )
            if before.each_us >= 0.95 * (ready_us - start_us):
                title = f"GPUs idled until the first step, which came after {waited}"
            evidence = f"{between(start_us, ready_us)}. The first GPU work came after {duration(first_us - start_us)}."
        findings.append(
            Finding(
                key="late-first-work",
                severity=Severity.WARNING if long else Severity.INFO,
                title=title,
                evidence=evidence,
                advice=START_ADVICE,
                rules=(),
                section="summary",
                start_us=start_us,
                end_us=ready_us,
            )
        )
    after = _Edge.of(spent, (END,), end_us - start_us)
    if after.worth_telling:
        findings.append(
            Finding(
                key="idle-end",
                severity=Severity.WARNING if after.share >= LONG_START_SHARE else Severity.INFO,
                title=f"{nobody} worked in the last {after.told(end_us - last_us)}",
                evidence=f"{between(last_us, end_us)}.",
                advice="Move uploads, evaluation on the CPU and clean-up to a machine without GPUs.",
                rules=(),
                section="summary",
                start_us=last_us,
                end_us=end_us,
            )
        )
    return findings


def _late_first_step(job: Job, judging: Sequence[tuple[Rule, RuleResult]]) -> list[Finding]:
    """The first step of a job without GPU samples, where it came after a fifth of the job."""
    clocks = Clocks.of(job)
    told = any(r.findings for rule, r in judging if isinstance(rule, MaxInitializationTime))
    loop = loop_us(job, clocks)
    if told or not loop or not clocks.length_us:
        return []
    start_us, first_us = clocks.start_us, loop[0]
    part = (first_us - start_us) / clocks.length_us
    if part < LONG_START_SHARE or first_us - start_us < USUAL_EDGE_US:
        return []
    return [
        Finding(
            key="late-first-step",
            severity=Severity.WARNING,
            title=f"The first step came after {duration(first_us - start_us)}",
            evidence=f"{between(start_us, first_us)}.",
            advice=START_ADVICE,
            rules=(),
            section="summary",
            share=part,
            share_of="of the job",
            start_us=start_us,
            end_us=first_us,
        )
    ]


class _Edge(Struct, frozen=True, kw_only=True):
    """Idle time at one end of the job."""

    #: Of the time of all GPUs.
    share: float
    #: Measured idle time of a GPU that worked, on average.
    each_us: float
    job_us: int

    @classmethod
    def of(cls, spent: Sequence[DeviceTime], keys: Sequence[str], job_us: int) -> _Edge:
        lost_us = [sum(one.lost.get(key, 0.0) for key in keys) for one in spent if one.worked]
        whole_us = sum(one.total for one in spent)
        return cls(share=sum(lost_us) / whole_us, each_us=sum(lost_us) / len(lost_us), job_us=job_us)

    @property
    def long(self) -> bool:
        return self.each_us > LONG_START_SHARE * self.job_us

    @property
    def worth_telling(self) -> bool:
        return 100 * self.share >= WORTH_TELLING_PERCENT and (self.each_us >= USUAL_EDGE_US or self.long)

    def told(self, lasted_us: int) -> str:
        """How long it lasted, and how much of that was measured where not nearly all was."""
        if self.each_us >= 0.95 * lasted_us:
            return duration(lasted_us)
        return f"{duration(lasted_us)}, of which {duration(self.each_us)} were measured"


def _unmeasured(job: Job, course: JobPhases, use: TimeUse | None, unmeasured_us: float) -> list[Finding]:
    """Pauses of the sampling, or a good part of the GPU time without samples."""
    unknown = use.of("unknown") if use and use.device == "GPU" else None
    if course.gaps:
        longest = max(course.gaps, key=lambda gap: gap.end_us - gap.start_us)
        lasted = duration(longest.end_us - longest.start_us)
        start_us, end_us = longest.start_us, longest.end_us
        title = f"{lasted} were not measured"
        if len(course.gaps) > 1:
            title = f"Sampling paused {count(len(course.gaps), 'time')}, at most for {lasted}"
        evidence = (
            f"{join_names(natural_sorted({gap.node for gap in course.gaps}))}, {between(start_us, end_us)}."
        )
    elif use and unknown and unknown[1] >= WORTH_TELLING_PERCENT:
        # Other sensors were sampled all the time.
        start_us, end_us = job.span_us
        title = f"{percent(unknown[1])} of {use.time} was not measured"
        evidence = f"GPU samples cover less than the job, {between(start_us, end_us)}."
    else:
        return []
    return [
        Finding(
            key=_GAP,
            severity=Severity.INFO,
            title=title,
            evidence=evidence,
            advice="Read the logs of sampler and machine for that time: a pause, a restart, a full disk.",
            rules=(),
            section="quality",
            share=unknown[1] / 100 if unknown else None,
            share_of=f"of {use.time}" if use and unknown else "",
            gpu_s=round(unmeasured_us / SECOND_US, 1) if unknown else None,
            start_us=start_us,
            end_us=end_us,
        )
    ]


def _apart(job: Job) -> list[Finding]:
    """Samples and events that share no moment: of two jobs, or of clocks that differ."""
    samples, events = job.samples_us, job.events_us or job.steps_us
    if not samples or not events or (events[0] <= samples[1] and samples[0] <= events[1]):
        return []
    return [
        Finding(
            key="samples-and-events-apart",
            severity=Severity.WARNING,
            title="Samples and events do not overlap in time",
            evidence=f"Samples: {between(*samples)}. Events: {between(*events)}. Shares of the job's time count both.",
            advice="See that the directory holds one job, and that the clocks of its machines agree.",
            rules=(),
            section="quality",
            start_us=min(samples[0], events[0]),
            end_us=max(samples[1], events[1]),
        )
    ]


def _clocks(job: Job) -> list[Finding]:
    """Nodes whose clocks seem to differ; times of different nodes must not be compared then."""
    found = offsets(job)
    if not found:
        return []
    most = max(found, key=lambda offset: abs(offset.offset_us))
    way = "later" if most.offset_us > 0 else "earlier"
    return [
        Finding(
            key="clocks-differ",
            severity=Severity.INFO,
            title=f"Steps of {most.node} begin {duration(abs(most.offset_us))} {way} than the same steps of {most.reference}",
            evidence=(
                f"Median of {count(most.steps, 'step')}, half of them within {duration(most.spread_us)}; "
                f"nodes concerned: {join_names([offset.node for offset in found])}. Each node is judged on its own "
                "clock, its start and end too; phases and time lines use the times as written."
            ),
            advice="Synchronize the clocks of the machines (NTP), or check that the nodes train together.",
            rules=(),
            section="nodes",
        )
    ]


def use_sentence(use: TimeUse | None) -> str:
    """How much of the device time was used, in one sentence for terminal and ticket."""
    if use is None:
        return "Neither GPU nor CPU use was sampled over time, so no share can be given."
    used, lost, unknown = use.of("used"), use.of("lost"), use.of("unknown")
    text = (
        f"{percent(used[1])} of {use.time} was used; {lost[0]:.{use.digits}f} of "
        f"{use.hours:.{use.digits}f}\u00a0{use.noun}-hours were {use.lost_word}"
    )
    if unknown[0]:
        text += f", {unknown[0]:.{use.digits}f} were not measured"
    return f"{text}. The use of {count(use.unknown, 'more GPU')} is not known." if use.unknown else f"{text}."


class ReasonGroup(Struct, frozen=True, kw_only=True):
    """Rules without an answer for the same reason."""

    status: Status
    #: As a clause: "892 of 1 001 samples needed"; of rules that failed what they said.
    reason: str
    rules: tuple[str, ...]


def by_reason(unanswered: Sequence[NotEvaluated]) -> tuple[ReasonGroup, ...]:
    """Rules that failed first, then the reasons of most rules."""
    groups: dict[tuple[Status, str], list[str]] = {}
    for one in unanswered:
        reason = one.reason
        if counted := re.fullmatch(r"only (.* of .*)", reason):
            reason = f"{counted[1]} needed"
        groups.setdefault((one.status, reason), []).append(one.rule)
    opened = [ReasonGroup(status=s, reason=r, rules=tuple(names)) for (s, r), names in groups.items()]
    return tuple(sorted(opened, key=lambda one: (one.status is not Status.ERROR, -len(one.rules))))
