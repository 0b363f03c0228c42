"""Training without GPUs: whether its cores are in use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from jobrules.measures.data_waits import Waits
from jobrules.measures.work import Work
from jobrules.model import SECOND_US, Finding, Job, LoopFacts, Metric, Note, Severity, Where
from jobrules.text import count, number, share, took

#: Cores that are used less than this on average are free.
FREE_PERCENT = 70.0
#: From here on they may all be in use: where two hyper-threads share a core, half of them do nearly all that it can.
SHARED_PERCENT = 45.0
SHARED = "Hyper-threads count as cores: where two share one, half of them in use is nearly all that the cores can do"

FREE_CORES_ADVICE = (
    "Let steps use the free cores: raise the number of threads (``OMP_NUM_THREADS``), or train with several processes.",
    "Otherwise use a machine with fewer cores.",
)


class Training(Struct, frozen=True, kw_only=True):
    """How training used the cores of a node."""

    node: str
    #: Mean or median utilization, and the number of cores, 0 if it is not known.
    used: float
    cores: int
    #: Median step and batch fetch in seconds; None where they were not recorded.
    step_s: float | None
    fetch_s: float | None


def trainings(part: Job, work: Work, facts: LoopFacts | None) -> Iterator[Training]:
    """Of a node with steps, or known ``facts`` of steps, whose cores were sampled meanwhile."""
    (node,) = part.nodes
    cpu, steps = part.panel(node, Metric.CPU_UTILIZATION), part.steps
    known = facts if facts and facts.steps else None
    if cpu is None or not (len(steps) or known):
        return
    inside = cpu.mean[work.holds(cpu.time_us, node)]
    waits = Waits.of(part, work)
    if len(inside):
        yield Training(
            node=node,
            used=float(inside.mean()),
            cores=len(cpu.devices) if len(cpu.devices) > 1 else (known and known.cores) or 0,
            step_s=float(np.median(steps.comparable.duration_us)) / SECOND_US
            if len(steps)
            else (known.step_s if known else None),
            fetch_s=waits.fetch_us / SECOND_US if waits else (known.fetch_s if known else None),
        )


def free_cores(found: Sequence[Training]) -> list[Finding]:
    """The finding on cores that training leaves free, where it does not wait for data."""
    if not found or (used := float(np.mean([one.used for one in found]))) >= FREE_PERCENT:
        return []
    first, free = found[0], 1 - used / 100
    cores = f"{number(free * first.cores, 1)} of {count(first.cores, 'core')} were"
    times = [
        f"a {what} takes {took(SECOND_US * seconds)}"
        for what, seconds in (("step", first.step_s), ("batch fetch", first.fetch_s))
        if seconds
    ]
    return [
        Finding(
            key="free-cores",
            severity=Severity.WARNING if used < SHARED_PERCENT else Severity.INFO,
            title=f"{cores if first.cores else f'{share(free)} of CPU time was'} free during training"
            + (f": {', '.join(times)}" if times else ""),
            evidence=(Where(tuple(one.node for one in found)), *([Note(SHARED)] * (used >= SHARED_PERCENT))),
            advice=FREE_CORES_ADVICE,
            rules=(),
            section="utilization",
            share=round(free, 3),
            share_of="of CPU time",
        )
    ]
