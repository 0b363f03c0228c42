"""IdleGaps: between its first and last work, no GPU of a node works for a while, again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.sample_weights import PAUSE_INTERVALS, PAUSE_US, sample_weights
from jobrules.measures.work_span import IDLE_PERCENT
from jobrules.model import SECOND_US, BoolArray, DeviceStatus, Finding, FloatArray, IntArray, Measure, Metric
from jobrules.rule import Rule, minutes, number, percent, reason_short, severity_of
from jobrules.text import clock, count, duration, escape_name, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import Job, Panel, RuleResult

#: So many gaps, and so far apart, may be checkpoints; a loop that waits for its data does so more often, or for
#: more than half of the time.
_LEAST_REGULAR, _LEAST_APART_US, _MOST_IDLE = 4, 60 * SECOND_US, 0.5
#: Gaps are regular where the middle half of their distances lies within this part of the median.
_ALIKE = 0.2


@dataclass(frozen=True, kw_only=True)
class IdleGaps(Rule):
    """All GPUs of a node idle at once in the middle of the work.

    What it checks
        Looks at every node from the first work of any of its GPUs to the last, without the start-up before
        the first step where steps are known. A gap is a time in which every GPU of the node is used by less than
        10% for at least ``min_samples`` samples in a row. Triggers where the gaps of a node are more than
        ``threshold`` of that time, as far as the use of all its GPUs was measured. Not judged are a node whose
        work takes less than ``patience`` minutes and one with a GPU whose use was not sampled. What is shorter
        than the samples are apart cannot be seen.

    Why it matters
        A gap in which no GPU works is no matter of one process: the whole node waits, for data, a checkpoint,
        an evaluation or other nodes.

    What to do
        See what runs at the times of the longest gaps. Write checkpoints in the background and less often,
        evaluate less often or elsewhere, load the next data while this one trains.
    """

    title: ClassVar[str] = "All GPUs of a node idle at once"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION,)
    section: ClassVar[str] = "gpu-utilization"

    threshold: float = percent(5.0, "share of the time from first to last work that is gaps")
    min_samples: int = number(2, "a shorter gap is not counted", unit="samples", low=1)
    patience: float = minutes(10.0, "time from first to last work that is wanted before a node is judged")

    def check(self, job: Job) -> RuleResult:
        """Counts are of gaps, on all nodes or on those in violation."""
        nodes = job.gathered(self._nodes, Clocks.of(job))
        least_us = self.patience * 60 * SECOND_US
        judged = [node for node in nodes if node.whole_us >= least_us and not node.unknown]
        if not judged:
            if unknown := next((node.unknown for node in nodes if node.unknown), ""):
                return self.not_evaluated(unknown)
            longest = max((node.whole_us for node in nodes), default=0.0)
            return self.not_evaluated(
                reason_short(longest, self.patience, "of work")
                if longest
                else f"no GPU at work, used by {IDLE_PERCENT:g}% or more"
            )
        worst = max(judged, key=lambda node: node.part)
        over = [node for node in judged if 100 * node.part > self.threshold]
        facts: dict[str, Any] = {
            "evaluated": len(judged),
            "violating": len(over),
            "counted": "nodes",
            "devices": tuple(
                DeviceStatus.of(
                    node.name,
                    node.unknown or reason_short(node.whole_us, self.patience, "of work"),
                    int(node in judged),
                    int(node in over),
                )
                for node in nodes
            ),
            "measure": Measure(
                value=round(100 * worst.part, 1),
                limits=(self.threshold,),
                scale=100.0,
                unit="% of the time from first to last work",
                limit_text=f"triggers above {self.threshold:g}%",
            ),
        }
        if not over:
            return self.passed(
                f"Gaps without work of any GPU of a node were at most {share(worst.part)} of the time measured",
                **facts,
            )
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
            unknown = gpus - len(panel.devices)
            length_us = until_us[gaps.stop] - until_us[gaps.first]
            start_us = panel.time_us[gaps.first]
            longest = int(length_us.argmax()) if len(length_us) else 0
            yield _Node(
                name=panel.node,
                devices=tuple(f"{panel.node}/{device}" for device in panel.devices),
                unknown=f"the use of {unknown} of {count(gpus, 'GPU')} was not sampled" if unknown else "",
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
        who = "The GPU" if len(worst.devices) == 1 else "All GPUs"
        if nodes > 1:
            who += f" of {escape_name(worst.name)}"
        title = (
            f"{who} idled {'' if len(worst.devices) == 1 else 'at once '}for {share(worst.part)} of the time"
        )
        told = [
            f"{escape_name(worst.name)}: {count(worst.gaps, 'gap')} between first and last work, {duration(worst.idle_us)} "
            f"together, the longest {duration(worst.longest_us)} at {clock(worst.longest_start_us)}."
        ]
        if worst.every_us and worst.part < _MOST_IDLE:
            told.append(
                f"The long ones come every {duration(worst.every_us)}: perhaps checkpoints or evaluation (inferred)."
            )
        if len(over) > 1:
            told.append(f"So did those of {count(len(over) - 1, 'other node')}.")
        told.append(
            f"Samples are {duration(worst.interval_us)} apart: gaps of less than "
            f"{count(self.min_samples, 'sample')} are not seen."
        )
        return self.finding(
            title,
            " ".join(told),
            severity=severity_of(worst.part),
            devices=tuple(device for node in over for device in node.devices),
            share=worst.part,
            share_of="of the time from first to last work",
            start_us=min(node.first_us for node in over),
            end_us=max(node.last_us for node in over),
        )


class _Node(Struct, frozen=True, kw_only=True):
    name: str
    #: Its GPUs as ``node/device``.
    devices: tuple[str, ...]
    #: Why it is not judged: there are GPUs without a sample of their use. Empty without any.
    unknown: str
    #: How far the samples of a GPU are apart.
    interval_us: float
    #: Time from first to last work in which the use of all GPUs was measured, and of all gaps in it.
    whole_us: float
    gaps: int
    idle_us: float
    longest_us: float
    longest_start_us: int
    #: Start of the first gap and end of the last; 0 without any.
    first_us: int
    last_us: int
    #: How far long gaps are apart; 0 where they do not come regularly, or often.
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
    """The times of a node without work of any GPU, as rows of its panel of GPU use."""

    #: (m,) first row of each gap, and the row after its last one, which holds work again or is not known.
    first: IntArray
    stop: IntArray
    #: First and last row with work; both 0 without any.
    begin: int
    end: int
    #: (n,) rows of the panel at which the use of every GPU is known; none is where one never is.
    known: BoolArray
    #: How far the samples of a GPU are apart.
    interval_us: float

    @classmethod
    def of(cls, part: Job, panel: Panel, least: int) -> Gaps:
        """Of at least so many rows. The start-up before the first step is left out."""
        busiest, known, interval_us = _busiest(panel)
        if len(panel.devices) < len(part.facts[0].gpus):
            known = np.zeros(len(known), np.bool_)
        work = np.flatnonzero(busiest >= IDLE_PERCENT)
        if loop := part.loop_us(panel.node):
            work = work[np.searchsorted(panel.time_us[work], loop[0]) :]
        if not len(work):
            return cls(first=work, stop=work, begin=0, end=0, known=known, interval_us=interval_us)
        # A GPU whose use is not known may be at work.
        edge = np.flatnonzero((busiest >= IDLE_PERCENT) | ~known)
        edge = edge[(edge >= work[0]) & (edge <= work[-1])]
        # Where GPUs are sampled in turn, rows are closer than the samples of a GPU.
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

    def inside(self, n: int) -> BoolArray:
        """(n,) which rows of the panel lie in a gap."""
        edges = np.zeros(n, np.int64)
        edges[self.first] = 1
        edges[self.stop] = -1
        return np.cumsum(edges) > 0


def _busiest(panel: Panel) -> tuple[FloatArray, BoolArray, float]:
    """(n,) use of the busiest GPU, (n,) whether that of all is known, and how far the samples of a GPU are apart.

    Where GPUs are sampled in turn, the last sample of each holds, unless its sampling has paused.
    """
    values, interval_us = panel.values, float(panel.interval_us)
    if len(panel.devices) > 1 and np.isnan(values).any():
        series = [panel.series(column)[0] for column in range(len(panel.devices))]
        interval_us = max((float(np.median(np.diff(one))) for one in series if len(one) > 1), default=0.0)
        rows = np.arange(len(values))[:, None]
        last = np.maximum.accumulate(np.where(np.isnan(values), 0, rows), axis=0)
        old = panel.time_us[:, None] - panel.time_us[last] > max(PAUSE_US, PAUSE_INTERVALS * interval_us)
        values = np.where(old, np.nan, np.take_along_axis(values, last, axis=0))
    known = np.asarray(~np.isnan(values).any(axis=1))
    return np.asarray(np.fmax.reduce(values, axis=1)), known, interval_us


def _every(start_us: IntArray, length_us: FloatArray) -> float:
    """The median distance of the gaps that are at least half as long as the longest, if they come regularly."""
    long = start_us[length_us >= length_us.max() / 2] if len(length_us) else start_us
    if len(long) < _LEAST_REGULAR:
        return 0.0
    low, middle, high = np.quantile(np.diff(long), (0.25, 0.5, 0.75)).tolist()
    return middle if middle >= _LEAST_APART_US and high - low <= _ALIKE * middle else 0.0
