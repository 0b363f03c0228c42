"""UnusedGPU: GPU is unused."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.work import Work, gpu_use, use_in_work
from jobrules.measures.work_span import IDLE_PERCENT
from jobrules.model import SECOND_US, DeviceStatus, Measure, Metric
from jobrules.model.claims import Cause, Precedence, moments
from jobrules.rule import Role, Rule, minutes, percent, reason_short
from jobrules.text import capitalized, share, some_of, without_check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Finding, FloatArray, Job, Panel, RuleResult
    from jobrules.model.claims import Claim, Claimed, Samples


#: A GPU is almost unused only if another is active for so many times the threshold.
MUCH = 5


@dataclass(frozen=True, kw_only=True)
class UnusedGPU(Rule):
    """GPU is unused.

    What it checks
        The share of a GPU's measured time with utilization of 10% or more. Triggers below ``threshold``. Needs
        ``patience`` minutes.

    Why it matters
        An unused GPU costs as much as a busy one, and blocks other users.

    What to do
        * Start one process per GPU, each on its own device.
        * Otherwise use a machine with fewer GPUs.

    Details
        A GPU without a sample of 10% and with at most four above 1% was never used. GPUs without samples of utilization, such as parts of a divided
        GPU (MIG), are not evaluated: not recorded is not 0.
    """

    title: ClassVar[str] = "GPU is unused"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION,)
    section: ClassVar[str] = "gpu-utilization"
    role: ClassVar[Role] = Role.CAUSE
    of_work: ClassVar[bool] = False

    threshold: float = percent(5.0, "a GPU active for less of its time is unused")
    patience: float = minutes(15.0, "measured time before the first check")

    def check(self, job: Job) -> RuleResult:
        """Counts are of GPUs."""
        gpus = job.gathered(gpu_use, Clocks.of(job))
        least_us = self.patience * 60 * SECOND_US
        judged = [gpu for gpu in gpus if gpu.measured_us >= least_us]
        if not judged:
            longest = max(gpu.measured_us for gpu in gpus)
            return self.not_evaluated(reason_short(longest, self.patience))
        idle = [gpu for gpu in judged if 100 * gpu.active < self.threshold]
        never = [gpu for gpu in idle if not gpu.worked]
        almost = sorted((gpu for gpu in idle if gpu.worked), key=lambda gpu: gpu.active)
        names = {gpu.name for gpu in idle}
        facts: dict[str, Any] = {
            "evaluated": len(judged),
            "violating": len(idle),
            "counted": "GPUs",
            "devices": tuple(
                DeviceStatus.of(
                    gpu.name,
                    reason_short(gpu.measured_us, self.patience),
                    int(gpu.measured_us >= least_us),
                    int(gpu.name in names),
                )
                for gpu in gpus
            ),
            "measure": Measure(
                value=round(100 * min(gpu.active for gpu in judged), 1),
                limits=(self.threshold,),
                bad="below",
                scale=100.0,
                unit="% of the time active, least active GPU",
                limit_text=f"threshold {self.threshold:g}%",
            ),
        }
        if not idle:
            who = "Every GPU" if len(gpus) + job.gpus_unknown > 1 else "The GPU"
            least = f"at least {share(min(gpu.active for gpu in judged))} of the time"
            limit = without_check(len(gpus) - len(judged) + job.gpus_unknown, "GPU")
            return self.passed(f"{who} was active {least} (threshold {self.threshold:g}%){limit}", **facts)
        every, titles = len(gpus) + job.gpus_unknown, []
        if never:
            titles.append(never_used(len(never), every))
        if almost:
            active = f"active {share(almost[0].active)} of the time"
            titles.append(f"{_which(len(almost), every)} almost unused ({active})")
        details = {gpu.name: {"at_work": gpu.active, "gpu_max": gpu.highest} for gpu in idle}
        headline = "; ".join(titles)
        return self.triggered(headline, triggered=len(idle), violations=len(idle), details=details, **facts)

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """GPUs that were active for less of the work than ``threshold`` while another was active for much more."""
        work = Work.of(job)
        if work is None:
            return ()
        most = max((gpu.active for gpu in job.gathered(use_in_work, work)), default=0.0)
        if 100 * most < MUCH * self.threshold:
            return ()
        return (
            Cause(
                key="unused-gpu",
                precedence=Precedence.NEVER_USED,
                when="on almost unused GPUs",
                claim=partial(_almost_unused, self.threshold),
                finding=partial(self._almost, result, job.gpu_count + job.gpus_unknown),
            ),
        )

    def _almost(self, result: RuleResult, gpus: int, claimed: Claimed) -> Finding:
        active = f"active less than {self.threshold:g}% of it"
        return self.finding(
            f"{_which(len(claimed.devices), gpus)} almost unused during the work ({active})",
            *moments(claimed, result, claimed.names),
            devices=claimed.devices,
        )


def never_used(n: int, gpus: int) -> str:
    """``2 of 8 GPUs were never used``, ``All 8 GPUs were never used``; ``The GPU was never used`` if there is only one."""
    return f"{_which(n, gpus)} never used"


def _which(n: int, gpus: int) -> str:
    who = "The GPU" if gpus == 1 else capitalized(some_of(n, gpus, "GPU"))
    return f"{who} {'was' if n == 1 else 'were'}"


def _almost_unused(threshold: float, part: Job, panel: Panel, weight_us: FloatArray) -> Claim:
    """Claim all that a GPU lost in the work, if it was hardly active in it."""
    del part, panel, weight_us

    def claim(gpus: Sequence[Samples]) -> Sequence[FloatArray]:
        return [gpu.left_us if 100 * _active(gpu) < threshold else np.zeros(len(gpu.values)) for gpu in gpus]

    return claim


def _active(gpu: Samples) -> float:
    """Share of the work in which a GPU was active."""
    active_us = float(gpu.weight_us[gpu.in_work & (gpu.values >= IDLE_PERCENT)].sum())
    return active_us / gpu.work_us if gpu.work_us else 1.0
