"""GPUMemoryFull: the memory of a GPU stays nearly full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.sample_weights import pauses, sample_weights
from jobrules.model import SECOND_US, DeviceStatus, Finding, Measure, Metric, Severity
from jobrules.rule import Rule, minutes, number, percent, reason_short
from jobrules.text import between, duration, escape_name, join_names, share
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import BoolArray, FloatArray, IntArray, Job, Panel, RuleResult


@dataclass(frozen=True, kw_only=True)
class GPUMemoryFull(Rule):
    """The memory of a GPU stays nearly full.

    What it checks
        Memory in use against the memory that the GPU has: triggers where more than ``threshold`` of it is in use for
        at least ``patience`` minutes on end. That is a warning where more than ``warning_threshold`` is in use for that long,
        or where it still grew by ``growth`` points from the first to the last tenth of the full time, else
        an info. Only where both amounts were sampled; how often memory is read or written says nothing of it.

    Why it matters
        What comes next and needs more, a longer input or an evaluation, ends in an out-of-memory error. But this
        is memory that is allocated, not necessarily needed: many frameworks take it ahead or keep what they had,
        and are full on purpose. Libraries beside the framework need some too, and at the brim they find none.

    What to do
        If the framework takes memory ahead, look at its own figures. Else lower the batch size, accumulate
        gradients, or recompute activations, until the largest input leaves room.
    """

    title: ClassVar[str] = "GPU memory stays nearly full"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_MEMORY_USED, Metric.GPU_MEMORY_TOTAL)
    section: ClassVar[str] = "gpu-memory"

    threshold: float = percent(92.0, "memory in use above which a GPU is nearly full")
    warning_threshold: float = percent(99.0, "memory in use above which that is a warning")
    growth: float = number(1.0, "growth while full from which that is a warning", unit="points", high=100)
    patience: float = minutes(1.0, "how long it stays full at least")

    def check(self, job: Job) -> RuleResult:
        """Counts are of GPUs."""
        gpus = job.gathered(self._gpus, Clocks.of(job))
        judged = [gpu for gpu in gpus if not gpu.reason]
        answers = tuple(
            DeviceStatus.of(gpu.name, gpu.reason, int(not gpu.reason), int(gpu.full_us > 0)) for gpu in gpus
        )
        if not judged:
            return self.not_evaluated(gpus[0].reason, devices=answers)
        full = sorted((gpu for gpu in judged if gpu.full_us), key=lambda gpu: -gpu.highest)
        highest = max(gpu.highest for gpu in judged)
        facts: dict[str, Any] = {
            "evaluated": len(judged),
            "violating": len(full),
            "counted": "GPUs",
            "devices": answers,
            "measure": Measure(
                value=round(highest, 1),
                limits=(self.threshold,),
                scale=100.0,
                unit="% in use, the highest sample",
                limit_text=f"triggers above {self.threshold:g}% for {duration(self.patience * 60 * SECOND_US)}",
            ),
        }
        if not full:
            return self.passed(f"At most {in_percent(highest)} of a GPU's memory was in use", **facts)
        return self.triggered(
            self._finding(full, len(gpus)),
            triggered=len(full),
            violations=len(full),
            first_us=min(gpu.first_us for gpu in full),
            last_us=max(gpu.last_us for gpu in full),
            details={gpu.name: gpu.details for gpu in full},
            **facts,
        )

    def _gpus(self, part: Job, clocks: Clocks) -> Iterator[_GPU]:
        for panel in part.panels_of(Metric.GPU_MEMORY_USED):
            total = totals(part.panel(panel.node, Metric.GPU_MEMORY_TOTAL))
            for column, device in enumerate(panel.devices):
                name, told = f"{panel.node}/{device}", f"{panel.node} {device}"
                if device not in total:
                    yield _GPU(name=name, shown=told, reason="GPU memory total was not sampled")
                    continue
                time_us, used = panel.series(column)
                weight_us = sample_weights(time_us, *clocks.span_us(panel.node)).weight_us
                yield self._judged(name, told, time_us, 100 * used / total[device], weight_us)

    def _judged(
        self, name: str, told: str, time_us: IntArray, values: FloatArray, weight_us: FloatArray
    ) -> _GPU:
        measured_us = float(weight_us.sum())
        if measured_us < self.patience * 60 * SECOND_US:
            reason = reason_short(measured_us, self.patience, "measured")
            return _GPU(name=name, shown=told, reason=reason)
        known: dict[str, Any] = {"name": name, "shown": told, "highest": float(values.max())}
        rows = self._long(time_us, values > self.threshold, weight_us)
        if not len(rows):
            return _GPU(**known)
        full, tenth = values[rows], -(-len(rows) // 10)
        return _GPU(
            **known,
            full_us=float(weight_us[rows].sum()),
            measured_us=measured_us,
            grown=float(full[-tenth:].mean() - full[:tenth].mean()),
            nearly_all=bool(len(self._long(time_us, values > self.warning_threshold, weight_us))),
            first_us=int(time_us[rows[0]]),
            last_us=int(time_us[rows[-1]]),
        )

    def _long(self, time_us: IntArray, above: BoolArray, weight_us: FloatArray) -> IntArray:
        """Numbers of the samples in runs that last long enough; a pause of the sampling ends a run."""
        begins = above & np.append(True, ~above[:-1] | pauses(time_us))
        run = np.cumsum(begins)
        lasted_us = np.bincount(run[above], weights=weight_us[above], minlength=int(run[-1]) + 1)
        return np.flatnonzero(above & (lasted_us[run] >= self.patience * 60 * SECOND_US))

    def _finding(self, full: Sequence[_GPU], gpus: int) -> Finding:
        growing = [gpu for gpu in full if gpu.grown >= self.growth]
        brim = [gpu for gpu in full if gpu.nearly_all]
        who = "GPU memory" if gpus == 1 else f"The memory of {len(full)} of {gpus} GPUs"
        measured_us = sum(gpu.measured_us for gpu in full)
        part = sum(gpu.full_us for gpu in full) / measured_us
        first_us, last_us = min(gpu.first_us for gpu in full), max(gpu.last_us for gpu in full)
        told = [
            f"{join_names([gpu.shown for gpu in full])}, {between(first_us, last_us)}; highest {in_percent(full[0].highest)}.",
            "It is allocated, not necessarily needed.",
        ]
        if brim:
            told.append(
                f"{join_names([gpu.shown for gpu in brim])}: above {self.warning_threshold:g}% on end."
            )
        if growing:
            most = max(growing, key=lambda gpu: gpu.grown)
            told.append(f"While full it still grew, on {escape_name(most.shown)} by {most.grown:.1f} points.")
        return self.finding(
            f"{who} was above {self.threshold:g}% in use for {share(part)} of the time measured",
            " ".join(told),
            severity=Severity.WARNING if growing or brim else Severity.INFO,
            devices=tuple(gpu.name for gpu in full),
            share=part,
            share_of="of the time measured",
            start_us=first_us,
            end_us=last_us,
        )


class _GPU(Struct, frozen=True, kw_only=True):
    #: ``node/device``, and as it is told.
    name: str
    shown: str
    #: Why it was not judged; empty if it was.
    reason: str = ""
    #: Highest sample, in percent.
    highest: float = 0.0
    #: How long it was full, in runs that are long enough, of how long it was measured.
    full_us: float = 0.0
    measured_us: float = 0.0
    #: Mean of the last tenth of the samples in them less that of the first, in points.
    grown: float = 0.0
    #: Whether it was at the brim for as long.
    nearly_all: bool = False
    #: First and last sample in them.
    first_us: int = 0
    last_us: int = 0

    @property
    def details(self) -> dict[str, Any]:
        return {
            "full_s": self.full_us / SECOND_US,
            "measured_s": self.measured_us / SECOND_US,
            "highest": self.highest,
            "grown": self.grown,
        }


def totals(panel: Panel | None) -> dict[str, float]:
    """The memory that each GPU of a node has, in bytes; it does not change, so when it was sampled is no matter."""
    if panel is None:
        return {}
    known = zip(panel.devices, np.nanmedian(panel.values, axis=0).tolist(), strict=True)
    return {device: total for device, total in known if total > 0}
