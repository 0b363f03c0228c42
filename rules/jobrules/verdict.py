"""The answer to "how well was the machine used, why, and what first": findings joined by cause."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobrules.clocks import offsets
from jobrules.job import SECOND_US, natural_sorted
from jobrules.result import Finding, Severity, Status, Unanswered, Verdict
from jobrules.usage import spent_per_device
from jobrules.words import between, count, duration, listed, percent, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.job import Job
    from jobrules.result import Course, RuleResult, TimeUse
    from jobrules.rule import Rule
    from jobrules.usage import Spent

#: A start-up that is told as a warning: the vendor's 20 minutes, or a fifth of the job, which is
#: what the vendor's own text calls long.
LONG_START_US = 20 * 60_000_000
LONG_START_SHARE = 0.2
NEVER_USED_ADVICE = (
    "Check that the framework sees the GPU (driver, CUDA build, device placement) and that "
    "as many processes run as there are GPUs; or take a machine without the idle ones."
)
#: Below this share of the GPU time an idle start or end is not worth a line.
WORTH_TELLING_PERCENT = 5.0

LOW_USE = "low-gpu-utilization"
#: What can explain low use of GPUs, by the findings' keys; the first one gives the advice.
CAUSES = ("cpu-bottleneck", "io-bottleneck", "batch-size")
#: It does where it was seen in at least this share of the windows of low use.
JOINT_SHARE = 0.5

_ORDER = list(Severity)


def judge(
    job: Job, rules: Sequence[Rule], results: Sequence[RuleResult], course: Course, use: TimeUse | None
) -> Verdict:
    """Findings of all rules and of the job's course, worst first, and the rules that gave no answer."""
    judging = [(rule, result) for rule, result in zip(rules, results, strict=True) if rule.judges]
    found = [finding for _, result in judging for finding in result.findings]
    spent = spent_per_device(job)
    findings = [
        *_never_used_and_low(spent, found, use),
        *_start_and_end(spent, course, use, told={f.key for f in found}),
        *_unmeasured(job, course, use),
        *_clocks(job),
        *_apart(job),
    ]
    return Verdict(
        use=use,
        findings=tuple(sorted(findings, key=_rank)),
        unanswered=tuple(
            Unanswered(rule=rule.name, status=result.status, reason=result.reason)
            for rule, result in judging
            if result.status in (Status.NOT_EVALUATED, Status.ERROR)
        ),
        rules=len(judging),
    )


def _rank(finding: Finding) -> tuple[int, float, float]:
    return _ORDER.index(finding.severity), -(finding.gpu_s or 0), -(finding.share or 0)


def _never_used_and_low(spent: Sequence[Spent], found: list[Finding], use: TimeUse | None) -> list[Finding]:
    """GPUs that never worked, and low use of the others: each GPU's time is told once."""
    unused = [one for one in spent if not one.worked]
    if not unused or use is None:
        return _joined(found, spent, use)
    names = {one.name for one in unused}
    # What a rule saw on unused GPUs alone belongs to the finding on these.
    of_unused = [f for f in found if f.devices and set(f.devices) <= names]
    rules = tuple(rule for f in of_unused for rule in f.rules)
    return [_never_used(unused, use, rules), *_joined([f for f in found if f not in of_unused], spent, use)]


def _joined(findings: list[Finding], spent: Sequence[Spent], use: TimeUse | None) -> list[Finding]:
    """Low use and what explains it are one finding; its amount is the GPU time lost."""
    by_key = {finding.key: finding for finding in findings if finding.key in (LOW_USE, *CAUSES)}
    low = by_key.get(LOW_USE)
    causes = [by_key[key] for key in CAUSES if low and key in by_key and _explains(by_key[key], low)]
    rest = [finding for finding in findings if finding not in causes]
    if low and causes:
        rest[rest.index(low)] = low = _with_causes(low, causes)
    # Low use and a small batch are the same idle time: it is told once, with the low use.
    first = low or by_key.get("batch-size")
    return [_with_loss(finding, spent, use) if finding is first else finding for finding in rest]


def _with_causes(low: Finding, causes: Sequence[Finding]) -> Finding:
    first = causes[0]
    title = f"{first.title}; {low.title}"
    evidence = first.evidence
    # Between bursts a GPU waits for something, and a larger batch alone would not end that.
    advice = first.advice
    if first.key == "batch-size":
        little = "CPU and GPU memory little used too"
        title = f"{low.title}, {little} in {share(first.share or 0)}"
        evidence = f"{little}: {evidence}"
        advice = low.advice if "fluctuating" in low.title else advice
    return replace(
        low,
        severity=min(low.severity, *(cause.severity for cause in causes), key=_ORDER.index),
        title=title,
        evidence=" ".join(
            [low.evidence, evidence, *(f"{cause.title}: {cause.evidence}" for cause in causes[1:])]
        ),
        advice=advice,
        rules=low.rules + tuple(rule for cause in causes for rule in cause.rules),
    )


def _explains(cause: Finding, low: Finding) -> bool:
    """Whether a cause was seen on most of the GPUs of low use, and for most of the time."""
    both = set(low.devices) & set(cause.devices)
    return len(both) >= JOINT_SHARE * len(low.devices) and (cause.share or 0) >= JOINT_SHARE * (
        low.share or 0
    )


def _with_loss(finding: Finding, spent: Sequence[Spent], use: TimeUse | None) -> Finding:
    """The amount as the GPU time that the finding's GPUs lost between the first and the last work."""
    if not finding.devices or use is None:
        return finding
    told = f"{finding.evidence} The amount is the time lost between the first and the last GPU work."
    finding = replace(finding, evidence=told)
    if len(finding.devices) == len(spent):
        hours, percents = _lost(use, ("idle", "partly")) or (0.0, 0.0)
        return replace(finding, gpu_s=hours * 3600, share=percents / 100, share_of="of GPU time")
    lost_us = sum(one.idle + one.partly for one in spent if one.name in finding.devices)
    whole_us = sum(one.total for one in spent)
    return replace(finding, gpu_s=lost_us / SECOND_US, share=lost_us / whole_us, share_of="of GPU time")


def _lost(use: TimeUse | None, keys: Sequence[str]) -> tuple[float, float] | None:
    """(GPU-hours, percent) of the named parts, as printed; none for a job without GPUs."""
    if use is None or use.device != "GPU":
        return None
    parts = [p for p in use.parts if p.key in keys]
    return round(sum(p.hours for p in parts), use.digits), round(sum(p.percent for p in parts), 1)


def _never_used(unused: Sequence[Spent], use: TimeUse, rules: tuple[str, ...]) -> Finding:
    part = len(unused) / use.count
    return Finding(
        key="gpu-never-used",
        severity=Severity.CRITICAL,
        title="The GPU never worked" if use.count == 1 else f"{len(unused)} of {use.count} GPUs never worked",
        evidence=f"{listed([f'{one.node} {one.device}' for one in unused])}: no sample above 0\u00a0%.",
        advice=NEVER_USED_ADVICE,
        rules=rules,
        section="gpu-use",
        devices=tuple(one.name for one in unused),
        share=part,
        share_of="of GPUs",
        gpu_s=sum(o.idle_before + o.idle + o.partly + o.idle_after for o in unused) / SECOND_US,
    )


def _start_and_end(
    spent: Sequence[Spent], course: Course, use: TimeUse | None, told: set[str]
) -> list[Finding]:
    """Idle time of the GPUs that worked, before the first and after the last work of any."""
    worked = [one for one in spent if one.worked]
    first_us, last_us = course.first_work_us, course.last_work_us
    if not worked or use is None or first_us is None or last_us is None:
        return []
    start_us, end_us = course.phases[0].start_us, course.phases[-1].end_us
    findings = []
    before = _edge(worked, spent, use, "idle-before")
    if before.share >= WORTH_TELLING_PERCENT / 100 and "max-initialization-time" not in told:
        long = before.each_us > LONG_START_US or before.each_us > LONG_START_SHARE * (end_us - start_us)
        findings.append(
            Finding(
                key="late-first-work",
                severity=Severity.WARNING if long else Severity.INFO,
                title=f"No GPU worked in the first {before.told(first_us - start_us)}",
                evidence=f"{between(start_us, first_us)}: no sample above 0\u00a0% of any GPU.",
                advice="Stage or stream the data, use a smaller container image, cache compiled kernels.",
                rules=(),
                section="summary",
                share=before.share,
                share_of="of GPU time",
                gpu_s=before.gpu_s,
                start_us=start_us,
                end_us=first_us,
            )
        )
    after = _edge(worked, spent, use, "idle-after")
    if after.share >= WORTH_TELLING_PERCENT / 100:
        findings.append(
            Finding(
                key="idle-end",
                severity=Severity.WARNING if after.share >= LONG_START_SHARE else Severity.INFO,
                title=f"No GPU worked in the last {after.told(end_us - last_us)}",
                evidence=f"{between(last_us, end_us)}: no sample above 0\u00a0% of any GPU.",
                advice="Move uploads, evaluation on the CPU and clean-up to a machine without GPUs.",
                rules=(),
                section="summary",
                share=after.share,
                share_of="of GPU time",
                gpu_s=after.gpu_s,
                start_us=last_us,
                end_us=end_us,
            )
        )
    return findings


@dataclass(frozen=True, kw_only=True)
class _Edge:
    """Idle time at one end of the job."""

    share: float
    gpu_s: float
    #: Measured idle time of a GPU, on average.
    each_us: float

    def told(self, lasted_us: int) -> str:
        """How long it lasted, and how much of that was measured where not nearly all was."""
        if self.each_us >= 0.95 * lasted_us:
            return duration(lasted_us)
        return f"{duration(lasted_us)}, of which {duration(self.each_us)} were measured"


def _edge(worked: Sequence[Spent], spent: Sequence[Spent], use: TimeUse, key: str) -> _Edge:
    lost_us = [one.idle_before if key == "idle-before" else one.idle_after for one in worked]
    each_us = sum(lost_us) / len(worked)
    printed = _lost(use, [key])
    if printed and len(worked) == len(spent):
        return _Edge(share=printed[1] / 100, gpu_s=printed[0] * 3600, each_us=each_us)
    whole_us = sum(one.total for one in spent)
    return _Edge(share=sum(lost_us) / whole_us, gpu_s=sum(lost_us) / SECOND_US, each_us=each_us)


def _unmeasured(job: Job, course: Course, use: TimeUse | None) -> list[Finding]:
    unknown = _lost(use, ["unmeasured"])
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
            key="not-measured",
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
