"""GPUMemoryLeak: GPU memory in use keeps growing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.gpu_conditions import gpus
from jobrules.measures.work_span import HOUR_US, work_span_us
from jobrules.model import SECOND_US, HowMuch, Measure, Metric, Severity, When, Where, span_of
from jobrules.rule import minutes, not_recorded, number, reason_few_samples, reason_short
from jobrules.rules.gpu_rule import GPURule, JudgedGPU
from jobrules.text import count, some_of, without_check
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.measures.gpu_conditions import GPU
    from jobrules.model import Finding, FloatArray, IntArray, Job, Reason

#: Parts of training, each at least a minute long: an epoch of most jobs. All pairs of them are compared.
_STRETCHES, _SHORTEST_US = 20, 60 * SECOND_US
#: Share of training that is left out at its beginning: caches and the first evaluation fill memory once.
_SETTLING = 0.1
#: So many more pairs rise than fall, as a share of all pairs.
_STEADY = 0.8
#: The last third grows by at least this part of the growth of the middle third: what levels off does not leak.
_LASTING = 0.5
#: A leak that fills the memory within so many hours is a warning.
_SOON_H = 24.0


class _GPU(JudgedGPU, frozen=True, kw_only=True):
    #: Of the minima, in percent of the memory per hour.
    slope: float = 0.0
    #: The minima's line at the end, in percent of the memory.
    reached: float = 0.0
    #: Hours after the last sample until the memory is full at this pace.
    full_after_h: float = 0.0


@dataclass(frozen=True, kw_only=True)
class GPUMemoryLeak(GPURule[_GPU]):
    """GPU memory in use keeps growing.

    What it checks
        The lowest memory in use in up to 20 equal parts of training, without its first tenth. Triggers if these minima
        keep growing faster than ``threshold`` per hour.

    Why it matters
        Memory that is never freed ends in an out-of-memory error.

    What to do
        * Look for kept tensors: losses summed without ``.item()``, lists of outputs, unbounded caches.
        * Write checkpoints more often.

    Details
        The speed is the Theil–Sen slope of the minima. Nearly all pairs of parts must grow, and growth must not level
        off. Training is the time of the steps, if known, otherwise that from the first to the last GPU work.
        Needs ``patience`` minutes of training.
    """

    title: ClassVar[str] = "GPU memory in use keeps growing"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_MEMORY_USED, Metric.GPU_MEMORY_TOTAL)
    sources: ClassVar[tuple[Metric, ...]] = (Metric.GPU_MEMORY_USED,)
    section: ClassVar[str] = "gpu-memory"

    threshold: float = number(1.0, "growth of the minima per hour", unit="%/h")
    patience: float = minutes(30.0, "training before the first check")

    def _gather(self, job: Job) -> list[_GPU] | Reason:
        clocks = Clocks.of(job)
        return job.gathered(self._trained, clocks, work_span_us(job, clocks=clocks))

    def _trained(self, part: Job, clocks: Clocks, work_us: tuple[int, int] | None) -> Iterator[_GPU]:
        late_us = clocks.late_us(part.nodes[0])
        of_work = (work_us[0] + late_us, work_us[1] + late_us) if work_us else None
        return (self._of_gpu(gpu, of_work) for gpu in gpus(part, clocks, *self.sources))

    def _of_gpu(self, gpu: GPU, work_us: tuple[int, int] | None = None) -> _GPU:
        named: dict[str, Any] = {"node": gpu.node, "device": gpu.device}
        size = gpu.memory_size
        if size is None:
            return _GPU(**named, reason=not_recorded(Metric.GPU_MEMORY_TOTAL))
        time_us, used = gpu.series(Metric.GPU_MEMORY_USED)
        values = 100 * used / size
        if span_us := gpu.part.loop_us(gpu.node) or work_us:
            inside = slice(*np.searchsorted(time_us, (span_us[0], span_us[1] + 1)))
            time_us, values = time_us[inside], values[inside]
        lasted_us = int(time_us[-1] - time_us[0]) if len(time_us) else 0
        if lasted_us < self.patience * 60 * SECOND_US:
            return _GPU(**named, reason=reason_short(lasted_us, self.patience, "training"))
        hours, floor = _floor(time_us, values)
        if len(floor) < 4:
            few = reason_few_samples(len(floor), 3, "parts of training with samples")
            return _GPU(**named, reason=few)
        early, late = np.triu_indices(len(floor), 1)
        rise = floor[late] - floor[early]
        slope = float(np.median(rise / (hours[late] - hours[early])))
        # Kendall's tau: pairs that rise less pairs that fall, as a share of all.
        agreement = float(np.sign(rise).mean())
        low, middle, high = (float(np.median(third)) for third in np.array_split(floor, 3))
        lasting = high - middle >= _LASTING * (middle - low)
        leaks = slope > self.threshold and agreement >= _STEADY and lasting
        # The line through the median of the minima, at the last part.
        reached = float(np.median(floor + slope * (hours[-1] - hours)))
        full_after_h = max(0.0, 100 - reached) / slope if leaks else 0.0
        return _GPU(
            **named,
            hit=leaks,
            span_us=(int(time_us[0]), int(time_us[-1])),
            slope=slope,
            reached=reached,
            full_after_h=full_after_h,
            details={
                "points_per_hour": slope,
                "agreement": agreement,
                "reached": reached,
                "full_after_h": full_after_h,
            },
        )

    def _counted(self, found: Sequence[_GPU], hits: Sequence[_GPU]) -> dict[str, Any]:
        del found
        return {"details": {gpu.name: gpu.details for gpu in _soonest(hits)}}

    def _measure(self, judged: Sequence[_GPU]) -> Measure:
        most = max(gpu.slope for gpu in judged)
        return Measure(
            value=round(max(0.0, most), 2),
            limits=(self.threshold,),
            bad="above",
            scale=max(2 * self.threshold, most) or 1.0,
            unit="% of the memory per hour",
            limit_text=f"threshold {self.threshold:g}%/h, if it keeps growing",
        )

    def _kept(self, judged: Sequence[_GPU], found: Sequence[_GPU], gpus: int) -> str:
        del gpus
        none = f"GPU memory in use did not keep growing on any of {count(len(judged), 'GPU')}"
        return f"{none}{without_check(len(found) - len(judged), 'GPU')}"

    def _findings(self, hits: Sequence[_GPU], found: Sequence[_GPU], job: Job) -> list[Finding]:
        del job
        leaking = _soonest(hits)
        worst, fastest = leaking[0], max(gpu.slope for gpu in leaking)
        first_us, last_us = span_of(gpu.span_us for gpu in leaking) or (0, 0)
        on = f" on {some_of(len(leaking), len(found), 'GPU')}" if len(found) > 1 else ""
        finding = self.finding(
            f"GPU memory in use kept growing{on}, by {in_percent(fastest)} of the memory per hour",
            Where(tuple(gpu.label for gpu in leaking)),
            When(first_us, last_us),
            HowMuch("Lowest memory in use at the end", worst.reached, "%", of=worst.label),
            HowMuch("Full at this pace after another", worst.full_after_h * HOUR_US / SECOND_US, "s"),
            severity=Severity.WARNING if worst.full_after_h <= _SOON_H else Severity.INFO,
            devices=tuple(gpu.name for gpu in leaking),
            start_us=first_us,
            end_us=last_us,
        )
        return [finding]


def _soonest(gpus: Sequence[_GPU]) -> list[_GPU]:
    return sorted(gpus, key=lambda gpu: gpu.full_after_h)


def _floor(time_us: IntArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Middle in hours and lowest sample of each part that has samples, without the first tenth of the time."""
    first = int(np.searchsorted(time_us, time_us[0] + _SETTLING * (time_us[-1] - time_us[0])))
    time_us, values = time_us[first:], values[first:]
    lasted_us = int(time_us[-1] - time_us[0]) + 1
    stretches = max(1, min(_STRETCHES, lasted_us // _SHORTEST_US))
    stretch = (time_us - time_us[0]) * stretches // lasted_us
    starts = np.flatnonzero(np.diff(stretch, prepend=-1))
    hours = (stretch[starts] + 0.5) * lasted_us / stretches / HOUR_US
    return hours, np.minimum.reduceat(values, starts)
