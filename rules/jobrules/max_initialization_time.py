"""MaxInitializationTime: the first training step comes late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jobrules.measures.minutes import WIDTH_US
from jobrules.model import SECOND_US, Measure
from jobrules.rule import Rule, minutes
from jobrules.text import between, duration, share

if TYPE_CHECKING:
    from jobrules.model import Job, RuleResult


@dataclass(frozen=True, kw_only=True)
class MaxInitializationTime(Rule):
    """The first training step comes late.

    What it checks
        Looks once a minute, from the job's first sample on: triggers when a look more than
        ``threshold`` minutes after the start still finds no step of any worker. Not evaluated
        without step events: then the end of the start-up is unknown.

    Why it matters
        Machines are paid for from the first minute, also while they download and compile.

    What to do
        Stream the data or stage it beforehand, use a smaller container image, cache compiled
        kernels and graphs.
    """

    title: ClassVar[str] = "The first training step comes late"
    section: ClassVar[str] = "summary"

    threshold: float = minutes(20.0, "time to the first step")

    def check(self, job: Job) -> RuleResult:
        """Counts are of one-minute scans after the limit that still saw no step."""
        steps_us = job.steps_us
        if not steps_us:
            # The vendor's file carries the job's first and last sample whatever the rule says.
            return self.not_evaluated("no step events", details={"step_num": {}} | job_bounds(job))
        start_us, end_us = job.span_us
        if job.samples_us:
            start_us = job.samples_us[0]
        first_us = steps_us[0]
        scans = (end_us - start_us) // WIDTH_US + 1
        # Scan k begins k minutes after the start; those past the limit and before the first step violate.
        late = range(
            int(self.threshold * 60 * SECOND_US) // WIDTH_US + 1, -(-(first_us - start_us) // WIDTH_US)
        )
        waited_us = max(0, first_us - start_us)
        part = waited_us / max(1, end_us - start_us)
        told = f"The first step came after {duration(waited_us)}"
        step_num = {"first": first_us, "last": max(job.gathered(_last_start)), "last_end": steps_us[1]}
        if job.step_count == 1:
            del step_num["last"]
        facts: dict[str, Any] = {
            "measure": Measure(
                value=round(waited_us / WIDTH_US, 4),
                limits=(self.threshold,),
                scale=max(2 * self.threshold, waited_us / WIDTH_US) or 1.0,
                unit="min",
                limit_text=f"limit {self.threshold:g}\u00a0min",
            ),
            "triggered": len(late),
            "violations": len(late),
            "datapoints": job.step_count,
            "evaluated": scans,
            "violating": len(late),
            "counted": "one-minute scans",
            "details": {"step_num": step_num} | job_bounds(job),
        }
        if not late:
            return self.passed(told, **facts)
        finding = self.finding(
            told,
            f"{between(start_us, first_us)}, {share(part)} of the job.",
            share=part,
            share_of="of the job",
            start_us=start_us,
            end_us=first_us,
        )
        return self.triggered(finding, first_us=start_us, last_us=first_us, **facts)


def _last_start(part: Job) -> list[int]:
    """When the last step of a node began; empty without steps."""
    return [int(part.steps.start_us.max())] if len(part.steps) else []


def job_bounds(job: Job) -> dict[str, float]:
    """``job_start`` and ``job_end``: first and last sample in seconds; empty without samples."""
    if job.samples_us is None:
        return {}
    return {"job_start": job.samples_us[0] / SECOND_US, "job_end": job.samples_us[1] / SECOND_US}
