"""OverallFrameworkMetrics: where the time of the framework went, in figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jobrules.framework import Kind, breakdown, grouped, largest_first, rows_of, shares
from jobrules.intervals import union
from jobrules.job import SECOND_US
from jobrules.rounding import apportion
from jobrules.rule import Rule
from jobrules.words import count, percent, shown

if TYPE_CHECKING:
    from jobrules.job import Events, Job, Steps
    from jobrules.result import RuleResult

#: The vendor's name for a step phase begins so; ``others`` is the time of a worker outside its steps.
STEP = "Step:ModeKeys."
OTHERS = "others"


@dataclass(frozen=True, kw_only=True)
class OverallFrameworkMetrics(Rule):
    """Where the time of the framework went, in figures.

    What it checks
        Nothing: it states the shares of training, evaluation and the time outside of steps, of the
        operators on CPU and GPU, of forward and backward pass, and of data loading. Steps are those of
        the whole job; the rest is what was profiled in detail, often a few steps only.

    Why it matters
        Time outside of steps is not spent on training; of the time within, the operators that take most
        of it are where a change pays.

    What to do
        Where much time lies outside of steps, look at data loading, evaluation and checkpoints. Among
        operators compare the time of each without what it calls: the other counts nested ones twice.
    """

    title: ClassVar[str] = "Where the time of the framework went"
    judges: ClassVar[bool] = False

    def check(self, job: Job) -> RuleResult:
        """``datapoints`` are events; steps where these came without events."""
        details = breakdown(job.events)
        if not len(job.events) and not len(job.steps):
            return self.not_evaluated("no framework events", details=details)
        if len(job.events):
            details["basis"] = _basis(job.events)
        seen = count(len(job.events), "event") if len(job.events) else count(len(job.steps), "step")
        if len(job.steps):
            times = _times(job.steps)
            details |= {"phase": shares(times), "phase_time": times}
        times = details["phase_time"]
        headline = f"{_told(times)}; {seen}" if times else f"{seen}, no steps"
        return self.passed(headline, datapoints=len(job.events) or len(job.steps), details=details)


def _times(steps: Steps) -> dict[str, int]:
    """Microseconds of the steps of each phase, and of the time outside of steps, over all workers.

    A worker's time outside of steps lies between its first start and its last end.
    """
    lasted = steps.end_us - steps.start_us
    times = {STEP + phase: int(lasted[rows].sum()) for (phase,), rows in grouped(steps.phase).items()}
    times[OTHERS] = 0
    for rows in grouped(steps.node, steps.worker).values():
        start_us, end_us = steps.start_us[rows], steps.end_us[rows]
        inside = union(start_us, end_us).total_us
        times[OTHERS] += int(end_us.max() - start_us.min()) - inside
    return largest_first(times)


def _told(times: dict[str, int]) -> str:
    """``Step time: TRAIN 55.2 %, EVAL 3.7 %, outside of steps 41.1 %``."""
    parts = zip(times, apportion(list(times.values()), 100, 1), strict=True)
    names = {OTHERS: "outside of steps"}
    told = [f"{names.get(name) or shown(name.removeprefix(STEP))} {percent(part)}" for name, part in parts]
    return f"Step time: {', '.join(told)}"


def _basis(events: Events) -> dict[str, Any]:
    """What each table comes from: seconds in which such events ran, and the steps they name."""
    basis: dict[str, Any] = {}
    for name, kind in (("CPU", Kind.CPU), ("GPU", Kind.GPU), ("general", Kind.GENERAL)):
        part = events.where(rows_of(events, kind))
        if len(part):
            basis[name] = {"seconds": union(part.start_us, part.end_us).total_us / SECOND_US}
            steps = part.step[part.step >= 0]
            if len(steps):
                basis[name] |= {"first_step": int(steps.min()), "last_step": int(steps.max())}
    return basis
