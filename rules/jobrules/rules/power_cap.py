"""PowerCap: GPU is at its power limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.gpu_conditions import (
    MIN_SAMPLES,
    ConditionTime,
    as_far_as_recorded,
    at_most,
    by_node,
    facts_of,
    finding_of,
    gpus,
)
from jobrules.measures.stragglers import held_up
from jobrules.model import SECOND_US, HowMuch, Metric, Note, Reason, ReasonKind, Severity
from jobrules.model.claims import Precedence
from jobrules.rule import Rule, not_recorded, percent, reason_few_samples
from jobrules.text import capitalized, share, some_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import Fact, Finding, Job, RuleResult
    from jobrules.model.claims import Cause

_DROPPED_ADVICE = (
    "Check whether someone lowered the power limit (`nvidia-smi -q -d POWER`).",
    "Compare it with the limits of other GPUs.",
)
_KEPT_ADVICE = ("Do nothing unless a clock dropped.",)
#: GPUs whose clocks the evidence names.
_MAX_NAMED = 4


@dataclass(frozen=True, kw_only=True)
class PowerCap(Rule):
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
    of_gpus: ClassVar[bool] = True
    section: ClassVar[str] = "power"

    # Eight GPUs of a real log were near their limit for 30% of the time; a GPU that draws 90% of it, with a standard
    # deviation of 3%, for 1%.
    threshold: float = percent(10.0, "share of a GPU's time")
    # At the limit, the draw of these eight swings from 97.5 to 99.2% of it.
    near_limit: float = percent(97.0, "draw that counts as near the limit")
    clock_drop: float = percent(90.0, "a clock below this share of the clock in other work has dropped")

    def check(self, job: Job) -> RuleResult:
        """Counts are of GPUs."""
        if not job.has(Metric.GPU_POWER_CAP) and not (
            job.has(Metric.GPU_POWER) and job.has(Metric.GPU_POWER_LIMIT)
        ):
            lacking = Metric.GPU_POWER_LIMIT if job.has(Metric.GPU_POWER) else Metric.GPU_POWER
            return self.not_evaluated(not_recorded(lacking))
        found = job.gathered(_capped, Clocks.of(job), self.near_limit)
        if not any(gpu.at_limit.covered_us for gpu in found):
            what = "GPU has samples of power and power limit at the same time"
            return self.not_evaluated(Reason(kind=ReasonKind.NO_DEVICE, what=what))
        capped = [gpu for gpu in found if gpu.at_limit.judged and 100 * gpu.at_limit.share > self.threshold]
        details = by_node((gpu.node, gpu.device, gpu.details) for gpu in found)
        facts = facts_of(
            [gpu.at_limit for gpu in found], {gpu.at_limit.name for gpu in capped}, self.threshold
        )
        facts |= {"details": details}
        judged = [gpu.at_limit for gpu in found if gpu.at_limit.judged]
        if not judged:
            return self.not_evaluated(reason_few_samples(facts["datapoints"], MIN_SAMPLES - 1), **facts)
        if not capped:
            most = at_most(100 * max(time.share for time in judged))
            headline = f"GPUs were at their power limit for {most} of their time"
            if not any(time.span_us for time in judged):
                headline = "No GPU was at its power limit"
            recorded = as_far_as_recorded(len(judged), job.gpu_count + job.gpus_unknown)
            return self.passed(f"{headline}{recorded}", **facts)
        return self.triggered(self._finding(capped, job.gpu_count + job.gpus_unknown), **facts)

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """What other GPUs lost while they waited for one that its power limit slowed."""
        return held_up(
            job,
            result,
            Precedence.POWER_LIMIT,
            "while a GPU was at its power limit",
            (Metric.GPU_POWER_CAP,),
        )

    def _finding(self, capped: Sequence[_Capped], gpus: int) -> Finding:
        dropped = [gpu for gpu in capped if gpu.dropped(self.clock_drop)]
        clocks: list[Fact] = [
            HowMuch(what, mhz, "MHz", of=gpu.at_limit.label)
            for gpu in (dropped or capped)[:_MAX_NAMED]
            if gpu.clocks
            for what, mhz in zip(
                ("Median clock at the limit", "In other work" if gpu.at_work else "Otherwise"),
                gpu.clocks,
                strict=True,
            )
        ]
        one = len(capped) == 1
        where = (
            f"{'at' if all(gpu.named for gpu in capped) else 'near'} {'its' if one else 'their'} power limit"
        )
        part = share(max(gpu.at_limit.share for gpu in capped))
        lasted = f"for {part} of its time" if one else f"the worst for {part} of its time"
        title = (
            f"{capitalized(some_of(len(capped), gpus, 'GPU'))} {'was' if one else 'were'} {where}"
            f"{' ' if one else ', '}{lasted}"
        )
        return finding_of(
            self,
            title + (f", and {'its clock' if one else 'clocks'} dropped" if dropped else ""),
            [gpu.at_limit for gpu in capped],
            *(clocks or [Note("Whether the clock dropped is not known")]),
            severity=Severity.WARNING if dropped else Severity.INFO,
            advice=_DROPPED_ADVICE[: None if gpus > 1 else 1] if dropped else _KEPT_ADVICE,
        )


class _Capped(Struct, frozen=True, kw_only=True):
    """One GPU and its power limit."""

    node: str
    device: str
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
    def details(self) -> dict[str, Any]:
        """For the JSON."""
        return {
            "basis": "reason" if self.named else "draw near the limit",
            "seconds": round(self.at_limit.us / SECOND_US, 1),
            "percent": round(100 * self.at_limit.share, 2),
            "longest": self.at_limit.longest_us,
            "clocks": self.clocks,
        }


def _capped(part: Job, clocks: Clocks, near: float) -> Iterator[_Capped]:
    for gpu in gpus(part, clocks, Metric.GPU_POWER_CAP, Metric.GPU_POWER):
        time_us, values = gpu.series(Metric.GPU_POWER_CAP)
        part_held = values / 100
        named = len(time_us) > 0
        if not named:
            time_us, values = gpu.series(Metric.GPU_POWER)
            limit = gpu.at(Metric.GPU_POWER_LIMIT, time_us)
            known = limit > 0  # not NaN
            time_us, part_held = time_us[known], (values[known] >= near / 100 * limit[known]).astype(float)
        if len(time_us):
            yield _Capped(
                node=gpu.node,
                device=gpu.device,
                at_limit=ConditionTime.of(gpu, time_us, part_held),
                named=named,
                clocks=gpu.clocks(time_us, part_held >= 0.5),
                at_work=not np.isnan(gpu.at(Metric.GPU_UTILIZATION, time_us)).any(),
            )
