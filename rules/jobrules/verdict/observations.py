"""Findings that no rule reports: start and end of the job, sampling pauses, clocks and times that do not fit."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks, offsets
from jobrules.model import SECOND_US, Finding, HowMuch, Job, Note, Severity, When, Where, natural_sorted
from jobrules.text import between, count, duration, escape_name, percent
from jobrules.verdict.attribution import BEFORE_STEP, END, START, Ends, loop_us
from jobrules.verdict.device_time import DeviceTime
from jobrules.verdict.phases import JobPhases
from jobrules.verdict.time_use import TimeUse

#: Keys of findings that others refer to.
NO_EARLY_WORK, NO_LATE_WORK, NOT_MEASURED = "late-first-work", "idle-end", "not-measured"

#: A start-up that is a warning: longer than 20 minutes, as for MaxInitializationTime, or than a fifth of the job.
LONG_START_US = 20 * 60 * SECOND_US

LONG_START_SHARE = 0.2

#: Below this share of the GPU time, an idle start or end is no finding,
RELEVANT_PERCENT = 5.0

#: nor is one that is shorter than this and no fifth of the job: every job begins and ends.
USUAL_EDGE_US = 2 * 60 * SECOND_US

START_ADVICE = ("Stream or stage the data, use a smaller container image, and cache compiled kernels.",)


def start_and_end(
    spent: Sequence[DeviceTime], ends: Ends, *, some_unknown: bool, started: bool
) -> list[Finding]:
    """Idle time of the GPUs that were used, in start-up and after the last work of any.

    ``started`` says that a rule reports the start-up already, ``some_unknown`` that the utilization of some GPUs is
    not known.
    """
    who = "No GPU with known utilization" if some_unknown else "No GPU"
    start_us, end_us = ends.clocks.start_us, ends.clocks.end_us
    findings = []
    before = _Edge.of(spent, (BEFORE_STEP, START), end_us - start_us)
    if before.relevant and not started:
        findings.append(_start_up(before, ends, who))
    after = _Edge.of(spent, (END,), end_us - start_us)
    if after.relevant:
        findings.append(
            Finding(
                key=NO_LATE_WORK,
                severity=Severity.WARNING if after.share >= LONG_START_SHARE else Severity.INFO,
                title=f"{who} was used in the last {after.length(end_us - ends.last_work_us)}",
                evidence=(When(ends.last_work_us, end_us),),
                advice=("Move uploads, evaluation on the CPU, and clean-up to a machine without GPUs.",),
                rules=(),
                section="summary",
                start_us=ends.last_work_us,
                end_us=end_us,
            )
        )
    return findings


def _start_up(before: _Edge, ends: Ends, who: str) -> Finding:
    start_us, first_us, ready_us = ends.clocks.start_us, ends.first_work_us, ends.start_up_us
    title = f"{who} was used in the first {before.length(first_us - start_us)}"
    evidence: tuple[When | HowMuch, ...] = (When(start_us, first_us),)
    if ready_us > first_us:
        lasted_us = ready_us - start_us
        idle = f"for {duration(before.each_us)} before" if before.each_us < 0.95 * lasted_us else "until"
        title = f"GPUs were idle {idle} the first step, which started after {duration(lasted_us)}"
        first_work = HowMuch("First GPU work after", (first_us - start_us) / SECOND_US, "s")
        evidence = (When(start_us, ready_us), first_work)
    return Finding(
        key=NO_EARLY_WORK,
        severity=Severity.WARNING if before.each_us > LONG_START_US or before.long else Severity.INFO,
        title=title,
        evidence=evidence,
        advice=START_ADVICE,
        rules=(),
        section="summary",
        start_us=start_us,
        end_us=ready_us,
    )


def late_first_step(job: Job, *, started: bool) -> list[Finding]:
    """The first step of a job without GPU samples, if it started after a fifth of the job.

    ``started`` says that a rule reports it already.
    """
    clocks = Clocks.of(job)
    loop = loop_us(job, clocks)
    if started or not loop or not clocks.length_us:
        return []
    start_us, first_us = clocks.start_us, loop[0]
    part = (first_us - start_us) / clocks.length_us
    if part < LONG_START_SHARE or first_us - start_us < USUAL_EDGE_US:
        return []
    return [
        Finding(
            key="late-first-step",
            severity=Severity.WARNING,
            title=f"The first step started after {duration(first_us - start_us)}",
            evidence=(When(start_us, first_us),),
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

    #: Share of the time of all GPUs.
    share: float
    #: Measured idle time of a GPU that was ever used, on average.
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
    def relevant(self) -> bool:
        return 100 * self.share >= RELEVANT_PERCENT and (self.each_us >= USUAL_EDGE_US or self.long)

    def length(self, lasted_us: int) -> str:
        """How long it lasted, and how much of that was measured unless nearly all was."""
        if self.each_us >= 0.95 * lasted_us:
            return duration(lasted_us)
        return f"{duration(lasted_us)}, of which {duration(self.each_us)} were measured"


def pauses(job: Job, phases: JobPhases, use: TimeUse | None, unmeasured_us: float) -> list[Finding]:
    """Sampling pauses, or a relevant part of the GPU time without samples."""
    unknown = use.of("unknown") if use and use.device == "GPU" else None
    evidence: tuple[Where | When | Note, ...]
    if phases.gaps:
        longest = max(phases.gaps, key=lambda gap: gap.end_us - gap.start_us)
        start_us, end_us = longest.start_us, longest.end_us
        title = f"{duration(end_us - start_us)} were not measured"
        if len(phases.gaps) > 1:
            paused = count(len(phases.gaps), "time")
            title = f"Sampling paused {paused}, for at most {duration(end_us - start_us)}"
        evidence = (Where(natural_sorted({gap.node for gap in phases.gaps})), When(start_us, end_us))
    elif use and unknown and unknown[1] >= RELEVANT_PERCENT:
        # Other sensors were sampled all the time.
        start_us, end_us = job.span_us
        title = f"{percent(unknown[1])} of {use.time} was not measured"
        evidence = (When(start_us, end_us), Note("GPU samples cover less than the job"))
    else:
        return []
    return [
        Finding(
            key=NOT_MEASURED,
            severity=Severity.INFO,
            title=title,
            evidence=evidence,
            advice=(
                "Check the logs of the sampler and the machine for that time: a pause, a restart, a full disk.",
            ),
            rules=(),
            section="quality",
            share=unknown[1] / 100 if unknown else None,
            share_of=f"of {use.time}" if use and unknown else "",
            gpu_s=round(unmeasured_us / SECOND_US, 1) if unknown else None,
            start_us=start_us,
            end_us=end_us,
        )
    ]


def disjoint_times(job: Job) -> list[Finding]:
    """Samples and events that do not overlap in time: of two jobs, or of clocks that differ."""
    samples, events = job.samples_us, job.events_us or job.steps_us
    if not samples or not events or (events[0] <= samples[1] and samples[0] <= events[1]):
        return []
    return [
        Finding(
            key="disjoint-times",
            severity=Severity.WARNING,
            title="Samples and events do not overlap in time",
            evidence=(
                Note(f"Samples: {between(*samples)}"),
                Note(f"Events: {between(*events)}"),
                Note("Shares of the job's time count both"),
            ),
            advice=("Check that the directory holds one job, and that the clocks of its machines agree.",),
            rules=(),
            section="quality",
            start_us=min(samples[0], events[0]),
            end_us=max(samples[1], events[1]),
        )
    ]


def clock_offsets(job: Job) -> list[Finding]:
    """Nodes whose clocks differ, inferred from their steps."""
    found = offsets(job)
    if not found:
        return []
    most = max(found, key=lambda offset: abs(offset.offset_us))
    way = "later" if most.offset_us > 0 else "earlier"
    lag = f"{duration(abs(most.offset_us))} {way}"
    node, reference = escape_name(most.node, 40), escape_name(most.reference, 40)
    return [
        Finding(
            key="clocks-differ",
            severity=Severity.INFO,
            title=f"Steps on {node} start {lag} than the same steps on {reference}",
            evidence=(
                Where(tuple(offset.node for offset in found)),
                HowMuch("Steps compared", most.steps),
                HowMuch("Half of them within", most.spread_us / SECOND_US, "s"),
                Note(
                    "Start and end of each node are on its own clock; phases and time lines use the times as recorded"
                ),
            ),
            advice=("Synchronize the clocks (NTP), or check that both nodes train together.",),
            rules=(),
            section="nodes",
        )
    ]
