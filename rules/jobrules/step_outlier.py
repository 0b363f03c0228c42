"""StepOutlier: some steps take much longer than the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.framework_time import breakdown_of, summed, weights_by_lane
from jobrules.measures.intervals import union
from jobrules.measures.minutes import Windows
from jobrules.measures.rows import series_of
from jobrules.measures.value_counts import Counted
from jobrules.model import SECOND_US, DeviceStatus, Measure, RuleResult
from jobrules.overall_framework_metrics import STEP
from jobrules.rule import Rule, severity_of, text
from jobrules.rule import number as parameter
from jobrules.text import between, count, duration, escape_name, join_names, number, share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobrules.measures.framework_time import Sums
    from jobrules.model import Finding, IntArray, Job, Steps

#: Steps of a series that are seen before it is judged.
PATIENCE = 100
_BINS = 100
#: Numbers of outliers that a series lists, the first ones; nobody reads more.
MOST_NUMBERS = 1000
#: Steps that are sorted together to count those above a limit.
_BLOCK = 4096
#: Limit of the numbers that are computed with; times beyond it are none.
_MOST = 1 << 62


@dataclass(frozen=True, kw_only=True)
class StepOutlier(Rule):
    """Some steps take much longer than the others.

    What it checks
        Looks once a minute, to the end of the job, at all steps so far of one worker and one phase,
        training or evaluation: an outlier took longer than the mean plus ``stddev`` standard deviations.
        Triggers on more than ``n_outliers`` of them, from 101 steps on. With ``mode`` it looks at the
        steps of that phase alone.

    Why it matters
        In a step that waits, for data, for a checkpoint or for another worker, the GPU mostly waits too;
        where workers train together, the slowest step is everybody's.

    What to do
        Compare the times of these steps with checkpoints, evaluation and the bottlenecks of CPU and I/O.
        Outliers at a regular distance point to something that the script does every so many steps. The
        first step is often one: it compiles and allocates, and needs no cure.
    """

    title: ClassVar[str] = "Some steps take much longer than the others"
    aliases: ClassVar[dict[str, str]] = {"threshold": "stddev"}

    mode: str | None = text("the phase to look at, as TRAIN; all unless given")
    n_outliers: int = parameter(10, "outliers that are tolerated", unit="steps")
    stddev: float = parameter(3.0, "an outlier is this many standard deviations above the mean")

    def looks_at(self, phase: str) -> bool:
        """Whether steps of this phase are judged."""
        return self.mode is None or (STEP + phase).endswith(self.mode)

    def check(self, job: Job) -> RuleResult:
        """``triggered`` counts (window, series), ``violations`` the outliers among all steps in the end."""
        grid = Windows.of(job)
        every = job.gathered(self._of_node, grid)
        facts: dict[str, Any] = {
            "datapoints": sum(one.steps for one in every),
            "datapoints_per_series": {one.name: one.steps for one in every},
            "counted": "one-minute windows of a worker's steps of one phase",
            "devices": tuple(one.answer for one in every),
            "details": _details(every),
        }
        if not every:
            none = f"no {escape_name(self.mode)} steps" if self.mode and job.step_count else "no step events"
            return self.not_evaluated(none, **facts)
        series = [one for one in every if one.looks]
        if not series:
            return self.not_evaluated(max(every, key=lambda one: one.steps).reason, **facts)
        told = [one for one in series if one.hits]
        facts |= {
            "violations": sum(one.count for one in series),
            "evaluated": sum(one.looks for one in series),
            "violating": sum(one.hits for one in series),
        }
        facts["measure"] = Measure(
            value=round(100 * facts["violating"] / facts["evaluated"], 1),
            limits=(0.0,),
            scale=100.0,
            unit="% of windows",
            limit_text=f"triggers on any with more than {count(self.n_outliers, 'outlier')}",
        )
        missing = sum(not one.looks for one in every)
        aside = f"{count(missing, 'series', 'series')} of steps not judged" if missing else ""
        if not told:
            most = max(one.most for one in series)
            headline = (
                f"At most {count(most, 'outlier')} in a worker's steps, limit {number(self.n_outliers)}"
            )
            return self.passed("; ".join(filter(None, (headline, aside))), **facts)
        if job.event_count:
            limits: dict[tuple[str, ...], int | None] = {
                (one.node, one.rank, one.mode): one.limit_us for one in series
            }
            facts["details"] |= breakdown_of(job.each(_at_outliers, limits))
        first_us = grid.begin_us(min(one.hit_windows[0] for one in told))
        last_us = grid.begin_us(max(one.hit_windows[1] for one in told))
        facts |= {"first_us": first_us, "last_us": min(last_us, job.span_us[1])}
        return self.triggered(self._finding(every, told, aside), triggered=facts["violating"], **facts)

    def _of_node(self, part: Job, grid: Windows) -> list[_Series]:
        return [
            self._series(part.steps, names, rows, grid)
            for names, rows in series_of(part.steps).items()
            if self.looks_at(names[2])
        ]

    def _series(self, steps: Steps, names: tuple[str, ...], rows: IntArray, grid: Windows) -> _Series:
        node, worker, phase = names
        rows = rows[np.argsort(steps.end_us[rows], kind="stable")]
        start_us, end_us = steps.start_us[rows], steps.end_us[rows]
        lasted = end_us - start_us
        seen = grid.seen(end_us)
        at = seen.judged(PATIENCE)
        # It is looked at to the end of the job; what is found lasts to the next window with a step.
        until = np.append(at[1:], grid.count)
        ends = seen.by(at)
        limits = limits_of(lasted, ends, self.stddev)
        found = above(lasted, ends, limits)
        over = found > self.n_outliers
        # The last window has seen all steps.
        limit_us = int(limits[-1]) if len(limits) else None
        slow = np.flatnonzero(lasted > limit_us) if limit_us is not None else np.empty(0, np.int64)
        times = Counted.of(lasted)
        p50, p95, p99 = times.quantiles(0.5, 0.95, 0.99)
        mean_us, std_us = float(lasted.mean()), float(lasted.std())
        least_us, most_us = times.values[[0, -1]].tolist()
        mad_us = float(np.median(np.abs(lasted - p50)))
        known = steps.number[rows[slow]]
        return _Series(
            node=node,
            rank=worker,
            mode=phase,
            steps=len(rows),
            begun_us=int(start_us.min()),
            ended_us=int(end_us[-1]),
            looks=grid.count - int(at[0]) if len(at) else 0,
            most=int(found.max(initial=0)),
            hits=int((until - at)[over].sum()),
            hit_windows=(int(at[over][0]), int(until[over][-1])) if over.any() else (0, 0),
            limit_us=limit_us,
            threshold_us=mean_us + self.stddev * std_us,
            count=len(slow),
            numbers=known[known >= 0][:MOST_NUMBERS].tolist(),
            slow_us=(int(start_us[slow].min()), int(end_us[slow].max())) if len(slow) else None,
            excess_us=float((lasted[slow] - p50).sum()),
            stats_us={"mean": mean_us, "max": most_us, "p99": p99, "p95": p95, "p50": p50, "min": least_us},
            std_us=std_us,
            mad_us=mad_us,
            above_5_mad=times.above(p50 + 5 * 1.4826 * mad_us),
            above_2_medians=times.above(2 * p50),
            first_us=int(lasted[np.argmin(start_us)]),
            histogram=_histogram(times, limit_us),
        )

    def _finding(self, every: Sequence[_Series], told: Sequence[_Series], aside: str) -> Finding:
        total = sum(one.steps for one in told)
        out = [one for one in told if one.count]
        excess_us = sum(one.excess_us for one in out)
        loop_us = 0
        for who in {one.who for one in told}:
            mine = [one for one in every if one.who == who]
            loop_us += max(one.ended_us for one in mine) - min(one.begun_us for one in mine)
        part = excess_us / max(1, loop_us)
        looks, hits = sum(one.looks for one in told), sum(one.hits for one in told)
        clauses = [
            f"more than {count(self.n_outliers, 'outlier')} in {number(hits)} of {number(looks)} looks, one a minute",
            aside,
        ]
        title = f"More than {count(self.n_outliers, 'step')} were outliers for a time, none is in the end"
        when: dict[str, int] = {}
        if out:
            limits = sorted(one.threshold_us for one in out)
            low, high = _took(limits[0]), _took(limits[-1])
            outliers = number(sum(one.count for one in out))
            title = f"{outliers} of {count(total, 'step')} took more than {low}"
            title += f" to {high}, by worker and phase" if high != low else ""
            medians = f" of {_took(out[0].median_us)}" if len(out) == 1 else " of their worker and phase"
            clauses.insert(
                0,
                f"{_took(excess_us)} longer in all than the median{medians}, {share(part)} of the training loop",
            )
            starts, ends = zip(*(one.slow_us for one in out if one.slow_us), strict=True)
            when = {"start_us": min(starts), "end_us": max(ends)}
            clauses.insert(0, between(when["start_us"], when["end_us"]))
        if len(told) == 1:
            clauses.append(f"the first step took {_took(told[0].first_us)}")
        return self.finding(
            title,
            f"{join_names([one.label for one in told])}: {'; '.join(filter(None, clauses))}.",
            severity=severity_of(part),
            share=part,
            share_of="of the training loop",
            **when,
        )


class _Series(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """What the steps of one worker and one phase tell."""

    node: str
    rank: str
    mode: str
    #: How many, the first start and the last end.
    steps: int
    begun_us: int
    ended_us: int
    #: Windows in which it was judged, the most outliers found so far in any, how many are in violation, and of
    #: these the first and the one past the last.
    looks: int
    most: int
    hits: int
    hit_windows: tuple[int, int]
    #: The longest whole time that is no outlier among all steps, none where it was not judged; and the same
    #: as a number that need not be whole.
    limit_us: int | None
    threshold_us: float
    #: Outliers among all steps: how many, the first of their numbers, from the first start of one to the last
    #: end, and what they took beyond the median in all.
    count: int
    numbers: list[int]
    slow_us: tuple[int, int] | None
    excess_us: float
    #: By the vendor's keys.
    stats_us: dict[str, float]
    std_us: float
    #: Median distance to the median, and steps far above it.
    mad_us: float
    above_5_mad: int
    above_2_medians: int
    #: How long the step took that started first.
    first_us: int
    #: Counts and edges in seconds.
    histogram: tuple[list[int], list[float]]

    @property
    def who(self) -> tuple[str, str]:
        """The node and the worker."""
        return self.node, self.rank

    @property
    def name(self) -> str:
        return f"{self.node}/{self.rank} {self.mode}"

    @property
    def label(self) -> str:
        return f"{self.node} worker {self.rank} {self.mode}"

    @property
    def reason(self) -> str:
        """Why it was not judged."""
        return f"only {number(self.steps)} of {count(PATIENCE + 1, 'step')}"

    @property
    def answer(self) -> DeviceStatus:
        return DeviceStatus.of(self.name, self.reason, self.looks, self.hits)

    @property
    def median_us(self) -> float:
        return self.stats_us["p50"]

    @cached_property
    def block(self) -> dict[str, Any]:
        """The vendor's figures in seconds, then ours; a series that was not judged has no outliers."""
        block: dict[str, Any] = {
            "step_stats": {name: us / SECOND_US for name, us in self.stats_us.items()},
        }
        if self.looks:
            block["number_of_outliers"] = self.count
        std_s = self.std_us / SECOND_US
        probs, edges = self.histogram
        block |= {"phase": STEP + self.mode, "stddev": round(std_s, 2), "probs": probs, "binedges": edges}
        if self.looks:
            block["step_numbers"] = [str(n) for n in self.numbers]
            block["threshold_s"] = self.threshold_us / SECOND_US
            block["outliers_s"] = self.excess_us / SECOND_US
        return block | {
            "steps": self.steps,
            "std_s": std_s,
            "median_s": self.median_us / SECOND_US,
            "mad_s": self.mad_us / SECOND_US,
            "above_5_mad": self.above_5_mad,
            "above_2_medians": self.above_2_medians,
            "first_step_s": self.first_us / SECOND_US,
            "windows": self.looks,
            "windows_in_violation": self.hits,
        }


def limits_of(lasted_us: IntArray, ends: IntArray, stddev: float) -> IntArray:
    """(ends,) the longest whole time that is no outlier among the first so many steps.

    It is the mean plus so many standard deviations, rounded down. Computed in whole numbers: a step
    exactly at the limit is no outlier, and no rounding decides.
    """
    most = int(lasted_us.max(initial=0))
    wide = lasted_us.astype(np.int64 if len(lasted_us) * most**2 < _MOST else object)
    totals, squares = np.cumsum(wide)[ends - 1].tolist(), np.cumsum(wide * wide)[ends - 1].tolist()
    over, under = (Fraction(stddev) ** 2).as_integer_ratio()
    limits = [
        (total + math.isqrt(over * (n * square - total * total) // under)) // n
        for n, total, square in zip(ends.tolist(), totals, squares, strict=True)
    ]
    return np.array([min(limit, _MOST) for limit in limits], np.int64)


def above(values: IntArray, ends: IntArray, limits: IntArray) -> IntArray:
    """(k,) how many of the first ``ends[k]`` values are above ``limits[k]``; ``ends`` ascend."""
    found = np.zeros(len(ends), np.int64)
    for first in range(0, len(values), _BLOCK):
        block = values[first : first + _BLOCK]
        inside, after = np.searchsorted(ends, (first, first + len(block)), side="left").tolist()
        for k in range(inside, after):
            found[k] += np.count_nonzero(block[: ends[k] - first] > limits[k])
        found[after:] += len(block) - np.searchsorted(np.sort(block), limits[after:], side="right")
    return found


def _histogram(times_us: Counted, limit_us: int | None) -> tuple[list[int], list[float]]:
    """Counts and edges in seconds of what is no outlier: 100 bins; one around the value where all are equal."""
    usual = times_us if limit_us is None else times_us.up_to(limit_us)
    low, high = usual.values[[0, -1]].tolist()
    if low == high:
        return [len(usual)], [0.999 * low / SECOND_US, (1.001 * high or 1) / SECOND_US]
    probs, edges = np.histogram(usual.values, bins=_BINS, range=(low, high), weights=usual.counts)
    return probs.tolist(), (edges / SECOND_US).tolist()


def _details(every: Sequence[_Series]) -> dict[str, Any]:
    """``step_details`` of the workers with a judged series, and what is known of the others."""
    workers: dict[tuple[str, str], list[_Series]] = {}
    for one in every:
        workers.setdefault(one.who, []).append(one)
    details: dict[str, Any] = {"step_details": {}}
    for (node, worker), series in workers.items():
        longest = max(series, key=lambda one: one.steps)
        phases = {STEP + one.mode: one.block for one in series}
        if longest.looks:
            details["step_details"][f"{node}-{worker}"] = longest.block | {"phases": phases}
        else:
            details.setdefault("too_few_steps", {})[f"{node}-{worker}"] = {"phases": phases}
    return details


def _at_outliers(part: Job, limits: Mapping[tuple[str, ...], int | None]) -> Sums:
    """Events at the outliers: of the same worker, or of the node where a lane has none."""
    steps = part.steps
    slow: dict[str, list[IntArray]] = {}
    for names, rows in series_of(steps).items():
        if (limit_us := limits.get(names)) is not None:
            mine = rows[steps.end_us[rows] - steps.start_us[rows] > limit_us]
            for worker in {"", names[1]}:
                slow.setdefault(worker, []).append(mine)
    every = {worker: np.concatenate(several) for worker, several in slow.items()}
    moments = {worker: union(steps.start_us[rows], steps.end_us[rows]) for worker, rows in every.items()}
    return summed(part.events, weights_by_lane(part.events, lambda lane: moments.get(lane.rank)))


def _took(us: float) -> str:
    """``0.346 s``, ``12.5 ms``; from 10 s on as words have it."""
    if us >= 10 * SECOND_US:
        return duration(us)
    return f"{us / SECOND_US:.3g}\u00a0s" if us >= SECOND_US // 10 else f"{us / 1000:.3g}\u00a0ms"
