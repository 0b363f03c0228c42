"""How long steps took: per worker and phase, as a histogram, over time, and what the slow ones spent it on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from jobrules.framework import Kind, grouped, kind_of
from jobrules.intervals import Intervals, union
from jobrules.job import SECOND_US, natural_key
from jobrules.loading import FETCH, PIPELINE, SET_UP
from jobrules.overall_framework_metrics import STEP
from jobrules.rounding import apportion
from jobrules.step_outlier import PATIENCE, limits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jobrules.job import BoolArray, CodeArray, Events, IntArray, Job, Lane, Steps
    from jobrules.step_outlier import StepOutlier

#: Workers and phases in the table; of more the ones with most outliers, then the slowest.
MOST_ROWS = 128
#: Rows up to here stand in natural order; of more the odd ones come first.
NATURAL_ROWS = 16
#: Phases that are described one by one.
MOST_PHASES = 8
#: Series of the histogram and of the time line.
MOST_SERIES = 4
#: Columns of the time line.
MOST_COLUMNS = 600
#: Columns of the time line that are listed.
MOST_PEAKS = 10
#: Bins of the histogram: at least half as many, where the steps differ at all.
MOST_BINS = 60
#: Classes that are compared, and of these the ones that differ most.
MOST_COMPARED = 24
MOST_SHOWN = 8
#: Steps of the stacked bars, and classes of time in them besides what is unaccounted for.
LAST_STEPS = 30
MOST_CLASSES = 5
#: The other definition of an outlier: longer than so many medians.
MEDIANS = 2
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

#: Names of the classes of time.
UNACCOUNTED, OTHER, LOADING = "Unaccounted", "Other", "Data loading"
IN_STEP, BETWEEN = "In the step", "To the next step"


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
class ClassShare:
    """In what part of the time of normal steps, and of outliers, a class of events was going on, in percent."""

    #: An event phase, or the name of an operator.
    name: str
    #: ``CPU`` or ``GPU`` for an operator, else empty.
    device: str
    normal_percent: float
    outlier_percent: float
    #: Outliers less normal steps, of both as they are printed, with one digit.
    points: float
    #: Steps of both kinds that are compared: those in which events of this kind were recorded.
    normal_steps: int
    outlier_steps: int


@dataclass(frozen=True, kw_only=True)
class StepContrast:
    """Normal steps against outliers, the class that differs most first."""

    classes: tuple[ClassShare, ...]
    #: Classes that were compared and are not in the list.
    left: int


@dataclass(frozen=True, kw_only=True)
class StepPart:
    """One class of time in the last steps."""

    name: str
    #: ``work``, ``other``, ``wait`` (for data) or ``unknown`` (no event tells).
    role: str
    #: Microseconds in each step; the classes of a step add up to its bar.
    time_us: tuple[int, ...]
    #: Of the bars of all steps but the last, which no step follows; the classes add up to 100.0.
    percent: float


@dataclass(frozen=True, kw_only=True)
class LastSteps:
    """The last steps of one worker, each from its start to the start of the next."""

    node: str
    worker: str
    phase: str
    #: -1 where the source gave none.
    numbers: tuple[int, ...]
    #: From the bottom of the bar to its top.
    parts: tuple[StepPart, ...]
    #: Microseconds of each bar.
    total_us: tuple[int, ...]
    #: Whether events tell what the time went to; else only the step and what follows it are told apart.
    by_event: bool


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
    #: Most steps first.
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
        _Series.of(steps, names, rows, rule)
        for names, rows in grouped(steps.node, steps.worker, steps.phase).items()
    ]
    by_phase: dict[str, list[_Series]] = {}
    for one in series:
        by_phase.setdefault(one.phase, []).append(one)
    by_phase = dict(sorted(by_phase.items(), key=lambda item: -sum(map(len, item[1]))))
    phases = tuple(_phase(name, found) for name, found in by_phase.items())
    marked = next((by for by in ("rule", "median") if any(one.slow(by).any() for one in series)), "")
    rows = [one.row for one in series]
    if len(rows) > NATURAL_ROWS:
        rows.sort(key=lambda row: (-(row.outliers or 0), -row.median_s))
    told = [lane for lane in job.events.lanes if kind_of(lane) not in _APART]
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
        contrast=_contrast(job.events, series, marked) if told and marked else None,
        has_events=bool(told),
        last=_last_steps(job, series),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Series:
    """The steps of one worker and one phase, by their end as StepOutlier has them."""

    node: str
    worker: str
    phase: str
    number: IntArray
    start_us: IntArray
    end_us: IntArray
    #: The longest whole time that is no outlier; none where the rule does not judge.
    limit_us: int | None
    stddev: float

    @classmethod
    def of(cls, steps: Steps, names: tuple[str, ...], rows: IntArray, rule: StepOutlier) -> _Series:
        node, worker, phase = names
        rows = rows[np.argsort(steps.end_us[rows], kind="stable")]
        start_us, end_us = steps.start_us[rows], steps.end_us[rows]
        judged = len(rows) > PATIENCE and (rule.mode is None or (STEP + phase).endswith(rule.mode))
        ends = np.array([len(rows)] if judged else [], np.int64)
        limits = limits_of(end_us - start_us, ends, rule.stddev).tolist()
        return cls(
            node=node,
            worker=worker,
            phase=phase,
            number=steps.number[rows],
            start_us=start_us,
            end_us=end_us,
            limit_us=limits[0] if limits else None,
            stddev=rule.stddev,
        )

    def __len__(self) -> int:
        return len(self.start_us)

    @cached_property
    def lasted_us(self) -> IntArray:
        return self.end_us - self.start_us

    @cached_property
    def median_us(self) -> float:
        return float(np.median(self.lasted_us))

    @cached_property
    def limit_s(self) -> float | None:
        if self.limit_us is None:
            return None
        return _seconds(self.lasted_us.mean() + self.stddev * self.lasted_us.std())

    def slow(self, by: str) -> BoolArray:
        """(n,) which steps are outliers by the rule, or longer than two medians; none by neither."""
        limit_us = {"rule": self.limit_us, "median": MEDIANS * self.median_us}.get(by)
        if limit_us is None:
            return np.zeros(len(self), np.bool_)
        return np.asarray(self.lasted_us > limit_us)

    @cached_property
    def row(self) -> StepRow:
        lasted = self.lasted_us
        p95, p99 = np.quantile(lasted, (0.95, 0.99)).tolist()
        return StepRow(
            node=self.node,
            worker=self.worker,
            phase=self.phase,
            steps=len(self),
            mean_s=_seconds(lasted.mean()),
            median_s=_seconds(self.median_us),
            std_s=_seconds(lasted.std()),
            p95_s=_seconds(p95),
            p99_s=_seconds(p99),
            max_s=_seconds(lasted.max()),
            min_s=_seconds(lasted.min()),
            first_s=_seconds(lasted[np.argmin(self.start_us)]),
            limit_s=self.limit_s,
            outliers=None if self.limit_us is None else int(np.count_nonzero(self.slow("rule"))),
            above_two_medians=int(np.count_nonzero(self.slow("median"))),
        )


def _seconds(us: float) -> float:
    return round(float(us) / SECOND_US, 6)


def _pooled(series: Sequence[_Series]) -> IntArray:
    return np.concatenate([one.lasted_us for one in series])


def _phase(name: str, series: Sequence[_Series]) -> StepPhase:
    p25, p50, p75 = np.quantile(_pooled(series), (0.25, 0.5, 0.75)).tolist()
    limits = [one.limit_s for one in series if one.limit_s is not None]
    return StepPhase(
        phase=name,
        steps=sum(map(len, series)),
        p25_s=_seconds(p25),
        median_s=_seconds(p50),
        p75_s=_seconds(p75),
        workers=len(series),
        judged=len(limits),
        outliers=sum(one.row.outliers or 0 for one in series),
        low_limit_s=min(limits, default=None),
        high_limit_s=max(limits, default=None),
        above_two_medians=sum(one.row.above_two_medians for one in series),
    )


def _histogram(
    series: Sequence[_Series], by_phase: dict[str, list[_Series]], phases: Sequence[StepPhase]
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


def _few(by_phase: dict[str, list[_Series]]) -> list[tuple[str, list[_Series]]]:
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


def _timeline(series: Sequence[_Series], by_phase: dict[str, list[_Series]], marked: str) -> StepTimeline:
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


#: Steps themselves, and lives of processes, which would drown what happens in them.
_APART = {Kind.STEP, Kind.LIFETIME}
_DEVICES = {Kind.CPU: "CPU", Kind.GPU: "GPU"}


def _contrast(events: Events, series: Sequence[_Series], marked: str) -> StepContrast | None:
    """Shares of classes in outliers and in the other steps of the same workers and phases.

    A class is an event phase, all of Horovod, or an operator by its name. At each moment of a worker
    it is going on or not, however many of its events overlap; only the 24 classes with most time take
    part. Operators are often recorded for a few steps only: they are compared over the steps in which
    any operator was recorded, phases over the steps in which any phase was. A class is compared over
    the workers that recorded it, and only if these have steps of both kinds. Lanes without a worker
    are compared over the steps of their node's workers.
    """
    told = [one for one in series if one.slow(marked).any()]
    classes = _Classes.of(events, {one.node for one in told}, {(one.node, one.worker) for one in told})
    sums: dict[int, list[int]] = {}
    for (node, worker), groups in classes.by_worker():
        mine = [one for one in told if one.node == node and worker in {"", one.worker}]
        start, end = (np.concatenate([getattr(one, name) for one in mine]) for name in ("start_us", "end_us"))
        slow = np.concatenate([one.slow(marked) for one in mine])
        for own in groups:
            recorded = union(*(np.concatenate([getattr(c, n) for c in own.values()]) for n in _ENDS))
            seen = recorded.overlap_us(start, end) > 0
            outliers = union(start[seen & slow], end[seen & slow])
            every = union(start[seen], end[seen])
            amounts = [
                every.total_us - outliers.total_us,
                outliers.total_us,
                int(np.count_nonzero(seen & ~slow)),
                int(np.count_nonzero(seen & slow)),
            ]
            for number, busy in own.items():
                at_outliers = _shared_us(outliers, busy)
                added = (_shared_us(every, busy) - at_outliers, at_outliers, *amounts)
                sums[number] = [a + b for a, b in zip(sums.get(number, [0] * 6), added, strict=True)]
    shares = []
    for number, (normal, slow_us, normal_whole, slow_whole, normal_steps, slow_steps) in sums.items():
        if normal_whole > 0 and slow_whole > 0 and normal + slow_us > 0:
            name, device = classes.names[number]
            of_normal, of_slow = 100 * normal / normal_whole, 100 * slow_us / slow_whole
            share = ClassShare(
                name=name,
                device=device,
                normal_percent=round(of_normal, 3),
                outlier_percent=round(of_slow, 3),
                points=round(round(of_slow, 1) - round(of_normal, 1), 1),
                normal_steps=normal_steps,
                outlier_steps=slow_steps,
            )
            shares.append(share)
    shares.sort(key=lambda one: (-abs(one.outlier_percent - one.normal_percent), one.device, one.name))
    return StepContrast(classes=tuple(shares[:MOST_SHOWN]), left=len(shares[MOST_SHOWN:])) if shares else None


_ENDS = ("start_us", "end_us")


def _shared_us(one: Intervals, other: Intervals) -> int:
    """How much two unions have in common."""
    few, many = sorted((one, other), key=lambda intervals: len(intervals.start_us))
    return int(many.overlap_us(few.start_us, few.end_us).sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Classes:
    """Events by worker and class; those that are not compared are left out."""

    #: Class → its name, and the device of an operator.
    names: dict[int, tuple[str, str]]
    workers: tuple[tuple[str, str], ...]
    #: Per event, ascending: position in ``workers`` times ``MOST_COMPARED`` plus its class.
    key: CodeArray
    start_us: IntArray
    end_us: IntArray

    @classmethod
    def of(cls, events: Events, nodes: set[str], workers: set[tuple[str, str]]) -> _Classes:
        """The classes with most time in the lanes of some workers, and in lanes of their nodes without a worker."""
        every = tuple(sorted({*workers, *((node, "") for node in nodes)}))
        kinds = [kind_of(lane) for lane in events.lanes]
        places = {who: i for i, who in enumerate(every)}
        # Numbers of classes: phases, then operators on the CPU, then on the GPU.
        phases: dict[str, int] = {}
        for lane, kind in zip(events.lanes, kinds, strict=True):
            phases.setdefault(_phase_of(lane, kind), len(phases))
        base = {Kind.CPU: len(phases), Kind.GPU: len(phases) + len(events.names)}
        of_lane = [
            (
                -1 if kind in _APART else places.get((lane.node, lane.worker), -1),
                base.get(kind, phases[_phase_of(lane, kind)]),
                kind in base,
            )
            for lane, kind in zip(events.lanes, kinds, strict=True)
        ]
        # Columns of millions of rows: small numbers are moved and sorted much faster.
        worker, first, by_name = np.array(of_lane, np.int32).T
        rows = np.flatnonzero((worker >= 0)[events.lane])
        at = events.lane[rows]
        number = first[at] + by_name[at] * events.name[rows]
        total = np.bincount(number, weights=events.duration_us[rows])
        most = np.argsort(-total, kind="stable")[:MOST_COMPARED]
        place = np.full(len(total), -1, np.int32)
        place[most] = np.arange(len(most))
        number = place[number]
        key = worker[at] * np.int32(MOST_COMPARED) + number
        if len(most) < len(total):
            kept = number >= 0
            rows, key = rows[kept], key[kept]
        small = np.uint16 if len(every) * MOST_COMPARED < 1 << 16 else np.int32
        order = np.argsort(key.astype(small), kind="stable")
        rows, key = rows[order], key[order]
        labels = [(name, "") for name in phases]
        labels += [(name, device) for device in _DEVICES.values() for name in events.names]
        return cls(
            names={i: labels[one] for i, one in enumerate(most.tolist())},
            workers=every,
            key=key,
            start_us=events.start_us[rows],
            end_us=events.end_us[rows],
        )

    def by_worker(self) -> Iterator[tuple[tuple[str, str], list[dict[int, Intervals]]]]:
        """Each worker with its phases, and with its operators: class → when it was going on."""
        first = np.flatnonzero(np.diff(self.key, prepend=-1)).tolist()
        found: dict[int, tuple[dict[int, Intervals], dict[int, Intervals]]] = {}
        for i, stop in zip(first, [*first[1:], len(self.key)], strict=True):
            worker, number = divmod(int(self.key[i]), MOST_COMPARED)
            groups = found.setdefault(worker, ({}, {}))
            busy = union(self.start_us[i:stop], self.end_us[i:stop])
            groups[bool(self.names[number][1])][number] = busy
        for worker, groups in found.items():
            yield self.workers[worker], [one for one in groups if one]


def _phase_of(lane: Lane, kind: Kind) -> str:
    return "Horovod" if kind is Kind.HOROVOD else lane.phase


def _last_steps(job: Job, series: Sequence[_Series]) -> LastSteps:
    """What the last 30 steps of the first worker went to, of the phase of which it has most steps.

    A bar lasts from the start of a step to the next start of any step of the worker at or after its
    end; the last bar to the end of its step. Each moment counts once: for the first of these classes
    that has an event then: forward pass, backward pass, operators on the GPU, on the CPU, Horovod,
    data loading, other phases from the one with least time on, as it may lie inside the others.
    Forward and backward come first because most others lie inside them or run beside them.
    """
    who = min(((one.node, one.worker) for one in series), key=lambda names: tuple(map(natural_key, names)))
    mine = [one for one in series if (one.node, one.worker) == who]
    main = max(mine, key=len)
    rows = np.argsort(main.start_us, kind="stable")[-LAST_STEPS:]
    start, end = main.start_us[rows], main.end_us[rows]
    starts = np.sort(np.concatenate([one.start_us for one in mine]))
    following = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, end, side="left")]
    # A step without a duration is not followed by itself.
    after = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, start, side="right")]
    following = np.maximum(following, after)
    stop = np.where(following == np.iinfo(np.int64).max, end, np.maximum(following, end))
    parts = _parts_by_event(job.events, who, start, stop)
    by_event = any(part.time_us.any() for part in parts)
    if not by_event:
        parts = [
            _Part(name=IN_STEP, role="work", time_us=end - start),
            _Part(name=BETWEEN, role="other", time_us=stop - end),
        ]
    else:
        rest = stop - start - np.sum([part.time_us for part in parts], axis=0)
        parts.append(_Part(name=UNACCOUNTED, role="unknown", time_us=rest))
    percents = apportion([int(part.time_us[:-1].sum()) for part in parts], 100.0, 1)
    return LastSteps(
        node=main.node,
        worker=main.worker,
        phase=main.phase,
        numbers=tuple(main.number[rows].tolist()),
        parts=tuple(
            StepPart(name=part.name, role=part.role, time_us=tuple(part.time_us.tolist()), percent=percent)
            for part, percent in zip(parts, percents, strict=True)
        ),
        total_us=tuple((stop - start).tolist()),
        by_event=by_event,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """A class of time in some stretches, as in ``StepPart``."""

    name: str
    role: str
    time_us: IntArray


#: What may be a forward or a backward pass.
_PASSES = {Kind.FORWARD, Kind.BACKWARD, Kind.GENERAL}
#: The first that holds decides. Name and role of a class; in this order its events take precedence.
_FIRST: tuple[tuple[Callable[[Lane, Kind], bool], str, str], ...] = (
    (lambda lane, kind: kind in _PASSES and lane.phase.startswith("Forward"), "Forward", "work"),
    (lambda lane, kind: kind in _PASSES and lane.phase.startswith("Backward"), "Backward", "work"),
    (lambda _, kind: kind is Kind.GPU, "GPU operators", "work"),
    (lambda _, kind: kind is Kind.CPU, "CPU operators", "work"),
    (lambda _, kind: kind is Kind.HOROVOD, "Horovod", "other"),
    (lambda lane, _: lane.phase in {FETCH, SET_UP, PIPELINE}, LOADING, "wait"),
)


def _parts_by_event(events: Events, who: tuple[str, str], start: IntArray, stop: IntArray) -> list[_Part]:
    """The classes of time with an event of a worker in some stretches, work first and waiting last."""
    node, worker = who
    known: dict[str, tuple[int, str]] = {name: (i, role) for i, (_, name, role) in enumerate(_FIRST)}
    of_lane = [
        next((name for holds, name, _ in _FIRST if holds(lane, kind)), lane.phase)
        if kind not in _APART and lane.node == node and lane.worker in {"", worker}
        else ""
        for lane, kind in ((lane, kind_of(lane)) for lane in events.lanes)
    ]
    names = list(dict.fromkeys(filter(None, of_lane)))
    if not names:
        return []
    code = np.array([names.index(name) if name else -1 for name in of_lane])[events.lane]
    rows = np.flatnonzero(
        (code >= 0) & (events.start_us < int(stop.max())) & (events.end_us > int(start.min()))
    )
    code, starts, ends = code[rows], events.start_us[rows], events.end_us[rows]
    own = {name: union(starts[code == i], ends[code == i]) for i, name in enumerate(names)}
    order = sorted(own, key=lambda name: (known.get(name, (len(known), ""))[0], own[name].total_us))
    covered, before = union(start[:0], start[:0]), np.zeros(len(start), np.int64)
    parts = []
    for name in order:
        both = [np.concatenate([getattr(covered, end), getattr(own[name], end)]) for end in _ENDS]
        covered = union(*both)
        held = covered.overlap_us(start, stop)
        role = known.get(name, (0, "other"))[1]
        parts.append(_Part(name=name, role=role, time_us=held - before))
        before = held
    parts = [part for part in parts if part.time_us.any()]
    if len(parts) > MOST_CLASSES:
        ranked = sorted(parts, key=lambda part: (part.role != "other", int(part.time_us.sum())))
        merged = ranked[: len(parts) - MOST_CLASSES + 1]
        total = np.sum([part.time_us for part in merged], axis=0)
        parts = [part for part in parts if part not in merged]
        parts.append(_Part(name=OTHER, role="other", time_us=total))
    return sorted(parts, key=lambda part: ("work", "other", "wait").index(part.role))
