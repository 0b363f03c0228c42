"""How long steps took: per worker and phase, as a histogram, and over time."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

from jobrules.analyses.step_parts import (
    LastSteps,
    Series,
    StepContrast,
    amounts,
    class_times,
    compared,
    contrast,
    has_parts,
    last_steps,
    seconds,
)
from jobrules.analyses.time_lines import Columns
from jobrules.measures.rows import by_code
from jobrules.measures.value_counts import Counted
from jobrules.model import SECOND_US
from jobrules.step_outlier import PATIENCE, limits_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from jobrules.analyses.step_parts import Class, Names
    from jobrules.model import BoolArray, IntArray, Job
    from jobrules.step_outlier import StepOutlier

    #: Columns that hold steps, and the shortest and the longest of each.
    Extremes: TypeAlias = tuple[IntArray, IntArray, IntArray]

#: Workers and phases in the table; of more the ones with most outliers, then the slowest.
MOST_ROWS = 128
#: Rows up to here stand in the order of phases, then of workers; of more the odd ones come first.
NATURAL_ROWS = 16
#: Phases that are described one by one.
MOST_PHASES = 8
#: Series of the histogram and of the time line.
MOST_SERIES = 4
#: Columns of the time line.
MOST_COLUMNS = 400
#: Columns of the time line that are listed.
MOST_PEAKS = 10
#: Bins of the histogram: at least half as many, where the steps differ at all.
MOST_BINS = 60
#: A phase whose steps last longer than so many times those of the main one does not stretch the histogram.
_STRETCH = 5
#: A limit farther off than so many times p99, both from the shortest step, lies beyond the histogram.
_FAR = 5
#: Widths of time columns that a reader can name, in seconds.
_WIDTHS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600),
)
#: Another definition of an outlier than the rule's: longer than so many medians.
MEDIANS = 2
#: Longer than any step.
_NEVER = np.iinfo(np.int64).max
_HOUR_US = 3600 * SECOND_US


class StepRow(Struct, frozen=True, kw_only=True):
    """The steps of one worker and one phase; times in seconds, to the microsecond."""

    node: str
    rank: str
    mode: str
    steps: int
    mean_s: float
    median_s: float
    #: Of the population, as StepOutlier takes it.
    std_s: float
    p95_s: float
    p99_s: float
    max_s: float
    min_s: float
    #: The step that started first: start-up and compilation.
    first_s: float
    #: Mean plus ``stddev`` standard deviations, and the steps above it; none where StepOutlier does
    #: not judge: 100 steps or fewer, or another phase than it was asked for.
    limit_s: float | None
    outliers: int | None
    #: Steps longer than twice the median.
    above_two_medians: int


class StepMode(Struct, frozen=True, kw_only=True):
    """The steps of one phase, over all workers."""

    mode: str
    steps: int
    #: Quartiles, in seconds.
    p25_s: float
    median_s: float
    p75_s: float
    #: Workers, how many of them were judged, their outliers, and the range of their limits in seconds.
    ranks: int
    evaluated: int
    outliers: int
    low_limit_s: float | None
    high_limit_s: float | None
    above_two_medians: int


class StepBins(Struct, frozen=True, kw_only=True):
    """A series of the histogram: of one worker, or where ``worker`` is empty of a phase; both empty for the rest."""

    node: str
    rank: str
    mode: str
    #: Steps in each bin, and above the last one.
    counts: tuple[int, ...]
    beyond: int


class StepHistogram(Struct, frozen=True, kw_only=True):
    """Steps by duration; bin i holds ``start_us + i * width_us`` and less than the next edge."""

    start_us: int
    width_us: int
    bins: int
    #: Right edge of the last bin, and the steps of all series from there on.
    end_us: int
    beyond: int
    #: The longest of all steps.
    longest_us: int
    series: tuple[StepBins, ...]


class StepsOverTime(Struct, frozen=True, kw_only=True):
    """A phase over time, all workers; durations in microseconds, none in a column without a step."""

    #: Empty for the phases that have no series of their own.
    mode: str
    low_us: tuple[int | None, ...]
    high_us: tuple[int | None, ...]
    #: Columns that hold outliers, and the longest of each.
    outlier_columns: tuple[int, ...]
    outlier_us: tuple[int, ...]

    @classmethod
    def of(cls, phase: str, count: int, nodes: Sequence[tuple[Extremes, Extremes]]) -> StepsOverTime:
        """From what ``_looked`` tells of each node, over so many columns."""
        lowest, highest, slowest = np.full(count, _NEVER), np.full(count, -1), np.full(count, -1)
        for (column, least, most), (slow_column, _, slow_most) in nodes:
            lowest[column] = np.minimum(lowest[column], least)
            highest[column] = np.maximum(highest[column], most)
            slowest[slow_column] = np.maximum(slowest[slow_column], slow_most)
        held = np.flatnonzero(slowest >= 0)
        return cls(
            mode=phase,
            low_us=_known(lowest, highest >= 0),
            high_us=_known(highest, highest >= 0),
            outlier_columns=tuple(held.tolist()),
            outlier_us=tuple(slowest[held].tolist()),
        )


class StepPeak(Struct, frozen=True, kw_only=True):
    """The longest step of a phase in one column of time."""

    mode: str
    #: Start of the column, and how long the step took.
    start_us: int
    lasted_us: int


class StepTimeline(Struct, frozen=True, kw_only=True):
    """The shortest and the longest step per column of time; a step stands in the column of its start."""

    start_us: int
    width_us: int
    count: int
    series: tuple[StepsOverTime, ...]
    #: The ten highest of all columns and phases, the highest first.
    peaks: tuple[StepPeak, ...]


class StepTimes(Struct, frozen=True, kw_only=True):
    """Durations of the recorded steps."""

    #: Recorded steps over all workers.
    count: int
    #: An outlier took longer than the mean plus so many standard deviations of its worker and phase.
    stddev: float
    #: What is marked as an outlier in time line and comparison: by the ``rule``, or where that finds
    #: none by ``median`` (longer than twice the median); empty where there is none either way.
    marked: str
    #: Steps that are marked.
    marks: int
    rows: tuple[StepRow, ...]
    #: Workers and phases that are not in ``rows``.
    rows_left: int
    #: Most time first.
    modes: tuple[StepMode, ...]
    modes_left: int
    histogram: StepHistogram
    timeline: StepTimeline
    contrast: StepContrast | None
    #: Whether there are any events besides steps.
    has_events: bool
    last: LastSteps


def steps(job: Job, rule: StepOutlier) -> StepTimes | None:
    """The durations of all steps; none where no step was recorded.

    An outlier is what ``rule`` calls one at the end of the job.
    """
    if not job.steps_us:
        return None
    nodes = job.each(_of_node, rule)
    series = [one for node in nodes for one in node.series]
    by_phase: dict[str, list[_Series]] = {}
    for one in series:
        by_phase.setdefault(one.row.mode, []).append(one)
    by_phase = dict(sorted(by_phase.items(), key=lambda item: -sum(one.total_us for one in item[1])))
    pooled = [
        Counted.joined([node.lasted[name] for node in nodes if name in node.lasted]) for name in by_phase
    ]
    phases = [_phase(*found, lasted) for found, lasted in zip(by_phase.items(), pooled, strict=True)]
    marked = next((by for by in ("rule", "median") if any(one.marks(by) for one in series)), "")
    limits_us = {one.names: one.limit_us(marked) for one in series if one.marks(marked)}
    rows = [one.row for found in by_phase.values() for one in found]
    if len(rows) > NATURAL_ROWS:
        rows.sort(key=lambda row: (-(row.outliers or 0), -row.median_s))
    few = _few(by_phase)
    look = _Look(
        limits_us=limits_us,
        bins=_bins(phases, pooled),
        columns=_columns(job.steps_us, rows),
        place={one.row.mode: i for i, (_, found) in enumerate(few) for one in found},
        classes=_compared(nodes, limits_us),
        last=(series[0].row.node, series[0].row.rank),
    )
    seen = job.each(_looked, look)
    courses = tuple(
        StepsOverTime.of(name, look.columns.count, [one.courses[i] for one in seen if i in one.courses])
        for i, (name, _) in enumerate(few)
    )
    drawn = [(one.names, [one]) for found in by_phase.values() for one in found]
    if len(drawn) > MOST_SERIES:
        drawn = [(("", "", name), found) for name, found in few]
    return StepTimes(
        count=job.step_count,
        stddev=float(rule.stddev),
        marked=marked,
        marks=sum(one.marks(marked) for one in series),
        rows=tuple(rows[:MOST_ROWS]),
        rows_left=len(rows[MOST_ROWS:]),
        modes=tuple(phases[:MOST_PHASES]),
        modes_left=len(phases[MOST_PHASES:]),
        histogram=_histogram(look.bins, drawn, seen, max(int(lasted.values[-1]) for lasted in pooled)),
        timeline=StepTimeline(
            start_us=look.columns.start_us,
            width_us=look.columns.width_us,
            count=look.columns.count,
            series=courses,
            peaks=peaks(courses, look.columns.start_us, look.columns.width_us),
        ),
        contrast=contrast([one.amounts for one in seen]),
        has_events=any(node.has_events for node in nodes),
        last=next(one.last for one in seen if one.last),
    )


class _Series(Struct, frozen=True, kw_only=True):
    """The steps of one worker and one phase, added up."""

    row: StepRow
    total_us: int
    #: What an outlier took more than, by both definitions.
    rule_us: int | None
    median_us: float

    @property
    def names(self) -> Names:
        return self.row.node, self.row.rank, self.row.mode

    def marks(self, by: str) -> int:
        """Outliers by the rule, or steps longer than two medians; none by neither."""
        return {"rule": self.row.outliers, "median": self.row.above_two_medians}.get(by) or 0

    def limit_us(self, by: str) -> float:
        """What these took more than, where there are any."""
        return self.rule_us if by == "rule" and self.rule_us is not None else MEDIANS * self.median_us


class _Node(Struct, frozen=True, kw_only=True, eq=False):
    series: list[_Series]
    #: Durations by phase.
    lasted: dict[str, Counted]
    has_events: bool
    #: As ``class_times`` has them.
    classes: dict[tuple[str, str], dict[Class, int]]


def _of_node(part: Job, rule: StepOutlier) -> _Node:
    found = []
    lasted: dict[str, list[Counted]] = {}
    for one in Series.all_of(part.steps):
        times = Counted.of(one.lasted_us)
        lasted.setdefault(one.mode, []).append(times)
        found.append(_series(one, times, rule))
    return _Node(
        series=found,
        lasted={phase: Counted.joined(several) for phase, several in lasted.items()},
        has_events=has_parts(part.events),
        classes=class_times(part.events),
    )


def _series(one: Series, times: Counted, rule: StepOutlier) -> _Series:
    lasted, n = one.lasted_us, len(one)
    median, p95, p99 = times.quantiles(0.5, 0.95, 0.99)
    judged = n > PATIENCE and rule.looks_at(one.mode)
    limit_us = int(limits_of(lasted, np.array([n]), rule.stddev)[0]) if judged else None
    mean, std = float(lasted.mean()), float(lasted.std())
    row = StepRow(
        node=one.node,
        rank=one.rank,
        mode=one.mode,
        steps=n,
        mean_s=seconds(mean),
        median_s=seconds(median),
        std_s=seconds(std),
        p95_s=seconds(p95),
        p99_s=seconds(p99),
        max_s=seconds(times.values[-1]),
        min_s=seconds(times.values[0]),
        first_s=seconds(lasted[np.argmin(one.start_us)]),
        limit_s=None if limit_us is None else seconds(mean + rule.stddev * std),
        outliers=None if limit_us is None else times.above(limit_us),
        above_two_medians=times.above(MEDIANS * median),
    )
    return _Series(row=row, total_us=times.total, rule_us=limit_us, median_us=median)


class _Look(Struct, frozen=True, kw_only=True):
    """What is asked of the steps once they are known as a whole."""

    #: What the steps of a series that are marked took more than; of those that have any.
    limits_us: dict[Names, float]
    #: Start, width and number of the histogram's bins, and the columns of the time line.
    bins: tuple[int, int, int]
    columns: Columns
    #: Phase → its course in the time line.
    place: dict[str, int]
    classes: tuple[Class, ...]
    #: Node and worker of the last steps.
    last: tuple[str, str]


class _Seen(Struct, frozen=True, kw_only=True, eq=False):
    #: Steps in each bin, and above the last one.
    counts: dict[Names, list[int]]
    #: Course → its steps, and those that are marked.
    courses: dict[int, tuple[Extremes, Extremes]]
    amounts: dict[Class, tuple[int, ...]]
    last: LastSteps | None


def _looked(part: Job, look: _Look) -> _Seen:
    series = Series.all_of(part.steps)
    start, width, bins = look.bins
    counts = {}
    told: dict[int, list[tuple[IntArray, IntArray, BoolArray]]] = {}
    for one in series:
        places = np.minimum((one.lasted_us - start) // width, bins)
        counts[one.names] = np.bincount(places, minlength=bins + 1).tolist()
        column = (one.start_us - look.columns.start_us) // look.columns.width_us
        told.setdefault(look.place[one.mode], []).append((column, one.lasted_us, one.slow(look.limits_us)))
    courses = {}
    for place, several in told.items():
        column, lasted, marked = map(np.concatenate, zip(*several, strict=True))
        courses[place] = (
            _extremes(column, lasted, look.columns.count),
            _extremes(column[marked], lasted[marked], look.columns.count),
        )
    mine = [one for one in series if one.names[:2] == look.last]
    return _Seen(
        counts=counts,
        courses=courses,
        amounts=amounts(part.events, series, look.limits_us, look.classes),
        last=last_steps(part.events, mine) if mine else None,
    )


def _phase(name: str, series: Sequence[_Series], lasted: Counted) -> StepMode:
    p25, p50, p75 = lasted.quantiles(0.25, 0.5, 0.75)
    rows = [one.row for one in series]
    limits = [row.limit_s for row in rows if row.limit_s is not None]
    return StepMode(
        mode=name,
        steps=len(lasted),
        p25_s=seconds(p25),
        median_s=seconds(p50),
        p75_s=seconds(p75),
        ranks=len(rows),
        evaluated=len(limits),
        outliers=sum(row.outliers or 0 for row in rows),
        low_limit_s=min(limits, default=None),
        high_limit_s=max(limits, default=None),
        above_two_medians=sum(row.above_two_medians for row in rows),
    )


def _extremes(column: IntArray, values: IntArray, count: int) -> Extremes:
    """Columns with a value, and the least and the greatest in each of them."""
    order, edges = by_code(column, count)
    first, stop = np.array(edges[:-1]), np.array(edges[1:])
    held = np.flatnonzero(stop > first)
    ordered = values[order]
    return held, np.minimum.reduceat(ordered, first[held]), np.maximum.reduceat(ordered, first[held])


def _few(by_phase: dict[str, list[_Series]]) -> list[tuple[str, list[_Series]]]:
    """The phases as series of a figure; of too many the last ones are one without a name."""
    found = list(by_phase.items())
    if len(found) <= MOST_SERIES:
        return found
    rest = [one for _, series in found[MOST_SERIES - 1 :] for one in series]
    return [*found[: MOST_SERIES - 1], ("", rest)]


def _compared(nodes: Sequence[_Node], limits_us: Collection[Names]) -> tuple[Class, ...]:
    """The classes that are compared, by the workers that have outliers."""
    workers = {(node, worker) for node, one, _ in limits_us for worker in ("", one)}
    return compared(times for one in nodes for who, times in one.classes.items() if who in workers)


def _bins(phases: Sequence[StepMode], lasted: Sequence[Counted]) -> tuple[int, int, int]:
    """Common bins up to the limit; up to p99 where the limit lies so far off that it would flatten the rest.

    From 0, or where all lie high from the shortest. No wider than needed for 60 bins. Start, width and number.
    """
    least = min(int(times.values[0]) for times in lasted)
    reach = []
    for times, phase in zip(lasted, phases, strict=True):
        p99 = math.ceil(times.quantiles(0.99)[0])
        limit = math.ceil((phase.high_limit_s or 0) * SECOND_US)
        reach.append(limit if 0 < limit - least <= _FAR * (p99 - least) else p99)
    end = max(one for one in reach if one <= _STRETCH * reach[0])
    start = least if 10 * least > 3 * end else 0
    # Steps that are all alike are not drawn as if they differed.
    start = 0 if end - start < end / 50 else start
    width = _bin_width((end - start) / MOST_BINS)
    start -= start % width
    return start, width, (end - start) // width + 1


def _bin_width(least_us: float) -> int:
    """The next width with one digit, or 1.5 of its power of ten; whole microseconds."""
    power = 10 ** math.floor(math.log10(max(least_us, 1)))
    steps = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
    return next(int(step * power) for step in steps if step * power >= least_us and (step * power) % 1 == 0)


def _histogram(
    bins: tuple[int, int, int],
    drawn: Sequence[tuple[Names, Sequence[_Series]]],
    seen: Sequence[_Seen],
    longest_us: int,
) -> StepHistogram:
    start, width, number = bins
    counts = {names: found for one in seen for names, found in one.counts.items()}
    tables = []
    for (node, worker, phase), several in drawn:
        *found, beyond = np.sum([counts[one.names] for one in several], axis=0).tolist()
        tables.append(StepBins(node=node, rank=worker, mode=phase, counts=tuple(found), beyond=beyond))
    return StepHistogram(
        start_us=start,
        width_us=width,
        bins=number,
        end_us=start + number * width,
        beyond=sum(table.beyond for table in tables),
        longest_us=longest_us,
        series=tuple(tables),
    )


def _columns(span_us: tuple[int, int], rows: Sequence[StepRow]) -> Columns:
    """As many columns as the worker with most steps has, 400 at most, so that a column is about a step or more."""
    start, span = span_us[0], span_us[1] - span_us[0]
    workers = Counter[tuple[str, str]]()
    for row in rows:
        workers[row.node, row.rank] += row.steps
    least = span / min(MOST_COLUMNS, max(workers.values()))
    hours = max(1, math.ceil(least / _HOUR_US)) * _HOUR_US
    width = next((round(w * SECOND_US) for w in _WIDTHS if w * SECOND_US >= least), hours)
    return Columns(start_us=start, width_us=width, count=span // width + 1)


def peaks(courses: Sequence[StepsOverTime], start_us: int, width_us: int) -> tuple[StepPeak, ...]:
    """The longest steps of the highest columns, the highest first, of equal ones the earlier."""
    found = [
        (-us, column, one.mode) for one in courses for column, us in enumerate(one.high_us) if us is not None
    ]
    found.sort(key=lambda peak: peak[:2])
    return tuple(
        StepPeak(mode=phase, start_us=start_us + column * width_us, lasted_us=-us)
        for us, column, phase in found[:MOST_PEAKS]
    )


def _known(values: IntArray, there: BoolArray) -> tuple[int | None, ...]:
    pairs = zip(values.tolist(), there.tolist(), strict=True)
    return tuple(value if known else None for value, known in pairs)
