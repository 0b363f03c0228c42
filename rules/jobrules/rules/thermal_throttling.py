"""ThermalThrottling: heat slows a GPU, or the hardware without naming heat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

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
from jobrules.model import SECOND_US, HowMuch, Metric, Note, Severity
from jobrules.model.claims import Precedence
from jobrules.rule import Rule, not_recorded, percent, reason_few_samples
from jobrules.text import capitalized, count, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import Finding, Job, RuleResult
    from jobrules.model.claims import Cause

BRAKE_ADVICE = (
    "Ask the operator of the machine to check power supply, cables, and power brake.",
    "Without heat, they are what makes the hardware halve a GPU's clock.",
)
UNASKED_ADVICE = (
    "Record `clocks_event_reasons.active` with nvidia-smi, and check the temperature.",
    "If it is not heat, it is the power supply, its cables, or the power brake.",
)


@dataclass(frozen=True, kw_only=True)
class ThermalThrottling(Rule):
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
    of_gpus: ClassVar[bool] = True
    section: ClassVar[str] = "power"

    # A changing clock reports a hardware slowdown for a moment: with one change of clock every ten seconds of work,
    # 0.1% of the time. Heat lasts for minutes.
    threshold: float = percent(1.0, "share of a GPU's time")

    def check(self, job: Job) -> RuleResult:
        """Counts are of GPUs."""
        if not (job.has(Metric.GPU_THERMAL_SLOWDOWN) or job.has(Metric.GPU_HARDWARE_SLOWDOWN)):
            return self.not_evaluated(not_recorded(Metric.GPU_THERMAL_SLOWDOWN))
        found = job.gathered(_slowed, Clocks.of(job))
        hot = [gpu for gpu in found if gpu.heat.judged and 100 * gpu.heat.share > self.threshold]
        braked = [gpu for gpu in found if gpu.brake.judged and 100 * gpu.brake.share > self.threshold]
        hits = {gpu.heat.name for gpu in (*hot, *braked)}
        details = by_node((gpu.node, gpu.device, gpu.details) for gpu in found)
        facts = facts_of([gpu.most for gpu in found], hits, self.threshold) | {"details": details}
        if not facts["evaluated"]:
            return self.not_evaluated(reason_few_samples(facts["datapoints"], MIN_SAMPLES - 1), **facts)
        if not hits:
            return self.passed(_passed(found, job.gpu_count + job.gpus_unknown), **facts)
        findings = [
            finding(slowed) for finding, slowed in ((self._heat, hot), (self._brake, braked)) if slowed
        ]
        return replace(self.triggered(findings[0], **facts), findings=tuple(findings))

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """What other GPUs lost while they waited for one that heat slowed."""
        return held_up(
            job,
            result,
            Precedence.HEAT,
            "while a GPU was slowed by heat",
            (Metric.GPU_THERMAL_SLOWDOWN, Metric.GPU_HARDWARE_SLOWDOWN),
        )

    def _heat(self, hot: Sequence[_Slowed]) -> Finding:
        worst = max(hot, key=lambda gpu: gpu.heat.share)
        hottest = [gpu.hottest for gpu in hot if gpu.hottest is not None]
        return finding_of(
            self,
            f"Heat slowed {_slowed_for(hot, worst.heat.share)}",
            [gpu.heat for gpu in hot],
            *([HowMuch("Highest temperature", max(hottest), "°C")] if hottest else ()),
            *worst.clock_facts,
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


def _slowed_for(slowed: Sequence[_Slowed], part: float) -> str:
    """``1 GPU for 61.8% of its time``, ``3 GPUs, the worst for 61.8% of its time``."""
    worst = "" if len(slowed) == 1 else ", the worst"
    return f"{count(len(slowed), 'GPU')}{worst} for {share(part)} of its time"


class _Slowed(Struct, frozen=True, kw_only=True):
    """What slowed one GPU."""

    node: str
    device: str
    #: Heat, and the hardware without heat as a reason.
    heat: ConditionTime
    brake: ConditionTime
    #: True if heat as a reason was recorded whenever the hardware slowed it.
    asked: bool
    #: Degrees Celsius; None if no temperature was sampled while heat slowed it.
    hottest: float | None
    #: Median clock while heat slowed it and otherwise, in MHz; None if not known.
    clocks: tuple[float, float] | None

    @property
    def most(self) -> ConditionTime:
        """The one that took the larger share of time."""
        return max(self.heat, self.brake, key=lambda one: (one.judged, one.share, one.samples))

    @property
    def clock_facts(self) -> list[HowMuch]:
        """Its median clock while heat slowed it and otherwise; empty if not known."""
        if self.clocks is None:
            return []
        names = ("Median clock while heat slowed the GPU", "Median clock otherwise")
        return [
            HowMuch(what, mhz, "MHz", of=self.heat.label)
            for what, mhz in zip(names, self.clocks, strict=True)
        ]

    @property
    def details(self) -> dict[str, Any]:
        """For the JSON."""
        return {
            "heat_s": round(self.heat.us / SECOND_US, 1),
            "heat_percent": round(100 * self.heat.share, 2),
            "hardware_not_heat_s": round(self.brake.us / SECOND_US, 1),
            "longest": self.heat.longest_us,
            "hottest": self.hottest,
            "clocks": self.clocks,
        }


def _slowed(part: Job, clocks: Clocks) -> Iterator[_Slowed]:
    for gpu in gpus(part, clocks, Metric.GPU_THERMAL_SLOWDOWN, Metric.GPU_HARDWARE_SLOWDOWN):
        # A log that was started twice may have one reason first and the other one later.
        time_us, values = gpu.series(Metric.GPU_THERMAL_SLOWDOWN)
        brake_us, hardware = gpu.series(Metric.GPU_HARDWARE_SLOWDOWN)
        heat, named = values > 0, gpu.at(Metric.GPU_THERMAL_SLOWDOWN, brake_us)
        # NaN > 0 is false: what was not sampled names nothing.
        brake = (hardware > 0) & ~(named > 0)
        warm = gpu.at(Metric.GPU_TEMPERATURE, time_us)[heat]
        warm = warm[~np.isnan(warm)]
        yield _Slowed(
            node=gpu.node,
            device=gpu.device,
            heat=ConditionTime.of(gpu, time_us, heat),
            brake=ConditionTime.of(gpu, brake_us, brake),
            # A value in force is not enough: the reader leaves out what a log does not say.
            asked=bool(gpu.sampled(Metric.GPU_THERMAL_SLOWDOWN, brake_us)[brake].all()),
            hottest=float(warm.max()) if len(warm) else None,
            clocks=gpu.clocks(time_us, heat),
        )


def _passed(found: Sequence[_Slowed], gpus: int) -> str:
    """Headline without a finding; names a reason only if it was recorded."""
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
