"""ThermalThrottling: heat, or the hardware where it names no heat, slows a GPU down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

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
)
from jobrules.model import SECOND_US, Metric, Severity
from jobrules.rule import Rule, percent, reason_few_samples
from jobrules.text import count, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import Finding, Job, RuleResult

BRAKE_ADVICE = (
    "Ask who runs the machine to look at power supply, cables and power brake: apart from heat they are what "
    "makes the hardware halve a GPU's clock."
)
UNASKED_ADVICE = (
    "Have the reasons logged that tell heat apart (clocks_event_reasons.active of nvidia-smi), and look at the "
    "temperature. If it is not heat, it is the power supply, its cables or the power brake."
)


@dataclass(frozen=True, kw_only=True)
class ThermalThrottling(Rule):
    """Heat slows a GPU down.

    What it checks
        The share of each GPU's measured time in which the driver names heat as the reason for a lower
        clock: triggers above ``threshold``. A slowdown by the hardware at moments without such a reason, as
        by the power brake, is told apart, above the same limit. A temperature alone is no reason: without
        the reasons the rule is not evaluated.

    Why it matters
        Where GPUs train together, all wait for the slowest one. Heat also wears the hardware.

    What to do
        Look at fans, air flow, dust and the air that comes in. Run the job on another machine to see
        whether the slowdown stays behind. Until then a lower power limit costs less than heat does.
    """

    title: ClassVar[str] = "Heat slows a GPU down"
    section: ClassVar[str] = "power"

    # Ours. A changing clock reports a slowdown by the hardware for a moment, which few samples meet: with one
    # change of clock every ten seconds of work it was 0.1 % of the time. Heat lasts for minutes.
    threshold: float = percent(1.0, "share of a GPU's time in which heat slows it")

    def check(self, job: Job) -> RuleResult:
        """Counts are of GPUs."""
        if not (job.has(Metric.GPU_THERMAL_SLOWDOWN) or job.has(Metric.GPU_HARDWARE_SLOWDOWN)):
            known = job.has(Metric.GPU_TEMPERATURE)
            lack = "temperatures were sampled, but not why clocks were low"
            return self.not_evaluated(
                lack if known else f"{Metric.GPU_THERMAL_SLOWDOWN.label} was not sampled"
            )
        found = job.gathered(_slowed, Clocks.of(job))
        hot = [gpu for gpu in found if gpu.heat.judged and 100 * gpu.heat.share > self.threshold]
        braked = [gpu for gpu in found if gpu.brake.judged and 100 * gpu.brake.share > self.threshold]
        hits = {gpu.heat.name for gpu in (*hot, *braked)}
        details = by_node((gpu.node, gpu.device, gpu.details) for gpu in found)
        facts = facts_of([gpu.most for gpu in found], hits, self.threshold) | {"details": details}
        if not facts["evaluated"]:
            return self.not_evaluated(reason_few_samples(facts["datapoints"], LEAST_SAMPLES - 1), **facts)
        if not hits:
            return self.passed(_passed(found, job.gpu_count + job.gpus_unknown), **facts)
        findings = [tell(told, found) for tell, told in ((self._heat, hot), (self._brake, braked)) if told]
        return replace(self.triggered(findings[0], **facts), findings=tuple(findings))

    def _heat(self, hot: Sequence[_Slowed], found: Sequence[_Slowed]) -> Finding:
        worst = max(hot, key=lambda gpu: gpu.heat.share)
        warmest = max((gpu.hottest for gpu in hot if gpu.hottest is not None), default=None)
        clauses = [
            f"up to {warmest:.0f}\u00a0°C" if warmest is not None else "",
            worst.clock,
        ]
        part = worst.heat.share
        severity = Severity.CRITICAL if part >= 0.5 else Severity.WARNING
        whose = "its time" if len(hot) == 1 else "the time of the worst"
        title = f"Heat slowed {count(len(hot), 'GPU')} for {share(part)} of {whose}"
        spells, every = [gpu.heat for gpu in hot], [gpu.heat for gpu in found]
        return finding_of(self, title, spells, every, clauses, severity=severity)

    def _brake(self, braked: Sequence[_Slowed], found: Sequence[_Slowed]) -> Finding:
        part = max(gpu.brake.share for gpu in braked)
        whose = "its time" if len(braked) == 1 else "the time of the worst"
        asked = all(gpu.asked for gpu in braked)
        title = f"The hardware slowed {count(len(braked), 'GPU')} for {share(part)} of {whose}"
        title += " and did not name heat" if asked else ""
        unasked = "" if asked else "whether for heat is not known for all of it"
        advice = BRAKE_ADVICE if asked else UNASKED_ADVICE
        spells, every = [gpu.brake for gpu in braked], [gpu.brake for gpu in found]
        return finding_of(self, title, spells, every, [unasked], key="hardware-slowdown", advice=advice)


class _Slowed(Struct, frozen=True, kw_only=True):
    """What slowed one GPU."""

    node: str
    device: str
    #: Heat, and the hardware where heat is not named.
    heat: ConditionTime
    brake: ConditionTime
    #: Whether heat as a reason was sampled whenever the hardware slowed it.
    asked: bool
    #: Degrees Celsius; none where no temperature was sampled while heat slowed it.
    hottest: float | None
    #: Median clock while heat slowed it and else, in MHz; none where that cannot be told.
    clocks: tuple[float, float] | None

    @property
    def most(self) -> ConditionTime:
        """The one that took the larger share of time."""
        return max(self.heat, self.brake, key=lambda spell: (spell.judged, spell.share, spell.samples))

    @property
    def clock(self) -> str:
        """A clause on its clock; empty where that is not known."""
        told = self.clocks
        return (
            f"median clock of the worst {told[0]:.0f}\u00a0MHz then, {told[1]:.0f}\u00a0MHz else"
            if told
            else ""
        )

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
        # A log that is started again may sample the one reason first and the other one later.
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
            # A value in force is not enough: the reader leaves out what a log does not tell.
            asked=bool(gpu.sampled(Metric.GPU_THERMAL_SLOWDOWN, brake_us)[brake].all()),
            hottest=float(warm.max()) if len(warm) else None,
            clocks=gpu.clocks(time_us, heat),
        )


def _passed(found: Sequence[_Slowed], gpus: int) -> str:
    """What is said where nothing took enough time; of a reason only where it was sampled."""
    heat = [gpu.heat for gpu in found if gpu.heat.judged]
    brake = [gpu.brake for gpu in found if gpu.brake.judged]
    if any(spell.span_us for spell in (*heat, *brake)):
        most = 100 * max(spell.share for spell in (*heat, *brake))
        known = len({spell.name for spell in (*heat, *brake)})
        told = f"Slowdowns took {at_most(most)} of the time of any GPU at most"
        return told + as_far_as_recorded(known, gpus)
    kinds = [(len(heat), "heat"), (len(brake), "the hardware")]
    if len(heat) == len(brake):
        kinds = [(len(heat), "heat or the hardware")]
    clauses = [f"by {what}{as_far_as_recorded(known, gpus)}" for known, what in kinds if known]
    return f"No GPU was slowed {'; nor '.join(clauses)}"
