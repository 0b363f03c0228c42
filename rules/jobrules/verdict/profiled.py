"""How the time of the profiled GPUs was spent, in parts that add up; never mixed with the time of the whole job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.measures.work import Work
from jobrules.model import SECOND_US, Finding, Job, Metric, RuleResult, Severity
from jobrules.model.captures import NOT_EXPLAINED, Capture, DeviceCapture
from jobrules.model.time_parts import Role, TimePart, named
from jobrules.rule import Rule
from jobrules.rules.traces.shares import (
    MIN_WINDOW_NS,
    CaptureRule,
    ProfiledGPU,
    first_iterations,
    idle_ns,
    profiled_gpus,
    severity_by,
)
from jobrules.text import (
    NBSP,
    apportion,
    capitalized,
    count,
    digits_for,
    duration,
    join_names,
    number,
    percent,
    some_of,
    took,
)
from jobrules.verdict.sampled_gpus import MIN_SAMPLES, SampledGPUs, recorded_in, sampled_gpus
from jobrules.verdict.story import SEVERITIES, UNEXPLAINED_LOSS

#: A capture is of the job if it was recorded so close to its samples.
NEAR_US = 600 * SECOND_US
#: Utilization that differs by more is not typical, in points.
TYPICAL_POINTS = 10.0
#: Time before the first recorded kernel is worth a word from this percentage of the profiled time on.
MIN_LEAD_IN = 1.0
#: What no finding explains is a part from this percentage on, which is not printed as 0.
MIN_PART = 0.05
#: Time in which GPUs only communicate, and utilization says that they are in use: worth a word from this percentage on.
MIN_COMMUNICATED = 5.0

#: Where the captures are on the clock of the samples; ``unknown`` if their clock does not count from the epoch.
Placed = Literal["inside", "outside", "unknown"]


class ProfiledTime(Struct, frozen=True, kw_only=True):
    """The time of all profiled GPUs, each from its first recorded kernel on."""

    gpus: int
    #: Ranks with a trace, and numbers of ranks that traces name: several are of several jobs.
    ranks: int
    world_sizes: tuple[int, ...] = ()
    #: GPU-seconds of all, and the seconds of the GPU with most.
    gpu_s: float
    longest_s: float
    #: Digits after the point that seconds of parts are rounded to.
    digits: int
    #: Computing; lost by finding, in their order; lost to other causes; not known. GPU-seconds, rounded so that they add up.
    parts: tuple[TimePart, ...]
    #: Percent of all parts of a role, as printed.
    roles: dict[Role, float]
    #: Longest time before the first recorded kernel, which is in no part.
    lead_in_s: float
    #: Percent that memory allocation of first iterations took; None if later iterations were recorded.
    first_iterations: float | None = None
    #: Length of the job by its other sources; None if there are only traces.
    job_s: float | None = None
    #: None if there are only traces.
    placed: Placed | None = None
    #: Mean GPU utilization while traces were recorded, and of the work of the job; None if there are too few samples.
    utilization: tuple[float, float] | None = None
    #: Which GPUs of the samples were profiled; None without samples of GPUs, or if ranks are not known.
    sampled: SampledGPUs | None = None
    #: Percent of the profiled time in which GPUs only communicated.
    communicated: float = 0.0
    #: GPUs with too little profiled time, which are in no part.
    too_short: int = 0
    #: Traces that were recorded at another time than those of all other ranks.
    alone: int = 0

    @property
    def is_typical(self) -> bool | None:
        """Whether utilization was then as during the work; None if it is not known."""
        if self.utilization is None:
            return None
        during, usual = self.utilization
        return abs(during - usual) <= TYPICAL_POINTS

    def of(self, role: Role) -> float:
        """Percent of all parts of one role."""
        return self.roles.get(role, 0.0)


#: Parts that no rule explains.
_OTHERS = ("first-iterations", "other-causes", "idle-unknown")


def profiled_time(job: Job, rules: Iterable[Rule], findings: Sequence[Finding]) -> ProfiledTime | None:
    """How the profiled time was spent, by the findings of these rules on it; None if too little was profiled."""
    traced = profiled_gpus(job.captures)
    gpus = _judged(traced)
    if not gpus:
        return None
    explained = {rule: finding.key for finding in findings for rule in finding.rules}
    by_part = {
        rule.part: rule
        for rule in rules
        if isinstance(rule, CaptureRule) and rule.part and rule.name in explained
    }
    first = first_iterations(gpus)
    sums: Counter[str] = Counter()
    for gpu in gpus:
        for device in gpu.devices:
            sums.update(_parts(device, by_part, has_first=first is not None))
    whole_s = sum(sums.values()) / 1e9
    keys = sorted((key for key in by_part if sums[key]), key=lambda key: -sums[key])
    others = (key for key in _OTHERS if sums[key] / 1e7 / whole_s >= MIN_PART)
    order = ["computing", *keys, *others]
    digits = digits_for(whole_s)
    seconds = dict(zip(order, apportion([sums[key] for key in order], whole_s, digits), strict=True))
    percents = _rounded({key: sums[key] / 1e7 / whole_s for key in order})
    parts = tuple(
        TimePart(
            key=key,
            label=named(key).of_device,
            role=named(key).role,
            amount=seconds[key],
            percent=percents[key],
            finding=_of(key, by_part, explained),
            when=_when(by_part[key], by_part) if key in by_part else "",
        )
        for key in order
    )
    return ProfiledTime(
        gpus=len(gpus),
        ranks=len(ranks_of(job.captures)),
        world_sizes=world_sizes(job.captures),
        too_short=len(traced) - len(gpus),
        gpu_s=round(whole_s, digits),
        longest_s=max(gpu.window_ns for gpu in gpus) / 1e9,
        digits=digits,
        parts=parts,
        roles={
            role: round(sum(p.percent for p in parts if p.role == role), 1)
            for role in {p.role: 0 for p in parts}
        },
        first_iterations=first,
        lead_in_s=max(device.lead_in_ns for gpu in gpus for device in gpu.devices) / 1e9,
        **_place(job, gpus),
        sampled=sampled_gpus(job, gpus) if job.facts else None,
        alone=len(job.across_ranks.alone) if job.across_ranks else 0,
        communicated=sum(gpu.sum(lambda device: device.exposed_communication_ns) for gpu in gpus)
        / 1e7
        / whole_s,
    )


def _of(key: str, rules: Mapping[str, CaptureRule], explained: Mapping[str, str]) -> str:
    """Key of the finding on a part; the rest of a part of which that finding explains another is no part of it."""
    if key not in rules:
        return ""
    rule = rules[key]
    held = rules.get(rule.holds)
    found = explained[rule.name]
    return "" if held and explained[held.name] == found else found


def _judged(gpus: Iterable[ProfiledGPU]) -> list[ProfiledGPU]:
    return [gpu for gpu in gpus if gpu.window_ns >= MIN_WINDOW_NS]


def ranks_of(captures: Iterable[Capture]) -> set[int]:
    """The ranks that traces name."""
    return {one.rank for one in captures if one.rank is not None}


def world_sizes(captures: Iterable[Capture]) -> tuple[int, ...]:
    """The numbers of ranks that traces name; several are of several jobs."""
    return tuple(sorted({one.world_size for one in captures if one.world_size}))


def with_place(job: Job, rules: Iterable[Rule], rule: Rule, result: RuleResult) -> RuleResult:
    """A finding on traces, with what samples can explain of it: nothing of another time, or of another GPU."""
    if not (isinstance(rule, CaptureRule) and result.findings and job.facts):
        return result
    gpus = _judged(profiled_gpus(job.captures))
    (finding,) = result.findings
    if not gpus or _near(job, gpus)[0] == "outside":
        of_traces = {one.key for one in rules if one.of_traces}
        reasons = tuple(key for key in finding.because_of if key in of_traces)
        return replace(result, findings=(replace(finding, because_of=reasons),))
    rank = rule.rank(job)
    if rank is None:
        return result
    sampled = sampled_gpus(job, gpus)
    place = sampled and sampled.gpus.get(rank)
    known = replace(finding, devices=("/".join(place),)) if place else replace(finding, because_of=())
    return replace(result, findings=(known,))


def with_traces(
    job: Job, rules: Sequence[Rule], findings: list[Finding]
) -> tuple[ProfiledTime | None, list[Finding], set[str]]:
    """How the profiled time was spent, the findings with what traces say of them, and the keys of those that are causes in the
    traces of this job.
    """
    profiled = profiled_time(job, rules, findings)
    if profiled is None:
        return None, findings, set()
    findings = list(_with_parts(findings, profiled, rules))
    if profiled.placed == "outside":
        return profiled, findings, set()
    of_traces = {part.finding for part in profiled.parts if part.role == "lost" and part.finding}
    causes = [one for one in findings if one.key in of_traces and one.severity is not Severity.INFO]
    if causes and profiled.is_typical is not False:
        first = min(
            causes,
            key=lambda one: (SEVERITIES.index(one.severity), one.gpu_s is None, -(one.share or 0)),
        )
        findings = [_shown_by(first, one) if one.key == UNEXPLAINED_LOSS else one for one in findings]
    return profiled, findings, of_traces


def _shown_by(cause: Finding, loss: Finding) -> Finding:
    """Lost time without a cause in the samples, with the cause that typical traces show of their stretch."""
    title = f"{loss.title.partition(',')[0]}; the traces show a cause: {cause.seen_as}"
    return replace(loss, title=title, advice=cause.advice, because_of=(cause.key,))


def _with_parts(
    findings: Sequence[Finding], profiled: ProfiledTime, rules: Iterable[Rule]
) -> Iterator[Finding]:
    """The findings, each with its own part of the profiled time, so that none counts what another explains.

    One of which another finding explains a part is as severe as what is left; one into which others were put, as all of it.
    """
    parts = {part.key: part for part in profiled.parts if part.finding}
    own = {rule.key: rule for rule in rules if isinstance(rule, CaptureRule) and rule.part}
    for finding in findings:
        rule = own.get(finding.key)
        part = parts.get(rule.part) if rule else None
        if rule is None or part is None or part.finding != finding.key:
            yield finding
            continue
        own_percent = sum(one.percent for one in profiled.parts if one.finding == finding.key)
        finding = replace(finding, share=round(own_percent / 100, 3))  # noqa: PLW2901 - with its parts
        severity = severity_by(own_percent, getattr(rule, "warning_threshold", 0.0))
        if rule.holds in parts:
            yield replace(finding, severity=severity, title=rule.did_rest)
        elif own_percent > part.percent:
            yield replace(finding, severity=min(severity, finding.severity, key=SEVERITIES.index))
        else:
            yield finding


def in_order(profiled: ProfiledTime, findings: Sequence[Finding]) -> ProfiledTime:
    """The same with lost parts in the order of their findings."""
    place = {finding.key: i for i, finding in enumerate(findings)}
    parts = sorted(
        profiled.parts, key=lambda part: (part.role != "used", place.get(part.finding, len(place)))
    )
    return replace(profiled, parts=tuple(parts))


def _rounded(percents: dict[str, float]) -> dict[str, float]:
    """Parts of 100: each is rounded as elsewhere, and the one that nothing explains takes the difference."""
    found = {key: round(value, 1) for key, value in percents.items()}
    rest = "other-causes" if percents.get("other-causes", 0.0) > 1 else "computing"
    return found | {rest: round(100 - sum(found.values()) + found[rest], 1)}


#: What to record where too little was profiled.
LONGER_TRACE = (
    f"A longer trace: at least 6 steps and {took(MIN_WINDOW_NS / 1000)} of GPU work, with `ProfilerActivity.CUDA` and "
    "`profiler.step()` after each step."
)


def too_little_profiled(job: Job) -> str:
    """What there is too little of: ``18 ms of profiled time``; empty if nothing was profiled."""
    longest_ns = max((gpu.window_ns for gpu in profiled_gpus(job.captures)), default=0)
    if not longest_ns:
        return ""
    length = took(longest_ns / 1000) if longest_ns >= 1e6 else "less than 1 ms"
    return f"{length} of profiled time, {took(MIN_WINDOW_NS / 1000)} needed"


def _parts(device: DeviceCapture, rules: Mapping[str, CaptureRule], *, has_first: bool) -> dict[str, int]:
    """Nanoseconds by the key of the part; what is in one part is in no later one."""
    own = {key: rule.counted_ns(device) for key, rule in rules.items() if device.complete or not rule.of_idle}
    parts = {"computing": device.compute_ns}
    parts |= {key: amount - own.get(rules[key].holds, 0) for key, amount in own.items()}
    if has_first and device.complete:
        parts["first-iterations"] = device.first_allocation_ns
    parts["idle-unknown"] = idle_ns(device, *NOT_EXPLAINED) if device.complete else device.idle_ns
    return parts | {"other-causes": device.window_ns - sum(parts.values())}


def _when(rule: CaptureRule, rules: Mapping[str, CaptureRule]) -> str:
    return rule.when_rest if rule.holds in rules else rule.when


def _place(job: Job, gpus: Sequence[ProfiledGPU]) -> dict[str, Any]:
    """Where the captures are in a job with other sources."""
    if not job.facts:
        return {}
    start_us, end_us = job.span_us
    placed, near = _near(job, gpus)
    known = {"job_s": (end_us - start_us) / SECOND_US, "placed": placed}
    return known | {"utilization": _utilization(job, near)} if near else known


def _near(job: Job, gpus: Sequence[ProfiledGPU]) -> tuple[Placed, tuple[tuple[int, int], ...]]:
    """Where the captures are in a job with other sources, and when those near it were recorded."""
    start_us, end_us = job.span_us
    spans = [span for gpu in gpus for one in gpu.captures if (span := one.span_us)]
    near = [span for span in spans if span[1] >= start_us - NEAR_US and span[0] <= end_us + NEAR_US]
    return "inside" if near else "outside" if spans else "unknown", tuple(near)


def _utilization(job: Job, spans: tuple[tuple[int, int], ...]) -> tuple[float, float] | None:
    """Mean utilization during some stretches, and during the work; None if one has too few samples."""
    work = Work.of(job)
    if work is None:
        return None
    rows = job.gathered(_sums, work, spans)
    during, usual = (
        np.sum([row[i] for row in rows], axis=0).tolist() if rows else [0.0, 0.0] for i in (0, 1)
    )
    if min(during[1], usual[1]) < MIN_SAMPLES:
        return None
    return during[0] / during[1], usual[0] / usual[1]


def _sums(
    part: Job, work: Work, spans: tuple[tuple[int, int], ...]
) -> Iterator[tuple[tuple[float, int], tuple[float, int]]]:
    """Sum and number of samples during some stretches, and during the work."""
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        held = recorded_in(panel, spans)
        some, usual = panel.values[held], panel.values[work.holds(panel.time_us, panel.node)]
        yield (
            (float(np.nansum(some)), int(np.count_nonzero(~np.isnan(some)))),
            (float(np.nansum(usual)), int(np.count_nonzero(~np.isnan(usual)))),
        )


def profiled_used(profiled: ProfiledTime) -> str:
    """``of the profiled time of 4 GPUs (3.96 GPU-s) was used for computing``, after the percentage."""
    traced = profiled.gpus + profiled.too_short
    whose = some_of(profiled.gpus, traced, "GPU") if profiled.too_short else count(traced, "GPU")
    amount = (
        f"{number(profiled.gpu_s, profiled.digits)}{NBSP}GPU-s"
        if profiled.gpus > 1
        else took(profiled.longest_s * SECOND_US)
    )
    return f"of the profiled time of {whose} ({amount}) was used for computing"


def profiled_lost(profiled: ProfiledTime) -> str:
    """``40.6% was lost, 28.5% while the training loop fetched the next batch``."""
    lost, unknown = profiled.of("lost"), profiled.of("unknown")
    first = next((part for part in profiled.parts if part.when), None)
    sentences = [f"{percent(lost)} was lost" + (f", {percent(first.percent)} {first.when}" if first else "")]
    if unknown:
        sentences.append(f"in {percent(unknown)} GPUs idled for a cause that is not known")
    return capitalized("; ".join(sentences if lost else sentences[1:] or sentences))


def coverage(profiled: ProfiledTime) -> list[str]:
    """How much of the job was profiled, and whether that looks typical, as sentences."""
    length = took(profiled.longest_s * SECOND_US)
    sentences = []
    if profiled.job_s is None:
        sentences.append("Only traces were recorded, so nothing is known of the rest of the job.")
    else:
        covers = f"The traces cover {length} of {duration(profiled.job_s * SECOND_US)}"
        sentences.append(f"{covers}{_typical(profiled)}.")
    if profiled.sampled and profiled.sampled.utilization and profiled.communicated >= MIN_COMMUNICATED:
        percents = percent(profiled.sampled.utilization), percent(profiled.communicated)
        sentences.append(
            f"Utilization of the profiled GPUs, {percents[0]} then, counts the {percents[1]} in which they only communicated."
        )
    if profiled.first_iterations is not None:
        took_first = f"memory allocation that does not recur took {percent(profiled.first_iterations)}"
        sentences.append(f"The traces hold first iterations: {took_first} of their time.")
    if profiled.too_short:
        less = f"less than {took(MIN_WINDOW_NS / 1000)} of profiled time"
        who = f"{count(profiled.too_short, 'GPU')} {'has' if profiled.too_short == 1 else 'have'}"
        sentences.append(f"{who} {less} and {'is' if profiled.too_short == 1 else 'are'} not judged.")
    sizes = profiled.world_sizes
    if len(sizes) > 1:
        sizes_named = join_names([number(size) for size in sizes])
        sentences.append(
            f"The traces are of several jobs or attempts, which are added up: they name {sizes_named} ranks."
        )
    elif sizes and 0 < profiled.ranks < sizes[0]:
        sentences.append(f"Traces are of {some_of(profiled.ranks, sizes[0], 'rank')}.")
    if profiled.alone and len(sizes) < 2:
        were = "was" if profiled.alone == 1 else "were"
        sentences.append(
            f"{capitalized(count(profiled.alone, 'trace'))} {were} recorded at another time than those of the other ranks: "
            "check for files of an older attempt."
        )
    if 100 * profiled.lead_in_s > MIN_LEAD_IN * profiled.longest_s:
        lead_in = took(profiled.lead_in_s * SECOND_US)
        sentences.append(f"Up to {lead_in} before the first recorded kernel is not judged.")
    return sentences


def _typical(profiled: ProfiledTime) -> str:
    if profiled.placed == "unknown":
        return "; when they were recorded is not known"
    if profiled.placed == "outside":
        return "; by their clocks, they were recorded at another time"
    if profiled.utilization is None:
        return "; too few samples fall into them to say whether they are typical"
    during, usual = profiled.utilization
    looks = "looks typical" if profiled.is_typical else "is not typical"
    return f", which {looks}: GPU utilization was {percent(during)} then and {percent(usual)} during the work"
