"""LowMeanUtilization: mean GPU utilization is low."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.work import gpu_use
from jobrules.model import SECOND_US, HowMuch, Measure, Metric, Note, Severity
from jobrules.rule import Role, Rule, minutes, percent, reason_short
from jobrules.text import count
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from jobrules.model import Fact, Job, RuleResult


@dataclass(frozen=True, kw_only=True)
class LowMeanUtilization(Rule):
    """Mean GPU utilization is low.

    What it checks
        Mean utilization of all GPUs over all measured time, without never-used GPUs. Triggers below ``threshold``,
        critical below ``critical``.

    Why it matters
        Cluster operators watch this number; the defaults match limits that some of them use.

    What to do
        * Find what the GPUs wait for.
        * If nothing, raise the batch size, share GPUs between jobs, or use fewer.

    Details
        Each sample counts for the time it represents, start-up and wind-down included. If no GPU was ever used, all
        count. A job without ``patience`` minutes of samples of a GPU is not evaluated: it is mostly start-up and
        wind-down.
    """

    title: ClassVar[str] = "Mean GPU utilization is low"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION,)
    section: ClassVar[str] = "gpu-utilization"
    role: ClassVar[Role] = Role.SYMPTOM

    threshold: float = percent(25.0, "mean utilization below which the rule triggers")
    critical: float = percent(15.0, "mean utilization below which it is critical")
    patience: float = minutes(10.0, "measured time before the first check")

    def check(self, job: Job) -> RuleResult:
        """Counts are of the job: 1 if its mean is below the threshold."""
        gpus = job.gathered(gpu_use, Clocks.of(job))
        judged = [gpu for gpu in gpus if gpu.worked] or gpus
        longest_us = max(gpu.measured_us for gpu in judged)
        if longest_us < self.patience * 60 * SECOND_US:
            return self.not_evaluated(reason_short(longest_us, self.patience))
        measured_us = sum(gpu.measured_us for gpu in judged)
        mean = sum(gpu.percent_us for gpu in judged) / measured_us
        headline = f"Mean GPU utilization was {in_percent(mean)}"
        low = mean < self.threshold
        facts: dict[str, Any] = {
            "evaluated": 1,
            "violating": int(low),
            "counted": "jobs",
            "measure": Measure(
                value=round(mean, 1),
                limits=(self.threshold, self.critical),
                bad="below",
                scale=100.0,
                unit="% mean utilization",
                limit_text=f"threshold {self.threshold:g}%, critical {self.critical:g}%",
            ),
        }
        if not low:
            return self.passed(f"{headline} (threshold {self.threshold:g}%)", **facts)
        each = {gpu.name: gpu.mean for gpu in judged if gpu.measured_us}
        least, most = min(each, key=each.__getitem__), max(each, key=each.__getitem__)
        evidence: list[Fact] = [HowMuch("Measured GPU time", measured_us / SECOND_US, "s")]
        if len(each) > 1:
            evidence += [
                HowMuch("Lowest mean", each[least], "%", of=least),
                HowMuch("Highest mean", each[most], "%", of=most),
            ]
        if len(judged) < len(gpus):
            never_used = count(len(gpus) - len(judged), "never-used GPU")
            evidence.append(Note(f"Not counted: {never_used}"))
        finding = self.finding(
            f"{headline} over {count(len(judged), 'GPU')}",
            *evidence,
            seen_as=f"mean GPU utilization of {in_percent(mean)}",
            severity=Severity.CRITICAL if mean < self.critical else Severity.WARNING,
            devices=tuple(gpu.name for gpu in judged),
        )
        return self.triggered(finding, details={"mean": mean, "means": each}, **facts)
