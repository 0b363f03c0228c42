"""Causes that no rule reports: GPUs that were never used, start-up, and wind-down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.gpu_conditions import memory_in_use
from jobrules.measures.stopped import NOTHING_PERCENT
from jobrules.measures.work import Work
from jobrules.measures.work_span import GLANCE_PERCENT, glances, worked
from jobrules.model import (
    SECOND_US,
    Fact,
    Finding,
    FloatArray,
    HowMuch,
    Job,
    Metric,
    Note,
    Panel,
    RuleResult,
    Severity,
    When,
    Where,
)
from jobrules.model.claims import Cause, Claim, Claimed, Precedence, Samples
from jobrules.rules.unused_gpu import never_used
from jobrules.text import capitalized, count, duration, percent, some_of
from jobrules.verdict.starting import start_facts

#: Keys of the causes and their findings.
NEVER, START_UP, WIND_DOWN = "gpu-never-used", "start-up", "wind-down"

NEVER_USED_ADVICE = (
    "Check that the framework sees the GPUs (driver, CUDA build, device placement).",
    "Start as many processes as there are GPUs, or use a machine with fewer GPUs.",
)

NO_GPU_USED_ADVICE = (
    NEVER_USED_ADVICE[0],
    "If the job needs no GPU, use a machine without one.",
)

ON_CPU_ADVICE = ("Move the model and every batch to the GPU (device placement).", *NO_GPU_USED_ADVICE)

MEMORY_HELD_ADVICE = (
    "Start one process per GPU, each on its own device: a process has memory on these GPUs, so it sees them.",
    "Otherwise use a machine with fewer GPUs.",
)

HELD_ALONE_ADVICE = (
    "Find the process that holds the memory: a notebook or an earlier run, or this job before its first GPU work.",
    NO_GPU_USED_ADVICE[1],
)

END_ADVICE = ("Move uploads, evaluation on the CPU, and clean-up to a machine without GPUs.",)

#: A process sees a GPU with more of its memory in use than this, in percent.
MEMORY_HELD_PERCENT = 5.0


def edges(job: Job, work: Work | None, first_step: RuleResult | None) -> tuple[Cause, ...]:
    """The causes at the edges of the work; ``first_step`` is the result of the rule on start-up."""
    never = Cause(
        key=NEVER,
        precedence=Precedence.NEVER_USED,
        when="on never-used GPUs",
        claim=_never,
        finding=partial(_never_used, job, work),
        of_work=False,
    )
    if work is None or work.gpu_us is None:
        return (never,)
    start_up = Cause(
        key=START_UP,
        precedence=Precedence.START_UP,
        when="in start-up",
        claim=partial(_before, work),
        finding=partial(_started, job, work, first_step),
        of_work=False,
    )
    wind_down = Cause(
        key=WIND_DOWN,
        precedence=Precedence.WIND_DOWN,
        when="in wind-down",
        claim=partial(_after, work),
        finding=partial(_ended, job, work),
        of_work=False,
    )
    return never, start_up, wind_down


def _never(part: Job, panel: Panel, weight_us: FloatArray) -> Claim:
    del part, panel, weight_us

    def claim(gpus: Sequence[Samples]) -> Sequence[FloatArray]:
        return [np.zeros(len(gpu.values)) if worked(gpu.values) else gpu.left_us for gpu in gpus]

    return claim


def _before(work: Work, part: Job, panel: Panel, weight_us: FloatArray) -> Claim:
    del part, weight_us
    until_us, _ = work.span_us(panel.node)
    return lambda gpus: [np.where(gpu.time_us < until_us, gpu.left_us, 0.0) for gpu in gpus]


def _after(work: Work, part: Job, panel: Panel, weight_us: FloatArray) -> Claim:
    del part, weight_us
    _, since_us = work.span_us(panel.node)
    return lambda gpus: [np.where(gpu.time_us > since_us, gpu.left_us, 0.0) for gpu in gpus]


def _little_used(job: Job, work: Work, when: str, *, at_end: bool) -> str:
    means = job.gathered(_used_outside, work, at_end)
    mean = sum(means) / max(1, len(means))
    if mean >= NOTHING_PERCENT:
        who = "The GPU was" if job.gpu_count == 1 else "GPUs were"
        return f"{who} little used in the {when} ({percent(mean)} on average)"
    who = "No GPU with known utilization" if job.gpus_unknown else "No GPU"
    return f"{who} worked in the {when}"


def _used_outside(part: Job, work: Work, at_end: bool) -> Iterator[float]:
    """Mean utilization of each GPU before the work or after it, in percent."""
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        begin_us, end_us = work.span_us(panel.node)
        outside = panel.time_us > end_us if at_end else panel.time_us < begin_us
        for column in range(len(panel.devices)):
            values = panel.values[outside, column]
            values = values[~np.isnan(values)]
            if len(values):
                yield float(values.mean())


def _started(job: Job, work: Work, first_step: RuleResult | None, claimed: Claimed) -> Finding:
    clocks = work.clocks
    evidence: list[Fact] = [When(clocks.start_us, work.begin_us)]
    rules: tuple[str, ...] = ()
    largest, advice = start_facts(job)
    if work.gpu_us and work.gpu_us[0] > work.begin_us:
        evidence.append(HowMuch("First GPU work after", (work.gpu_us[0] - clocks.start_us) / SECOND_US, "s"))
    if first_step and first_step.findings:
        evidence.append(Note(capitalized(first_step.headline)))
        rules = (first_step.rule,)
    return Finding(
        key=START_UP,
        severity=Severity.WARNING,
        title=_little_used(job, work, f"first {duration(work.begin_us - clocks.start_us)}", at_end=False),
        evidence=(*evidence, *largest),
        advice=advice,
        rules=rules,
        section="summary",
        devices=claimed.devices,
        start_us=clocks.start_us,
        end_us=work.begin_us,
    )


def _ended(job: Job, work: Work, claimed: Claimed) -> Finding:
    clocks = work.clocks
    return Finding(
        key=WIND_DOWN,
        severity=Severity.WARNING,
        title=_little_used(job, work, f"last {duration(clocks.end_us - work.end_us)}", at_end=True),
        evidence=(When(work.end_us, clocks.end_us),),
        advice=END_ADVICE,
        rules=(),
        section="summary",
        devices=claimed.devices,
        start_us=work.end_us,
        end_us=clocks.end_us,
    )


def _never_used(job: Job, work: Work | None, claimed: Claimed) -> Finding:
    unused, gpus = claimed.devices, job.gpu_count + job.gpus_unknown
    looks = [(n, touched) for name, n, touched in job.gathered(_glances) if name in {*unused}]
    seen, touched = max(looks, default=(0, 0))[0], any(touched for _, touched in looks)
    in_use = job.gathered(memory_in_use, Clocks.of(job))
    held = len({*unused} & {name for name, highest in in_use if highest > MEMORY_HELD_PERCENT})
    evidence: list[Fact] = [Where(claimed.names)]
    if job.gpus_unknown:
        evidence.append(Note(f"Utilization of {count(job.gpus_unknown, 'GPU')} was not recorded"))
    if held:
        holders = "a process holds it" if held == 1 else "processes hold it"
        evidence.append(Note(f"Memory was in use on {some_of(held, len(unused), 'GPU')}: {holders}"))
    # A process that has memory on them may use them for less than is measured.
    on_cpu = work is not None and work.gpu_us is None and not held
    return never_used_finding(
        claimed, gpus, seen, *evidence, rule="UnusedGPU", on_cpu=on_cpu, touched=touched, held=held
    )


def never_used_finding(
    claimed: Claimed,
    gpus: int,
    seen: int,
    *evidence: Fact,
    rule: str,
    on_cpu: bool,
    touched: bool,
    held: int = 0,
) -> Finding:
    """Of so many GPUs with at most so many samples ``seen``, as it may be if some sample is not 0% (``touched``)."""
    unused = len(claimed.devices)
    samples = f"at most {count(seen, 'sample')}" if seen else "no sample"
    who = never_used(unused, gpus)
    if on_cpu:
        ran = "may have run" if touched else "ran"
        who = f"Training {ran} on the CPU: {who[0].lower()}{who[1:]}"
    return Finding(
        key=NEVER,
        severity=Severity.CRITICAL,
        title=f"{who} ({samples} above {GLANCE_PERCENT:g}%)",
        evidence=evidence,
        advice=never_used_advice(unused, gpus, held, on_cpu=on_cpu),
        rules=(rule,),
        section="gpu-utilization",
        devices=claimed.devices,
    )


def never_used_advice(unused: int, gpus: int, held: int, *, on_cpu: bool) -> tuple[str, ...]:
    """Of GPUs of which so many have memory in use, after steps that ran on the CPU or without any."""
    if on_cpu:
        return ON_CPU_ADVICE
    if unused == gpus:
        return HELD_ALONE_ADVICE if held else NO_GPU_USED_ADVICE
    return MEMORY_HELD_ADVICE if held == unused else NEVER_USED_ADVICE


def _glances(part: Job) -> Iterator[tuple[str, int, int]]:
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        names = (f"{panel.node}/{device}" for device in panel.devices)
        touched = (panel.values >= GLANCE_PERCENT).sum(axis=0)
        yield from zip(names, glances(panel.values).tolist(), touched.tolist(), strict=True)
