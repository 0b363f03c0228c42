"""LowMeanUtilization: all GPUs of the job together are little used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.sample_weights import sample_weights
from jobrules.model import SECOND_US, Measure, Metric, Severity
from jobrules.rule import Rule, minutes, percent, reason_short
from jobrules.text import count, duration, escape_name
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrules.model import Job, RuleResult


@dataclass(frozen=True, kw_only=True)
class LowMeanUtilization(Rule):
    """The GPUs are little used over the whole job.

    What it checks
        The mean use of all GPUs over all time that was measured, start and end too, each sample counted
        for as long as it stands for: triggers below ``threshold``, and is critical below ``critical``. GPUs that
        never worked are left aside, unless none did: UnusedGPU tells of them. Not evaluated where none of
        the others was measured for ``patience`` minutes, as a short job is mostly start and end.

    Why it matters
        It is the figure that the people who run a cluster see. The default limits are those that some of
        them warn from, and say no from.

    What to do
        Find what the GPUs wait for: the start-up, data loading, checkpoints, other workers. If it is nothing, raise
        the batch size, let jobs share a GPU, or take fewer or smaller ones.
    """

    title: ClassVar[str] = "GPUs are little used over the whole job"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION,)
    section: ClassVar[str] = "gpu-utilization"

    threshold: float = percent(25.0, "mean use of all GPUs below which the rule triggers")
    critical: float = percent(15.0, "mean use of all GPUs below which that is critical")
    patience: float = minutes(10.0, "measured time of a GPU that is wanted before the job is judged")

    def check(self, job: Job) -> RuleResult:
        """Counts are of the job: 1 where its mean is below the limit."""
        gpus = job.gathered(_gpus, Clocks.of(job))
        judged = [gpu for gpu in gpus if gpu.worked] or gpus
        longest_us = max(gpu.measured_us for gpu in judged)
        if longest_us < self.patience * 60 * SECOND_US:
            return self.not_evaluated(reason_short(longest_us, self.patience, "measured"))
        measured_us = sum(gpu.measured_us for gpu in judged)
        mean = 100 * sum(gpu.used_us for gpu in judged) / measured_us
        who = "The GPU" if len(gpus) + job.gpus_unknown == 1 else count(len(judged), "GPU")
        told = f"{who} {'was' if len(judged) == 1 else 'were'} used to {in_percent(mean)} on average"
        low = mean < self.threshold
        facts: dict[str, Any] = {
            "evaluated": 1,
            "violating": int(low),
            "counted": "jobs",
            "measure": Measure(
                value=round(mean, 1),
                limits=(self.threshold, self.critical),
                scale=100.0,
                unit="% on average",
                limit_text=f"triggers below {self.threshold:g}%, critical below {self.critical:g}%",
            ),
        }
        if not low:
            return self.passed(told, **facts)
        each = {gpu.name: 100 * gpu.used_us / gpu.measured_us for gpu in judged if gpu.measured_us}
        least, most = min(each, key=each.__getitem__), max(each, key=each.__getitem__)
        evidence = f"Over {duration(measured_us)} of GPU time that was measured."
        if len(each) > 1:
            evidence += f" Least {in_percent(each[least])} ({escape_name(least)}), most {in_percent(each[most])} ({escape_name(most)})."
        if len(judged) < len(gpus):
            evidence += f" {count(len(gpus) - len(judged), 'GPU')} that never worked aside."
        finding = self.finding(
            told,
            evidence,
            severity=Severity.CRITICAL if mean < self.critical else Severity.WARNING,
            devices=tuple(gpu.name for gpu in judged),
        )
        return self.triggered(finding, details={"mean": mean, "means": each}, **facts)


class _GPU(Struct, frozen=True, kw_only=True):
    #: ``node/device``.
    name: str
    #: Whether any sample is above 0 %.
    worked: bool
    measured_us: float
    #: A sample of u percent that stands for t microseconds uses t * u/100.
    used_us: float


def _gpus(part: Job, clocks: Clocks) -> Iterator[_GPU]:
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        for column, device in enumerate(panel.devices):
            time_us, values = panel.series(column)
            weight_us = sample_weights(time_us, *clocks.span_us(panel.node)).weight_us
            yield _GPU(
                name=f"{panel.node}/{device}",
                worked=bool(values.max() > 0),
                measured_us=float(weight_us.sum()),
                used_us=float((weight_us * values).sum()) / 100,
            )
