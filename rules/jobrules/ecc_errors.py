"""ECCErrors: a GPU's memory had errors during the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.gpu_conditions import as_far_as_recorded, by_node, gpus, join_first
from jobrules.measures.work_span import HOUR_US
from jobrules.model import DeviceStatus, Metric, Severity
from jobrules.rule import Rule, reason_few_samples
from jobrules.text import between, count, escape_name, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import Finding, FloatArray, IntArray, Job, RuleResult

_KINDS = {"uncorrected": Metric.GPU_ECC_UNCORRECTED, "corrected": Metric.GPU_ECC_CORRECTED}
_RIGHT = "Nothing for this job: its results are right."
_UNCOUNTED = "Have uncorrected errors logged too (ecc.errors.uncorrected.volatile.total): they tell whether results are right."
CORRECTED_ADVICE = (
    "Tell who runs the machine if the errors go on or grow more frequent; rows of memory are replaced when the GPU "
    "is reset."
)


@dataclass(frozen=True, kw_only=True)
class ECCErrors(Rule):
    """A GPU's memory had errors during the job.

    What it checks
        How far the driver's counters of memory errors grew between the first and the last sample of each
        GPU. Any uncorrected error is critical, corrected ones are for information. What was counted
        before the job is told and is no violation. A counter that falls was reset, and counts from 0.

    Why it matters
        An uncorrected error ends the process that uses the memory, or spoils its numbers. Corrected
        ones do no harm, but many of them come before uncorrected ones.

    What to do
        Take the GPU out of use, have it reset and tested (nvidia-smi -q -d ECC,ROW_REMAPPER, dcgmi diag), and start
        again from a checkpoint that was written before the first error.
    """

    title: ClassVar[str] = "A GPU's memory had errors"

    def check(self, job: Job) -> RuleResult:
        """Counts are of GPUs."""
        if not any(job.has(metric) for metric in _KINDS.values()):
            return self.not_evaluated("no samples of memory errors")
        found = job.gathered(_counted, Clocks.of(job))
        grew = {kind: [gpu for gpu in found if gpu.errors(kind)] for kind in _KINDS}
        hits = {gpu.name for told in grew.values() for gpu in told}
        devices = tuple(
            DeviceStatus.of(
                gpu.name, reason_few_samples(gpu.samples, 1), int(gpu.samples > 1), int(gpu.name in hits)
            )
            for gpu in found
        )
        facts: dict[str, Any] = {
            "datapoints": max(gpu.samples for gpu in found),
            "datapoints_per_series": {gpu.name: gpu.samples for gpu in found},
            "counted": "GPUs",
            "evaluated": sum(gpu.samples > 1 for gpu in found),
            "violating": len(hits),
            "devices": devices,
            "details": by_node((gpu.node, gpu.device, gpu.details) for gpu in found),
        }
        if not facts["evaluated"]:
            return self.not_evaluated(devices[0].reason, **facts)
        if not hits:
            known = as_far_as_recorded(facts["evaluated"], job.gpu_count + job.gpus_unknown)
            return self.passed(f"No memory error during the job{known}{_before(found)}", **facts)
        findings = [self._finding(kind, told, _before(found)) for kind, told in grew.items() if told]
        facts |= {"triggered": len(hits), "violations": len(hits)}
        facts["first_us"] = min(finding.start_us or 0 for finding in findings)
        facts["last_us"] = max(finding.end_us or 0 for finding in findings)
        return replace(self.triggered(findings[0], **facts), findings=tuple(findings))

    def _finding(self, kind: str, told: Sequence[_GPU], before: str) -> Finding:
        told = sorted(told, key=lambda gpu: -gpu.errors(kind))
        counters = [gpu.counters[kind] for gpu in told]
        start_us, end_us = min(one.first_us for one in counters), max(one.last_us for one in counters)
        hours = max(one.hours for one in counters)
        errors = sum(one.errors for one in counters)
        each = [f"{escape_name(f'{gpu.node} {gpu.device}', 40)} {number(gpu.errors(kind))}" for gpu in told]
        rate = f", {errors / hours:.3g} an hour" if hours and errors > 1 else ""
        reset = sum(one.resets for one in counters)
        clauses = [
            f"{join_first(each)}{rate}",
            between(start_us, end_us),
            f"counters were reset {count(reset, 'time')}" if reset else "",
        ]
        corrected = kind == "corrected"
        facts = {"key": "corrected-memory-errors", "advice": _advice(told)} if corrected else {}
        return self.finding(
            f"{count(errors, f'{kind} memory error')} on {count(len(told), 'GPU')}",
            "; ".join(filter(None, clauses)) + before + ".",
            severity=Severity.INFO if corrected else Severity.CRITICAL,
            devices=tuple(gpu.name for gpu in told),
            start_us=start_us,
            end_us=end_us,
            **facts,
        )


class _Counter(Struct, frozen=True, kw_only=True):
    """One counter of a GPU over the job."""

    samples: int
    #: At the first sample, and how far it grew from there.
    before: int
    errors: int
    resets: int
    #: Hours from the first to the last sample.
    hours: float
    #: Last sample before it first grew, and the one at which it last grew; 0 where it did not.
    first_us: int
    last_us: int

    @classmethod
    def of(cls, time_us: IntArray, values: FloatArray) -> _Counter:
        """From the samples of a GPU, one at least."""
        step = np.diff(values)
        new = np.where(step < 0, values[1:], step)
        grew = np.flatnonzero(new > 0)
        return cls(
            samples=len(values),
            before=int(values[0]),
            errors=int(new.sum()),
            resets=int((step < 0).sum()),
            hours=float(time_us[-1] - time_us[0]) / HOUR_US,
            first_us=int(time_us[grew[0]]) if len(grew) else 0,
            last_us=int(time_us[grew[-1] + 1]) if len(grew) else 0,
        )


class _GPU(Struct, frozen=True, kw_only=True):
    """The counters of one GPU that were sampled."""

    node: str
    device: str
    counters: dict[str, _Counter]

    @property
    def name(self) -> str:
        """``node/device``, as in ``Finding.devices``."""
        return f"{self.node}/{self.device}"

    @property
    def samples(self) -> int:
        """Of the counter that was sampled most."""
        return max(one.samples for one in self.counters.values())

    def errors(self, kind: str) -> int:
        """During the job."""
        return self.counters[kind].errors if kind in self.counters else 0

    @property
    def details(self) -> dict[str, Any]:
        """For the JSON."""
        return {
            kind: {"errors": one.errors, "before": one.before, "resets": one.resets}
            for kind, one in self.counters.items()
        }


def _counted(part: Job, clocks: Clocks) -> Iterator[_GPU]:
    for gpu in gpus(part, clocks, *_KINDS.values()):
        found = {kind: series for kind, metric in _KINDS.items() if len((series := gpu.series(metric))[0])}
        counters = {kind: _Counter.of(*series) for kind, series in found.items()}
        yield _GPU(node=gpu.node, device=gpu.device, counters=counters)


def _before(found: Sequence[_GPU]) -> str:
    """A clause on what had been counted before the job, and on a kind that was not; else empty."""
    clauses = []
    for kind in _KINDS:
        counters = [gpu.counters[kind] for gpu in found if kind in gpu.counters]
        earlier = sum(one.before for one in counters)
        uncounted = [escape_name(f"{gpu.node} {gpu.device}", 40) for gpu in found if kind not in gpu.counters]
        if not counters:
            clauses.append(f"{kind} ones were not counted")
        elif uncounted:
            where = uncounted[0] if len(uncounted) == 1 else count(len(uncounted), "GPU")
            clauses.append(f"{kind} ones were not counted on {where}")
        if earlier:
            clauses.append(f"{count(earlier, f'{kind} one')} before the job")
    return "".join(f"; {clause}" for clause in clauses)


def _advice(told: Sequence[_GPU]) -> str:
    """On corrected errors: that nothing is wrong only where it was counted."""
    counters = [gpu.counters.get("uncorrected") for gpu in told]
    if any(one is None or one.samples < 2 for one in counters):
        return f"{_UNCOUNTED} {CORRECTED_ADVICE}"
    spoiled = any(one and one.errors for one in counters)
    return CORRECTED_ADVICE if spoiled else f"{_RIGHT} {CORRECTED_ADVICE}"
