"""StepOutlier: some steps take much longer than the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.framework import breakdown, grouped, weights_by_lane
from jobrules.intervals import union
from jobrules.job import SECOND_US
from jobrules.overall_framework_metrics import STEP
from jobrules.result import DeviceStatus, Measure, RuleResult
from jobrules.rule import Rule, severity_of, text
from jobrules.rule import number as parameter
from jobrules.windows import Windows
from jobrules.words import between, count, duration, listed, number, share, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.intervals import Intervals
    from jobrules.job import BoolArray, IntArray, Job, Steps
    from jobrules.result import Finding

#: Steps of a series that are seen before it is judged.
PATIENCE = 100
_BINS = 100
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

    def check(self, job: Job) -> RuleResult:
        """``triggered`` counts (window, series), ``violations`` the outliers among all steps in the end."""
        grid = Windows.of(job)
        every = [
            self._series(job.steps, names, rows, grid)
            for names, rows in grouped(job.steps.node, job.steps.worker, job.steps.phase).items()
            if self.mode is None or (STEP + names[2]).endswith(self.mode)
        ]
        facts: dict[str, Any] = {
            "datapoints": sum(len(one.lasted_us) for one in every),
            "datapoints_per_series": {one.name: len(one.lasted_us) for one in every},
            "counted": "one-minute windows of a worker's steps of one phase",
            "devices": tuple(one.answer for one in every),
            "details": _details(every),
        }
        if not every:
            none = f"no {shown(self.mode)} steps" if self.mode and len(job.steps) else "no step events"
            return self.not_evaluated(none, **facts)
        series = [one for one in every if len(one.windows)]
        if not series:
            return self.not_evaluated(max(every, key=lambda one: len(one.lasted_us)).reason, **facts)
        told = [one for one in series if len(one.hits)]
        facts |= {
            "violations": sum(one.count for one in series),
            "evaluated": sum(len(one.windows) for one in series),
            "violating": sum(len(one.hits) for one in series),
        }
        facts["measure"] = Measure(
            value=round(100 * facts["violating"] / facts["evaluated"], 1),
            limits=(0.0,),
            scale=100.0,
            unit="% of windows",
            limit_text=f"triggers on any with more than {count(self.n_outliers, 'outlier')}",
        )
        missing = sum(not len(one.windows) for one in every)
        aside = f"{count(missing, 'series', 'series')} of steps not judged" if missing else ""
        if not told:
            most = max(int(one.found.max()) for one in series)
            headline = (
                f"At most {count(most, 'outlier')} in a worker's steps, limit {number(self.n_outliers)}"
            )
            return self.passed("; ".join(filter(None, (headline, aside))), **facts)
        facts["details"] |= _at_outliers(job, series)
        starts = grid.starts_us
        first_us = int(starts[min(one.hits[0] for one in told)])
        last_us = int(starts[max(one.hits[-1] for one in told)]) + grid.width_us
        facts |= {"first_us": first_us, "last_us": min(last_us, job.span_us[1])}
        return self.triggered(self._finding(every, told, aside), triggered=facts["violating"], **facts)

    def _series(self, steps: Steps, names: tuple[str, ...], rows: IntArray, grid: Windows) -> _Series:
        node, worker, phase = names
        rows = rows[np.argsort(steps.end_us[rows], kind="stable")]
        lasted = steps.end_us[rows] - steps.start_us[rows]
        seen = grid.seen(steps.end_us[rows])
        windows = np.flatnonzero(seen[1:] > PATIENCE)
        ends = seen[1:][windows]
        limits = limits_of(lasted, ends, self.stddev)
        found = above(lasted, ends, limits)
        return _Series(
            node=node,
            worker=worker,
            phase=phase,
            number=steps.number[rows],
            start_us=steps.start_us[rows],
            end_us=steps.end_us[rows],
            lasted_us=lasted,
            windows=windows,
            found=found,
            hits=windows[found > self.n_outliers],
            # The last window has seen all steps.
            limit_us=int(limits[-1]) if len(limits) else None,
            stddev=self.stddev,
        )

    def _finding(self, every: Sequence[_Series], told: Sequence[_Series], aside: str) -> Finding:
        total = sum(len(one.lasted_us) for one in told)
        out = [one for one in told if one.outliers.any()]
        excess_us = sum(one.excess_us for one in out)
        loop_us = 0
        for who in {one.who for one in told}:
            mine = [one for one in every if one.who == who]
            loop_us += max(int(one.end_us[-1]) for one in mine) - min(int(one.start_us.min()) for one in mine)
        part = excess_us / max(1, loop_us)
        looks, hits = (
            sum(map(len, sizes)) for sizes in zip(*((one.windows, one.hits) for one in told), strict=True)
        )
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
            when = {
                "start_us": min(int(one.start_us[one.outliers].min()) for one in out),
                "end_us": max(int(one.end_us[one.outliers].max()) for one in out),
            }
            clauses.insert(0, between(when["start_us"], when["end_us"]))
        if len(told) == 1:
            clauses.append(f"the first step took {_took(told[0].first_us)}")
        return self.finding(
            title,
            f"{listed([one.label for one in told])}: {'; '.join(filter(None, clauses))}.",
            severity=severity_of(part),
            share=part,
            share_of="of the training loop",
            **when,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Series:
    """The steps of one worker and one phase, by their end."""

    node: str
    worker: str
    phase: str
    number: IntArray
    start_us: IntArray
    end_us: IntArray
    lasted_us: IntArray
    #: Numbers of the windows in which it was judged, and how many outliers there were so far.
    windows: IntArray
    found: IntArray
    #: Windows in violation.
    hits: IntArray
    #: The longest whole time that is no outlier among all steps; none where it was not judged.
    limit_us: int | None
    stddev: float

    @property
    def who(self) -> tuple[str, str]:
        """The node and the worker."""
        return self.node, self.worker

    @property
    def name(self) -> str:
        return f"{self.node}/{self.worker} {self.phase}"

    @property
    def label(self) -> str:
        return f"{self.node} worker {self.worker} {self.phase}"

    @property
    def reason(self) -> str:
        """Why it was not judged."""
        return f"only {number(len(self.lasted_us))} of {count(PATIENCE + 1, 'step')}"

    @property
    def answer(self) -> DeviceStatus:
        return DeviceStatus.of(self.name, self.reason, len(self.windows), len(self.hits))

    @cached_property
    def outliers(self) -> BoolArray:
        """(n,) which steps are outliers among all; none where it was not judged."""
        if self.limit_us is None:
            return np.zeros(len(self.lasted_us), np.bool_)
        return np.asarray(self.lasted_us > self.limit_us)

    @property
    def count(self) -> int:
        """Outliers among all steps."""
        return int(np.count_nonzero(self.outliers))

    @cached_property
    def threshold_us(self) -> float:
        """What an outlier took more than."""
        return float(self.lasted_us.mean() + self.stddev * self.lasted_us.std())

    @cached_property
    def median_us(self) -> float:
        return float(np.median(self.lasted_us))

    @property
    def excess_us(self) -> float:
        """Time that the outliers took beyond the median step."""
        return float((self.lasted_us[self.outliers] - self.median_us).sum())

    @property
    def first_us(self) -> int:
        """How long the step took that started first."""
        return int(self.lasted_us[np.argmin(self.start_us)])

    @cached_property
    def block(self) -> dict[str, Any]:
        """The vendor's figures in seconds, then ours; a series that was not judged has no outliers."""
        lasted = self.lasted_us
        p50, p95, p99 = np.quantile(lasted, (0.5, 0.95, 0.99)).tolist()
        far = np.abs(lasted - self.median_us)
        mad_us = float(np.median(far))
        probs, edges = _histogram(lasted[~self.outliers])
        stats = {"mean": lasted.mean(), "max": lasted.max(), "p99": p99, "p95": p95, "p50": p50}
        stats["min"] = lasted.min()
        block: dict[str, Any] = {"step_stats": {name: float(us) / SECOND_US for name, us in stats.items()}}
        if len(self.windows):
            block["number_of_outliers"] = self.count
        std_s = float(lasted.std()) / SECOND_US
        block |= {"phase": STEP + self.phase, "stddev": round(std_s, 2), "probs": probs, "binedges": edges}
        if len(self.windows):
            known = self.number[self.outliers]
            block["step_numbers"] = [str(n) for n in known[known >= 0].tolist()]
            block["threshold_s"] = self.threshold_us / SECOND_US
            block["outliers_s"] = self.excess_us / SECOND_US
        return block | {
            "steps": len(lasted),
            "std_s": std_s,
            "median_s": self.median_us / SECOND_US,
            "mad_s": mad_us / SECOND_US,
            "above_5_mad": int(np.count_nonzero(lasted > self.median_us + 5 * 1.4826 * mad_us)),
            "above_2_medians": int(np.count_nonzero(lasted > 2 * self.median_us)),
            "first_step_s": self.first_us / SECOND_US,
            "windows": len(self.windows),
            "windows_in_violation": len(self.hits),
        }


def limits_of(lasted_us: IntArray, ends: IntArray, stddev: float) -> IntArray:
    """(ends,) the longest whole time that is no outlier among the first so many steps.

    It is the mean plus so many standard deviations, rounded down. Computed in whole numbers: a step
    exactly at the limit is no outlier, and no rounding decides.
    """
    most = int(lasted_us.max(initial=0))
    wide = lasted_us.astype(np.int64 if len(lasted_us) * most**2 < _MOST else object)
    totals, squares = np.cumsum(wide)[ends - 1].tolist(), np.cumsum(wide * wide)[ends - 1].tolist()
    factor = Fraction(stddev) ** 2
    limits = [
        (total + math.isqrt(math.floor(factor * (n * square - total * total)))) // n
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


def _histogram(times_us: IntArray) -> tuple[list[int], list[float]]:
    """Counts and edges in seconds: 100 bins; one around the value where all are equal."""
    low, high = int(times_us.min()), int(times_us.max())
    if low == high:
        return [len(times_us)], [0.999 * low / SECOND_US, (1.001 * high or 1) / SECOND_US]
    probs, edges = np.histogram(times_us, bins=_BINS, range=(low, high))
    return probs.tolist(), (edges / SECOND_US).tolist()


def _details(every: Sequence[_Series]) -> dict[str, Any]:
    """``step_details`` of the workers with a judged series, and what is known of the others."""
    workers: dict[tuple[str, str], list[_Series]] = {}
    for one in every:
        workers.setdefault(one.who, []).append(one)
    details: dict[str, Any] = {"step_details": {}}
    for (node, worker), series in workers.items():
        longest = max(series, key=lambda one: len(one.lasted_us))
        phases = {STEP + one.phase: one.block for one in series}
        if len(longest.windows):
            details["step_details"][f"{node}-{worker}"] = longest.block | {"phases": phases}
        else:
            details.setdefault("too_few_steps", {})[f"{node}-{worker}"] = {"phases": phases}
    return details


def _at_outliers(job: Job, series: Sequence[_Series]) -> dict[str, Any]:
    """The framework block for the outliers: events of the same worker, or of the node where a lane has none."""
    if not len(job.events):
        return {}
    workers = {
        (one.node, worker): _moments(
            [other for other in series if other.node == one.node and worker in {"", other.worker}]
        )
        for one in series
        for worker in ("", one.worker)
    }
    weight = weights_by_lane(job.events, lambda lane: workers.get((lane.node, lane.worker)))
    return breakdown(job.events, weight)


def _moments(series: Sequence[_Series]) -> Intervals:
    """The union of the outliers of several series."""
    return union(
        np.concatenate([one.start_us[one.outliers] for one in series]),
        np.concatenate([one.end_us[one.outliers] for one in series]),
    )


def _took(us: float) -> str:
    """``0.346 s``, ``12.5 ms``; from 10 s on as words have it."""
    if us >= 10 * SECOND_US:
        return duration(us)
    return f"{us / SECOND_US:.3g}\u00a0s" if us >= SECOND_US // 10 else f"{us / 1000:.3g}\u00a0ms"
