"""GPUMemoryIncrease: GPU memory activity jumps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from jobrules.measures.gpu_conditions import by_node
from jobrules.measures.minutes import Windows
from jobrules.measures.quartiles import quartiles
from jobrules.model import (
    DeviceStatus,
    Finding,
    Measure,
    Metric,
    Note,
    OfGPU,
    RuleResult,
    Severity,
    When,
    Where,
)
from jobrules.model.order import distinct, quantiles
from jobrules.rule import Amount, Role, Rule, in_samples, number, reason_few_samples, samples
from jobrules.text import clock, count, duration, escape_name, without_check
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import BoolArray, FloatArray, IntArray, Job

#: Jumps of each GPU that the JSON lists.
MAX_EVENTS = 100
#: GPUs that the evidence describes.
_MAX_NAMED = 4
#: Values are added up in whole millionths of a percent: sums are exact, and so is a rise that equals the limit.
_PARTS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class GPUMemoryIncrease(Rule):
    """GPU memory activity jumps.

    What it checks
        Mean GPU memory activity of the last ``window`` samples against the ``window`` samples before. Triggers above
        ``increase`` points.

    Why it matters
        The GPU's work changed: it started, or moves more data. Activity says nothing about memory in use.

    What to do
        * See what started at that time.
        * An intended change needs no action.

    Details
        Checked at every sample after the first ``patience``. Neighboring samples above the threshold are one jump, also
        across a time without samples.
    """

    title: ClassVar[str] = "GPU memory activity jumps"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_MEMORY_ACTIVITY,)
    section: ClassVar[str] = "gpu-memory"
    role: ClassVar[Role] = Role.SYMPTOM

    increase: float = number(5.0, "largest increase that is no jump", unit="points", high=100)
    patience: Amount = samples(1000, "samples before the first check")
    window: Amount = samples(10, "samples per mean")

    def check(self, job: Job) -> RuleResult:
        """``triggered`` counts events, ``violations`` the samples in them."""
        grid = Windows.of(job)
        gpus = job.gathered(self._gpus, grid)
        answers = tuple(gpu.answer for gpu in gpus)
        seen = {gpu.name: gpu.n for gpu in gpus}
        facts: dict[str, Any] = {
            "datapoints": max(seen.values()),
            "datapoints_per_series": seen,
            "counted": "windows",
            "devices": answers,
        }
        judged = [gpu for gpu in gpus if gpu.judged]
        if not judged:
            few = max(gpus, key=lambda gpu: gpu.n)
            return self.not_evaluated(reason_few_samples(few.n, few.patience), **facts)
        rising = sorted((gpu for gpu in judged if gpu.largest_rise), key=lambda gpu: -gpu.largest)
        largest = max(gpu.largest for gpu in judged)
        facts |= {
            "evaluated": sum(gpu.judged for gpu in gpus),
            "violating": sum(gpu.violating_windows for gpu in gpus),
            "measure": Measure(
                value=round(max(0.0, largest), 1),
                limits=(self.increase,),
                bad="above",
                scale=100.0,
                unit="points",
                limit_text=f"largest increase, threshold {self.increase:g}",
            ),
        }
        if not rising:
            limit = without_check(len(gpus) - len(judged), "GPU")
            none = f"No jump in GPU memory activity above {self.increase:g} points"
            return self.passed(f"{none} (largest {max(0.0, largest):.1f}){limit}", **facts)
        details: dict[str, Any] = by_node((gpu.node, gpu.device, gpu.details) for gpu in rising)
        details["last_timestamp"] = max(gpu.last_us for gpu in rising)
        finding = self._finding(rising)
        return self.triggered(
            finding,
            triggered=sum(gpu.events for gpu in rising),
            violations=sum(gpu.violating for gpu in rising),
            first_us=finding.start_us,
            last_us=finding.end_us,
            details=details,
            **facts,
        )

    def _gpus(self, part: Job, grid: Windows) -> Iterator[_GPU]:
        """The GPUs of one node."""
        for panel in part.panels_of(Metric.GPU_MEMORY_ACTIVITY):
            for column, device in enumerate(panel.devices):
                yield self._judged(panel.node, device, *panel.series(column), grid)

    def _judged(self, node: str, device: str, time_us: IntArray, values: FloatArray, grid: Windows) -> _GPU:
        n = len(values)
        found = compare(time_us, values, self)
        if isinstance(found, int):
            return _GPU(node=node, device=device, n=n, judged=0, patience=found)
        seen = grid.seen(time_us)
        result = _GPU(
            node=node,
            device=device,
            n=n,
            # Windows with a checked sample; the first such is the number ``found.first``, counted from 1.
            judged=len(seen.judged(found.first - 1)),
            largest=float(found.rise.max()) / found.unit,
        )
        if not found.events:
            return result
        over = np.flatnonzero(found.over) + found.first
        history = values[: over[-1]]
        return replace(
            result,
            violating_windows=len(distinct(np.searchsorted(seen.ends, over))),
            violating=len(over),
            peak=float(values[over[0] - 1 :].max()),
            events=len(found.events),
            first_us=found.events[0].start_us,
            last_us=found.events[-1].end_us,
            largest_rise=max(found.events, key=lambda event: event.points),
            details={
                "increase": float(found.rise[over[-1] - found.first]) / found.unit,
                "gpu_max": float(history.max()),
                "p05": quantiles(history, (0.05,))[0],
                **quartiles(history),
                "events": [one.details for one in found.events[:MAX_EVENTS]],
            },
        )

    def _finding(self, rising: Sequence[_GPU]) -> Finding:
        jumps = [(gpu, gpu.largest_rise) for gpu in rising if gpu.largest_rise]
        largest = max((one for _, one in jumps), key=lambda one: one.points)
        notes = [
            f"{escape_name(gpu.label)}: {count(gpu.events, 'jump')}, the largest from "
            f"{in_percent(one.from_percent)} to {in_percent(one.to_percent)} at {clock(one.start_us)}, "
            f"highest sample since {in_percent(gpu.peak)}"
            for gpu, one in jumps[:_MAX_NAMED]
        ]
        start_us, end_us = min(gpu.first_us for gpu in rising), max(gpu.last_us for gpu in rising)
        return self.finding(
            f"GPU memory activity jumped by {largest.points:.1f} points within {duration(largest.within_us)}",
            Where(tuple(gpu.label for gpu in rising)),
            When(start_us, end_us),
            *map(Note, notes),
            severity=Severity.INFO,
            devices=tuple(gpu.name for gpu in rising),
            start_us=start_us,
            end_us=end_us,
        )


class Rise(Struct, frozen=True, kw_only=True):
    """A jump: neighboring samples above the threshold."""

    #: First and last sample above the threshold.
    start_us: int
    end_us: int
    #: Means of the two windows between which it rose most, in percent.
    from_percent: float
    to_percent: float
    #: From the first sample of the one to the last of the other.
    within_us: int

    @property
    def points(self) -> float:
        """How much it rose."""
        return self.to_percent - self.from_percent

    @property
    def details(self) -> dict[str, float]:
        """For the JSON."""
        return {
            "start_us": self.start_us,
            "end_us": self.end_us,
            "from": self.from_percent,
            "to": self.to_percent,
        }


class Compared(Struct, frozen=True, kw_only=True):
    """The samples of one GPU at which two windows were compared."""

    #: Number of the first, counted from 1; all after it were compared too.
    first: int
    #: (m,) how much it rose, in ``unit`` parts of a point.
    rise: IntArray
    unit: int
    #: (m,) whether by more than the threshold; neighbors are one jump.
    over: BoolArray
    events: tuple[Rise, ...]


def compare(time_us: IntArray, values: FloatArray, rule: GPUMemoryIncrease) -> Compared | int:
    """Compare the windows of one GPU; if it has too few samples, the number of samples before the first check."""
    n = len(values)
    patience, window = (in_samples(amount, time_us) for amount in (rule.patience, rule.window))
    unseen = max(patience, 2 * window - 1)
    if n <= unseen:
        return unseen
    sums = np.append(0, np.cumsum(np.rint(values * _PARTS).astype(np.int64)))
    # Sums of ``window`` samples; that which ends with sample i, counted from 1, stands at i - window.
    held = sums[window:] - sums[:-window]
    rise = held[unseen + 1 - window :] - held[unseen + 1 - 2 * window : n + 1 - 2 * window]
    over = rise > round(rule.increase * _PARTS) * window
    edges = np.flatnonzero(np.diff(over, prepend=False, append=False))
    unit = window * _PARTS

    def event(first: int, stop: int) -> Rise:
        # Place i is sample unseen + i.
        most = unseen + 1 + first + int(rise[first:stop].argmax())
        return Rise(
            start_us=int(time_us[unseen + first]),
            end_us=int(time_us[unseen + stop - 1]),
            from_percent=float(held[most - 2 * window]) / unit,
            to_percent=float(held[most - window]) / unit,
            within_us=int(time_us[most - 1] - time_us[most - 2 * window]),
        )

    events = tuple(map(event, edges[::2].tolist(), edges[1::2].tolist()))
    return Compared(first=unseen + 1, rise=rise, unit=unit, over=over, events=events)


class _GPU(OfGPU, frozen=True, kw_only=True):
    #: Samples, windows with a check, windows that violate, samples that violate.
    n: int
    judged: int
    violating_windows: int = 0
    violating: int = 0
    #: Largest increase in points, of all samples checked.
    largest: float = 0.0
    #: Highest sample since the first event.
    peak: float = 0.0
    #: Jumps, when the first began and the last ended, and the largest; None without any.
    events: int = 0
    first_us: int = 0
    last_us: int = 0
    largest_rise: Rise | None = None
    details: dict[str, Any] = field(default_factory=dict)
    #: Samples before the first check, if there is none.
    patience: int = 0

    @property
    def answer(self) -> DeviceStatus:
        return DeviceStatus.of(
            self.name, reason_few_samples(self.n, self.patience), self.judged, self.violating_windows
        )
