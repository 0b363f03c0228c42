"""How long steps took: per rank and mode, as a histogram, and over time."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.analyses.rank_steps import RankSteps, rank_steps
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
from jobrules.analyses.step_starts import StepStarts, step_starts
from jobrules.analyses.time_lines import Columns
from jobrules.measures.framework_time import Kind, rows_of
from jobrules.measures.rows import rows_by_mode, rows_by_rank
from jobrules.measures.value_counts import Counted
from jobrules.model import SECOND_US, ByNode, StepMark
from jobrules.model.names import EventName, NodeName, OwnText, RankName

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from jobrules.analyses.step_parts import Class, Names
    from jobrules.model import IntArray, Job
    from jobrules.rules.step_outlier import StepOutlier

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
#: Medians above which a step is an outlier by the second definition.
MEDIANS = 2
#: Longer than any step.
_NEVER = np.iinfo(np.int64).max


class StepRow(Struct, frozen=True, kw_only=True):
    """The steps of one rank and mode; times in seconds, to the microsecond."""

    node: NodeName
    rank: RankName
    mode: EventName
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

    mode: EventName
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


class DeviceSteps(Struct, frozen=True, kw_only=True):
    """Steps as the GPU sees them, over all ranks; quartiles in seconds."""

    steps: int
    p25_s: float
    median_s: float
    p75_s: float


class StepBins(Struct, frozen=True, kw_only=True):
    """A series of the histogram: of one rank, or of a mode if ``rank`` is empty; both empty for the rest."""

    node: NodeName
    rank: RankName
    mode: EventName
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
    mode: EventName
    low_us: tuple[int | None, ...]
    high_us: tuple[int | None, ...]
    #: Columns that hold outliers, and the longest of each.
    outlier_columns: tuple[int, ...]
    outlier_us: tuple[int, ...]

    @classmethod
    def of(cls, mode: str, extremes: IntArray) -> StepsOverTime:
        """From the (3, columns) extremes of all nodes, as in ``_extremes``."""
        shortest, longest, outlier = extremes
        columns = np.flatnonzero(outlier >= 0)
        return cls(
            mode=mode,
            low_us=tuple(None if us == _NEVER else us for us in shortest.tolist()),
            high_us=tuple(None if us < 0 else us for us in longest.tolist()),
            outlier_columns=tuple(columns.tolist()),
            outlier_us=tuple(outlier[columns].tolist()),
        )


class StepPeak(Struct, frozen=True, kw_only=True):
    """The longest step of a mode in one column of time."""

    mode: EventName
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

    #: Steps over all ranks, without those that are left out: under a profiler, and recorded in part.
    count: int
    profiled: int = 0
    cut: int = 0
    #: None if they were not recorded.
    device: DeviceSteps | None = None
    #: Standard deviations above the mean of its rank and mode beyond which a step is an outlier.
    stddev: float
    #: Definition of the outliers in time line and comparison: ``rule``; ``median`` (longer than twice the
    #: median) if the rule finds none; empty if there is none either way.
    marked: OwnText
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
    #: None if no rank makes the others wait.
    of_ranks: RankSteps | None = None
    #: None if a time axis cannot count in steps.
    starts: StepStarts | None = None


def steps(job: Job, rule: StepOutlier) -> StepTimes | None:
    """The durations of all steps; None if no step was recorded.

    An outlier is what ``rule`` calls one at the end of the job.
    """
    if not job.steps_us:
        return None
    nodes = job.each(_of_node, rule)
    series = [one for node in nodes for one in node.series]
    modes = _modes(nodes)
    rows = _rows(modes)
    marked = next((by for by in ("rule", "median") if any(one.marks(by) for one in series)), "")
    limits_us: ByNode[dict[Names, float]] = ByNode()
    for one in series:
        if one.marks(marked):
            limits_us.setdefault(one.row.node, {})[one.names] = one.limit_us(marked)
    drawn = _drawn(modes)
    frame = _Frame(
        bins=_bins(modes),
        columns=_columns(job.steps_us, rows),
        drawn_as={one.row.mode: name for name, found in drawn.items() for one in found},
        classes=_compared(nodes, [names for own in limits_us.values() for names in own]),
        last=series[0].names[:2],
    )
    framed = job.each(_framed, frame, limits_us)
    return StepTimes(
        count=sum(one.row.steps for one in series),
        profiled=sum(node.profiled for node in nodes),
        cut=sum(node.cut for node in nodes),
        device=_device_steps(Counted.joined([node.on_device for node in nodes])),
        stddev=float(rule.stddev),
        marked=marked,
        marks=sum(one.marks(marked) for one in series),
        rows=tuple(rows[:MAX_ROWS]),
        rows_left=len(rows[MAX_ROWS:]),
        modes=tuple(mode.row for mode in modes[:MAX_MODES]),
        modes_left=len(modes[MAX_MODES:]),
        histogram=_histogram(frame.bins, modes, drawn, framed),
        timeline=_timeline(frame.columns, drawn, framed),
        contrast=contrast([one.amounts for one in framed]),
        has_events=any(node.has_events for node in nodes),
        last=next(one.last for one in framed if one.last),
        of_ranks=rank_steps(job),
        starts=step_starts(job),
    )


class _Series(Struct, frozen=True, kw_only=True):
    """The steps of one rank and mode, added up."""

    row: StepRow
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
    #: Steps that are left out, as in ``StepTimes``.
    profiled: int
    cut: int
    #: Durations of steps as the GPU sees them.
    on_device: Counted
    has_events: bool
    #: As ``class_times`` has them.
    classes: dict[tuple[str, str], dict[Class, int]]


def _of_node(part: Job, rule: StepOutlier) -> _Node:
    compared = part.steps.comparable
    left_out = part.steps.mark if len(compared) < len(part.steps) else compared.mark[:0]
    return _Node(
        series=[_series(one, rule) for one in Series.all_of(compared)],
        lasted={
            mode: Counted.of(compared.duration_us[rows]) for mode, rows in rows_by_mode(compared).items()
        },
        profiled=int(np.count_nonzero(left_out == StepMark.PROFILED)),
        cut=int(np.count_nonzero(left_out == StepMark.CUT)),
        on_device=Counted.of(part.events.duration_us[rows_of(part.events, Kind.DEVICE_STEP)]),
        has_events=has_parts(part.events),
        classes=class_times(part.events),
    )


def _series(one: Series, rule: StepOutlier) -> _Series:
    lasted, n = one.lasted_us, len(one.lasted_us)
    median, p95, p99 = np.quantile(lasted, (0.5, 0.95, 0.99)).tolist()
    limit_us = rule.limit_us(one.mode, lasted)
    mean, std = float(lasted.mean()), float(lasted.std())
    node, rank, mode = one.names
    row = StepRow(
        node=node,
        rank=rank,
        mode=mode,
        steps=n,
        mean_s=seconds(mean),
        median_s=seconds(median),
        std_s=seconds(std),
        p95_s=seconds(p95),
        p99_s=seconds(p99),
        max_s=seconds(lasted.max()),
        min_s=seconds(lasted.min()),
        first_s=seconds(lasted[np.argmin(one.start_us)]),
        limit_s=None if limit_us is None else seconds(mean + rule.stddev * std),
        outliers=None if limit_us is None else int(np.count_nonzero(lasted > limit_us)),
        above_two_medians=int(np.count_nonzero(lasted > MEDIANS * median)),
    )
    return _Series(row=row, rule_us=limit_us, median_us=median)


def _device_steps(lasted: Counted) -> DeviceSteps | None:
    if not len(lasted):
        return None
    p25, p50, p75 = lasted.quantiles(0.25, 0.5, 0.75)
    return DeviceSteps(steps=len(lasted), p25_s=seconds(p25), median_s=seconds(p50), p75_s=seconds(p75))


class _Mode(Struct, frozen=True, kw_only=True, eq=False):
    """The steps of one mode, over all ranks."""

    name: str
    series: list[_Series]
    lasted: Counted

    @property
    def row(self) -> StepMode:
        p25, p50, p75 = self.lasted.quantiles(0.25, 0.5, 0.75)
        rows = [one.row for one in self.series]
        limits = [row.limit_s for row in rows if row.limit_s is not None]
        return StepMode(
            mode=self.name,
            steps=len(self.lasted),
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


def _modes(nodes: Sequence[_Node]) -> list[_Mode]:
    """The modes, the one with most time first."""
    by_mode: dict[str, list[_Series]] = {}
    for node in nodes:
        for one in node.series:
            by_mode.setdefault(one.row.mode, []).append(one)
    modes = [
        _Mode(
            name=name,
            series=series,
            lasted=Counted.joined([node.lasted[name] for node in nodes if name in node.lasted]),
        )
        for name, series in by_mode.items()
    ]
    return sorted(modes, key=lambda mode: -mode.lasted.total)


def _rows(modes: Sequence[_Mode]) -> list[StepRow]:
    """The rows of the table; of many, those with most outliers first, then the slowest."""
    rows = [one.row for mode in modes for one in mode.series]
    if len(rows) > NATURAL_ROWS:
        rows.sort(key=lambda row: (-(row.outliers or 0), -row.median_s))
    return rows


def _drawn(modes: Sequence[_Mode]) -> dict[str, list[_Series]]:
    """The modes as series of a figure; of too many, the last ones are one without a name."""
    first = modes if len(modes) <= MAX_SERIES else modes[: MAX_SERIES - 1]
    rest = [one for mode in modes[len(first) :] for one in mode.series]
    return {mode.name: mode.series for mode in first} | ({"": rest} if rest else {})


def _compared(nodes: Sequence[_Node], limits_us: Collection[Names]) -> tuple[Class, ...]:
    """The classes that are compared, of the ranks that have outliers."""
    ranks = {(node, rank) for node, one, _ in limits_us for rank in ("", one)}
    return compared(times for one in nodes for who, times in one.classes.items() if who in ranks)


def _bins(modes: Sequence[_Mode]) -> range:
    """Starts of common bins, no wider than needed for 60.

    Up to the limit, or to p99 if the limit would flatten the rest. From 0, or from the shortest step if all
    are long.
    """
    least = min(int(mode.lasted.values[0]) for mode in modes)
    reach = []
    for mode in modes:
        p99 = math.ceil(mode.lasted.quantiles(0.99)[0])
        limit = math.ceil((mode.row.high_limit_s or 0) * SECOND_US)
        reach.append(limit if 0 < limit - least <= _LIMIT_IN_P99 * (p99 - least) else p99)
    end = max(one for one in reach if one <= _WIDENING * reach[0])
    start = least if 10 * least > 3 * end else 0
    # Equal steps are not drawn as if they differed.
    start = 0 if end - start < end / 50 else start
    width = _bin_width((end - start) / MAX_BINS)
    start -= start % width
    return range(start, end - (end - start) % width + width, width)


def _bin_width(least_us: float) -> int:
    """The next round width in whole microseconds: one digit, or 1.5, times a power of ten."""
    power = 10 ** math.floor(math.log10(max(least_us, 1)))
    steps = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
    return next(int(step * power) for step in steps if step * power >= least_us and (step * power) % 1 == 0)


def _columns(span_us: tuple[int, int], rows: Sequence[StepRow]) -> Columns:
    """As many columns as the rank with most steps has steps, at most 400."""
    by_rank = Counter[tuple[str, str]]()
    for row in rows:
        by_rank[row.node, row.rank] += row.steps
    start_us, end_us = span_us
    least_us = (end_us - start_us) / min(MAX_COLUMNS, max(by_rank.values()))
    return Columns.of(start_us, end_us, least_us, finest_s=0.001)


class _Frame(Struct, frozen=True, kw_only=True):
    """Bins and columns that all nodes share, known once all steps were seen."""

    bins: range
    columns: Columns
    #: Mode → its series in the time line.
    drawn_as: dict[str, str]
    classes: tuple[Class, ...]
    #: Node and rank of the last steps.
    last: tuple[str, str]


class _Framed(Struct, frozen=True, kw_only=True, eq=False):
    """The steps of a node in bins and columns."""

    #: Steps in each bin, and above the last one.
    counts: dict[Names, IntArray]
    #: By series of the time line.
    extremes: dict[str, IntArray]
    amounts: dict[Class, tuple[int, ...]]
    last: LastSteps | None


def _framed(part: Job, frame: _Frame, limits_us: ByNode[dict[Names, float]]) -> _Framed:
    """``limits_us`` has the duration above which the steps of a series are marked, for series with such steps."""
    marked_us = limits_us.get(part.nodes[0], {})
    series = Series.all_of(part.steps.comparable)
    by_name: dict[str, list[Series]] = {}
    for one in series:
        by_name.setdefault(frame.drawn_as[one.mode], []).append(one)
    of_last = [one for one in series if one.names[:2] == frame.last]
    return _Framed(
        counts={one.names: _counts(one, frame.bins) for one in series},
        extremes={name: _extremes(several, frame.columns, marked_us) for name, several in by_name.items()},
        amounts=amounts(part.events, series, marked_us, frame.classes),
        last=last_steps(part.events, of_last, part.steps.start_us[rows_by_rank(part.steps)[frame.last[1]]])
        if of_last
        else None,
    )


def _counts(one: Series, bins: range) -> IntArray:
    """(bins + 1,) steps in each bin, and above the last one."""
    places = np.minimum((one.lasted_us - bins.start) // bins.step, len(bins))
    return np.bincount(places, minlength=len(bins) + 1)


def _extremes(several: Sequence[Series], columns: Columns, limits_us: Mapping[Names, float]) -> IntArray:
    """(3, columns) the shortest, the longest, and the longest marked step; ``_NEVER`` and -1 without one."""
    extremes = np.array([[_NEVER], [-1], [-1]]).repeat(columns.count, axis=1)
    shortest, longest, outlier = extremes
    for one in several:
        column, slow = (one.start_us - columns.start_us) // columns.width_us, one.slow(limits_us)
        np.minimum.at(shortest, column, one.lasted_us)
        np.maximum.at(longest, column, one.lasted_us)
        np.maximum.at(outlier, column[slow], one.lasted_us[slow])
    return extremes


def _histogram(
    bins: range,
    modes: Sequence[_Mode],
    drawn: Mapping[str, list[_Series]],
    framed: Sequence[_Framed],
) -> StepHistogram:
    """A series for each rank and mode; of too many, for each mode that is drawn."""
    counts = {names: found for one in framed for names, found in one.counts.items()}
    every = [one.names for mode in modes for one in mode.series]
    of_series = {names: [names] for names in every}
    if len(every) > MAX_SERIES:
        of_series = {("", "", name): [one.names for one in several] for name, several in drawn.items()}
    series = []
    for (node, rank, mode), several in of_series.items():
        *found, beyond = np.sum([counts[names] for names in several], axis=0).tolist()
        series.append(StepBins(node=node, rank=rank, mode=mode, counts=tuple(found), beyond=beyond))
    return StepHistogram(
        start_us=bins.start,
        width_us=bins.step,
        bins=len(bins),
        end_us=bins.stop,
        beyond=sum(one.beyond for one in series),
        longest_us=max(int(mode.lasted.values[-1]) for mode in modes),
        series=tuple(series),
    )


def _timeline(columns: Columns, drawn: Collection[str], framed: Sequence[_Framed]) -> StepTimeline:
    series = []
    for name in drawn:
        nodes = np.stack([one.extremes[name] for one in framed if name in one.extremes], axis=1)
        extremes = np.stack([nodes[0].min(axis=0), nodes[1].max(axis=0), nodes[2].max(axis=0)])
        series.append(StepsOverTime.of(name, extremes))
    return StepTimeline(
        start_us=columns.start_us,
        width_us=columns.width_us,
        count=columns.count,
        series=tuple(series),
        peaks=_peaks(series, columns),
    )


def _peaks(series: Sequence[StepsOverTime], columns: Columns) -> tuple[StepPeak, ...]:
    """The longest steps of the highest columns, the highest first, the earlier first if equal."""
    found = [
        (-us, column, one.mode) for one in series for column, us in enumerate(one.high_us) if us is not None
    ]
    found.sort(key=lambda peak: peak[:2])
    return tuple(
        StepPeak(mode=mode, start_us=columns.start_us + column * columns.width_us, lasted_us=-us)
        for us, column, mode in found[:MAX_PEAKS]
    )
