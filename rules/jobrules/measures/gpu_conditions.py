"""Metrics of one GPU, which may be sampled at different times, and how long a condition held on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobrules.measures.intervals import union
from jobrules.measures.sample_weights import sample_weights
from jobrules.measures.snapshots import TOLERANCE_US
from jobrules.model import (
    SECOND_US,
    HowMuch,
    Job,
    Measure,
    Metric,
    OfGPU,
    When,
    Where,
    natural_sorted,
)
from jobrules.model.order import median
from jobrules.rule import reason_few_samples
from jobrules.text import count, escape_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jobrules.measures.clock_offsets import Clocks
    from jobrules.model import BoolArray, Fact, Finding, FloatArray, IntArray, Reason
    from jobrules.rule import Rule

#: A value is in force for so many of its sampling intervals, unless another follows.
IN_FORCE_INTERVALS = 5
#: Lowest utilization of a busy GPU, in percent: clocks and power of idle GPUs say nothing.
BUSY_PERCENT = 50.0
#: Samples that a median clock needs, and a share of time.
MIN_SAMPLES = 10
#: GPUs that the evidence describes.
_MAX_NAMED = 4


class GPU(OfGPU, frozen=True, kw_only=True, eq=False):
    """One GPU of a node's part of a job."""

    part: Job
    #: First and last record of the job, in the time of the node.
    span_us: tuple[int, int]

    def series(self, metric: Metric) -> tuple[IntArray, FloatArray]:
        """Times and values; empty if the metric was not sampled on this GPU."""
        panel = self.part.panel(self.node, metric)
        if panel is None or self.device not in panel.devices:
            return np.empty(0, np.int64), np.empty(0)
        return panel.series(panel.devices.index(self.device))

    @property
    def memory_size(self) -> float | None:
        """Bytes, which do not change, so any sample counts; None if not known."""
        _, sizes = self.series(Metric.GPU_MEMORY_TOTAL)
        size = float(np.median(sizes)) if len(sizes) else 0.0
        return size if size > 0 else None

    def at(self, metric: Metric, time_us: IntArray) -> FloatArray:
        """(n,) the value in force at each time: the last one, if it is recent; otherwise NaN.

        A sample up to 20 ms later has the same time.
        """
        sampled_us, values = self.series(metric)
        if not len(sampled_us):
            return np.full(len(time_us), np.nan)
        interval_us = median(np.diff(sampled_us)) if len(sampled_us) > 1 else 0.0
        last = np.searchsorted(sampled_us, time_us + TOLERANCE_US, side="right") - 1
        recent = time_us - sampled_us[last] <= IN_FORCE_INTERVALS * interval_us
        return np.where((last >= 0) & recent, values[last], np.nan)

    def sampled(self, metric: Metric, time_us: IntArray) -> BoolArray:
        """(n,) True if the metric was sampled within half a sampling interval of each time."""
        sampled_us, _ = self.series(metric)
        near_us = max(TOLERANCE_US, int(median(np.diff(time_us))) // 2 if len(time_us) > 1 else 0)
        since = np.searchsorted(sampled_us, time_us - near_us)
        return np.asarray(np.searchsorted(sampled_us, time_us + near_us, side="right") > since)

    def clocks(self, time_us: IntArray, held_back: BoolArray) -> tuple[float, float] | None:
        """Median clock while something held the GPU back, and otherwise, in MHz.

        Times at which the GPU was not busy are left out. None with fewer than ten clocks on either side.
        """
        clock, idle = (
            self.at(Metric.GPU_CLOCK, time_us),
            self.at(Metric.GPU_UTILIZATION, time_us) < BUSY_PERCENT,
        )
        known = ~np.isnan(clock) & ~idle
        then, others = clock[known & held_back], clock[known & ~held_back]
        if min(len(then), len(others)) < MIN_SAMPLES:
            return None
        return float(np.median(then)), float(np.median(others))


class ConditionTime(Struct, frozen=True, kw_only=True):
    """How long a condition held on one GPU, and when."""

    #: ``node/device``, and ``node device``.
    name: str
    label: str
    #: Samples, the time that they represent, and for how much of it the condition held.
    samples: int
    covered_us: float
    us: float
    #: Start and end of all of it, and of the longest run of samples with it; None if it never held.
    span_us: tuple[int, int] | None
    longest_us: tuple[int, int] | None

    @classmethod
    def of(cls, gpu: GPU, time_us: IntArray, part: BoolArray | FloatArray) -> ConditionTime:
        """From the times of a GPU's samples, and the part of each (0 to 1) in which the condition held."""
        weight_us = sample_weights(time_us, *gpu.span_us).weight_us if len(time_us) else np.empty(0)
        holds = part > 0
        # Rounded up, so that neighboring samples touch.
        found = union(time_us[holds], time_us[holds] + np.ceil(weight_us[holds]).astype(np.int64))
        spans = list(zip(found.start.tolist(), found.end.tolist(), strict=True))
        return cls(
            name=gpu.name,
            label=escape_name(f"{gpu.node} {gpu.device}", 40),
            samples=len(time_us),
            covered_us=float(weight_us.sum()),
            us=float(weight_us @ part),
            span_us=(spans[0][0], spans[-1][1]) if spans else None,
            longest_us=max(spans, key=lambda span: span[1] - span[0], default=None),
        )

    @property
    def judged(self) -> bool:
        """True if there are enough samples; a single one would be all of the time."""
        return self.samples >= MIN_SAMPLES

    @property
    def missing(self) -> Reason | None:
        """Why it is not judged; None if it is."""
        return None if self.judged else reason_few_samples(self.samples, MIN_SAMPLES - 1)

    def above(self, threshold: float) -> bool:
        """True if it is judged, and its share is above so many percent."""
        return self.judged and 100 * self.share > threshold

    @property
    def longest_duration_us(self) -> int:
        """Duration of ``longest_us``."""
        return self.longest_us[1] - self.longest_us[0] if self.longest_us else 0

    @property
    def share(self) -> float:
        """Share of the time that samples represent."""
        return self.us / self.covered_us if self.covered_us else 0.0


def gpus(part: Job, clocks: Clocks, *metrics: Metric) -> Iterator[GPU]:
    """The GPUs of a node's part with samples of any of the metrics."""
    (node,) = part.nodes
    panels = [panel for metric in metrics if (panel := part.panel(node, metric))]
    for device in natural_sorted({device for panel in panels for device in panel.devices}):
        yield GPU(part=part, node=node, device=device, span_us=clocks.span_us(node))


def memory_in_use(part: Job, clocks: Clocks) -> Iterator[tuple[str, float]]:
    """Name and highest memory in use, in percent, of each GPU of a node whose memory size is known."""
    for gpu in gpus(part, clocks, Metric.GPU_MEMORY_USED):
        _, used = gpu.series(Metric.GPU_MEMORY_USED)
        if size := gpu.memory_size:
            yield gpu.name, float(100 * used.max() / size)


def as_far_as_recorded(known: int, gpus: int) -> str:
    """Clause such as ", recorded for 3 of 4 GPUs"; empty if all GPUs have data."""
    return f", recorded for {known} of {count(gpus, 'GPU')}" if known < gpus else ""


def at_most(percent: float) -> str:
    """A small share that is not 0, in percent: ``at most 0.12%``, ``less than 0.01%``."""
    return f"at most {percent:.2f}%" if percent >= 0.005 else "less than 0.01%"


def finding_of(
    rule: Rule,
    title: str,
    times: Sequence[ConditionTime],
    *evidence: Fact,
    **facts: Any,
) -> Finding:
    """Finding on GPUs on which a condition held, the one with the largest share first."""
    times = sorted(times, key=lambda one: -one.share)
    spans = [one.span_us for one in times if one.span_us]
    longest = max((one for one in times if one.longest_us), key=lambda one: one.longest_duration_us)
    return rule.finding(
        title,
        Where(tuple(one.label for one in times)),
        When(min(start for start, _ in spans), max(end for _, end in spans)),
        *(HowMuch("Share of time", 100 * one.share, "%", of=one.label) for one in times[:_MAX_NAMED]),
        HowMuch("Longest without a break", longest.longest_duration_us / SECOND_US, "s", of=longest.label),
        *evidence,
        devices=tuple(one.name for one in times),
        share=sum(one.us for one in times) / sum(one.covered_us for one in times),
        share_of="of that GPU's time"
        if len(times) == 1
        else f"of the time of these {count(len(times), 'GPU')}",
        start_us=min(start for start, _ in spans),
        end_us=max(end for _, end in spans),
        **facts,
    )


def share_measure(times: Iterable[ConditionTime], limit: float) -> Measure:
    """The largest share of a GPU's time against a threshold, in percent."""
    worst = max(100 * one.share for one in times)
    return Measure(
        value=round(worst, 2),
        limits=(limit,),
        bad="above",
        scale=max(2 * limit, worst) or 1.0,
        unit="% of a GPU's time",
        limit_text=f"threshold {limit:g}%",
    )


def by_node(rows: Iterable[tuple[str, str, dict[str, Any]]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Figures of GPUs as a table of nodes and devices, for the JSON."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for node, device, figures in rows:
        found.setdefault(node, {})[device] = figures
    return found
