"""PowerCap: GPU is at its power limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from jobrules.causes.held_up import held_up
from jobrules.measures.gpu_conditions import (
    ConditionTime,
    as_far_as_recorded,
    at_most,
    finding_of,
    share_measure,
)
from jobrules.model import SECOND_US, HowMuch, Metric, Note, Reason, ReasonKind, Severity
from jobrules.model.claims import Precedence
from jobrules.rule import not_recorded, percent
from jobrules.rules.gpu_rule import GPURule, JudgedGPU
from jobrules.text import capitalized, share, some_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.measures.gpu_conditions import GPU
    from jobrules.model import Fact, Finding, Job, Measure, RuleResult
    from jobrules.model.claims import Cause

_DROPPED_ADVICE = (
    "Check whether someone lowered the power limit (`nvidia-smi -q -d POWER`).",
    "Compare it with the limits of other GPUs.",
)
_KEPT_ADVICE = ("Do nothing unless a clock dropped.",)
#: GPUs whose clocks the evidence names.
_MAX_NAMED = 4


_UNSAMPLED = Reason(
    kind=ReasonKind.NO_DEVICE, what="GPU has samples of power and power limit at the same time"
)


class _Capped(JudgedGPU, frozen=True, kw_only=True):
    """One GPU and its power limit."""

    #: When it was at the limit; True if the driver says so, False if its draw was near the limit.
    at_limit: ConditionTime
    named: bool
    #: Median clock at the limit and otherwise, in MHz; None if not known.
    clocks: tuple[float, float] | None
    #: True if the other clocks are those of work; without samples of utilization they may be those of an idle GPU.
    at_work: bool

    def dropped(self, limit: float) -> bool:
        """True if the clock at the power limit was below ``limit`` percent of the other clock."""
        return self.clocks is not None and self.clocks[0] < limit / 100 * self.clocks[1]

    @property
    def clock_facts(self) -> list[HowMuch]:
        """Both clocks; empty if not known."""
        names = ("Median clock at the limit", "In other work" if self.at_work else "Otherwise")
        return [
            HowMuch(what, mhz, "MHz", of=self.at_limit.label)
            for what, mhz in zip(names, self.clocks or (), strict=False)
        ]


@dataclass(frozen=True, kw_only=True)
class PowerCap(GPURule[_Capped]):
    """GPU is at its power limit.

    What it checks
        The share of a GPU's time in which the driver names the power limit (no reasons: draws ``near_limit`` of the
        limit). Triggers above ``threshold``; warning if the clock drops below ``clock_drop``.

    Why it matters
        A GPU at its limit is often just busy. With a lower clock it computes less.

    What to do
        * If the clock dropped, compare the limit with other GPUs.
        * Otherwise do nothing.

    Details
        A share per sample, as dmon gives it, counts as that share. Someone may have lowered the limit. Smaller number
        formats and fewer memory accesses draw less power for the same work.
    """

    title: ClassVar[str] = "GPU is at its power limit"
    section: ClassVar[str] = "power"
    sources: ClassVar[tuple[Metric, ...]] = (Metric.GPU_POWER_CAP, Metric.GPU_POWER)

    # Eight GPUs of a real log were near their limit for 30% of the time; a GPU that draws 90% of it, with a standard
    # deviation of 3%, for 1%.
    threshold: float = percent(10.0, "share of a GPU's time")
    # At the limit, the draw of these eight swings from 97.5 to 99.2% of it.
    near_limit: float = percent(97.0, "draw that counts as near the limit")
    clock_drop: float = percent(90.0, "a clock below this share of the clock in other work has dropped")

    def _gather(self, job: Job) -> list[_Capped] | Reason:
        # Without reasons of the driver both power and its limit are needed.
        needed = () if job.has(Metric.GPU_POWER_CAP) else (Metric.GPU_POWER, Metric.GPU_POWER_LIMIT)
        if lacking := next((metric for metric in needed if not job.has(metric)), None):
            return not_recorded(lacking)
        found = super()._gather(job)
        if isinstance(found, Reason) or any(gpu.at_limit.covered_us for gpu in found):
            return found
        return _UNSAMPLED

    def _of_gpu(self, gpu: GPU) -> _Capped | None:
        time_us, values = gpu.series(Metric.GPU_POWER_CAP)
        part, named = values / 100, len(time_us) > 0
        if not named:
            time_us, values = gpu.series(Metric.GPU_POWER)
            limit = gpu.at(Metric.GPU_POWER_LIMIT, time_us)
            known = limit > 0  # not NaN
            time_us = time_us[known]
            part = (values[known] >= self.near_limit / 100 * limit[known]).astype(float)
        if not len(time_us):
            return None
        held, clocks = ConditionTime.of(gpu, time_us, part), gpu.clocks(time_us, part >= 0.5)
        return _Capped(
            node=gpu.node,
            device=gpu.device,
            samples=held.samples,
            reason=held.missing,
            hit=held.above(self.threshold),
            span_us=held.span_us,
            at_limit=held,
            named=named,
            clocks=clocks,
            at_work=not np.isnan(gpu.at(Metric.GPU_UTILIZATION, time_us)).any(),
            details={
                "basis": "reason" if named else "draw near the limit",
                "seconds": round(held.us / SECOND_US, 1),
                "percent": round(100 * held.share, 2),
                "longest": held.longest_us,
                "clocks": clocks,
            },
        )

    def _measure(self, judged: Sequence[_Capped]) -> Measure:
        return share_measure((gpu.at_limit for gpu in judged), self.threshold)

    def _kept(self, judged: Sequence[_Capped], found: Sequence[_Capped], gpus: int) -> str:
        del found
        most = at_most(100 * max(gpu.at_limit.share for gpu in judged))
        who, its = ("The GPU was", "its") if gpus == 1 else ("GPUs were", "their")
        headline = f"{who} at {its} power limit for {most} of {its} time"
        if not any(gpu.at_limit.span_us for gpu in judged):
            headline = "No GPU was at its power limit"
        return f"{headline}{as_far_as_recorded(len(judged), gpus)}"

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """What other GPUs lost while they waited for one that its power limit slowed."""
        return held_up(
            job, result, Precedence.POWER_LIMIT, "while a GPU was at its power limit", self.sources[:1]
        )

    def _findings(self, hits: Sequence[_Capped], found: Sequence[_Capped], job: Job) -> list[Finding]:
        del found
        dropped = [gpu for gpu in hits if gpu.dropped(self.clock_drop)]
        clocks: list[Fact] = [fact for gpu in (dropped or hits)[:_MAX_NAMED] for fact in gpu.clock_facts]
        gpus, one = job.gpu_count + job.gpus_unknown, len(hits) == 1
        where = (
            f"{'at' if all(gpu.named for gpu in hits) else 'near'} {'its' if one else 'their'} power limit"
        )
        part = share(max(gpu.at_limit.share for gpu in hits))
        lasted = f"for {part} of its time" if one else f"the worst for {part} of its time"
        title = (
            f"{capitalized(some_of(len(hits), gpus, 'GPU'))} {'was' if one else 'were'} {where}"
            f"{' ' if one else ', '}{lasted}"
        )
        return [
            finding_of(
                self,
                title + (f", and {'its clock' if one else 'clocks'} dropped" if dropped else ""),
                [gpu.at_limit for gpu in hits],
                *(clocks or [Note("Whether the clock dropped is not known")]),
                severity=Severity.WARNING if dropped else Severity.INFO,
                advice=_DROPPED_ADVICE[: None if gpus > 1 else 1] if dropped else _KEPT_ADVICE,
            )
        ]
