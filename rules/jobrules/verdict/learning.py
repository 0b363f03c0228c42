"""How much of the used time did not improve the model, and the place of findings on the training among others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.work import Work, gpu_use
from jobrules.model import SECOND_US, Finding, Job, RuleResult, Severity, Status
from jobrules.model.finding import OF_LOOP
from jobrules.model.learning import Learning
from jobrules.rules.learning.causes import told_once
from jobrules.text import number, share
from jobrules.verdict.story import SEVERITIES, Checks, join_explained
from jobrules.verdict.time_use import TimeUse


class LossReason(StrEnum):
    """Why time did not improve the model, what says most first."""

    NON_FINITE = "non_finite"
    CHANCE = "chance"
    NOT_DECREASING = "not_decreasing"
    AFTER_BEST = "after_best"
    SPIKES = "spikes"


#: The rules that show it; of two that show the same, the one with the amount first.
_SHOWN_BY = {
    "ExplodingTensor": LossReason.NON_FINITE,
    "LossAtChance": LossReason.CHANCE,
    "LossNotDecreasing": LossReason.NOT_DECREASING,
    "Overtraining": LossReason.AFTER_BEST,
    "Overfit": LossReason.AFTER_BEST,
    "LossSpike": LossReason.SPIKES,
}
_WORDS = {
    LossReason.NON_FINITE: "came after numbers became NaN or infinite (step {})",
    LossReason.CHANCE: "passed while the loss was that of guessing, from step {} on",
    LossReason.NOT_DECREASING: "did not lower the loss (from step {} on)",
    LossReason.AFTER_BEST: "came after the best loss (step {})",
    LossReason.SPIKES: "came after a jump of the loss that did not end (step {})",
}
#: Rules with a critical finding after which the rest of the job is worth nothing, whatever the machine did.
_DEAD = ("ExplodingTensor", "LossAtChance", "StalledTraining")


class LearningLoss(Struct, frozen=True, kw_only=True):
    """Used time that did not improve the model. The bar does not change: the GPUs did work."""

    reason: LossReason
    since_step: int
    #: None if the time of the step is not known.
    since_us: int | None = None
    #: Of the used GPU time, or of the steps where GPU time or the time of the step is not known; and the GPU time.
    share: float
    gpu_s: float | None = None

    @property
    def sentence(self) -> str:
        """``50.0% of the used GPU time came after numbers became NaN or infinite (step 300)``."""
        whole = "steps" if self.gpu_s is None else "used GPU time"
        return f"{share(self.share)} of the {whole} {_WORDS[self.reason].format(number(self.since_step))}"


def learning_loss(job: Job, checks: Checks) -> LearningLoss | None:
    """By the first reason that holds; None if none does."""
    results = {rule.name: result for rule, result in checks if result.status is Status.TRIGGERED}
    for name, reason in _SHOWN_BY.items():
        details = results[name].details if name in results else {}
        if job.learning and "since_step" in details:
            part, gpu_s = _since(job, job.learning, details)
            return LearningLoss(
                reason=reason,
                since_step=details["since_step"],
                since_us=details["since_us"],
                share=round(part, 3),
                gpu_s=gpu_s,
            )
    return None


def _since(job: Job, learning: Learning, details: Mapping[str, Any]) -> tuple[float, float | None]:
    """Share of the used GPU time since a moment, and its amount in seconds; of the steps, and None, without it."""
    clocks = Clocks.of(job)
    late_us = clocks.late_us(learning.node)
    _, last_us = learning.span_us or (0, 0)
    # Samples may begin after the training.
    since_us = max(clocks.start_us, (details.get("since_us") or last_us + 1) - late_us)
    if since_us <= min(clocks.end_us, last_us - late_us):
        after = Work(clocks=clocks, begin_us=since_us, end_us=clocks.end_us, gpu_us=None, steps_us=None)
        used, used_after = (
            sum(gpu.percent_us for gpu in job.gathered(gpu_use, clocks, time)) / 100 for time in (None, after)
        )
        if used:
            return used_after / used, round(used_after / SECOND_US, 1)
    if "since_step" not in details:
        return 0.0, None
    tables = [one.step for one in learning.scalars if len(one)]
    tables += [learning.tensors.step] if learning.tensors and not tables else []
    steps = max(tables, key=len)
    first, end = int(steps[0]), int(steps[-1]) + 1
    return max(0, end - max(first, details["since_step"])) / (end - first), None


def training_findings(
    job: Job, learning: Learning, checks: Checks, machine: Sequence[Finding], use: TimeUse | None
) -> tuple[Finding, ...]:
    """All findings, those on the training among those on the machine, which are in their order.

    What makes the rest of a training worthless comes first if that is more than the largest loss of the machine. Any other
    finding on the training comes after a cause of lost time, and after all on the machine that are as severe.
    """
    found = [finding for _, result in checks for finding in result.findings]
    training = join_explained(told_once(found, learning))
    causes = [one for one in machine if one.gpu_s is not None or one.share_of == OF_LOOP]
    has_cause = bool(machine) and machine[0] in causes
    largest = max((one.share or 0.0 for one in causes), default=0.0)
    used = use.of("used")[1] / 100 if use and use.device == "GPU" else 1.0
    dead = {
        rule.name
        for rule, result in checks
        if rule.name in _DEAD
        and _is_critical(result)
        and _since(job, learning, result.details)[0] * used > largest
    }

    def place(one: Finding) -> int:
        if dead.intersection(one.rules):
            return 0
        rank = SEVERITIES.index(one.severity)
        worse = [i for i, other in enumerate(machine, 1) if SEVERITIES.index(other.severity) <= rank]
        return max([*worse, int(has_cause)])

    placed = [(i, -1, one) for i, one in enumerate(machine, 1)]
    placed += [(place(one), SEVERITIES.index(one.severity), one) for one in training]
    return tuple(one for *_, one in sorted(placed, key=lambda found: found[:2]))


def _is_critical(result: RuleResult) -> bool:
    return any(finding.severity is Severity.CRITICAL for finding in result.findings)
