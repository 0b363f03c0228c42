"""ProfilerOverhead: the profiler itself changes what it measures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from msgspec.structs import replace

from jobrules.model import Finding, HowMuch, Note, Reason, ReasonKind, Severity, Where
from jobrules.model.claims import Cause, Precedence
from jobrules.rule import number as a_number
from jobrules.rule import percent
from jobrules.rules.step_outlier import longer_steps
from jobrules.rules.traces.profiled_steps import profiled_in, profiled_steps
from jobrules.rules.traces.shares import PROFILED_TIME, ProfiledGPU, ShareRule, idle_ns
from jobrules.text import capitalized, join_names, number, took
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Fact, FloatArray, Job, Panel, RuleResult
    from jobrules.model.captures import DeviceCapture
    from jobrules.model.claims import Claim, Claimed
    from jobrules.rules.traces.profiled_steps import ProfiledSteps, Spans

_NOT_TOLD = Reason(kind=ReasonKind.NOT_RECORDED, what="the profiler's own activity in the trace")
ADVICE = (
    "Judge the job by its other steps, and profile fewer steps, without stacks.",
    "In SageMaker, give `FrameworkProfile` a start step and few steps, or leave it out.",
)
#: Settings that take time, and what they record.
_COSTLY = {"with_stack": "stacks", "record_shapes": "shapes", "profile_memory": "memory"}


@dataclass(frozen=True, kw_only=True)
class ProfilerOverhead(ShareRule):
    """The profiler itself changes what it measures.

    What it checks
        The share of the profiled time in which GPUs idle while the profiler is busy; and how much longer steps of
        another source took meanwhile.

    Why it matters
        Time of the host is longer in such a trace than without the profiler, so other findings may be too large.

    What to do
        * Record again without stacks: ``with_stack=False``.
        * Record fewer steps, with a warm-up in the schedule.

    Details
        Info from ``threshold`` on or if Python stacks were recorded, warning from ``warning_threshold`` on or if the
        median step took more than ``max_slowdown`` times as long as without the profiler, critical from twice
        ``warning_threshold`` on. What profiled steps take longer is a cause of lost time if they are longer by more
        than half, with or without a trace. The first 10 steps are a warm-up: they are not compared.
    """

    title: ClassVar[str] = "The profiler itself changes what it measures"
    did: ClassVar[str] = "GPUs idled while the profiler itself was busy"
    part: ClassVar[str] = "profiler"
    when: ClassVar[str] = "while the profiler itself was busy"
    of_idle: ClassVar[bool] = True
    section: ClassVar[str] = "idle-time"
    late_by: ClassVar[str] = "idle while the profiler is busy"

    threshold: float = percent(1.0, "idle time while PyTorch's profiler is busy, from which it is a finding")
    warning_threshold: float = percent(5.0, "the same, from which it is a warning")

    def counted_ns(self, device: DeviceCapture) -> int:
        """Idle time during the profiler's own work."""
        return idle_ns(device, "profiler")

    max_slowdown: float = a_number(
        1.2, "duration of steps with PyTorch's profiler over that without, above which it is a warning", low=1
    )

    def check_gpus(self, job: Job, gpus: Sequence[ProfiledGPU]) -> RuleResult:
        """Counts are of GPUs."""
        slowdown = _slowdown(job)
        return super().check_gpus(job, [replace(gpu, slowdown=slowdown) for gpu in gpus])

    def missing(self, gpu: ProfiledGPU) -> Reason | None:
        """Any evidence is worth a word."""
        known = gpu.slowdown is not None or _has_overhead([gpu]) or _has_stacks([gpu])
        return None if known else _NOT_TOLD

    def counts(self, part: float, gpus: Sequence[ProfiledGPU]) -> bool:
        """Stacks and slow steps count, however little idle time the profiler took."""
        return part >= self.threshold or _has_stacks(gpus) or self._slows(gpus)

    def severity(self, part: float, gpus: Sequence[ProfiledGPU]) -> Severity:
        """Slow steps are at least a warning."""
        found = super().severity(part, gpus)
        return Severity.WARNING if found is Severity.INFO and self._slows(gpus) else found

    def sentence(self, part: float, gpus: Sequence[ProfiledGPU]) -> str:
        """All that is known of the profiler."""
        slowdown = gpus[0].slowdown
        known = [
            f"the profiler itself took {in_percent(part)} {PROFILED_TIME}" if _has_overhead(gpus) else "",
            f"steps took {number(slowdown, 2)} times as long with the profiler as without"
            if slowdown
            else "",
            "stacks were recorded" if _has_stacks(gpus) else "",
        ]
        return capitalized(", and ".join(filter(None, known)))

    def finding_title(self, part: float, gpus: Sequence[ProfiledGPU]) -> str:
        """The fact with its number."""
        return self.sentence(part, gpus)

    def facts(self, gpus: Sequence[ProfiledGPU]) -> tuple[Fact, ...]:
        """What was recorded that takes time."""
        settings = {setting for gpu in gpus for capture in gpu.captures for setting in capture.recorded}
        if _has_stacks(gpus):
            settings.add("with_stack")
        costly = [what for setting, what in _COSTLY.items() if setting in settings]
        return (Note(f"Recorded in addition: {join_names(costly)}"),) if costly else ()

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """The profiler, where its steps are longer than the others by more than half."""
        del result
        spans, numbers = profiled_in(job)
        found = [one for one in job.gathered(profiled_steps, spans, numbers) if one.slowed]
        if not found:
            return ()
        worst = max(found, key=lambda one: one.part)
        return (
            Cause(
                key="profiling",
                precedence=Precedence.PROFILING,
                when="while a profiler made steps longer",
                claim=partial(_in_profiled_steps, spans, numbers),
                finding=partial(_found, worst),
                of_loop=worst.part,
            ),
        )

    def _slows(self, gpus: Sequence[ProfiledGPU]) -> bool:
        return (gpus[0].slowdown or 0.0) > self.max_slowdown


def _in_profiled_steps(
    spans: Spans, numbers: frozenset[int], part: Job, panel: Panel, weight_us: FloatArray
) -> Claim | None:
    """Claim the lost time in slowed steps, as far as these take longer than the others."""
    found = [one for one in profiled_steps(part, spans, numbers) if one.slowed]
    if not found:
        return None
    rows = np.concatenate([one.rows for one in found])
    return longer_steps(part.steps, rows, max(one.extra_us for one in found), panel, weight_us)


def _found(worst: ProfiledSteps, claimed: Claimed) -> Finding:
    return Finding(
        key="profiling",
        severity=Severity.WARNING,
        title=f"The profiler makes steps longer: {took(worst.during_us)} while it records, {took(worst.usual_us)} otherwise",
        evidence=(
            Where(claimed.nodes),
            HowMuch("Profiled steps", len(worst.rows)),
            HowMuch("Other steps", worst.others),
            Note("Other times of profiled steps may be longer, too"),
        ),
        advice=ADVICE,
        rules=(),
        section="steps",
        devices=claimed.devices,
    )


def _has_overhead(gpus: Sequence[ProfiledGPU]) -> bool:
    return any(capture.has_overhead for gpu in gpus for capture in gpu.captures)


def _has_stacks(gpus: Sequence[ProfiledGPU]) -> bool:
    return any(capture.python_calls for gpu in gpus for capture in gpu.captures)


def _slowdown(job: Job) -> float | None:
    """The median over series of steps: their median while a profiler recorded, over that of the others."""
    ratios = [one.during_us / one.usual_us for one in job.gathered(profiled_steps, *profiled_in(job))]
    return float(np.median(ratios)) if ratios else None
