"""GPUMemoryLeak: the memory of a GPU grows throughout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.gpu_memory_full import totals
from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.work_span import HOUR_US, work_span_us
from jobrules.model import SECOND_US, DeviceStatus, Finding, Measure, Metric, Severity
from jobrules.rule import Rule, minutes, number, reason_short
from jobrules.text import between, duration, escape_name, join_names
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import FloatArray, IntArray, Job, RuleResult

#: The floor is that of so many stretches, of a minute at least: long enough to hold an epoch of most jobs. All
#: pairs of them are compared.
_STRETCHES, _SHORTEST_US = 20, 60 * SECOND_US
#: Part of the training that is left out at its beginning: caches and the first evaluation fill memory once.
_SETTLING = 0.1
#: So many more pairs rise than fall, as a share of all pairs.
_STEADY = 0.8
#: The last third rises by at least this part of the rise of the one before: what levels off does not leak.
_LASTING = 0.5
#: A leak that fills the memory within so many hours is a warning.
_SOON_H = 24.0


@dataclass(frozen=True, kw_only=True)
class GPUMemoryLeak(Rule):
    """The memory of a GPU grows throughout.

    What it checks
        The lowest amount of memory in use in each of up to 20 stretches of equal length of the training, but
        for its first tenth: the floor, which what is allocated and freed again does not lift. Triggers where its
        Theil-Sen slope is above ``threshold`` of the GPU's memory an hour, nearly all pairs of stretches rise, and
        it does not level off. The training is the time of the steps, where they are known,
        else that from the first to the last work. Not evaluated where it takes less than ``patience`` minutes, nor
        where only the use of memory as a share of time was sampled, which is no amount.

    Why it matters
        What is kept and never freed ends in an out-of-memory error, and costs all hours since the last checkpoint.

    What to do
        Look for tensors that are kept: losses added up with their graphs (use ``.item()``), outputs in lists, hooks,
        caches without a limit. Compare the framework's own snapshots of memory of two moments far apart. Until it is
        found, write checkpoints more often than the time that is left.
    """

    title: ClassVar[str] = "GPU memory grows throughout"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_MEMORY_USED, Metric.GPU_MEMORY_TOTAL)
    section: ClassVar[str] = "gpu-memory"

    threshold: float = number(1.0, "growth of the floor above which the rule triggers", unit="%/h")
    patience: float = minutes(30.0, "training that is wanted before a GPU is judged")

    def check(self, job: Job) -> RuleResult:
        """Counts are of GPUs."""
        clocks = Clocks.of(job)
        gpus = job.gathered(self._gpus, clocks, work_span_us(job, clocks=clocks))
        judged = [gpu for gpu in gpus if not gpu.reason]
        answers = tuple(
            DeviceStatus.of(gpu.name, gpu.reason, int(not gpu.reason), int(gpu.leaks)) for gpu in gpus
        )
        if not judged:
            return self.not_evaluated(gpus[0].reason, devices=answers)
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
                unit="% of the memory an hour",
                limit_text=f"triggers above {self.threshold:g}%/h, if it grows throughout",
            ),
        }
        if not leaking:
            return self.passed("No GPU's memory grew throughout", **facts)
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
                name, told = f"{panel.node}/{device}", f"{panel.node} {device}"
                if device not in total:
                    yield _GPU(name=name, shown=told, reason="GPU memory total was not sampled")
                    continue
                time_us, used = panel.series(column)
                yield self._judged(name, told, time_us, 100 * used / total[device], span_us)

    def _judged(
        self, name: str, told: str, time_us: IntArray, values: FloatArray, span_us: tuple[int, int]
    ) -> _GPU:
        first, stop = np.searchsorted(time_us, (span_us[0], span_us[1] + 1)).tolist()
        time_us, values = time_us[first:stop], values[first:stop]
        lasted_us = int(time_us[-1] - time_us[0]) if len(time_us) else 0
        if lasted_us < self.patience * 60 * SECOND_US:
            return _GPU(name=name, shown=told, reason=reason_short(lasted_us, self.patience, "of training"))
        hours, floor = _floor(time_us, values)
        if len(floor) < 4:
            return _GPU(name=name, shown=told, reason=f"only {len(floor)} stretches of training with samples")
        early, late = np.triu_indices(len(floor), 1)
        rise = floor[late] - floor[early]
        slope = float(np.median(rise / (hours[late] - hours[early])))
        agreement = float(np.sign(rise).mean())
        low, middle, high = (float(np.median(third)) for third in np.array_split(floor, 3))
        return _GPU(
            name=name,
            shown=told,
            slope=slope,
            agreement=agreement,
            leaks=slope > self.threshold
            and agreement >= _STEADY
            and high - middle >= _LASTING * (middle - low),
            # The line through the median of the floor, at its last stretch.
            reached=float(np.median(floor + slope * (hours[-1] - hours))),
            first_us=int(time_us[0]),
            last_us=int(time_us[-1]),
        )

    def _finding(self, leaking: Sequence[_GPU], gpus: int) -> Finding:
        worst = leaking[0]
        who = "GPU memory" if gpus == 1 else f"The memory of {len(leaking)} of {gpus} GPUs"
        at_most = ", at most" if len(leaking) > 1 else ""
        first_us, last_us = min(gpu.first_us for gpu in leaking), max(gpu.last_us for gpu in leaking)
        return self.finding(
            f"{who} grew throughout{at_most} by {in_percent(max(gpu.slope for gpu in leaking))} of it an hour",
            f"{join_names([gpu.shown for gpu in leaking])}, {between(first_us, last_us)}. The floor of {escape_name(worst.shown)} had "
            f"reached {in_percent(worst.reached)}; at this pace it is full after another "
            f"{duration(worst.full_after_h * HOUR_US)}.",
            severity=Severity.WARNING if worst.full_after_h <= _SOON_H else Severity.INFO,
            devices=tuple(gpu.name for gpu in leaking),
            start_us=first_us,
            end_us=last_us,
        )


class _GPU(Struct, frozen=True, kw_only=True):
    #: ``node/device``, and as it is told.
    name: str
    shown: str
    #: Why it was not judged; empty if it was.
    reason: str = ""
    #: Of the floor, in percent of the memory an hour.
    slope: float = 0.0
    #: Kendall's tau: pairs that rise less pairs that fall, as a share of all.
    agreement: float = 0.0
    leaks: bool = False
    #: The floor at the end, in percent of the memory.
    reached: float = 0.0
    #: First and last sample looked at.
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
    """Middle in hours and lowest sample of each stretch that has samples, without the first tenth of the time."""
    first = int(np.searchsorted(time_us, time_us[0] + _SETTLING * (time_us[-1] - time_us[0])))
    time_us, values = time_us[first:], values[first:]
    lasted_us = int(time_us[-1] - time_us[0]) + 1
    stretches = max(1, min(_STRETCHES, lasted_us // _SHORTEST_US))
    stretch = (time_us - time_us[0]) * stretches // lasted_us
    starts = np.flatnonzero(np.diff(stretch, prepend=-1))
    hours = (stretch[starts] + 0.5) * lasted_us / stretches / HOUR_US
    return hours, np.minimum.reduceat(values, starts)
