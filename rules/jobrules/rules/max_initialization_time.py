"""MaxInitializationTime: first training step comes late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jobrules.measures.minutes import WIDTH_US
from jobrules.model import SECOND_US, HowMuch, Measure, When
from jobrules.rule import NO_STEPS, Role, Rule, minutes
from jobrules.text import duration

if TYPE_CHECKING:
    from jobrules.model import Job, RuleResult


@dataclass(frozen=True, kw_only=True)
class MaxInitializationTime(Rule):
    """First training step comes late.

    What it checks
        Whether any rank has started a step by the first one-minute check after ``threshold`` minutes. Needs recorded
        steps.

    Why it matters
        Machines cost money from the first minute, also while they download and compile.

    What to do
        * Stream or stage the data, use a smaller container image, and cache compiled kernels.
    """

    title: ClassVar[str] = "First training step comes late"
    section: ClassVar[str] = "summary"
    role: ClassVar[Role] = Role.START_UP
    of_work: ClassVar[bool] = False

    threshold: float = minutes(20.0, "time to the first step")

    def check(self, job: Job) -> RuleResult:
        """Counts are of checks, one per minute, after the threshold and before the first step."""
        steps_us = job.steps_us
        if not steps_us:
            # SageMaker Debugger's file has the job's first and last sample in any case.
            return self.not_evaluated(NO_STEPS, details={"step_num": {}} | job_bounds(job))
        start_us, end_us = job.span_us
        if job.samples_us:
            start_us = job.samples_us[0]
        first_us = steps_us[0]
        checks = (end_us - start_us) // WIDTH_US + 1
        # Check k comes k minutes after the start; those past the threshold and before the first step violate.
        late = range(
            int(self.threshold * 60 * SECOND_US) // WIDTH_US + 1, -(-(first_us - start_us) // WIDTH_US)
        )
        waited_us = max(0, first_us - start_us)
        part = waited_us / max(1, end_us - start_us)
        headline, measure = self.said(waited_us, self.threshold)
        step_num = {"first": first_us, "last": max(job.gathered(_last_start)), "last_end": steps_us[1]}
        facts: dict[str, Any] = {
            "measure": measure,
            "triggered": len(late),
            "violations": len(late),
            "datapoints": job.step_count,
            "evaluated": checks,
            "violating": len(late),
            "counted": "checks",
            "details": {"step_num": step_num} | job_bounds(job),
        }
        if not late:
            return self.passed(f"{headline} ({measure.limit_text})", **facts)
        finding = self.finding(
            headline,
            When(start_us, first_us),
            HowMuch("Share of the job", 100 * part, "%"),
            share=part,
            share_of="of the job",
            start_us=start_us,
            end_us=first_us,
        )
        return self.triggered(finding, first_us=start_us, last_us=first_us, **facts)

    @staticmethod
    def said(waited_us: float, threshold: float) -> tuple[str, Measure]:
        """The headline on a time to the first step, and that time next to a threshold in minutes."""
        measure = Measure(
            value=round(waited_us / WIDTH_US, 4),
            limits=(threshold,),
            bad="above",
            scale=max(2 * threshold, waited_us / WIDTH_US) or 1.0,
            unit="min",
            limit_text=f"threshold {threshold:g}\u00a0min",
        )
        return f"The first step started after {duration(waited_us)}", measure


def _last_start(part: Job) -> list[int]:
    """When the last step of a node began; empty without steps."""
    return [int(part.steps.start_us.max())] if len(part.steps) else []


def job_bounds(job: Job) -> dict[str, float]:
    """``job_start`` and ``job_end``: first and last sample in seconds; first and last record without samples."""
    start_us, end_us = job.samples_us or job.span_us
    return {"job_start": start_us / SECOND_US, "job_end": end_us / SECOND_US}
