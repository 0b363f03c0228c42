"""Findings that no rule reports: a late start, sampling pauses, clocks and times that do not fit, lack of memory or space."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.measures.clock_offsets import Clocks, offsets
from jobrules.measures.crowding import CROWDED_ADVICE, core_shares
from jobrules.measures.sample_weights import Gap, ticks
from jobrules.measures.work import Work
from jobrules.model import (
    SECOND_US,
    Finding,
    HowMuch,
    Job,
    Metric,
    Note,
    Severity,
    When,
    Where,
    natural_sorted,
)
from jobrules.text import NBSP, between, count, duration, escape_name, percent
from jobrules.verdict.phases import JobPhases
from jobrules.verdict.starting import START_ADVICE, start_facts
from jobrules.verdict.time_use import TimeUse

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Keys of findings that others refer to.
NOT_MEASURED, CROWDED = "not-measured", "other-processes"
DISJOINT_TIMES = "disjoint-times"
#: What the recorder could not write.
LOST_SAMPLES = "lost-samples"
MEMORY_KILLS = "memory-kills"
MEMORY_ADVICE = (
    "Use fewer loader processes or shorter prefetch queues, or load less data into memory.",
    "Or raise the memory limit of the container.",
)

#: A start-up that is a warning: this share of the job, and at least so long.
LONG_START_SHARE, LONG_START_US = 0.2, 5 * 60 * SECOND_US

#: Less GPU time without samples is no finding, in percent.
RELEVANT_PERCENT = 5.0

_PAUSE_ADVICE = (
    "Check the logs of the sampler and the machine for that time: a pause, a restart, a full disk.",
)
_FAR_ADVICE = ("Check the time there: a wrong one makes the job longer, and all shares of its time smaller.",)

_MIB = 1 << 20
#: Other processes that use this share of the cores are critical.
CROWDED_SHARE = 0.5
#: A file system with less free space is nearly full.
MIN_FREE_MIB = 1024.0
#: Cores that wait for I/O for this percentage of their time, on average, for so many samples and so long: a pause.
IO_PAUSE_PERCENT, IO_PAUSE_SAMPLES, IO_PAUSE_US = 20.0, 3, 2 * SECOND_US
#: In memory, and often small: 64 MiB in a container. It is nearly full if this part of it, or more, is in use.
SHARED_MEMORY, MAX_USED_PART = "/dev/shm", 0.5  # noqa: S108 - a name
#: File systems that the evidence names.
_MAX_NAMED = 4


def late_first_step(job: Job, *, started: bool) -> list[Finding]:
    """The first step of a job without GPU samples; ``started`` says that a rule reports it already."""
    clocks, work = Clocks.of(job), Work.of(job)
    if started or not work or not work.steps_us:
        return []
    found = late_start(clocks.start_us, work.steps_us[0], clocks.end_us)
    largest, advice = start_facts(job)
    return [replace(one, evidence=(*one.evidence, *largest), advice=advice) for one in found]


def late_start(start_us: int, first_us: int, end_us: int) -> list[Finding]:
    """The first step of a job, if it started after a fifth of the job."""
    part = (first_us - start_us) / max(1, end_us - start_us)
    if part < LONG_START_SHARE or first_us - start_us < LONG_START_US:
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


def pauses(job: Job, phases: JobPhases, use: TimeUse | None, unmeasured_us: float) -> list[Finding]:
    """Sampling pauses, or a relevant part of the GPU time without samples."""
    unknown = use.of("unknown") if use and use.device == "GPU" else None
    evidence: tuple[Where | When | Note, ...]
    advice: tuple[str, ...] = _PAUSE_ADVICE
    if phases.gaps:
        longest = max(phases.gaps, key=lambda gap: gap.end_us - gap.start_us)
        start_us, end_us = longest.start_us, longest.end_us
        title = f"{duration(end_us - start_us)} were not measured"
        if len(phases.gaps) > 1:
            paused = count(len(phases.gaps), "time")
            title = f"Sampling paused {paused}, for at most {duration(end_us - start_us)}"
        evidence = (Where(natural_sorted({gap.node for gap in phases.gaps})), When(start_us, end_us))
        # While other nodes were measured, no time of the job is in doubt.
        if len(job.nodes) == 1 and (far := next(iter(job.gathered(_far, longest)), None)):
            title = f"{far} all others: {duration(end_us - start_us)} were not measured"
            advice = (*_FAR_ADVICE, *_PAUSE_ADVICE)
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
            advice=advice,
            rules=(),
            section="quality",
            share=unknown[1] / 100 if unknown else None,
            share_of=f"of {use.time}" if use and unknown else "",
            gpu_s=round(unmeasured_us / SECOND_US, 1) if unknown else None,
            start_us=start_us,
            end_us=end_us,
        )
    ]


def _far(part: Job, pause: Gap) -> Iterator[str]:
    """The record of a node that lies far after all its others, or before: ``1 record lies 1 h after``."""
    start_us, end_us = part.span_us
    pause_us = pause.end_us - pause.start_us
    if 2 * pause_us < end_us - start_us:
        return
    firsts = np.concatenate((ticks(part), part.events.start_us, part.steps.start_us))
    lasts = np.concatenate((ticks(part), part.events.end_us, part.steps.end_us))
    for where, lone in (("before", firsts <= pause.start_us), ("after", lasts > pause.start_us)):
        if len(lone) > 2 and np.count_nonzero(lone) == 1:
            yield f"1{NBSP}record lies {duration(pause_us)} {where}"


def disjoint_times(job: Job) -> list[Finding]:
    """Samples and events that do not overlap in time: of two jobs, or of clocks that differ."""
    samples, events = job.samples_us, job.events_us or job.steps_us
    if not samples or not events or (events[0] <= samples[1] and samples[0] <= events[1]):
        return []
    return [
        Finding(
            key=DISJOINT_TIMES,
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


def other_processes(job: Job) -> list[Finding]:
    """Other processes that take CPU time from the job, on the node where they take most."""
    crowded = [one for one in job.gathered(core_shares) if one.crowded]
    if not crowded:
        return []
    worst = max(crowded, key=lambda one: (one.by_all - one.by_job) / one.cores)
    part = (worst.by_all - worst.by_job) / worst.cores
    pressure = [] if worst.pressure is None else [HowMuch(Metric.CPU_PRESSURE.label, worst.pressure, "%")]
    return [
        Finding(
            key=CROWDED,
            severity=Severity.CRITICAL if part >= CROWDED_SHARE else Severity.WARNING,
            title=str(worst),
            evidence=(Where(tuple(one.node for one in crowded)), *pressure),
            advice=CROWDED_ADVICE,
            rules=(),
            section="utilization",
            share=part,
            share_of="of CPU time",
        )
    ]


class Kills(Struct, frozen=True, kw_only=True):
    """Kills for lack of memory on a node."""

    node: str
    count: int
    #: The last sample before the first kill, and the first one after the last.
    first_us: int
    last_us: int


def memory_kills(job: Job) -> list[Finding]:
    """Processes that the kernel killed because the container, or the node, was out of memory."""
    found = job.gathered(kills)
    if not found:
        return []
    killed = sum(one.count for one in found)
    start_us, end_us = min(one.first_us for one in found), max(one.last_us for one in found)
    return [
        Finding(
            key=MEMORY_KILLS,
            severity=Severity.WARNING,
            title=f"The kernel killed {count(killed, 'process', 'processes')} for lack of memory",
            evidence=(Where(tuple(one.node for one in found)), When(start_us, end_us)),
            advice=MEMORY_ADVICE,
            rules=(),
            section="utilization",
            start_us=start_us,
            end_us=end_us,
        )
    ]


def kills(part: Job) -> Iterator[Kills]:
    """Those of a node, if there are any."""
    for panel in part.panels_of(Metric.OOM_KILLS):
        growth = np.maximum(0, np.diff(panel.values[:, 0]))
        (grew,) = np.nonzero(growth)
        if len(grew):
            yield Kills(
                node=panel.node,
                count=int(growth.sum()),
                first_us=int(panel.time_us[grew[0]]),
                last_us=int(panel.time_us[grew[-1] + 1]),
            )


class _Full(Struct, frozen=True, kw_only=True):
    """A file system that was nearly full."""

    node: str
    mount: str
    mib: float
    at_us: int


def nearly_full(job: Job) -> list[Finding]:
    """File systems that the job may fill, with little free space."""
    found = sorted(job.gathered(_full), key=lambda one: one.mib)
    if not found:
        return []
    mounts = {one.mount for one in found}
    return [
        Finding(
            key="nearly-full",
            severity=Severity.INFO,
            title=f"{count(len(mounts), 'file system')} had less than {MIN_FREE_MIB / 1024:g} GiB of free space",
            evidence=(
                Where(natural_sorted({one.node for one in found})),
                When(min(one.at_us for one in found), max(one.at_us for one in found)),
                *(HowMuch("Lowest free space", one.mib, "MiB", of=one.mount) for one in found[:_MAX_NAMED]),
            ),
            advice=(
                "Free space, or write checkpoints to another file system.",
                "For /dev/shm, in which loader processes hand over batches, start the container with more shared memory.",
            ),
            rules=(),
            section="utilization",
        )
    ]


def _full(part: Job) -> Iterator[_Full]:
    for panel in part.panels_of(Metric.FREE_SPACE):
        for column, mount in enumerate(panel.devices):
            time_us, free = panel.series(column)
            lowest = int(free.argmin())
            limit = MIN_FREE_MIB * _MIB
            if mount == SHARED_MEMORY:
                limit = min(limit, (1 - MAX_USED_PART) * free.max())
            if free[lowest] < limit:
                yield _Full(
                    node=panel.node, mount=mount, mib=float(free[lowest]) / _MIB, at_us=int(time_us[lowest])
                )


class _IOPauses(Struct, frozen=True, kw_only=True):
    """When the cores of a node waited for I/O."""

    node: str
    lengths_us: tuple[int, ...]
    #: Mean I/O wait of the cores then, in percent.
    percent: float
    first_us: int
    last_us: int


def io_pauses(job: Job) -> list[Finding]:
    """Times in which cores wait for I/O, of a job that has nothing else to say what waited for it."""
    found = max(job.gathered(_io_pauses), key=lambda one: sum(one.lengths_us), default=None)
    if found is None:
        return []
    several = count(len(found.lengths_us), "time")
    typical = duration(sorted(found.lengths_us)[len(found.lengths_us) // 2])
    return [
        Finding(
            key="io-pauses",
            severity=Severity.INFO,
            title=f"The cores waited for I/O {several}, for about {typical} each ({percent(found.percent)} of their time then)",
            evidence=(Where((found.node,)), When(found.first_us, found.last_us)),
            advice=("If the job stops then, look at checkpoints and at how data is read: record steps.",),
            rules=(),
            section="utilization",
            start_us=found.first_us,
            end_us=found.last_us,
        )
    ]


def _io_pauses(part: Job) -> Iterator[_IOPauses]:
    for panel in part.panels_of(Metric.IO_WAIT):
        waits = np.nan_to_num(panel.values).mean(axis=1)
        edges = np.flatnonzero(
            np.diff(np.concatenate([[False], waits >= IO_PAUSE_PERCENT, [False]]))
        ).reshape(-1, 2)
        long = [
            (start, end)
            for start, end in edges.tolist()
            if end - start >= IO_PAUSE_SAMPLES
            and panel.time_us[end - 1] - panel.time_us[start] >= IO_PAUSE_US
        ]
        if long:
            yield _IOPauses(
                node=panel.node,
                # A sample stands for the time since the one before it.
                lengths_us=tuple(
                    int(panel.time_us[end - 1] - panel.time_us[max(0, start - 1)]) for start, end in long
                ),
                percent=float(np.concatenate([waits[start:end] for start, end in long]).mean()),
                first_us=int(panel.time_us[long[0][0]]),
                last_us=int(panel.time_us[long[-1][1] - 1]),
            )
