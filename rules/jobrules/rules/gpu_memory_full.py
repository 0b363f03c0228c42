"""GPUMemoryFull: GPU memory is nearly full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.sample_weights import pauses, sample_weights
from jobrules.model import SECOND_US, HowMuch, Measure, Metric, Note, Severity, When, Where, span_of
from jobrules.rule import minutes, not_recorded, number, percent, reason_short
from jobrules.rules.gpu_rule import GPURule, JudgedGPU
from jobrules.text import duration, join_names, share, some_of, without_check
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.measures.gpu_conditions import GPU
    from jobrules.model import BoolArray, Fact, Finding, FloatArray, IntArray, Job, Reason, RuleResult

_NOT_NEEDED = Note("Memory in use is allocated, not necessarily needed")


class _GPU(JudgedGPU, frozen=True, kw_only=True):
    #: Highest sample, in percent.
    highest: float = 0.0
    #: How long it was nearly full, in runs that are long enough, and how long it was measured.
    full_us: float = 0.0
    measured_us: float = 0.0
    #: Mean of the last tenth of the samples in them less that of the first, in points.
    grown: float = 0.0
    #: True if it was above ``warning_threshold`` for as long.
    nearly_all: bool = False


@dataclass(frozen=True, kw_only=True)
class GPUMemoryFull(GPURule[_GPU]):
    """GPU memory is nearly full.

    What it checks
        Memory in use above ``threshold`` for ``patience`` minutes without a break. Warning above ``warning_threshold``,
        or if use still grows by ``growth`` points; otherwise info.

    Why it matters
        A larger input may run out of memory. But many frameworks allocate memory ahead.

    What to do
        * Check the framework's own numbers.
        * Otherwise lower the batch size, accumulate gradients, or recompute activations.

    Details
        Without samples, the most that PyTorch had reserved in a trace is compared with ``threshold``: info. Growth is that from the first to the last tenth of the time above ``threshold``. Needs memory in use and the
        size of the memory; GPU memory activity says nothing of either.
    """

    title: ClassVar[str] = "GPU memory is nearly full"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_MEMORY_USED, Metric.GPU_MEMORY_TOTAL)
    sources: ClassVar[tuple[Metric, ...]] = (Metric.GPU_MEMORY_USED,)
    section: ClassVar[str] = "gpu-memory"
    of_traces: ClassVar[bool] = True

    threshold: float = percent(92.0, "memory in use above which it is nearly full")
    warning_threshold: float = percent(99.0, "memory in use that makes it a warning")
    growth: float = number(1.0, "growth while nearly full that makes it a warning", unit="points", high=100)
    patience: float = minutes(1.0, "shortest time nearly full")

    def _of_gpu(self, gpu: GPU) -> _GPU:
        time_us, used = gpu.series(Metric.GPU_MEMORY_USED)
        named: dict[str, Any] = {"node": gpu.node, "device": gpu.device}
        size = gpu.memory_size
        if size is None:
            return _GPU(**named, reason=not_recorded(Metric.GPU_MEMORY_TOTAL))
        values, weight_us = 100 * used / size, sample_weights(time_us, *gpu.span_us).weight_us
        measured_us, highest = float(weight_us.sum()), float(values.max())
        if measured_us < self.patience * 60 * SECOND_US:
            return _GPU(**named, reason=reason_short(measured_us, self.patience))
        rows = self._long(time_us, values > self.threshold, weight_us)
        if not len(rows):
            return _GPU(**named, highest=highest)
        full, tenth = values[rows], -(-len(rows) // 10)
        full_us = float(weight_us[rows].sum())
        grown = float(full[-tenth:].mean() - full[:tenth].mean())
        return _GPU(
            **named,
            hit=full_us > 0,
            span_us=(int(time_us[rows[0]]), int(time_us[rows[-1]])),
            highest=highest,
            full_us=full_us,
            measured_us=measured_us,
            grown=grown,
            nearly_all=bool(len(self._long(time_us, values > self.warning_threshold, weight_us))),
            details={
                "full_s": full_us / SECOND_US,
                "measured_s": measured_us / SECOND_US,
                "highest": highest,
                "grown": grown,
            },
        )

    def _long(self, time_us: IntArray, above: BoolArray, weight_us: FloatArray) -> IntArray:
        """Numbers of the samples in runs that last long enough; a sampling pause ends a run."""
        begins = above & np.append(True, ~above[:-1] | pauses(time_us))
        run = np.cumsum(begins)
        lasted_us = np.bincount(run[above], weights=weight_us[above], minlength=int(run[-1]) + 1)
        return np.flatnonzero(above & (lasted_us[run] >= self.patience * 60 * SECOND_US))

    def _counted(self, found: Sequence[_GPU], hits: Sequence[_GPU]) -> dict[str, Any]:
        del found
        return {"details": {gpu.name: gpu.details for gpu in _fullest(hits)}}

    def _measure(self, judged: Sequence[_GPU]) -> Measure:
        return Measure(
            value=round(max(gpu.highest for gpu in judged), 1),
            limits=(self.threshold,),
            bad="above",
            scale=100.0,
            unit="% in use, highest sample",
            limit_text=f"threshold {self.threshold:g}% for {duration(self.patience * 60 * SECOND_US)}",
        )

    def _kept(self, judged: Sequence[_GPU], found: Sequence[_GPU], gpus: int) -> str:
        del gpus
        highest = in_percent(max(gpu.highest for gpu in judged))
        return f"GPU memory in use peaked at {highest}{without_check(len(found) - len(judged), 'GPU')}"

    def _findings(self, hits: Sequence[_GPU], found: Sequence[_GPU], job: Job) -> list[Finding]:
        full, gpus, reserved = _fullest(hits), len(found), _reserved(job)
        growing = [gpu for gpu in full if gpu.grown >= self.growth]
        nearly_all = [gpu for gpu in full if gpu.nearly_all]
        whose = f"Memory of {some_of(len(full), gpus, 'GPU')}" if gpus > 1 else "GPU memory"
        measured_us = sum(gpu.measured_us for gpu in full)
        part = sum(gpu.full_us for gpu in full) / measured_us
        first_us, last_us = span_of(gpu.span_us for gpu in full) or (0, 0)
        evidence: list[Fact] = [
            Where(tuple(gpu.label for gpu in full)),
            When(first_us, last_us),
            HowMuch("Highest sample", full[0].highest, "%"),
        ]
        if growing:
            most = max(growing, key=lambda gpu: gpu.grown)
            evidence.append(HowMuch("Growth while nearly full", most.grown, "points", of=most.label))
        if nearly_all:
            names = join_names([gpu.label for gpu in nearly_all])
            evidence.append(Note(f"{names}: above {self.warning_threshold:g}% without a break"))
        if reserved is not None:
            evidence.append(HowMuch("Reserved by PyTorch in the traces, at most", reserved, "%"))
        evidence.append(_NOT_NEEDED)
        whose_time = "its measured time" if len(full) == 1 else "their measured time"
        finding = self.finding(
            f"{whose} was more than {self.threshold:g}% in use for {share(part)} of {whose_time}",
            *evidence,
            severity=Severity.WARNING if growing or nearly_all else Severity.INFO,
            devices=tuple(gpu.name for gpu in full),
            share=part,
            share_of="of the measured time",
            start_us=first_us,
            end_us=last_us,
        )
        return [finding]

    def without(self, job: Job, missing: Reason) -> RuleResult:
        """By the traces of PyTorch's profiler, if these have memory."""
        reserved = _reserved(job)
        if reserved is None:
            return self.not_evaluated(missing)
        title = f"PyTorch reserved up to {in_percent(reserved)} of GPU memory in the profiled time"
        if reserved < self.threshold:
            return self.passed(title, evaluated=1)
        finding = self.finding(title, _NOT_NEEDED, severity=Severity.INFO)
        return self.triggered(finding, evaluated=1, violating=1)


def _fullest(gpus: Sequence[_GPU]) -> list[_GPU]:
    return sorted(gpus, key=lambda gpu: -gpu.highest)


def _reserved(job: Job) -> float | None:
    """Highest share of a GPU's memory that PyTorch had reserved in a trace, in percent; None if no trace says it."""
    curves = (curve for capture in job.captures for curve in capture.memory)
    return max((100 * c.reserved_peak / c.total for c in curves if c.reserved_peak and c.total), default=None)
