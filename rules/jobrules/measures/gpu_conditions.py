"""What is logged of one GPU, metric by metric; metrics need not be sampled at the same moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobrules.measures.intervals import union
from jobrules.measures.sample_weights import sample_weights
from jobrules.measures.snapshots import TOLERANCE_US
from jobrules.model import DeviceStatus, Job, Measure, Metric, natural_sorted
from jobrules.rule import reason_few_samples
from jobrules.text import between, count, duration, escape_name, share

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from jobrules.measures.clock_offsets import Clocks
    from jobrules.model import BoolArray, Finding, FloatArray, IntArray
    from jobrules.rule import Rule

#: A value is in force for so many of its sampling intervals, unless another follows.
IN_FORCE_INTERVALS = 5
#: A GPU is busy from this use on, in percent: idle clocks and idle power are told by nobody's work.
BUSY_PERCENT = 50.0
#: So many samples of a clock make a median worth comparing, and so many of a reason a share of the time.
LEAST_SAMPLES = 10
#: GPUs that a sentence tells of.
_MOST_TOLD = 4


class GPU(Struct, frozen=True, kw_only=True, eq=False):
    """One GPU of a node's part of a job."""

    part: Job
    node: str
    device: str
    #: First and last record of the job, in the time of the node.
    span_us: tuple[int, int]

    @property
    def name(self) -> str:
        """``node/device``, as in ``Finding.devices``."""
        return f"{self.node}/{self.device}"

    def series(self, metric: Metric) -> tuple[IntArray, FloatArray]:
        """Times and values; empty where the metric was not sampled on this GPU."""
        panel = self.part.panel(self.node, metric)
        if panel is None or self.device not in panel.devices:
            return np.empty(0, np.int64), np.empty(0)
        return panel.series(panel.devices.index(self.device))

    def at(self, metric: Metric, time_us: IntArray) -> FloatArray:
        """(n,) the value in force at each moment: the last one, if it is recent; else NaN.

        One that a sampler read up to 20 ms later is of the same moment.
        """
        sampled_us, values = self.series(metric)
        if not len(sampled_us):
            return np.full(len(time_us), np.nan)
        interval_us = float(np.median(np.diff(sampled_us))) if len(sampled_us) > 1 else 0.0
        last = np.searchsorted(sampled_us, time_us + TOLERANCE_US, side="right") - 1
        recent = time_us - sampled_us[last] <= IN_FORCE_INTERVALS * interval_us
        return np.where((last >= 0) & recent, values[last], np.nan)

    def sampled(self, metric: Metric, time_us: IntArray) -> BoolArray:
        """(n,) whether the metric was sampled at each moment, give or take half the distance of these moments."""
        sampled_us, _ = self.series(metric)
        near_us = max(TOLERANCE_US, int(np.median(np.diff(time_us))) // 2 if len(time_us) > 1 else 0)
        since = np.searchsorted(sampled_us, time_us - near_us)
        return np.asarray(np.searchsorted(sampled_us, time_us + near_us, side="right") > since)

    def clocks(self, time_us: IntArray, held_back: BoolArray) -> tuple[float, float] | None:
        """Median clock at the moments at which something held the GPU back, and at the others.

        Moments at which the GPU was not busy are left out where its use is known. None with fewer than
        ten clocks on either side.
        """
        clock, idle = (
            self.at(Metric.GPU_CLOCK, time_us),
            self.at(Metric.GPU_UTILIZATION, time_us) < BUSY_PERCENT,
        )
        told = ~np.isnan(clock) & ~idle
        then, else_ = clock[told & held_back], clock[told & ~held_back]
        if min(len(then), len(else_)) < LEAST_SAMPLES:
            return None
        return float(np.median(then)), float(np.median(else_))


class ConditionTime(Struct, frozen=True, kw_only=True):
    """For how long something held of a GPU, and when."""

    #: ``node/device``, and how a sentence calls it.
    name: str
    called: str
    #: Samples, the time that they stand for, and how much of that it held.
    samples: int
    covered_us: float
    us: float
    #: Start and end of all of it and of the longest stretch of samples in which it held at all; none where it
    #: never did.
    span_us: tuple[int, int] | None
    longest_us: tuple[int, int] | None

    @classmethod
    def of(cls, gpu: GPU, time_us: IntArray, part: BoolArray | FloatArray) -> ConditionTime:
        """From the times of a GPU's samples, and whether it held in each, or for which part of it (0 to 1)."""
        weight_us = sample_weights(time_us, *gpu.span_us).weight_us if len(time_us) else np.empty(0)
        holds = part > 0
        # Rounded up, so that stretches without a pause between them touch.
        found = union(time_us[holds], time_us[holds] + np.ceil(weight_us[holds]).astype(np.int64))
        spans = list(zip(found.start_us.tolist(), found.end_us.tolist(), strict=True))
        return cls(
            name=gpu.name,
            called=escape_name(f"{gpu.node} {gpu.device}", 40),
            samples=len(time_us),
            covered_us=float(weight_us.sum()),
            us=float(weight_us @ part),
            span_us=(spans[0][0], spans[-1][1]) if spans else None,
            longest_us=max(spans, key=lambda span: span[1] - span[0], default=None),
        )

    @property
    def judged(self) -> bool:
        """Whether there are samples enough; a single one would be all of the time."""
        return self.samples >= LEAST_SAMPLES

    @property
    def share(self) -> float:
        """Of the time that samples stand for."""
        return self.us / self.covered_us if self.covered_us else 0.0


def gpus(part: Job, clocks: Clocks, *metrics: Metric) -> Iterator[GPU]:
    """The GPUs of a node's part of which any of the metrics was sampled."""
    (node,) = part.nodes
    panels = [panel for metric in metrics if (panel := part.panel(node, metric))]
    for device in natural_sorted({device for panel in panels for device in panel.devices}):
        yield GPU(part=part, node=node, device=device, span_us=clocks.span_us(node))


def as_far_as_recorded(known: int, gpus: int) -> str:
    """A clause for what is said of all GPUs; empty where it is known of all."""
    return f", as far as that was recorded: for {known} of {count(gpus, 'GPU')}" if known < gpus else ""


def at_most(percent: float) -> str:
    """A share that is small, and not 0, in percent."""
    return f"{percent:.2f}%" if percent >= 0.005 else "under 0.01%"


def join_first(clauses: Sequence[str]) -> str:
    """The first four of some clauses, and how many more there are."""
    more = [f"{len(clauses) - _MOST_TOLD} more"] if len(clauses) > _MOST_TOLD else []
    return "; ".join([*clauses[:_MOST_TOLD], *more])


def finding_of(
    rule: Rule,
    title: str,
    spells: Sequence[ConditionTime],
    every: Sequence[ConditionTime],
    clauses: Sequence[str],
    **facts: Any,
) -> Finding:
    """What a rule tells of GPUs of which something held, the one with the largest share first.

    ``every`` are the spells of all GPUs that were judged.
    """
    spells = sorted(spells, key=lambda one: -one.share)
    spans = [one.span_us for one in spells if one.span_us]
    each = join_first([f"{one.called} for {duration(one.us)} ({share(one.share)})" for one in spells])
    longest = max(
        ((one.longest_us, one.called) for one in spells if one.longest_us),
        key=lambda told: told[0][1] - told[0][0],
    )
    when = f"the longest stretch on {longest[1]}, {between(*longest[0])}"
    return rule.finding(
        title,
        "; ".join([each, when, *filter(None, clauses)]) + ".",
        devices=tuple(one.name for one in spells),
        share=sum(one.us for one in spells) / sum(one.covered_us for one in every),
        share_of="of all GPUs' time",
        start_us=min(start for start, _ in spans),
        end_us=max(end for _, end in spans),
        **facts,
    )


def facts_of(spells: Sequence[ConditionTime], hits: Collection[str], limit: float) -> dict[str, Any]:
    """Counters and measure of a rule that compares shares of GPUs' time with a limit, in percent.

    ``hits`` are the GPUs in violation. The measure is that of the GPUs that were judged, none without any.
    """
    judged = {one.name: 100 * one.share for one in spells if one.judged}
    worst = max(judged.values(), default=0.0)
    samples = {one.name: one.samples for one in spells}
    spans = [one.span_us for one in spells if one.span_us and one.name in hits]
    return {
        "measure": Measure(
            value=round(worst, 2),
            limits=(limit,),
            scale=max(2 * limit, worst) or 1.0,
            unit="% of a GPU's time",
            limit_text=f"triggers above {limit:g}%",
        )
        if judged
        else None,
        "triggered": len(hits),
        "violations": len(hits),
        "datapoints": max(samples.values()),
        "datapoints_per_series": samples,
        "evaluated": len(judged),
        "violating": len(hits),
        "counted": "GPUs",
        "devices": tuple(
            DeviceStatus.of(
                name, reason_few_samples(n, LEAST_SAMPLES - 1), int(name in judged), int(name in hits)
            )
            for name, n in samples.items()
        ),
        "first_us": min((start for start, _ in spans), default=None),
        "last_us": max((end for _, end in spans), default=None),
    }


def by_node(told: Iterable[tuple[str, str, dict[str, Any]]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Figures of GPUs as a table of nodes and devices, for the JSON."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for node, device, figures in told:
        found.setdefault(node, {})[device] = figures
    return found
