"""The answer to "how well was the machine used, why, and what first": findings joined by cause."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobrules.causes import END, NEVER, START, causes_of
from jobrules.clocks import offsets
from jobrules.job import natural_sorted
from jobrules.low_gpu_utilization import LowGPUUtilization
from jobrules.max_initialization_time import MaxInitializationTime
from jobrules.result import REST, Finding, Severity, Status, Unanswered, Verdict
from jobrules.usage import in_parts, spent_per_device, time_use
from jobrules.words import between, count, duration, listed, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.job import Job
    from jobrules.result import Course, RuleResult, TimeUse
    from jobrules.rule import Rule
    from jobrules.usage import Cause, Spent

#: A start-up that is told as a warning: the vendor's 20 minutes, or a fifth of the job, which is
#: what the vendor's own text calls long.
LONG_START_US = 20 * 60_000_000
LONG_START_SHARE = 0.2
NEVER_USED_ADVICE = (
    "Check that the framework sees the GPU (driver, CUDA build, device placement) and that "
    "as many processes run as there are GPUs; or take a machine without the idle ones."
)
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
_EDGES = (START, END, "late-first-work", "idle-end", "max-initialization-time")


def judge(job: Job, rules: Sequence[Rule], results: Sequence[RuleResult], course: Course) -> Verdict:
    """Findings of all rules and of the job's course, worst first, and the rules that gave no answer."""
    judging = [(rule, result) for rule, result in zip(rules, results, strict=True) if rule.judges]
    use, told = _explained(job, judging, course)
    findings = sorted([*told, *_unmeasured(job, course, use), *_clocks(job), *_apart(job)], key=_rank)
    explaining = [f for f in findings if use and _explains(f, use) and (f.share or 0) >= SMALL_SHARE]
    return Verdict(
        use=use,
        findings=tuple(findings),
        unanswered=tuple(
            Unanswered(rule=rule.name, status=result.status, reason=result.reason)
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
    job: Job, judging: Sequence[tuple[Rule, RuleResult]], course: Course
) -> tuple[TimeUse | None, list[Finding]]:
    """How the time was spent, and the findings: each with the lost GPU time that is its own."""
    found = [finding for _, result in judging for finding in result.findings]
    if not job.gpu_count or not job.covers_time:
        return time_use(job), found
    causes = causes_of(job, judging)
    spent = spent_per_device(job, causes=causes)
    # Low use is what the causes explain: of a rule of a user's own it is a finding as any other.
    low = next((f for rule, r in judging if isinstance(rule, LowGPUUtilization) for f in r.findings), None)
    start = next(
        (f for rule, r in judging if isinstance(rule, MaxInitializationTime) for f in r.findings), None
    )
    # What a rule saw on unused GPUs alone belongs to the finding on these.
    unused = [one for one in spent if not one.worked]
    names = {one.name for one in unused}
    of_unused = [f for f in found if f.devices and set(f.devices) <= names]
    rest = [f for f in found if f not in of_unused]
    if unused:
        rest.append(_never_used(unused, len(spent), tuple(rule for f in of_unused for rule in f.rules)))
    rest += _start_and_end(spent, course, started=start is not None)
    by_part = {f.key: f for f in reversed(rest)}
    for key, finding in ((START, "late-first-work"), (END, "idle-end")):
        if finding in by_part:
            by_part[key] = by_part[finding]
    if start:
        by_part[START] = start
    low = low if low in rest else None
    counts = {cause.key: cause for cause in causes}
    alone = False
    if low:
        cause = by_part.get(_main_cause(low, spent, [key for key in by_part if key in counts]))
        alone = cause is None
        if cause is not None:
            joined = _joined(low, cause)
            rest = [joined if f is cause else f for f in rest if f is not low]
            by_part = {k: joined if f is cause else f for k, f in by_part.items()}
    if low and alone:
        spent = _apart_from(spent, low)
        by_part |= dict.fromkeys(REST, low)
    use = in_parts(job, "GPU", spent, _labels(causes, spent, by_part))
    if use is None:
        return None, rest
    parts = tuple(replace(p, finding=by_part[p.key].key) if p.key in by_part else p for p in use.parts)
    use = replace(use, parts=parts)
    return use, [_with_amount(f, use, {k for k, one in by_part.items() if one is f}, counts) for f in rest]


def _main_cause(low: Finding, spent: Sequence[Spent], keys: Sequence[str]) -> str:
    """The cause of most of the loss of the GPUs of low use; empty where more of it has no cause.

    A slow start or end says nothing of the time between them, so it is the cause where next to nothing
    has none.
    """
    mine = [one for one in spent if one.name in low.devices]
    lost = {key: sum(one.lost.get(key, 0.0) for one in mine) for key in (*keys, *REST)}
    key, rest = max(keys, key=lost.__getitem__, default=""), sum(lost[key] for key in REST)
    most = lost.get(key, 0.0)
    if key in _EDGES:
        most = min(most, WORTH_TELLING_PERCENT / 100 * sum(one.total for one in mine))
    return key if most > rest else ""


def _apart_from(spent: Sequence[Spent], low: Finding) -> tuple[Spent, ...]:
    """What GPUs lost that are not of low use, without a cause, as a part of its own."""
    result = []
    for one in spent:
        rest = sum(one.lost[key] for key in REST)
        lost = {key: us for key, us in one.lost.items() if key not in REST} | {_OTHERS: rest}
        result.append(one if one.name in low.devices else replace(one, lost=lost))
    return tuple(result)


def _labels(causes: Sequence[Cause], spent: Sequence[Spent], told: dict[str, Finding]) -> dict[str, str]:
    """Names of the lost parts in the order of the bar: causes, the largest first, then what has none."""
    sums = {cause.key: sum(one.lost.get(cause.key, 0.0) for one in spent) for cause in causes}
    names = {cause.key: cause.label for cause in causes}
    labels = {key: names[key] for key in sorted(sums, key=sums.__getitem__, reverse=True)}
    word = "Unexplained" if any(key in told and us for key, us in sums.items()) else "Lost"
    return labels | {
        "idle": f"{word}: idle, under 10\u00a0%",
        "partly": f"{word}: partly used",
        _OTHERS: f"{word}: other GPUs, idle or partly used",
    }


def _with_amount(finding: Finding, use: TimeUse, keys: set[str], causes: dict[str, Cause]) -> Finding:
    """The finding with the GPU time of its parts of the bar, as printed; as it is where it has none."""
    parts = [part for part in use.parts if part.key in keys]
    cause = next((causes[key] for key in keys if key in causes), None)
    severity = finding.severity
    if cause and not cause.partial and sum(part.percent for part in parts) < 100 * SMALL_SHARE:
        severity = Severity.INFO
    if not parts:
        return replace(finding, severity=severity)
    counts = cause.counts if cause else "The amount is what these GPUs lost without a known cause."
    return replace(
        finding,
        severity=severity,
        evidence=f"{finding.evidence} {counts}".rstrip(),
        share=round(sum(part.percent for part in parts), 1) / 100,
        share_of="of GPU time",
        gpu_s=round(sum(part.hours for part in parts), use.digits) * 3600,
    )


def _joined(low: Finding, cause: Finding) -> Finding:
    """Low use and its cause as one finding: the fact is the cause's."""
    edge = cause.key in _EDGES
    # Between bursts a GPU waits for something, and a larger batch alone would not end that.
    bursts = cause.key == "batch-size" and "fluctuating" in low.title
    return replace(
        cause,
        severity=cause.severity if edge else min(low.severity, cause.severity, key=_ORDER.index),
        evidence=f"{cause.evidence} {low.title}: {low.evidence}",
        advice=low.advice if bursts else cause.advice,
        rules=cause.rules + low.rules,
    )


def _never_used(unused: Sequence[Spent], gpus: int, rules: tuple[str, ...]) -> Finding:
    return Finding(
        key=NEVER,
        severity=Severity.CRITICAL,
        title="The GPU never worked" if gpus == 1 else f"{len(unused)} of {gpus} GPUs never worked",
        evidence=f"{listed([f'{one.node} {one.device}' for one in unused])}: no sample above 0\u00a0%.",
        advice=NEVER_USED_ADVICE,
        rules=rules,
        section="gpu-use",
        devices=tuple(one.name for one in unused),
    )


def _start_and_end(spent: Sequence[Spent], course: Course, *, started: bool) -> list[Finding]:
    """Idle time of the GPUs that worked, before the first and after the last work of any.

    ``started`` tells that a rule told the start already.
    """
    first_us, last_us = course.first_work_us, course.last_work_us
    if first_us is None or last_us is None:
        return []
    start_us, end_us = course.phases[0].start_us, course.phases[-1].end_us
    findings = []
    before = _Edge.of(spent, START, end_us - start_us)
    if before.worth_telling and not started:
        long = before.each_us > LONG_START_US or before.long
        findings.append(
            Finding(
                key="late-first-work",
                severity=Severity.WARNING if long else Severity.INFO,
                title=f"No GPU worked in the first {before.told(first_us - start_us)}",
                evidence=f"{between(start_us, first_us)}: no sample above 0\u00a0% of any GPU.",
                advice="Stage or stream the data, use a smaller container image, cache compiled kernels.",
                rules=(),
                section="summary",
                start_us=start_us,
                end_us=first_us,
            )
        )
    after = _Edge.of(spent, END, end_us - start_us)
    if after.worth_telling:
        findings.append(
            Finding(
                key="idle-end",
                severity=Severity.WARNING if after.share >= LONG_START_SHARE else Severity.INFO,
                title=f"No GPU worked in the last {after.told(end_us - last_us)}",
                evidence=f"{between(last_us, end_us)}: no sample above 0\u00a0% of any GPU.",
                advice="Move uploads, evaluation on the CPU and clean-up to a machine without GPUs.",
                rules=(),
                section="summary",
                start_us=last_us,
                end_us=end_us,
            )
        )
    return findings


@dataclass(frozen=True, kw_only=True)
class _Edge:
    """Idle time at one end of the job."""

    #: Of the time of all GPUs.
    share: float
    #: Measured idle time of a GPU that worked, on average.
    each_us: float
    job_us: int

    @classmethod
    def of(cls, spent: Sequence[Spent], key: str, job_us: int) -> _Edge:
        lost_us = [one.lost.get(key, 0.0) for one in spent if one.worked]
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


def _unmeasured(job: Job, course: Course, use: TimeUse | None) -> list[Finding]:
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
            f"{listed(natural_sorted({gap.node for gap in course.gaps}))}, {between(start_us, end_us)}."
        )
    elif unknown and unknown[1] >= WORTH_TELLING_PERCENT:
        # Other sensors were sampled all the time.
        start_us, end_us = job.span_us
        title = f"{percent(unknown[1])} of GPU time was not measured"
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
            share_of="of GPU time" if unknown else "",
            gpu_s=unknown[0] * 3600 if unknown else None,
            start_us=start_us,
            end_us=end_us,
        )
    ]


def _apart(job: Job) -> list[Finding]:
    """Samples and events that share no moment: of two jobs, or of clocks that differ."""
    samples, events = job.samples_us, job.events.span_us or job.steps.span_us
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
    most = max(found, key=lambda offset: abs(offset.us))
    way = "later" if most.us > 0 else "earlier"
    return [
        Finding(
            key="clocks-differ",
            severity=Severity.INFO,
            title=f"Steps of {most.node} begin {duration(abs(most.us))} {way} than the same steps of {most.reference}",
            evidence=(
                f"Median of {count(most.steps, 'step')}, half of them within {duration(most.spread_us)}; "
                f"nodes concerned: {listed([offset.node for offset in found])}. Each node is judged on its own "
                "clock; phases and time lines of the whole job use the times as written."
            ),
            advice="Synchronise the clocks of the machines (NTP), or check that the nodes train together.",
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
        f"{percent(used[1])} of {use.device} time was used; {lost[0]:.{use.digits}f} of "
        f"{use.hours:.{use.digits}f}\u00a0{use.noun}-hours were {use.lost_word}"
    )
    return f"{text}, {unknown[0]:.{use.digits}f} were not measured." if unknown[0] else f"{text}."
