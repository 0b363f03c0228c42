"""ECCErrors: GPU memory has errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.gpu_conditions import as_far_as_recorded
from jobrules.measures.work_span import HOUR_US
from jobrules.model import HowMuch, Metric, Note, Severity, When, Where, span_of
from jobrules.rule import reason_few_samples
from jobrules.rules.gpu_rule import GPURule, JudgedGPU
from jobrules.text import capitalized, count, escape_name, join_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.measures.gpu_conditions import GPU
    from jobrules.model import Fact, Finding, FloatArray, IntArray, Job

_KINDS = {"uncorrected": Metric.GPU_ECC_UNCORRECTED, "corrected": Metric.GPU_ECC_CORRECTED}
_CORRECT = "Do nothing for this job: its results are correct."
_UNCOUNTED = "Record uncorrected errors too (`ecc.errors.uncorrected.volatile.total`): they show if results are correct."
CORRECTED_ADVICE = "Report the GPU to the operator of the machine if errors continue; a reset of the GPU replaces faulty memory rows."
#: GPUs that the evidence names.
_MAX_NAMED = 4


class _Counter(Struct, frozen=True, kw_only=True):
    """One error counter of a GPU over the job."""

    samples: int
    #: At the first sample, and how far it grew from there.
    before: int
    errors: int
    resets: int
    #: Hours from the first to the last sample.
    hours: float
    #: Last sample before it first grew, and the one at which it last grew; 0 if it did not.
    first_us: int
    last_us: int

    @classmethod
    def of(cls, time_us: IntArray, values: FloatArray) -> _Counter:
        """From the samples of a GPU, at least one."""
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


class _GPU(JudgedGPU, frozen=True, kw_only=True):
    """The error counters of one GPU; its samples are those of the counter with most."""

    counters: dict[str, _Counter]

    @property
    def label(self) -> str:
        return escape_name(f"{self.node} {self.device}", 40)

    def errors(self, kind: str) -> int:
        """Errors during the job."""
        return self.counters[kind].errors if kind in self.counters else 0


@dataclass(frozen=True, kw_only=True)
class ECCErrors(GPURule[_GPU]):
    """GPU memory has errors.

    What it checks
        Growth of the driver's memory error counters during the job. Uncorrected errors are critical, corrected ones
        info.

    Why it matters
        An uncorrected error ends the process or corrupts results. Many corrected ones often precede it.

    What to do
        * For uncorrected errors, take the GPU out of service, reset and test it, and restart from an earlier checkpoint.

    Details
        Errors before the job do not count. A counter that falls was reset, and counts from 0. Test a GPU with
        `nvidia-smi -q -d ECC,ROW_REMAPPER` and `dcgmi diag`.
    """

    title: ClassVar[str] = "GPU memory has errors"
    sources: ClassVar[tuple[Metric, ...]] = tuple(_KINDS.values())
    of_work: ClassVar[bool] = False

    def _of_gpu(self, gpu: GPU) -> _GPU:
        series = {kind: found for kind, metric in _KINDS.items() if len((found := gpu.series(metric))[0])}
        counters = {kind: _Counter.of(*found) for kind, found in series.items()}
        samples = max(one.samples for one in counters.values())
        return _GPU(
            node=gpu.node,
            device=gpu.device,
            samples=samples,
            reason=None if samples > 1 else reason_few_samples(samples, 1),
            hit=any(one.errors for one in counters.values()),
            span_us=span_of((one.first_us, one.last_us) for one in counters.values() if one.errors),
            counters=counters,
            details={
                kind: {"errors": one.errors, "before": one.before, "resets": one.resets}
                for kind, one in counters.items()
            },
        )

    def _kept(self, judged: Sequence[_GPU], found: Sequence[_GPU], gpus: int) -> str:
        known = as_far_as_recorded(len(judged), gpus)
        none = f"No memory errors on {count(len(judged), 'GPU')} during the job{known}"
        return "; ".join([none, *_limits(found)])

    def _findings(self, hits: Sequence[_GPU], found: Sequence[_GPU], job: Job) -> list[Finding]:
        del job
        grew = {kind: [gpu for gpu in hits if gpu.errors(kind)] for kind in _KINDS}
        return [self._finding(kind, gpus, _limits(found)) for kind, gpus in grew.items() if gpus]

    def _finding(self, kind: str, gpus: Sequence[_GPU], limits: Sequence[str]) -> Finding:
        gpus = sorted(gpus, key=lambda gpu: -gpu.errors(kind))
        counters = [gpu.counters[kind] for gpu in gpus]
        start_us, end_us = min(one.first_us for one in counters), max(one.last_us for one in counters)
        hours = max(one.hours for one in counters)
        errors = sum(one.errors for one in counters)
        resets = sum(one.resets for one in counters)
        evidence: list[Fact] = [
            Where(tuple(gpu.label for gpu in gpus)),
            When(start_us, end_us),
            *(HowMuch("Errors", gpu.errors(kind), of=gpu.label) for gpu in gpus[:_MAX_NAMED]),
        ]
        if hours and errors > 1:
            evidence.append(HowMuch("Errors per hour", float(f"{errors / hours:.3g}")))
        if resets:
            evidence.append(HowMuch("Resets of the counter", resets))
        corrected = kind == "corrected"
        facts = {"key": "corrected-memory-errors", "advice": _advice(gpus)} if corrected else {}
        return self.finding(
            f"{count(errors, f'{kind} memory error')} on {count(len(gpus), 'GPU')}",
            *evidence,
            *(Note(capitalized(limit)) for limit in limits),
            severity=Severity.INFO if corrected else Severity.CRITICAL,
            devices=tuple(gpu.name for gpu in gpus),
            start_us=start_us,
            end_us=end_us,
            **facts,
        )


def _limits(found: Sequence[_GPU]) -> list[str]:
    """What was counted before the job, and kinds of errors that were not recorded."""
    limits = []
    for kind in _KINDS:
        counters = [gpu.counters[kind] for gpu in found if kind in gpu.counters]
        earlier = sum(one.before for one in counters)
        missing = [gpu.label for gpu in found if kind not in gpu.counters]
        if not counters:
            limits.append(f"{kind} errors not recorded")
        elif missing:
            limits.append(f"{kind} errors not recorded on {join_names(missing, 1)}")
        if earlier:
            limits.append(f"{count(earlier, f'{kind} error')} before the job")
    return limits


def _advice(gpus: Sequence[_GPU]) -> tuple[str, ...]:
    """On corrected errors; "do nothing" only if uncorrected errors were recorded and there are none."""
    counters = [gpu.counters.get("uncorrected") for gpu in gpus]
    if any(one is None or one.samples < 2 for one in counters):
        return _UNCOUNTED, CORRECTED_ADVICE
    corrupted = any(one and one.errors for one in counters)
    return (CORRECTED_ADVICE,) if corrupted else (_CORRECT, CORRECTED_ADVICE)
