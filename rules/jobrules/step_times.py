"""How long steps took: per worker and phase, as a histogram, and over time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jobrules.framework import grouped
from jobrules.job import SECOND_US
from jobrules.step_parts import LastSteps, Series, StepContrast, contrast, has_parts, last_steps, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.job import BoolArray, IntArray, Job
    from jobrules.step_outlier import StepOutlier

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
_HOUR_US = 3600 * SECOND_US


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """The steps of one worker and one phase; times in seconds, to the microsecond."""

    node: str
    worker: str
    phase: str
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


@dataclass(frozen=True, kw_only=True)
class StepPhase:
    """The steps of one phase, over all workers."""

    phase: str
    steps: int
    #: Quartiles, in seconds.
    p25_s: float
    median_s: float
    p75_s: float
    #: Workers, how many of them were judged, their outliers, and the range of their limits in seconds.
    workers: int
    judged: int
    outliers: int
    low_limit_s: float | None
    high_limit_s: float | None
    above_two_medians: int


@dataclass(frozen=True, kw_only=True)
class StepBins:
    """A series of the histogram: of one worker, or where ``worker`` is empty of a phase; both empty for the rest."""

    node: str
    worker: str
    phase: str
    #: Steps in each bin, and above the last one.
    counts: tuple[int, ...]
    beyond: int


@dataclass(frozen=True, kw_only=True)
class StepHistogram:
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


@dataclass(frozen=True, kw_only=True)
class StepCourse:
    """A phase over time, all workers; durations in microseconds, none in a column without a step."""

    #: Empty for the phases that have no series of their own.
    phase: str
    low_us: tuple[int | None, ...]
    high_us: tuple[int | None, ...]
    #: Columns that hold outliers, and the longest of each.
    outlier_columns: tuple[int, ...]
    outlier_us: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class StepPeak:
    """The longest step of a phase in one column of time."""

    phase: str
    #: Start of the column, and how long the step took.
    start_us: int
    lasted_us: int


@dataclass(frozen=True, kw_only=True)
class StepTimeline:
    """The shortest and the longest step per column of time; a step stands in the column of its start."""

    start_us: int
    width_us: int
    count: int
    series: tuple[StepCourse, ...]
    #: The ten highest of all columns and phases, the highest first.
    peaks: tuple[StepPeak, ...]


@dataclass(frozen=True, kw_only=True)
class StepTimes:
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
    phases: tuple[StepPhase, ...]
    phases_left: int
    histogram: StepHistogram
    timeline: StepTimeline
    contrast: StepContrast | None
    #: Whether there are any events besides steps.
    has_events: bool
    last: LastSteps


def step_times(job: Job, rule: StepOutlier) -> StepTimes | None:
    """The durations of all steps; none where no step was recorded.

    An outlier is what ``rule`` calls one at the end of the job.
    """
    steps = job.steps
    if not len(steps):
        return None
    series = [
        Series.of(steps, names, rows, rule)
        for names, rows in grouped(steps.node, steps.worker, steps.phase).items()
    ]
    by_phase: dict[str, list[Series]] = {}
    for one in series:
        by_phase.setdefault(one.phase, []).append(one)
    by_phase = dict(sorted(by_phase.items(), key=lambda item: -sum(one.total_us for one in item[1])))
    phases = tuple(_phase(name, found) for name, found in by_phase.items())
    marked = next((by for by in ("rule", "median") if any(one.slow(by).any() for one in series)), "")
    rows = [_row(one) for found in by_phase.values() for one in found]
    if len(rows) > NATURAL_ROWS:
        rows.sort(key=lambda row: (-(row.outliers or 0), -row.median_s))
    has_events = has_parts(job.events)
    return StepTimes(
        count=len(steps),
        stddev=float(rule.stddev),
        marked=marked,
        marks=sum(int(np.count_nonzero(one.slow(marked))) for one in series),
        rows=tuple(rows[:MOST_ROWS]),
        rows_left=len(rows[MOST_ROWS:]),
        phases=phases[:MOST_PHASES],
        phases_left=len(phases[MOST_PHASES:]),
        histogram=_histogram(series, by_phase, phases),
        timeline=_timeline(series, by_phase, marked),
        contrast=contrast(job.events, series, marked) if has_events and marked else None,
        has_events=has_events,
        last=last_steps(job.events, series),
    )


def _row(one: Series) -> StepRow:
    lasted = one.lasted_us
    p95, p99 = np.quantile(lasted, (0.95, 0.99)).tolist()
    return StepRow(
        node=one.node,
        worker=one.worker,
        phase=one.phase,
        steps=len(one),
        mean_s=seconds(lasted.mean()),
        median_s=seconds(one.median_us),
        std_s=seconds(lasted.std()),
        p95_s=seconds(p95),
        p99_s=seconds(p99),
        max_s=seconds(lasted.max()),
        min_s=seconds(lasted.min()),
        first_s=seconds(lasted[np.argmin(one.start_us)]),
        limit_s=one.limit_s,
        outliers=None if one.limit_us is None else int(np.count_nonzero(one.slow("rule"))),
        above_two_medians=int(np.count_nonzero(one.slow("median"))),
    )


def _pooled(series: Sequence[Series]) -> IntArray:
    return np.concatenate([one.lasted_us for one in series])


def _phase(name: str, series: Sequence[Series]) -> StepPhase:
    p25, p50, p75 = np.quantile(_pooled(series), (0.25, 0.5, 0.75)).tolist()
    limits = [one.limit_s for one in series if one.limit_s is not None]
    return StepPhase(
        phase=name,
        steps=sum(map(len, series)),
        p25_s=seconds(p25),
        median_s=seconds(p50),
        p75_s=seconds(p75),
        workers=len(series),
        judged=len(limits),
        outliers=sum(int(np.count_nonzero(one.slow("rule"))) for one in series),
        low_limit_s=min(limits, default=None),
        high_limit_s=max(limits, default=None),
        above_two_medians=sum(int(np.count_nonzero(one.slow("median"))) for one in series),
    )


def _histogram(
    series: Sequence[Series], by_phase: dict[str, list[Series]], phases: Sequence[StepPhase]
) -> StepHistogram:
    """Common bins up to the limit; up to p99 where the limit lies so far off that it would flatten the rest.

    From 0, or where all lie high from the shortest. No wider than needed for 60 bins.
    """
    if len(series) <= MOST_SERIES:
        every = [one for found in by_phase.values() for one in found]
        drawn = [(one.node, one.worker, one.phase, [one]) for one in every]
    else:
        drawn = [("", "", phase, found) for phase, found in _few(by_phase)]
    least = min(int(one.lasted_us.min()) for one in series)
    reach = []
    for found, phase in zip(by_phase.values(), phases, strict=True):
        p99 = math.ceil(np.quantile(_pooled(found), 0.99))
        limit = math.ceil((phase.high_limit_s or 0) * SECOND_US)
        reach.append(limit if 0 < limit - least <= _FAR * (p99 - least) else p99)
    end = max(one for one in reach if one <= _STRETCH * reach[0])
    start = least if 10 * least > 3 * end else 0
    # Steps that are all alike are not drawn as if they differed.
    start = 0 if end - start < end / 50 else start
    width = _bin_width((end - start) / MOST_BINS)
    start -= start % width
    bins = (end - start) // width + 1
    tables = []
    for node, worker, name, found in drawn:
        places = (_pooled(found) - start) // width
        inside = places < bins
        counts = np.bincount(places[inside], minlength=bins).tolist()
        beyond = int(np.count_nonzero(~inside))
        tables.append(StepBins(node=node, worker=worker, phase=name, counts=tuple(counts), beyond=beyond))
    longest = max(int(one.lasted_us.max()) for one in series)
    return StepHistogram(
        start_us=start,
        width_us=width,
        bins=bins,
        end_us=start + bins * width,
        beyond=sum(table.beyond for table in tables),
        longest_us=longest,
        series=tuple(tables),
    )


def _few(by_phase: dict[str, list[Series]]) -> list[tuple[str, list[Series]]]:
    """The phases as series of a figure; of too many the last ones are one without a name."""
    found = list(by_phase.items())
    if len(found) <= MOST_SERIES:
        return found
    rest = [one for _, series in found[MOST_SERIES - 1 :] for one in series]
    return [*found[: MOST_SERIES - 1], ("", rest)]


def _bin_width(least_us: float) -> int:
    """The next width with one digit, or 1.5 of its power of ten; whole microseconds."""
    power = 10 ** math.floor(math.log10(max(least_us, 1)))
    steps = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
    return next(int(step * power) for step in steps if step * power >= least_us and (step * power) % 1 == 0)


def _timeline(series: Sequence[Series], by_phase: dict[str, list[Series]], marked: str) -> StepTimeline:
    """As many columns as the worker with most steps has, 600 at most, so that a column is about a step or more."""
    start = min(int(one.start_us.min()) for one in series)
    span = max(int(one.end_us.max()) for one in series) - start
    workers: dict[tuple[str, str], int] = {}
    for one in series:
        workers[one.node, one.worker] = workers.get((one.node, one.worker), 0) + len(one)
    least = span / min(MOST_COLUMNS, max(workers.values()))
    hours = max(1, math.ceil(least / _HOUR_US)) * _HOUR_US
    width = next((round(w * SECOND_US) for w in _WIDTHS if w * SECOND_US >= least), hours)
    count = span // width + 1
    courses = []
    for phase, found in _few(by_phase):
        lasted = _pooled(found)
        column = (np.concatenate([one.start_us for one in found]) - start) // width
        high = np.full(count, -1)
        low = np.full(count, np.iinfo(np.int64).max)
        out = np.full(count, -1)
        np.maximum.at(high, column, lasted)
        np.minimum.at(low, column, lasted)
        slow = np.concatenate([one.slow(marked) for one in found])
        np.maximum.at(out, column[slow], lasted[slow])
        filled = np.bincount(column, minlength=count) > 0
        held = np.flatnonzero(np.bincount(column[slow], minlength=count))
        courses.append(
            StepCourse(
                phase=phase,
                low_us=_known(low, filled),
                high_us=_known(high, filled),
                outlier_columns=tuple(held.tolist()),
                outlier_us=tuple(out[held].tolist()),
            )
        )
    return StepTimeline(
        start_us=start, width_us=width, count=count, series=tuple(courses), peaks=peaks(courses, start, width)
    )


def peaks(courses: Sequence[StepCourse], start_us: int, width_us: int) -> tuple[StepPeak, ...]:
    """The longest steps of the highest columns, the highest first, of equal ones the earlier."""
    found = [
        (-us, column, one.phase) for one in courses for column, us in enumerate(one.high_us) if us is not None
    ]
    found.sort(key=lambda peak: peak[:2])
    return tuple(
        StepPeak(phase=phase, start_us=start_us + column * width_us, lasted_us=-us)
        for us, column, phase in found[:MOST_PEAKS]
    )


def _known(values: IntArray, there: BoolArray) -> tuple[int | None, ...]:
    pairs = zip(values.tolist(), there.tolist(), strict=True)
    return tuple(value if known else None for value, known in pairs)
