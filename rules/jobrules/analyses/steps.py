"""How long steps took: per rank and mode, as a histogram, and over time."""

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

#: Ranks and modes in the table.
MAX_ROWS = 128
#: Rows in the order of modes, then of ranks; more rows are ordered by outliers.
NATURAL_ROWS = 16
#: Modes with quartiles of their own.
MAX_MODES = 8
#: Series of the histogram and of the time line.
MAX_SERIES = 4
#: Columns of the time line.
MAX_COLUMNS = 400
#: Columns of the time line that are listed.
MAX_PEAKS = 10
#: Bins of the histogram: at least half as many if the steps differ at all.
MAX_BINS = 60
#: A mode with steps of more times those of the main mode does not widen the histogram.
_WIDENING = 5
#: A limit of more times p99, both from the shortest step, is beyond the histogram.
_LIMIT_IN_P99 = 5
#: Round widths of time columns, in seconds.
_WIDTHS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600),
)
#: Medians above which a step is an outlier by the second definition.
MEDIANS = 2
#: Longer than any step.
_NEVER = np.iinfo(np.int64).max
_HOUR_US = 3600 * SECOND_US


class StepRow(Struct, frozen=True, kw_only=True):
    """The steps of one rank and mode; times in seconds, to the microsecond."""

    node: str
    rank: str
    mode: str
    steps: int
    mean_s: float
    median_s: float
    #: Of the population, as in StepOutlier.
    std_s: float
    p95_s: float
    p99_s: float
    max_s: float
    min_s: float
    #: The step that started first: start-up and compilation.
    first_s: float
    #: Mean plus ``stddev`` standard deviations, and the steps above it; None if StepOutlier does not
    #: evaluate them: 100 steps or fewer, or a mode that was not selected.
    limit_s: float | None
    outliers: int | None
    #: Steps longer than twice the median.
    above_two_medians: int


class StepMode(Struct, frozen=True, kw_only=True):
    """The steps of one mode, over all ranks."""

    mode: str
    steps: int
    #: Quartiles, in seconds.
    p25_s: float
    median_s: float
    p75_s: float
    #: Ranks, how many of them were evaluated, their outliers, and the range of their limits in seconds.
    ranks: int
    evaluated: int
    outliers: int
    low_limit_s: float | None
    high_limit_s: float | None
    above_two_medians: int


class StepBins(Struct, frozen=True, kw_only=True):
    """A series of the histogram: of one rank, or of a mode if ``rank`` is empty; both empty for the rest."""

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
    """A mode over time, all ranks; durations in microseconds, None in a column without a step."""

    #: Empty for the modes without a series of their own.
    mode: str
    low_us: tuple[int | None, ...]
    high_us: tuple[int | None, ...]
    #: Columns that hold outliers, and the longest of each.
    outlier_columns: tuple[int, ...]
    outlier_us: tuple[int, ...]

    @classmethod
    def of(cls, mode: str, count: int, nodes: Sequence[tuple[Extremes, Extremes]]) -> StepsOverTime:
        """Merge the extremes of steps and of outliers of all nodes, over ``count`` columns."""
        lowest, highest, slowest = np.full(count, _NEVER), np.full(count, -1), np.full(count, -1)
        for (column, least, most), (slow_column, _, slow_most) in nodes:
            lowest[column] = np.minimum(lowest[column], least)
            highest[column] = np.maximum(highest[column], most)
            slowest[slow_column] = np.maximum(slowest[slow_column], slow_most)
        held = np.flatnonzero(slowest >= 0)
        return cls(
            mode=mode,
            low_us=_known(lowest, highest >= 0),
            high_us=_known(highest, highest >= 0),
            outlier_columns=tuple(held.tolist()),
            outlier_us=tuple(slowest[held].tolist()),
        )


class StepPeak(Struct, frozen=True, kw_only=True):
    """The longest step of a mode in one column of time."""

    mode: str
    #: Start of the column, and how long the step took.
    start_us: int
    lasted_us: int


class StepTimeline(Struct, frozen=True, kw_only=True):
    """The shortest and the longest step per column of time; a step is in the column of its start."""

    start_us: int
    width_us: int
    count: int
    series: tuple[StepsOverTime, ...]
    #: The ten highest of all columns and modes, the highest first.
    peaks: tuple[StepPeak, ...]


class StepTimes(Struct, frozen=True, kw_only=True):
    """Durations of the recorded steps."""

    #: Recorded steps over all ranks.
    count: int
    #: Standard deviations above the mean of its rank and mode beyond which a step is an outlier.
    stddev: float
    #: Definition of the outliers in time line and comparison: ``rule``; ``median`` (longer than twice the
    #: median) if the rule finds none; empty if there is none either way.
    marked: str
    #: Steps that are marked.
    marks: int
    rows: tuple[StepRow, ...]
    #: Ranks and modes that are not in ``rows``.
    rows_left: int
    #: Most time first.
    modes: tuple[StepMode, ...]
    modes_left: int
    histogram: StepHistogram
    timeline: StepTimeline
    contrast: StepContrast | None
    #: Whether there are events other than steps.
    has_events: bool
    last: LastSteps


def steps(job: Job, rule: StepOutlier) -> StepTimes | None:
    """The durations of all steps; None if no step was recorded.

    An outlier is what ``rule`` calls one at the end of the job.
    """
    if not job.steps_us:
        return None
    nodes = job.each(_of_node, rule)
    series = [one for node in nodes for one in node.series]
    by_mode = _by_mode(series)
    durations = [
        Counted.joined([node.lasted[name] for node in nodes if name in node.lasted]) for name in by_mode
    ]
    modes = [_mode(*found, lasted) for found, lasted in zip(by_mode.items(), durations, strict=True)]
    rows = _rows(by_mode)
    marked = next((by for by in ("rule", "median") if any(one.marks(by) for one in series)), "")
    limits_us = {one.names: one.limit_us(marked) for one in series if one.marks(marked)}
    drawn = _drawn_modes(by_mode)
    frame = _Frame(
        limits_us=limits_us,
        bins=_bins(modes, durations),
        columns=_columns(job.steps_us, rows),
        place={one.row.mode: i for i, (_, found) in enumerate(drawn) for one in found},
        classes=_compared(nodes, limits_us),
        last=(series[0].row.node, series[0].row.rank),
    )
    framed = job.each(_framed, frame)
    return StepTimes(
        count=job.step_count,
        stddev=float(rule.stddev),
        marked=marked,
        marks=sum(one.marks(marked) for one in series),
        rows=tuple(rows[:MAX_ROWS]),
        rows_left=len(rows[MAX_ROWS:]),
        modes=tuple(modes[:MAX_MODES]),
        modes_left=len(modes[MAX_MODES:]),
        histogram=_histogram(frame.bins, _drawn_series(by_mode, drawn), framed, durations),
        timeline=_timeline(frame.columns, [name for name, _ in drawn], framed),
        contrast=contrast([one.amounts for one in framed]),
        has_events=any(node.has_events for node in nodes),
        last=next(one.last for one in framed if one.last),
    )


class _Series(Struct, frozen=True, kw_only=True):
    """The steps of one rank and mode, added up."""

    row: StepRow
    total_us: int
    #: Limit of the rule, and the median.
    rule_us: int | None
    median_us: float

    @property
    def names(self) -> Names:
        return self.row.node, self.row.rank, self.row.mode

    def marks(self, by: str) -> int:
        """Outliers by a definition."""
        return {"rule": self.row.outliers, "median": self.row.above_two_medians}.get(by) or 0

    def limit_us(self, by: str) -> float:
        """The duration above which steps are outliers by a definition."""
        return self.rule_us if by == "rule" and self.rule_us is not None else MEDIANS * self.median_us


class _Node(Struct, frozen=True, kw_only=True, eq=False):
    series: list[_Series]
    #: Durations by mode.
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
        lasted={mode: Counted.joined(several) for mode, several in lasted.items()},
        has_events=has_parts(part.events),
        classes=class_times(part.events),
    )


def _series(one: Series, times: Counted, rule: StepOutlier) -> _Series:
    lasted, n = one.lasted_us, len(one)
    median, p95, p99 = times.quantiles(0.5, 0.95, 0.99)
    evaluated = n > PATIENCE and rule.looks_at(one.mode)
    limit_us = int(limits_of(lasted, np.array([n]), rule.stddev)[0]) if evaluated else None
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


class _Frame(Struct, frozen=True, kw_only=True):
    """Bins, columns, and limits that all nodes share, known once all steps were seen."""

    #: Duration above which the steps of a series are marked, for series with such steps.
    limits_us: dict[Names, float]
    #: Start, width, and number of the histogram's bins.
    bins: tuple[int, int, int]
    columns: Columns
    #: Mode → its place in the time line.
    place: dict[str, int]
    classes: tuple[Class, ...]
    #: Node and rank of the last steps.
    last: tuple[str, str]


class _Framed(Struct, frozen=True, kw_only=True, eq=False):
    """The steps of a node in bins and columns."""

    #: Steps in each bin, and above the last one.
    counts: dict[Names, list[int]]
    #: Place in the time line → extremes of its steps, and of those that are marked.
    extremes: dict[int, tuple[Extremes, Extremes]]
    amounts: dict[Class, tuple[int, ...]]
    last: LastSteps | None


def _framed(part: Job, frame: _Frame) -> _Framed:
    series = Series.all_of(part.steps)
    of_last = [one for one in series if one.names[:2] == frame.last]
    return _Framed(
        counts={one.names: _counts(one, frame.bins) for one in series},
        extremes=_extremes_by_place(series, frame),
        amounts=amounts(part.events, series, frame.limits_us, frame.classes),
        last=last_steps(part.events, of_last) if of_last else None,
    )


def _counts(one: Series, bins: tuple[int, int, int]) -> list[int]:
    """Steps in each bin, and above the last one."""
    start, width, number = bins
    places = np.minimum((one.lasted_us - start) // width, number)
    counts: list[int] = np.bincount(places, minlength=number + 1).tolist()
    return counts


def _extremes_by_place(series: Sequence[Series], frame: _Frame) -> dict[int, tuple[Extremes, Extremes]]:
    columns = frame.columns
    found: dict[int, list[tuple[IntArray, IntArray, BoolArray]]] = {}
    for one in series:
        column = (one.start_us - columns.start_us) // columns.width_us
        found.setdefault(frame.place[one.mode], []).append((column, one.lasted_us, one.slow(frame.limits_us)))
    extremes = {}
    for place, several in found.items():
        column, lasted, marked = map(np.concatenate, zip(*several, strict=True))
        extremes[place] = (
            _extremes(column, lasted, columns.count),
            _extremes(column[marked], lasted[marked], columns.count),
        )
    return extremes


def _by_mode(series: Sequence[_Series]) -> dict[str, list[_Series]]:
    """The series of each mode, the mode with most time first."""
    found: dict[str, list[_Series]] = {}
    for one in series:
        found.setdefault(one.row.mode, []).append(one)
    return dict(sorted(found.items(), key=lambda item: -sum(one.total_us for one in item[1])))


def _rows(by_mode: dict[str, list[_Series]]) -> list[StepRow]:
    """The rows of the table; of many, those with most outliers first, then the slowest."""
    rows = [one.row for found in by_mode.values() for one in found]
    if len(rows) > NATURAL_ROWS:
        rows.sort(key=lambda row: (-(row.outliers or 0), -row.median_s))
    return rows


def _mode(name: str, series: Sequence[_Series], lasted: Counted) -> StepMode:
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
    """Columns with a value, and the smallest and the largest value of each."""
    order, edges = by_code(column, count)
    first, stop = np.array(edges[:-1]), np.array(edges[1:])
    held = np.flatnonzero(stop > first)
    ordered = values[order]
    return held, np.minimum.reduceat(ordered, first[held]), np.maximum.reduceat(ordered, first[held])


def _drawn_modes(by_mode: dict[str, list[_Series]]) -> list[tuple[str, list[_Series]]]:
    """The modes as series of a figure; of too many, the last ones are one without a name."""
    found = list(by_mode.items())
    if len(found) <= MAX_SERIES:
        return found
    rest = [one for _, series in found[MAX_SERIES - 1 :] for one in series]
    return [*found[: MAX_SERIES - 1], ("", rest)]


def _drawn_series(
    by_mode: dict[str, list[_Series]], modes: Sequence[tuple[str, list[_Series]]]
) -> list[tuple[Names, Sequence[_Series]]]:
    """The series of the histogram: of each rank and mode, or of too many, of each mode."""
    every = [one for found in by_mode.values() for one in found]
    if len(every) > MAX_SERIES:
        return [(("", "", name), found) for name, found in modes]
    return [(one.names, [one]) for one in every]


def _compared(nodes: Sequence[_Node], limits_us: Collection[Names]) -> tuple[Class, ...]:
    """The classes that are compared, of the ranks that have outliers."""
    ranks = {(node, rank) for node, one, _ in limits_us for rank in ("", one)}
    return compared(times for one in nodes for who, times in one.classes.items() if who in ranks)


def _bins(modes: Sequence[StepMode], lasted: Sequence[Counted]) -> tuple[int, int, int]:
    """Start, width, and number of common bins, no wider than needed for 60.

    Up to the limit, or to p99 if the limit would flatten the rest. From 0, or from the shortest step if all are long.
    """
    least = min(int(times.values[0]) for times in lasted)
    reach = []
    for times, mode in zip(lasted, modes, strict=True):
        p99 = math.ceil(times.quantiles(0.99)[0])
        limit = math.ceil((mode.high_limit_s or 0) * SECOND_US)
        reach.append(limit if 0 < limit - least <= _LIMIT_IN_P99 * (p99 - least) else p99)
    end = max(one for one in reach if one <= _WIDENING * reach[0])
    start = least if 10 * least > 3 * end else 0
    # Equal steps are not drawn as if they differed.
    start = 0 if end - start < end / 50 else start
    width = _bin_width((end - start) / MAX_BINS)
    start -= start % width
    return start, width, (end - start) // width + 1


def _bin_width(least_us: float) -> int:
    """The next round width in whole microseconds: one digit, or 1.5, times a power of ten."""
    power = 10 ** math.floor(math.log10(max(least_us, 1)))
    steps = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
    return next(int(step * power) for step in steps if step * power >= least_us and (step * power) % 1 == 0)


def _histogram(
    bins: tuple[int, int, int],
    drawn: Sequence[tuple[Names, Sequence[_Series]]],
    framed: Sequence[_Framed],
    durations: Sequence[Counted],
) -> StepHistogram:
    start, width, number = bins
    counts = {names: found for one in framed for names, found in one.counts.items()}
    series = []
    for (node, rank, mode), several in drawn:
        *found, beyond = np.sum([counts[one.names] for one in several], axis=0).tolist()
        series.append(StepBins(node=node, rank=rank, mode=mode, counts=tuple(found), beyond=beyond))
    return StepHistogram(
        start_us=start,
        width_us=width,
        bins=number,
        end_us=start + number * width,
        beyond=sum(one.beyond for one in series),
        longest_us=max(int(lasted.values[-1]) for lasted in durations),
        series=tuple(series),
    )


def _timeline(columns: Columns, modes: Sequence[str], framed: Sequence[_Framed]) -> StepTimeline:
    series = tuple(
        StepsOverTime.of(name, columns.count, [one.extremes[i] for one in framed if i in one.extremes])
        for i, name in enumerate(modes)
    )
    return StepTimeline(
        start_us=columns.start_us,
        width_us=columns.width_us,
        count=columns.count,
        series=series,
        peaks=peaks(series, columns.start_us, columns.width_us),
    )


def _columns(span_us: tuple[int, int], rows: Sequence[StepRow]) -> Columns:
    """As many columns as the rank with most steps has steps, at most 400."""
    start, span = span_us[0], span_us[1] - span_us[0]
    by_rank = Counter[tuple[str, str]]()
    for row in rows:
        by_rank[row.node, row.rank] += row.steps
    least = span / min(MAX_COLUMNS, max(by_rank.values()))
    hours = max(1, math.ceil(least / _HOUR_US)) * _HOUR_US
    width = next((round(w * SECOND_US) for w in _WIDTHS if w * SECOND_US >= least), hours)
    return Columns(start_us=start, width_us=width, count=span // width + 1)


def peaks(series: Sequence[StepsOverTime], start_us: int, width_us: int) -> tuple[StepPeak, ...]:
    """The longest steps of the highest columns, the highest first, the earlier first if equal."""
    found = [
        (-us, column, one.mode) for one in series for column, us in enumerate(one.high_us) if us is not None
    ]
    found.sort(key=lambda peak: peak[:2])
    return tuple(
        StepPeak(mode=mode, start_us=start_us + column * width_us, lasted_us=-us)
        for us, column, mode in found[:MAX_PEAKS]
    )


def _known(values: IntArray, known: BoolArray) -> tuple[int | None, ...]:
    pairs = zip(values.tolist(), known.tolist(), strict=True)
    return tuple(value if is_known else None for value, is_known in pairs)
