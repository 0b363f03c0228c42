"""GPUMemoryLeak: GPU memory in use keeps growing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.work_span import HOUR_US, work_span_us
from jobrules.model import (
    SECOND_US,
    DeviceStatus,
    Finding,
    HowMuch,
    Measure,
    Metric,
    OfGPU,
    Severity,
    When,
    Where,
)
from jobrules.rule import Rule, minutes, not_recorded, number, reason_few_samples, reason_short
from jobrules.rules.gpu_memory_full import totals
from jobrules.text import count, some_of, without_check
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import FloatArray, IntArray, Job, Reason, RuleResult

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


@dataclass(frozen=True, kw_only=True)
class GPUMemoryLeak(Rule):
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
    section: ClassVar[str] = "gpu-memory"

    threshold: float = number(1.0, "growth of the minima per hour", unit="%/h")
    patience: float = minutes(30.0, "training before the first check")

    def check(self, job: Job) -> RuleResult:
        """Counts are of GPUs."""
        clocks = Clocks.of(job)
        gpus = job.gathered(self._gpus, clocks, work_span_us(job, clocks=clocks))
        judged = [gpu for gpu in gpus if not gpu.reason]
        answers = tuple(
            DeviceStatus.of(gpu.name, gpu.reason, int(not gpu.reason), int(gpu.leaks)) for gpu in gpus
        )
        if not judged:
            return self.not_evaluated(next(gpu.reason for gpu in gpus if gpu.reason), devices=answers)
        leaking = sorted((gpu for gpu in judged if gpu.leaks), key=lambda gpu: gpu.full_after_h)
        most = max(judged, key=lambda gpu: gpu.slope)
        facts: dict[str, Any] = {
            "evaluated": len(judged),
            "violating": len(leaking),
            "counted": "GPUs",
            "devices": answers,
            "measure": Measure(
                value=round(max(0.0, most.slope), 2),
                limits=(self.threshold,),
                scale=max(2 * self.threshold, most.slope) or 1.0,
                unit="% of the memory per hour",
                limit_text=f"threshold {self.threshold:g}%/h, if it keeps growing",
            ),
        }
        if not leaking:
            none = f"GPU memory in use did not keep growing on any of {count(len(judged), 'GPU')}"
            limit = without_check(len(gpus) - len(judged), "GPU")
            return self.passed(f"{none}{limit}", **facts)
        return self.triggered(
            self._finding(leaking, len(gpus)),
            triggered=len(leaking),
            violations=len(leaking),
            first_us=min(gpu.first_us for gpu in leaking),
            last_us=max(gpu.last_us for gpu in leaking),
            details={gpu.name: gpu.details for gpu in leaking},
            **facts,
        )

    def _gpus(self, part: Job, clocks: Clocks, work_us: tuple[int, int] | None) -> Iterator[_GPU]:
        for panel in part.panels_of(Metric.GPU_MEMORY_USED):
            late_us = clocks.clock_offset_us.get(panel.node, 0)
            of_work = (work_us[0] + late_us, work_us[1] + late_us) if work_us else None
            span_us = part.loop_us(panel.node) or of_work or (int(panel.time_us[0]), int(panel.time_us[-1]))
            total = totals(part.panel(panel.node, Metric.GPU_MEMORY_TOTAL))
            for column, device in enumerate(panel.devices):
                named: dict[str, Any] = {"node": panel.node, "device": device}
                if device not in total:
                    yield _GPU(**named, reason=not_recorded(Metric.GPU_MEMORY_TOTAL))
                    continue
                time_us, used = panel.series(column)
                yield self._checked(named, time_us, 100 * used / total[device], span_us)

    def _checked(
        self, named: dict[str, Any], time_us: IntArray, values: FloatArray, span_us: tuple[int, int]
    ) -> _GPU:
        first, stop = np.searchsorted(time_us, (span_us[0], span_us[1] + 1)).tolist()
        time_us, values = time_us[first:stop], values[first:stop]
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
        agreement = float(np.sign(rise).mean())
        low, middle, high = (float(np.median(third)) for third in np.array_split(floor, 3))
        return _GPU(
            **named,
            slope=slope,
            agreement=agreement,
            leaks=slope > self.threshold
            and agreement >= _STEADY
            and high - middle >= _LASTING * (middle - low),
            # The line through the median of the minima, at the last part.
            reached=float(np.median(floor + slope * (hours[-1] - hours))),
            first_us=int(time_us[0]),
            last_us=int(time_us[-1]),
        )

    def _finding(self, leaking: Sequence[_GPU], gpus: int) -> Finding:
        worst = leaking[0]
        fastest = max(leaking, key=lambda gpu: gpu.slope)
        first_us, last_us = min(gpu.first_us for gpu in leaking), max(gpu.last_us for gpu in leaking)
        on = f" on {some_of(len(leaking), gpus, 'GPU')}" if gpus > 1 else ""
        return self.finding(
            f"GPU memory in use kept growing{on}, by {in_percent(fastest.slope)} of the memory per hour",
            Where(tuple(gpu.label for gpu in leaking)),
            When(first_us, last_us),
            HowMuch("Lowest memory in use at the end", worst.reached, "%", of=worst.label),
            HowMuch("Full at this pace after another", worst.full_after_h * HOUR_US / SECOND_US, "s"),
            severity=Severity.WARNING if worst.full_after_h <= _SOON_H else Severity.INFO,
            devices=tuple(gpu.name for gpu in leaking),
            start_us=first_us,
            end_us=last_us,
        )


class _GPU(OfGPU, frozen=True, kw_only=True):
    #: Why it was not evaluated; None if it was.
    reason: Reason | None = None
    #: Of the minima, in percent of the memory per hour.
    slope: float = 0.0
    #: Kendall's tau: pairs that rise less pairs that fall, as a share of all.
    agreement: float = 0.0
    leaks: bool = False
    #: The minima's line at the end, in percent of the memory.
    reached: float = 0.0
    #: First and last sample of training.
    first_us: int = 0
    last_us: int = 0

    @property
    def full_after_h(self) -> float:
        """Hours after the last sample until the memory is full at this pace."""
        return max(0.0, 100 - self.reached) / self.slope

    @property
    def details(self) -> dict[str, Any]:
        return {
            "points_per_hour": self.slope,
            "agreement": self.agreement,
            "reached": self.reached,
            "full_after_h": self.full_after_h,
        }


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
