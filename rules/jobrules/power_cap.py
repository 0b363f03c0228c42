"""PowerCap: a GPU's power limit holds its clock back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.gpu_conditions import (
    LEAST_SAMPLES,
    ConditionTime,
    as_far_as_recorded,
    at_most,
    by_node,
    facts_of,
    finding_of,
    gpus,
    join_first,
)
from jobrules.model import SECOND_US, Metric, Severity
from jobrules.rule import Rule, percent, reason_few_samples
from jobrules.text import count, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import Finding, Job, RuleResult


@dataclass(frozen=True, kw_only=True)
class PowerCap(Rule):
    """The power limit holds a GPU back.

    What it checks
        The share of each GPU's measured time in which the driver names the power limit as the reason
        for the clock: triggers above ``threshold``. Where the tool gives a share of each sample's time, as
        dmon does, that share counts. Where no reasons were sampled, the time in which it drew ``near_limit`` of
        its limit or more, which is called that. A warning where the clock then was below ``clock_drop`` of what
        it was while the GPU worked freely, else for information.

    Why it matters
        A GPU at its limit is often one that is fully used, which is what it was bought for. Where its
        clock falls, it computes less than it could.

    What to do
        Where the clock fell, compare the limit with that of the model and of the other GPUs: someone may
        have lowered it. Smaller number formats and fewer memory accesses draw less for the same work.
        Where it did not fall, there is nothing to do.
    """

    title: ClassVar[str] = "The power limit holds a GPU back"
    section: ClassVar[str] = "power"

    # Ours, as the others; tests/rules/test_power_cap.py checks them. Eight GPUs of a real log were near their limit
    # for 30 % of the time; one that draws nine tenths of it, give or take three percent, for 1 %.
    threshold: float = percent(10.0, "share of a GPU's time in which it is at its power limit")
    # At the limit the draw of these eight swings from 97.5 to 99.2 % of it: judged by 98 % they seem to differ.
    near_limit: float = percent(97.0, "a draw of this much of the limit is near it")
    clock_drop: float = percent(90.0, "a clock below this much of the one in free work has fallen")

    def check(self, job: Job) -> RuleResult:
        """Counts are of GPUs."""
        if not job.has(Metric.GPU_POWER_CAP) and not (
            job.has(Metric.GPU_POWER) and job.has(Metric.GPU_POWER_LIMIT)
        ):
            known = job.has(Metric.GPU_POWER)
            lack = "power was sampled, but neither its limit nor why clocks were low"
            return self.not_evaluated(lack if known else f"{Metric.GPU_POWER.label} was not sampled")
        found = job.gathered(_capped, Clocks.of(job), self.near_limit)
        if not any(gpu.at_limit.covered_us for gpu in found):
            return self.not_evaluated("no GPU's power and its limit were sampled together over time")
        capped = [gpu for gpu in found if gpu.at_limit.judged and 100 * gpu.at_limit.share > self.threshold]
        details = by_node((gpu.node, gpu.device, gpu.details) for gpu in found)
        facts = facts_of(
            [gpu.at_limit for gpu in found], {gpu.at_limit.name for gpu in capped}, self.threshold
        )
        facts |= {"details": details}
        judged = [gpu.at_limit for gpu in found if gpu.at_limit.judged]
        if not judged:
            return self.not_evaluated(reason_few_samples(facts["datapoints"], LEAST_SAMPLES - 1), **facts)
        if not capped:
            most = at_most(100 * max(spell.share for spell in judged))
            told = f"GPUs were at their power limit for {most} of the time of any at most"
            told = told if any(spell.span_us for spell in judged) else "No GPU was at its power limit"
            return self.passed(
                told + as_far_as_recorded(len(judged), job.gpu_count + job.gpus_unknown), **facts
            )
        return self.triggered(self._finding(capped, found), **facts)

    def _finding(self, capped: Sequence[_Capped], found: Sequence[_Capped]) -> Finding:
        fell = [gpu for gpu in capped if gpu.fell(self.clock_drop)]
        clocks = [
            f"{gpu.at_limit.called} {gpu.clocks[0]:.0f}\u00a0MHz then, {gpu.clocks[1]:.0f}\u00a0MHz {'in other work' if gpu.at_work else 'else'}"
            for gpu in fell or capped
            if gpu.clocks
        ]
        state = "held by the power limit" if all(gpu.named for gpu in capped) else "near the power limit"
        part = share(max(gpu.at_limit.share for gpu in capped))
        one = len(capped) == 1
        title = f"{count(len(capped), 'GPU')} {'was' if one else 'were'} {state}"
        title += f" for {part} of {'its time' if one else 'the time of the worst'}"
        return finding_of(
            self,
            title + (", and the clock fell" if fell else ""),
            [gpu.at_limit for gpu in capped],
            [gpu.at_limit for gpu in found],
            [f"median clock: {join_first(clocks)}" if clocks else "whether the clock fell is not known"],
            severity=Severity.WARNING if fell else Severity.INFO,
        )


class _Capped(Struct, frozen=True, kw_only=True):
    """One GPU and its power limit."""

    node: str
    device: str
    #: When it was at the limit, and whether the driver says so; else its draw was near it.
    at_limit: ConditionTime
    named: bool
    #: Median clock at the limit and in other work, in MHz; none where that cannot be told.
    clocks: tuple[float, float] | None
    #: Whether the clocks are those of work: where its use is not known, the others may be those of an idle GPU.
    at_work: bool

    def fell(self, limit: float) -> bool:
        """Whether the clock at the power limit was below so many percent of that in other work."""
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
