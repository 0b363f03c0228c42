"""IdleGaps: all GPUs of a node are idle at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.sample_weights import PAUSE_INTERVALS, PAUSE_US, sample_weights
from jobrules.measures.work_span import IDLE_PERCENT
from jobrules.model import (
    SECOND_US,
    BoolArray,
    DeviceStatus,
    Finding,
    FloatArray,
    HowMuch,
    IntArray,
    Measure,
    Metric,
    Note,
    Reason,
    ReasonKind,
    Where,
)
from jobrules.model.order import median, quantiles
from jobrules.rule import Role, Rule, minutes, not_recorded, number, percent, reason_short, severity_of
from jobrules.text import capitalized, clock, count, duration, escape_name, share, some_of, without_check

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import Fact, Job, Panel, RuleResult

#: At least this many gaps at this distance may be checkpoints; a loop that waits for data does so more often, or for
#: more than half of the time.
_MIN_REGULAR, _MIN_DISTANCE_US, _WAITING = 4, 60 * SECOND_US, 0.5
#: Gaps are regular if the middle half of their distances lies within this part of the median.
_SPREAD = 0.2
NO_ACTIVE_GPU = Reason(kind=ReasonKind.NO_DEVICE, what=f"GPU was active ({IDLE_PERCENT:g}% or more)")


@dataclass(frozen=True, kw_only=True)
class IdleGaps(Rule):
    """All GPUs of a node are idle at once.

    What it checks
        The share of time, from first to last GPU work without start-up, in which every GPU of a node is below 10% for
        at least ``min_samples`` samples. Triggers above ``threshold``.

    Why it matters
        When all GPUs idle, the node waits. Gaps shorter than the sampling interval are invisible.

    What to do
        * See what runs in the longest gaps: checkpoints, evaluation, data loading.

    Details
        Only time in which the utilization of all GPUs was measured counts. A node whose GPU work takes less than
        ``patience`` minutes is not evaluated, nor is a node with a GPU without samples of utilization.
    """

    title: ClassVar[str] = "All GPUs of a node are idle at once"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION,)
    section: ClassVar[str] = "gpu-utilization"
    role: ClassVar[Role] = Role.SYMPTOM

    threshold: float = percent(5.0, "share of the time in idle gaps")
    min_samples: int = number(2, "shortest idle gap", unit="samples", low=1)
    patience: float = minutes(10.0, "GPU work before the first check")

    def check(self, job: Job) -> RuleResult:
        """Counts are of gaps, on the nodes that violate; ``evaluated`` counts nodes."""
        nodes = job.gathered(self._nodes, Clocks.of(job))
        least_us = self.patience * 60 * SECOND_US
        judged = [node for node in nodes if node.whole_us >= least_us and not node.unknown]
        if not judged:
            if unknown := next((node.unknown for node in nodes if node.unknown), None):
                return self.not_evaluated(unknown)
            longest = max((node.whole_us for node in nodes), default=0.0)
            short = reason_short(longest, self.patience, "GPU work")
            return self.not_evaluated(short if longest else NO_ACTIVE_GPU)
        worst = max(judged, key=lambda node: node.part)
        over = [node for node in judged if 100 * node.part > self.threshold]
        facts: dict[str, Any] = {
            "evaluated": len(judged),
            "violating": len(over),
            "counted": "nodes",
            "devices": tuple(
                DeviceStatus.of(
                    node.name,
                    node.unknown or reason_short(node.whole_us, self.patience, "GPU work"),
                    int(node in judged),
                    int(node in over),
                )
                for node in nodes
            ),
            "measure": Measure(
                value=round(100 * worst.part, 1),
                limits=(self.threshold,),
                bad="above",
                scale=100.0,
                unit="% of the time from first to last GPU work",
                limit_text=f"threshold {self.threshold:g}%",
            ),
        }
        if not over:
            most = f"at most {share(worst.part)} of the time (threshold {self.threshold:g}%)"
            limit = without_check(len(nodes) - len(judged), "node")
            idle = "All GPUs of a node were idle at once"
            if max(len(node.devices) for node in nodes) == 1:
                idle = "The GPU was idle" if len(nodes) == 1 else "The GPU of a node was idle"
            return self.passed(f"{idle} for {most}{limit}", **facts)
        gaps = sum(node.gaps for node in over)
        return self.triggered(
            self._finding(worst, over, len(job.nodes)),
            triggered=gaps,
            violations=gaps,
            first_us=min(node.first_us for node in over),
            last_us=max(node.last_us for node in over),
            details={node.name: node.details for node in over},
            **facts,
        )

    def _nodes(self, part: Job, clocks: Clocks) -> Iterator[_Node]:
        for panel in part.panels_of(Metric.GPU_UTILIZATION):
            weight_us = sample_weights(panel.time_us, *clocks.span_us(panel.node)).weight_us
            gaps = Gaps.of(part, panel, self.min_samples)
            until_us = np.append(0.0, np.cumsum(np.where(gaps.known, weight_us, 0.0)))
            gpus = len(part.facts[0].gpus)
            length_us = until_us[gaps.stop] - until_us[gaps.first]
            start_us = panel.time_us[gaps.first]
            longest = int(length_us.argmax()) if len(length_us) else 0
            yield _Node(
                name=panel.node,
                devices=tuple(f"{panel.node}/{device}" for device in panel.devices),
                unknown=replace(not_recorded(Metric.GPU_UTILIZATION), needed=gpus, have=len(panel.devices))
                if len(panel.devices) < gpus
                else None,
                interval_us=gaps.interval_us,
                whole_us=float(until_us[gaps.end] - until_us[gaps.begin]),
                gaps=len(length_us),
                idle_us=float(length_us.sum()),
                longest_us=float(length_us[longest]) if len(length_us) else 0.0,
                longest_start_us=int(start_us[longest]) if len(length_us) else 0,
                first_us=int(start_us[0]) if len(length_us) else 0,
                # A gap ends with the next work.
                last_us=int(panel.time_us[gaps.stop[-1]]) if len(length_us) else 0,
                every_us=_every(start_us, length_us),
            )

    def _finding(self, worst: _Node, over: Sequence[_Node], nodes: int) -> Finding:
        gpus = len(worst.devices)
        who = capitalized(some_of(gpus, gpus, "GPU")) if gpus > 1 else "The GPU"
        of_node = f" of {escape_name(worst.name)}" if nodes > 1 else ""
        state = f"idle{' at once' if gpus > 1 else ''} for {share(worst.part)} of the time from first to last GPU work"
        evidence: list[Fact] = [
            Where((worst.name,)),
            HowMuch("Idle gaps", worst.gaps),
            HowMuch("Together", worst.idle_us / SECOND_US, "s"),
            HowMuch("Longest", worst.longest_us / SECOND_US, "s"),
            Note(f"The longest gap started at {clock(worst.longest_start_us)}"),
        ]
        if worst.every_us and worst.part < _WAITING:
            evidence.append(
                Note(f"A long gap comes every {duration(worst.every_us)}, as with checkpoints or evaluation")
            )
        if len(over) > 1:
            evidence.append(Note(f"{count(len(over) - 1, 'other node')} above the threshold"))
        evidence.append(
            Note(f"Gaps shorter than {duration(self.min_samples * worst.interval_us)} are invisible")
        )
        return self.finding(
            f"{who}{of_node} {'were' if gpus > 1 else 'was'} {state}",
            *evidence,
            seen_as=f"{some_of(gpus, gpus, 'GPU') if gpus > 1 else 'the GPU'}{of_node} {state}",
            severity=severity_of(worst.part),
            devices=tuple(device for node in over for device in node.devices),
            share=worst.part,
            share_of="of the time from first to last GPU work",
            start_us=min(node.first_us for node in over),
            end_us=max(node.last_us for node in over),
        )


class _Node(Struct, frozen=True, kw_only=True):
    name: str
    #: Its GPUs as ``node/device``.
    devices: tuple[str, ...]
    #: Reason of a node with GPUs without samples of utilization; None if all have samples.
    unknown: Reason | None
    #: Sampling interval of a GPU.
    interval_us: float
    #: Time from first to last work in which the utilization of all GPUs was measured, and of all gaps in it.
    whole_us: float
    gaps: int
    idle_us: float
    longest_us: float
    longest_start_us: int
    #: Start of the first gap and end of the last; 0 without any.
    first_us: int
    last_us: int
    #: Distance of long gaps; 0 if they are irregular or frequent.
    every_us: float

    @property
    def part(self) -> float:
        """Share of the time that is gaps."""
        return self.idle_us / self.whole_us if self.whole_us else 0.0

    @property
    def details(self) -> dict[str, float]:
        return {
            "gaps": self.gaps,
            "idle_s": self.idle_us / SECOND_US,
            "work_s": self.whole_us / SECOND_US,
            "longest_s": self.longest_us / SECOND_US,
            "longest_start": self.longest_start_us,
            "every_s": self.every_us / SECOND_US,
        }


class Gaps(Struct, frozen=True, kw_only=True, eq=False):
    """The idle gaps of a node, as rows of its panel of GPU utilization."""

    #: (m,) first row of each gap, and the row after its last one, which holds work again or is not known.
    first: IntArray
    stop: IntArray
    #: First and last row with work; both 0 without any.
    begin: int
    end: int
    #: (n,) rows of the panel at which the utilization of every GPU is known; all False if that of one never is.
    known: BoolArray
    #: Sampling interval of a GPU.
    interval_us: float

    @classmethod
    def of(cls, part: Job, panel: Panel, least: int) -> Gaps:
        """Gaps of at least so many rows, without the start-up before the first step."""
        busiest, known, interval_us = _busiest(panel)
        if len(panel.devices) < len(part.facts[0].gpus):
            known = np.zeros(len(known), np.bool_)
        work = np.flatnonzero(busiest >= IDLE_PERCENT)
        if loop := part.loop_us(panel.node):
            work = work[np.searchsorted(panel.time_us[work], loop[0]) :]
        if not len(work):
            return cls(first=work, stop=work, begin=0, end=0, known=known, interval_us=interval_us)
        # A GPU of unknown utilization may be active.
        edge = np.flatnonzero((busiest >= IDLE_PERCENT) | ~known)
        edge = edge[(edge >= work[0]) & (edge <= work[-1])]
        # If GPUs are sampled in turn, rows are closer than the samples of a GPU.
        long = np.diff(panel.time_us[edge]) > (least + 0.5) * interval_us
        wide = np.flatnonzero(long & (np.diff(edge) > least))
        return cls(
            first=edge[wide] + 1,
            stop=edge[wide + 1],
            begin=int(work[0]),
            end=int(work[-1]),
            known=known,
            interval_us=interval_us,
        )


def _busiest(panel: Panel) -> tuple[FloatArray, BoolArray, float]:
    """(n,) utilization of the busiest GPU, (n,) True if that of all is known, and the sampling interval of a GPU.

    If GPUs are sampled in turn, the last sample of each holds, unless its sampling has paused.
    """
    values, interval_us = panel.values, float(panel.interval_us)
    if len(panel.devices) > 1 and np.isnan(values).any():
        series = [panel.series(column)[0] for column in range(len(panel.devices))]
        interval_us = max((median(np.diff(one)) for one in series if len(one) > 1), default=0.0)
        rows = np.arange(len(values))[:, None]
        last = np.maximum.accumulate(np.where(np.isnan(values), 0, rows), axis=0)
        old = panel.time_us[:, None] - panel.time_us[last] > max(PAUSE_US, PAUSE_INTERVALS * interval_us)
        values = np.where(old, np.nan, np.take_along_axis(values, last, axis=0))
    known = np.asarray(~np.isnan(values).any(axis=1))
    return np.asarray(np.fmax.reduce(values, axis=1)), known, interval_us


def _every(start_us: IntArray, length_us: FloatArray) -> float:
    """The median distance of the gaps that are at least half as long as the longest, if it is regular; otherwise 0."""
    long = start_us[length_us >= length_us.max() / 2] if len(length_us) else start_us
    if len(long) < _MIN_REGULAR:
        return 0.0
    low, middle, high = quantiles(np.diff(long), (0.25, 0.5, 0.75)).tolist()
    return middle if middle >= _MIN_DISTANCE_US and high - low <= _SPREAD * middle else 0.0
