"""StepOutlier: some steps take much longer than others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.measures.framework_time import breakdown_of, summed, weights_by_lane
from jobrules.measures.intervals import union
from jobrules.measures.minutes import Windows
from jobrules.measures.rows import series_of
from jobrules.measures.sample_weights import around_us
from jobrules.measures.value_counts import Counted
from jobrules.model import SECOND_US, ByNode, DeviceStatus, HowMuch, Measure, Note, RuleResult, When, Where
from jobrules.model.claims import Cause, Precedence
from jobrules.model.finding import OF_LOOP
from jobrules.rule import NO_STEPS, Role, Rule, reason_few_samples, severity_of, text
from jobrules.rule import number as parameter
from jobrules.rules.overall_framework_metrics import STEP
from jobrules.text import capitalized, count, escape_name, number, took

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.measures.framework_time import Sums
    from jobrules.model import Fact, Finding, FloatArray, IntArray, Job, Panel, Steps
    from jobrules.model.claims import Claim, Claimed, Samples

#: Steps of a series before the first check.
PATIENCE = 100
_BINS = 100
#: Step numbers of outliers that a series lists, the first ones.
MAX_NUMBERS = 1000
#: Steps that are sorted together to count those above a limit.
_BLOCK = 4096
#: Largest number that is computed with in 64 bits.
_MAX_INT = 1 << 62


@dataclass(frozen=True, kw_only=True)
class StepOutlier(Rule):
    """Some steps take much longer than others.

    What it checks
        Per rank and mode, once per minute from 101 steps: steps longer than the mean plus ``stddev`` standard
        deviations. Triggers above ``n_outliers``.

    Why it matters
        A GPU usually waits during a slow step, and the slowest rank delays all.

    What to do
        * Compare outliers with checkpoints, evaluation, and bottlenecks.
        * Ignore a slow first step: it compiles.

    Details
        Each check counts the outliers among all steps so far, and checks go on to the end of the job. Outliers at a
        regular distance point to something that the script does every so many steps.
    """

    title: ClassVar[str] = "Some steps take much longer than others"
    aliases: ClassVar[dict[str, str]] = {"threshold": "stddev"}
    role: ClassVar[Role] = Role.CAUSE

    mode: str | None = text("step mode to check, such as TRAIN; default: all")
    n_outliers: int = parameter(10, "outliers allowed", unit="steps")
    stddev: float = parameter(3.0, "standard deviations above the mean that make an outlier")

    def looks_at(self, mode: str) -> bool:
        """True if the rule checks steps of this mode."""
        return self.mode is None or (STEP + mode).endswith(self.mode)

    def limit_us(self, mode: str, lasted_us: IntArray) -> int | None:
        """The longest whole time that is no outlier among all steps of a series; None if it is not checked."""
        if len(lasted_us) <= PATIENCE or not self.looks_at(mode):
            return None
        return int(limits_of(lasted_us, np.array([len(lasted_us)]), self.stddev)[0])

    def check(self, job: Job) -> RuleResult:
        """``triggered`` counts (window, series), ``violations`` the outliers among all steps in the end."""
        grid = Windows.of(job)
        every = job.gathered(self._of_node, grid)
        facts: dict[str, Any] = {
            "datapoints": sum(one.steps for one in every),
            "datapoints_per_series": {one.name: one.steps for one in every},
            "counted": "checks",
            "devices": tuple(one.answer for one in every),
            "details": _details(every),
        }
        if not every:
            of_mode = f"{escape_name(self.mode)} steps" if self.mode and job.step_count else NO_STEPS.what
            return self.not_evaluated(replace(NO_STEPS, what=of_mode), **facts)
        series = [one for one in every if one.checks]
        if not series:
            longest = max(one.steps for one in every)
            few = reason_few_samples(longest, PATIENCE, "steps per rank and mode", "the longest series")
            return self.not_evaluated(few, **facts)
        violating = [one for one in series if one.violations]
        facts |= {
            "violations": sum(one.count for one in series),
            "evaluated": sum(one.checks for one in series),
            "violating": sum(one.violations for one in series),
        }
        facts["measure"] = Measure(
            value=round(100 * facts["violating"] / facts["evaluated"], 1),
            limits=(0.0,),
            scale=100.0,
            unit=f"% of checks with more than {count(self.n_outliers, 'outlier')}",
            limit_text="threshold 0%",
        )
        missing = sum(not one.checks for one in every)
        limits = [f"{count(missing, 'series', 'series')} of steps not evaluated"] if missing else []
        if not violating:
            most = max(one.most_outliers for one in series)
            limit = f"threshold {number(self.n_outliers)}"
            headline = f"At most {count(most, 'outlier')} per rank and mode ({limit})"
            return self.passed("; ".join([headline, *limits]), **facts)
        limits_us = ByNode[dict[tuple[str, ...], int | None]]()
        for one in series:
            limits_us.setdefault(one.node, {})[one.rank, one.mode] = one.limit_us
        facts["details"] |= breakdown_of(job.each(_at_outliers, limits_us), with_lifetimes=True)
        first_us = grid.begin_us(min(one.violation_windows[0] for one in violating))
        last_us = grid.begin_us(max(one.violation_windows[1] for one in violating))
        facts |= {"first_us": first_us, "last_us": min(last_us, job.span_us[1])}
        return self.triggered(self._finding(every, violating, limits), triggered=facts["violating"], **facts)

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """What the GPUs of a node lost during the outlier steps of its ranks."""
        if not result.findings:
            return ()
        nodes = frozenset(job.nodes)
        limits = ByNode[dict[tuple[str, str], float]]()
        # SageMaker Debugger's results in place of steps have no times of single ones.
        for who, one in result.details.get("step_details", {}).items():
            own = {
                (who, mode): block["threshold_s"]
                for mode, block in one["phases"].items()
                if block.get("windows_in_violation")
            }
            # Names of nodes and ranks may both have hyphens.
            for node in nodes.intersection(who[:at] for at, char in enumerate(who) if char == "-"):
                limits.setdefault(node, {}).update(own)
        return (
            Cause(
                key="step-outlier",
                precedence=Precedence.SLOW_STEPS,
                when="in outlier steps",
                claim=partial(_in_slow_steps, limits),
                finding=partial(_slow_steps_found, result.findings[0]),
            ),
        )

    def _of_node(self, part: Job, grid: Windows) -> list[_Series]:
        return [
            self._series(part.steps.comparable, names, rows, grid)
            for names, rows in series_of(part.steps.comparable).items()
            if self.looks_at(names[2])
        ]

    def _series(self, steps: Steps, names: tuple[str, ...], rows: IntArray, grid: Windows) -> _Series:
        node, worker, phase = names
        rows = rows[np.argsort(steps.end_us[rows], kind="stable")]
        start_us, end_us = steps.start_us[rows], steps.end_us[rows]
        lasted = end_us - start_us
        seen = grid.seen(end_us)
        at = seen.judged(PATIENCE)
        # Checked to the end of the job; a result lasts to the next window with a step.
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
        numbers: list[int] = known[known >= 0][:MAX_NUMBERS].tolist()
        return _Series(
            node=node,
            rank=worker,
            mode=phase,
            steps=len(rows),
            begun_us=int(start_us.min()),
            ended_us=int(end_us[-1]),
            checks=grid.count - int(at[0]) if len(at) else 0,
            most_outliers=int(found.max(initial=0)),
            violations=int((until - at)[over].sum()),
            violation_windows=(int(at[over][0]), int(until[over][-1])) if over.any() else (0, 0),
            limit_us=limit_us,
            threshold_us=mean_us + self.stddev * std_us,
            count=len(slow),
            numbers=list(map(str, numbers)) if steps.numbers_as_text else numbers,
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

    def _finding(
        self, every: Sequence[_Series], violating: Sequence[_Series], limits: Sequence[str]
    ) -> Finding:
        out = [one for one in violating if one.count]
        excess_us = sum(one.excess_us for one in out)
        loop_us, ranks = 0, _by_rank(every)
        for own in (ranks[who] for who in {one.who for one in violating}):
            loop_us += max(one.ended_us for one in own) - min(one.begun_us for one in own)
        part = excess_us / max(1, loop_us)
        checks, violations = sum(one.checks for one in violating), sum(one.violations for one in violating)
        title = "Outliers exceeded the threshold for a time, not at the end"
        evidence: list[Fact] = [Where(tuple(one.name for one in violating))]
        when: dict[str, int] = {}
        if out:
            low, high = (took(limit(one.threshold_us for one in out)) for limit in (min, max))
            outliers = number(sum(one.count for one in out))
            steps = count(sum(one.steps for one in violating), "step")
            title = f"{outliers} of {steps} were outliers (longer than {low}{f' to {high}' * (high != low)})"
            starts, ends = zip(*(one.slow_us for one in out if one.slow_us), strict=True)
            when = {"start_us": min(starts), "end_us": max(ends)}
            medians = f" of {took(out[0].median_us)}" if len(out) == 1 else " of their rank and mode"
            evidence += [
                When(**when),
                HowMuch(f"Time beyond the median{medians}", excess_us / SECOND_US, "s"),
                HowMuch("Share of the training loop", 100 * part, "%"),
            ]
        if len(violating) == 1:
            evidence.append(Note(f"The first step took {took(violating[0].first_us)}"))
        condition = f"More than {count(self.n_outliers, 'outlier')} in {number(violations)} of {count(checks, 'check')}"
        return self.finding(
            title,
            *evidence,
            *(Note(capitalized(limit)) for limit in (condition, *limits)),
            severity=severity_of(part),
            share=part,
            share_of=OF_LOOP,
            **when,
        )


class _Series(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The steps of one rank and one mode."""

    node: str
    rank: str
    mode: str
    #: How many, the first start and the last end.
    steps: int
    begun_us: int
    ended_us: int
    #: Checks, the most outliers so far in any, how many violate, and the first window that does with the one past the last.
    checks: int
    most_outliers: int
    violations: int
    violation_windows: tuple[int, int]
    #: The longest whole time that is no outlier among all steps, None without a check; and the same as a number that
    #: need not be whole.
    limit_us: int | None
    threshold_us: float
    #: Outliers among all steps: how many, the first of their numbers as they were written, from the first start of one to the last
    #: end, and their total time beyond the median.
    count: int
    numbers: list[str] | list[int]
    slow_us: tuple[int, int] | None
    excess_us: float
    #: By SageMaker Debugger's keys.
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
        """The node and the rank."""
        return self.node, self.rank

    @property
    def name(self) -> str:
        return f"{self.node} rank {self.rank} {self.mode}"

    @property
    def answer(self) -> DeviceStatus:
        few = reason_few_samples(self.steps, PATIENCE, "steps")
        return DeviceStatus.of(self.name, few, self.checks, self.violations)

    @property
    def median_us(self) -> float:
        return self.stats_us["p50"]

    @cached_property
    def block(self) -> dict[str, Any]:
        """SageMaker Debugger's figures in seconds, then more; a series without a check has no outliers."""
        block: dict[str, Any] = {
            "step_stats": {name: us / SECOND_US for name, us in self.stats_us.items()},
        }
        if self.checks:
            block["number_of_outliers"] = self.count
        std_s = self.std_us / SECOND_US
        probs, edges = self.histogram
        block |= {"phase": STEP + self.mode, "stddev": round(std_s, 2), "probs": probs, "binedges": edges}
        if self.checks:
            block["step_numbers"] = self.numbers
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
            "windows": self.checks,
            "windows_in_violation": self.violations,
        }


def limits_of(lasted_us: IntArray, ends: IntArray, stddev: float) -> IntArray:
    """(ends,) the longest whole time that is no outlier among the first so many steps.

    It is the mean plus so many standard deviations, rounded down. Computed in whole numbers: a step
    exactly at the limit is no outlier, and no rounding decides.
    """
    longest_us = int(lasted_us.max(initial=0))
    wide = lasted_us.astype(np.int64 if len(lasted_us) * longest_us**2 < _MAX_INT else object)
    totals, squares = np.cumsum(wide)[ends - 1].tolist(), np.cumsum(wide * wide)[ends - 1].tolist()
    over, under = (one**2 for one in float(stddev).as_integer_ratio())
    limits = [
        (total + math.isqrt(over * (n * square - total * total) // under)) // n
        for n, total, square in zip(ends.tolist(), totals, squares, strict=True)
    ]
    return np.array([min(limit, _MAX_INT) for limit in limits], np.int64)


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
    """Counts and edges in seconds of what is no outlier: 100 bins; one around the value if all are equal."""
    usual = times_us if limit_us is None else times_us.up_to(limit_us)
    low, high = usual.values[[0, -1]].tolist()
    if low == high:
        return [len(usual)], [0.999 * low / SECOND_US, (1.001 * high or 1) / SECOND_US]
    probs, edges = np.histogram(usual.values, bins=_BINS, range=(low, high), weights=usual.counts)
    return probs.tolist(), (edges / SECOND_US).tolist()


def _by_rank(every: Sequence[_Series]) -> dict[tuple[str, str], list[_Series]]:
    ranks: dict[tuple[str, str], list[_Series]] = {}
    for one in every:
        ranks.setdefault(one.who, []).append(one)
    return ranks


def _details(every: Sequence[_Series]) -> dict[str, Any]:
    """``step_details`` of the ranks with a checked series, and what is known of the others."""
    details: dict[str, Any] = {"step_details": {}}
    for (node, worker), series in _by_rank(every).items():
        longest = max(series, key=lambda one: one.steps)
        phases = {STEP + one.mode: one.block for one in series}
        if longest.checks:
            details["step_details"][f"{node}-{worker}"] = longest.block | {"phases": phases}
        else:
            details.setdefault("too_few_steps", {})[f"{node}-{worker}"] = {"phases": phases}
    return details


def _at_outliers(part: Job, limits: ByNode[dict[tuple[str, ...], int | None]]) -> Sums:
    """Events at the outliers: of the same rank, or of the node if a lane has none."""
    steps = part.steps.comparable
    slow: dict[str, list[IntArray]] = {}
    for (node, *names), rows in series_of(steps).items():
        if (limit_us := limits.get(node, {}).get((*names,))) is not None:
            mine = rows[steps.end_us[rows] - steps.start_us[rows] > limit_us]
            for worker in {"", names[0]}:
                slow.setdefault(worker, []).append(mine)
    every = {worker: np.concatenate(several) for worker, several in slow.items()}
    moments = {worker: union(steps.start_us[rows], steps.end_us[rows]) for worker, rows in every.items()}
    return summed(part.events, weights_by_lane(part.events, lambda lane: moments.get(lane.rank)))


def _slow_steps_found(finding: Finding, claimed: Claimed) -> Finding:
    counts = Note(
        "The amount is what GPUs lost in these steps, at most the time by which they are longer than the median"
    )
    return replace(finding, evidence=(*finding.evidence, counts), devices=claimed.devices)


def _in_slow_steps(
    limits: ByNode[dict[tuple[str, str], float]], part: Job, panel: Panel, weight_us: FloatArray
) -> Claim | None:
    """Claim the lost time in outlier steps of the series that violate, as far as these take longer than the median."""
    steps, slow = part.steps.comparable, []
    extra_us: dict[str, float] = {}
    for (node, rank, mode), rows in series_of(steps).items():
        limit_s = limits.get(node, {}).get((f"{node}-{rank}", STEP + mode))
        if limit_s is None:
            continue
        lasted_us = steps.duration_us[rows]
        over = lasted_us > limit_s * SECOND_US
        slow.append(rows[over])
        extra_us[rank] = extra_us.get(rank, 0.0) + float((lasted_us[over] - np.median(lasted_us)).sum())
    if not slow:
        return None
    return longer_steps(steps, np.concatenate(slow), sum(extra_us.values()) / len(extra_us), panel, weight_us)


def longer_steps(
    steps: Steps, rows: IntArray, longer_us: float, panel: Panel, weight_us: FloatArray
) -> Claim:
    """Claim the time that is lost in some steps, as far as these are longer than usual."""
    times = union(steps.start_us[rows], steps.end_us[rows])
    covered = times.overlap(*around_us(panel.time_us, weight_us))
    inside = np.minimum(1.0, covered / np.maximum(weight_us, 1.0))

    def claim(gpus: Sequence[Samples]) -> Sequence[FloatArray]:
        found = []
        for gpu in gpus:
            lost_us = gpu.left_us * inside[gpu.rows]
            found.append(lost_us * min(1.0, longer_us / max(1.0, float(lost_us.sum()))))
        return found

    return claim
