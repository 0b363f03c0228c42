"""ThermalThrottling: heat slows a GPU, or the hardware without naming heat."""

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
from jobrules.model import SECOND_US, HowMuch, Metric, Note, Severity
from jobrules.model.claims import Precedence
from jobrules.rule import percent
from jobrules.rules.gpu_rule import GPURule, JudgedGPU
from jobrules.text import NBSP, capitalized, count, number, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.measures.gpu_conditions import GPU
    from jobrules.model import Finding, Job, Measure, RuleResult
    from jobrules.model.claims import Cause

HEAT, HARDWARE = Metric.GPU_THERMAL_SLOWDOWN, Metric.GPU_HARDWARE_SLOWDOWN
BRAKE_ADVICE = (
    "Ask the operator of the machine to check power supply, cables, and power brake.",
    "Without heat, they are what makes the hardware halve a GPU's clock.",
)
UNASKED_ADVICE = (
    "Record `clocks_event_reasons.active` with nvidia-smi, and check the temperature.",
    "If it is not heat, it is the power supply, its cables, or the power brake.",
)


class _Slowed(JudgedGPU, frozen=True, kw_only=True):
    """What slowed one GPU."""

    #: Heat, and the hardware without heat as a reason; the one that took the larger share of time.
    heat: ConditionTime
    brake: ConditionTime
    most: ConditionTime
    #: True if heat as a reason was recorded whenever the hardware slowed it.
    asked: bool
    #: Degrees Celsius; None if no temperature was sampled while heat slowed it.
    hottest: float | None
    #: Median clock while heat slowed it and otherwise, in MHz; None if not known.
    clocks: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class ThermalThrottling(GPURule[_Slowed]):
    """Heat slows a GPU.

    What it checks
        The share of a GPU's measured time in which the driver names heat as the reason for a lower clock. Triggers
        above ``threshold``. Other hardware slowdowns are reported separately.

    Why it matters
        The slowest GPU delays all others.

    What to do
        * Check fans, airflow, and dust.
        * Run the job on another machine to compare.
        * Meanwhile, lower the power limit.

    Details
        A hardware slowdown while the driver does not name heat, such as that of the power brake, has the same threshold.
        A temperature is no reason: without throttle reasons the rule is not evaluated.
    """

    title: ClassVar[str] = "Heat slows a GPU"
    section: ClassVar[str] = "power"
    sources: ClassVar[tuple[Metric, ...]] = (HEAT, HARDWARE)

    # A changing clock reports a hardware slowdown for a moment: with one change of clock every ten seconds of work,
    # 0.1% of the time. Heat lasts for minutes.
    threshold: float = percent(1.0, "share of a GPU's time")

    def _of_gpu(self, gpu: GPU) -> _Slowed:
        # A log that was started twice may have one reason first and the other one later.
        time_us, values = gpu.series(HEAT)
        brake_us, hardware = gpu.series(HARDWARE)
        # NaN > 0 is false: what was not sampled names nothing.
        hot, braked = values > 0, (hardware > 0) & ~(gpu.at(HEAT, brake_us) > 0)
        heat, brake = ConditionTime.of(gpu, time_us, hot), ConditionTime.of(gpu, brake_us, braked)
        most = max(heat, brake, key=lambda one: (one.judged, one.share, one.samples))
        warm = gpu.at(Metric.GPU_TEMPERATURE, time_us)[hot]
        hottest = float(np.nanmax(warm)) if not np.isnan(warm).all() else None
        clocks = gpu.clocks(time_us, hot)
        return _Slowed(
            node=gpu.node,
            device=gpu.device,
            samples=most.samples,
            reason=most.missing,
            hit=most.above(self.threshold),
            span_us=most.span_us,
            heat=heat,
            brake=brake,
            most=most,
            # A value in force is not enough: the reader leaves out what a log does not say.
            asked=bool(gpu.sampled(HEAT, brake_us)[braked].all()),
            hottest=hottest,
            clocks=clocks,
            details={
                "heat_s": round(heat.us / SECOND_US, 1),
                "heat_percent": round(100 * heat.share, 2),
                "hardware_not_heat_s": round(brake.us / SECOND_US, 1),
                "longest": heat.longest_us,
                "hottest": hottest,
                "clocks": clocks,
            },
        )

    def _measure(self, judged: Sequence[_Slowed]) -> Measure:
        return share_measure((gpu.most for gpu in judged), self.threshold)

    def _kept(self, judged: Sequence[_Slowed], found: Sequence[_Slowed], gpus: int) -> str:
        # A reason is named only if it was recorded.
        del judged
        heat = [gpu.heat for gpu in found if gpu.heat.judged]
        brake = [gpu.brake for gpu in found if gpu.brake.judged]
        if any(time.span_us for time in (*heat, *brake)):
            most = 100 * max(time.share for time in (*heat, *brake))
            recorded = as_far_as_recorded(len({time.name for time in (*heat, *brake)}), gpus)
            return f"Slowdowns took {at_most(most)} of any GPU's time{recorded}"
        if len(heat) == len(brake):
            return f"Neither heat nor hardware slowed any GPU{as_far_as_recorded(len(heat), gpus)}"
        kinds = ((len(heat), "heat"), (len(brake), "the hardware"))
        clauses = [f"{what} slowed no GPU{as_far_as_recorded(known, gpus)}" for known, what in kinds if known]
        return capitalized("; ".join(clauses))

    def _findings(self, hits: Sequence[_Slowed], found: Sequence[_Slowed], job: Job) -> list[Finding]:
        del found, job
        hot = [gpu for gpu in hits if gpu.heat.above(self.threshold)]
        braked = [gpu for gpu in hits if gpu.brake.above(self.threshold)]
        return [finding(gpus) for finding, gpus in ((self._heat, hot), (self._brake, braked)) if gpus]

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """What other GPUs lost while they waited for one that heat slowed."""
        return held_up(job, result, Precedence.HEAT, "while a GPU was slowed by heat", self.sources)

    def _heat(self, hot: Sequence[_Slowed]) -> Finding:
        worst = max(hot, key=lambda gpu: gpu.heat.share)
        hottest = [gpu.hottest for gpu in hot if gpu.hottest is not None]
        clocks = ("Median clock while heat slowed the GPU", "Median clock otherwise")
        return finding_of(
            self,
            f"Heat slowed {_slowed_for(hot, worst.heat.share, worst)}",
            [gpu.heat for gpu in hot],
            *([HowMuch("Highest temperature", max(hottest), "°C")] if hottest else ()),
            *(
                HowMuch(what, mhz, "MHz", of=worst.heat.label)
                for what, mhz in zip(clocks, worst.clocks or (), strict=False)
            ),
            severity=Severity.CRITICAL if worst.heat.share >= 0.5 else Severity.WARNING,
        )

    def _brake(self, braked: Sequence[_Slowed]) -> Finding:
        asked = all(gpu.asked for gpu in braked)
        slowed_for = _slowed_for(braked, max(gpu.brake.share for gpu in braked))
        return finding_of(
            self,
            f"The hardware slowed {slowed_for}{' without naming heat' if asked else ''}",
            [gpu.brake for gpu in braked],
            *(() if asked else [Note("Heat as a reason was not recorded all the time")]),
            key="hardware-slowdown",
            advice=BRAKE_ADVICE if asked else UNASKED_ADVICE,
        )


def _slowed_for(slowed: Sequence[_Slowed], part: float, hottest: _Slowed | None = None) -> str:
    """``node gpu2 to 870 MHz instead of 1,410 MHz for 61.8% of its time``, ``3 GPUs, the worst for 61.8% of its time``."""
    who = hottest.heat.label if hottest and len(slowed) == 1 else count(len(slowed), "GPU")
    worst = "" if len(slowed) == 1 else ", the worst"
    clocks = ""
    if hottest and hottest.clocks:
        slow, usual = (f"{number(mhz)}{NBSP}MHz" for mhz in hottest.clocks)
        clocks = f" to {slow} instead of {usual}"
    return f"{who}{worst}{clocks} for {share(part)} of its time"
