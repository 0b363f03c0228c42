"""UnusedGPU: a GPU never worked, or hardly did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.sample_weights import sample_weights
from jobrules.measures.work_span import IDLE_PERCENT
from jobrules.model import SECOND_US, DeviceStatus, Measure, Metric, Severity
from jobrules.rule import Rule, minutes, percent, reason_short
from jobrules.text import count, duration, escape_name, join_names, share
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import Finding, Job, RuleResult


@dataclass(frozen=True, kw_only=True)
class UnusedGPU(Rule):
    """A GPU is not used.

    What it checks
        Adds up, for every GPU, the measured time of the whole job in which it is at work, that is used by
        10% or more: triggers where that is less than ``threshold`` of the time measured, so that the 95th
        percentile of its use is below 10%. A GPU without any sample above 0% never worked. One that was
        measured for less than ``patience`` minutes is not judged; neither is one whose use the tool cannot
        tell, as a part of a divided GPU (MIG): that is not 0.

    Why it matters
        An idle GPU costs what a busy one costs, and nobody else can have it.

    What to do
        See that as many processes run as there are GPUs, each on a device of its own, and that they put their
        work there. If the job has no work for the GPU, take a machine with fewer GPUs or without.
    """

    title: ClassVar[str] = "A GPU is not used"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION,)
    section: ClassVar[str] = "gpu-utilization"

    threshold: float = percent(5.0, "a GPU at work for less of the measured time is not used")
    patience: float = minutes(15.0, "measured time of a GPU that is wanted before it is judged")

    def check(self, job: Job) -> RuleResult:
        """Counts are of GPUs; those that never worked and those that hardly did are findings of their own."""
        gpus = job.gathered(_gpus, Clocks.of(job))
        least_us = self.patience * 60 * SECOND_US
        judged = [gpu for gpu in gpus if gpu.measured_us >= least_us]
        if not judged:
            longest = max(gpu.measured_us for gpu in gpus)
            return self.not_evaluated(reason_short(longest, self.patience, "measured"))
        idle = [gpu for gpu in judged if 100 * gpu.part < self.threshold]
        never, hardly = [gpu for gpu in idle if not gpu.highest], [gpu for gpu in idle if gpu.highest]
        names = {gpu.name for gpu in idle}
        facts: dict[str, Any] = {
            "evaluated": len(judged),
            "violating": len(idle),
            "counted": "GPUs",
            "devices": tuple(
                DeviceStatus.of(
                    gpu.name,
                    reason_short(gpu.measured_us, self.patience, "measured"),
                    int(gpu.measured_us >= least_us),
                    int(gpu.name in names),
                )
                for gpu in gpus
            ),
            "measure": Measure(
                value=round(100 * min(gpu.part for gpu in judged), 1),
                limits=(self.threshold,),
                scale=100.0,
                unit="% of the time at work, the least used GPU",
                limit_text=f"triggers below {self.threshold:g}%",
            ),
        }
        if not idle:
            return self.passed("Every GPU that was judged was at work", **facts)
        findings, every = [], len(gpus) + job.gpus_unknown
        if never:
            evidence = f"{join_names([gpu.shown for gpu in never])}: no sample above 0%."
            findings.append(self._told("never", never, every, evidence))
        if hardly:
            one = min(hardly, key=lambda gpu: gpu.part)
            evidence = (
                f"{join_names([gpu.shown for gpu in hardly])}; {escape_name(one.shown)} was used by {IDLE_PERCENT:g}% or more in "
                f"{share(one.part)} of {duration(one.measured_us)} measured, highest sample {in_percent(one.highest)}."
            )
            findings.append(self._told("hardly", hardly, every, evidence))
        details = {gpu.name: {"at_work": gpu.part, "gpu_max": gpu.highest} for gpu in idle}
        result = self.triggered(
            findings[0], triggered=len(idle), violations=len(idle), details=details, **facts
        )
        return replace(result, findings=tuple(findings), headline="; ".join(f.title for f in findings))

    def _told(self, how: str, told: Sequence[_GPU], gpus: int, evidence: str) -> Finding:
        title = f"The GPU {how} worked" if gpus == 1 else f"{len(told)} of {count(gpus, 'GPU')} {how} worked"
        return self.finding(
            title, evidence, severity=Severity.CRITICAL, devices=tuple(gpu.name for gpu in told)
        )


class _GPU(Struct, frozen=True, kw_only=True):
    node: str
    device: str
    measured_us: float
    #: Share of that in which it was at work.
    part: float
    #: Highest sample in percent.
    highest: float

    @property
    def name(self) -> str:
        return f"{self.node}/{self.device}"

    @property
    def shown(self) -> str:
        return f"{self.node} {self.device}"


def _gpus(part: Job, clocks: Clocks) -> Iterator[_GPU]:
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        for column, device in enumerate(panel.devices):
            time_us, values = panel.series(column)
            weight_us = sample_weights(time_us, *clocks.span_us(panel.node)).weight_us
            measured_us = float(weight_us.sum())
            at_work_us = float(weight_us[values >= IDLE_PERCENT].sum())
            yield _GPU(
                node=panel.node,
                device=device,
                measured_us=measured_us,
                part=at_work_us / max(1.0, measured_us),
                highest=float(values.max()),
            )
