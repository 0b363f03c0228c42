"""Bottlenecks of GPUs: over time, in runs, by core, and by event type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobrules.analyses.time_lines import known, reduce
from jobrules.measures.bottleneck_snapshots import MAX_RUNS
from jobrules.measures.framework_time import Kind, event_type_of, kind_of
from jobrules.measures.intervals import time_of, union
from jobrules.measures.rows import rows_by_lane, rows_by_mode
from jobrules.model import Metric, span_of
from jobrules.model.names import DeviceName, EventName, NodeName, OwnText, ShownName
from jobrules.text import apportion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.analyses.time_lines import Columns
    from jobrules.measures.bottleneck_snapshots import BottleneckCriteria, NodeSnapshots, Snapshots
    from jobrules.measures.intervals import Intervals
    from jobrules.model import Events, FloatArray, Job, Lane, Panel, Steps
    from jobrules.rules.cpu_bottleneck import CPUBottleneck
    from jobrules.rules.io_bottleneck import IOBottleneck

#: A GPU is busy above this, in percent.
BUSY = 90.0
#: Nodes, courses and nodes with cores, and event types that are kept.
MAX_NODES, MAX_COURSES, MAX_CLASSES = 16, 4, 8
#: Rows of the table of a course.
MAX_STRETCHES = 24
#: The GPU samples of a node in parts, and the snapshots of a job, as in ``NodeBottlenecks``.
_SAMPLES = ("busy", "partly", "idle_unsaturated", "idle_no_core_sample", "bottleneck")
_SNAPSHOTS = ("snapshots", "low", "no_core_sample", "bottlenecks")


class NodeBottlenecks(Struct, frozen=True, kw_only=True):
    """The snapshots and the GPU samples of one node."""

    node: NodeName
    #: Why the rule does not evaluate it; empty if it does.
    reason: OwnText
    #: Snapshots with a GPU sample; those with a low GPU; of these the ones without any core sample,
    #: and those with a core above its threshold, the bottlenecks.
    snapshots: int
    low: int
    no_core_sample: int
    bottlenecks: int
    #: Whether the samples below are those of the training loop; else of the whole job.
    in_loop: bool
    #: GPU samples above 90%; between that and idle; idle with no core above its threshold, with no core
    #: sampled, and with a core above its threshold.
    busy: int
    partly: int
    idle_unsaturated: int
    idle_no_core_sample: int
    bottleneck: int
    #: All of them, and their parts in this order in percent that add up to 100.0.
    samples: int
    percents: tuple[float, ...]

    @classmethod
    def of(cls, **facts: Any) -> NodeBottlenecks:
        """With the GPU samples added up."""
        counts = [facts[name] for name in _SAMPLES]
        return cls(samples=sum(counts), percents=apportion(counts, 100.0, 1), **facts)


class BottlenecksOverTime(Struct, frozen=True, kw_only=True):
    """The share of bottlenecks over time."""

    #: Empty for all nodes together.
    node: NodeName
    #: Percent of the snapshots of each column of the job's time columns; None where nothing is known.
    percent: tuple[float | None, ...]
    #: Time of the columns of which something is known, and of those above the limit.
    known_us: int
    above_us: int
    #: From the first bottleneck to the end of the last, and of these the part from the first column above the
    #: limit to the last; None without one.
    start_us: int | None
    end_us: int | None
    above_start_us: int | None
    above_end_us: int | None
    #: Mean of each stretch of ``Bottlenecks.stretch`` columns, one digit; None where nothing is known.
    means: tuple[float | None, ...]

    @classmethod
    def of(
        cls,
        node: str,
        percent: tuple[float | None, ...],
        *,
        limit: float,
        grid: Columns,
        span_us: tuple[int, int] | None,
    ) -> BottlenecksOverTime:
        """With what the columns come to; ``span_us`` is from the first bottleneck to the end of the last."""
        known = [value for value in percent if value is not None]
        above = [i for i, value in enumerate(percent) if value is not None and value > limit]
        start_us, end_us = span_us or (None, None)
        above_start_us = above_end_us = None
        if span_us and above:
            above_start_us = max(span_us[0], grid.start_us + above[0] * grid.width_us)
            above_end_us = min(span_us[1], grid.start_us + (above[-1] + 1) * grid.width_us)
        size = stretch_of(len(percent))
        parts = (percent[i : i + size] for i in range(0, len(percent), size))
        return cls(
            node=node,
            percent=percent,
            known_us=len(known) * grid.width_us,
            above_us=len(above) * grid.width_us,
            start_us=start_us,
            end_us=end_us,
            above_start_us=above_start_us,
            above_end_us=above_end_us,
            means=tuple(_mean(part) for part in parts),
        )


def stretch_of(columns: int) -> int:
    """Columns in a stretch, so that there are 24 at most."""
    return max(1, -(-columns // MAX_STRETCHES))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 1) if known else None


class SnapshotPart(Struct, frozen=True, kw_only=True):
    """One part of all snapshots."""

    #: ``fine`` (no GPU was low), ``free`` (no core was above its threshold), ``unknown`` (no core was
    #: sampled), or ``bottleneck``.
    key: OwnText
    count: int
    #: The parts add up to 100.0.
    percent: float


class Split(Struct, frozen=True, kw_only=True):
    """All snapshots in parts that add up."""

    parts: tuple[SnapshotPart, ...]
    #: Percent of the snapshots with a low GPU that are bottlenecks.
    of_low_percent: float

    @classmethod
    def of(cls, *, snapshots: int, low: int, no_core_sample: int, bottlenecks: int) -> Split:
        """From counts as in ``NodeBottlenecks``."""
        counts = {
            "fine": snapshots - low,
            "free": low - no_core_sample - bottlenecks,
            "unknown": no_core_sample,
            "bottleneck": bottlenecks,
        }
        # The bottlenecks as the rule's card has them, whatever the others need to add up.
        hit = round(100 * bottlenecks / snapshots, 1) if snapshots else 0.0
        percents = (*apportion(list(counts.values())[:-1], 100.0 - hit, 1), hit)
        return cls(
            parts=tuple(
                SnapshotPart(key=key, count=counts[key], percent=percent)
                for key, percent in zip(counts, percents, strict=True)
            ),
            of_low_percent=round(100 * bottlenecks / low, 1) if low else 0.0,
        )


class StepSpan(Struct, frozen=True, kw_only=True):
    """Steps of one mode."""

    mode: EventName
    #: Their lowest and highest number; None where the source numbers none.
    first: int | None
    last: int | None


class BottleneckRun(Struct, frozen=True, kw_only=True):
    """Consecutive snapshots that are bottlenecks."""

    node: NodeName
    start_us: int
    end_us: int
    snapshots: int
    #: Most cores that were above the threshold at once.
    most_cores: int
    #: ``in`` steps, ``between`` two, ``before`` the first, ``after`` the last; empty where the node has none.
    place: OwnText
    #: The steps that ran; the two around the run; the first; the last.
    steps: tuple[StepSpan, ...]


class CoreShare(Struct, frozen=True, kw_only=True):
    """How often one core was above its threshold."""

    core: DeviceName
    #: Percent of its node's bottlenecks, one digit.
    percent: float


class NodeCores(Struct, frozen=True, kw_only=True):
    """The cores of one node that were above their threshold in bottlenecks."""

    node: NodeName
    bottlenecks: int
    #: Most often first, 16 at most.
    cores: tuple[CoreShare, ...]
    #: Cores that ever were, and all that were sampled.
    ever: int
    count: int


class Ran(Struct, frozen=True, kw_only=True):
    """How much of the time a class of events ran, from its first event on a node to its last."""

    name: ShownName
    #: Percent of the time of bottlenecks and of the rest of the sampled time, one digit.
    during: float
    otherwise: float
    #: The first less the second.
    points: float

    @classmethod
    def of(cls, name: str, during: float, otherwise: float) -> Ran:
        """From percents, rounded before they are compared."""
        during, otherwise = round(during, 1), round(otherwise, 1)
        return cls(name=name, during=during, otherwise=otherwise, points=round(during - otherwise, 1))


class Bottlenecks(Struct, frozen=True, kw_only=True):
    """The bottlenecks of one kind."""

    #: ``cpu`` or ``io``.
    key: OwnText
    #: A GPU is low below this; thresholds of GPU and core in percent.
    gpu_below: float
    core_above: float
    #: Percent of the snapshots above which the rule triggers.
    limit: float
    #: Of all nodes with samples of GPU and cores, as in ``NodeBottlenecks``.
    snapshots: int
    low: int
    no_core_sample: int
    bottlenecks: int
    #: The same in parts.
    split: Split
    #: Highest share of samples in bottlenecks first, 16 at most; and how many are left out.
    nodes: tuple[NodeBottlenecks, ...]
    more_nodes: int
    #: Nodes with GPUs of which no core was sampled.
    without_cores: tuple[NodeName, ...]
    #: All of up to four nodes; of more, all together, then the three with most bottlenecks. May be empty.
    courses: tuple[BottlenecksOverTime, ...]
    #: Columns that each of their means is of.
    stretch: int
    #: The ten longest, longest first.
    runs: tuple[BottleneckRun, ...]
    #: Of the four nodes with most bottlenecks.
    cores: tuple[NodeCores, ...]
    more_cores: int
    #: The eight classes that differ most, from those that ran more during bottlenecks to those that ran less.
    ran: tuple[Ran, ...]
    more_ran: int


def bottlenecks(job: Job, rule: CPUBottleneck | IOBottleneck, grid: Columns) -> Bottlenecks | None:
    """The bottlenecks that a rule looks for; None where no node has samples of GPU and cores."""
    asked = rule.criteria
    found = job.gathered(_node, asked)
    if not found:
        return None
    nodes = [one.counts for one in found]
    worst = sorted(nodes, key=lambda one: -one.bottleneck / max(1, one.samples))
    hit = sorted((one for one in found if one.span_us), key=lambda one: -one.counts.bottlenecks)
    timed = job.gathered(_timed, asked, grid) if hit else []
    ran = _ran(timed)
    counts = {name: sum(getattr(one, name) for one in nodes) for name in _SNAPSHOTS}
    return Bottlenecks(
        key=asked.key,
        gpu_below=asked.gpu_threshold,
        core_above=asked.core_threshold,
        limit=asked.threshold,
        **counts,
        split=Split.of(**counts),
        nodes=tuple(worst[:MAX_NODES]),
        more_nodes=len(worst[MAX_NODES:]),
        without_cores=tuple(
            part.node
            for part in job.facts
            if {panel.metric for panel in part.panels} & {Metric.GPU_UTILIZATION, asked.metric}
            == {Metric.GPU_UTILIZATION}
        ),
        courses=_courses(timed, hit, grid, asked.threshold) if hit else (),
        stretch=stretch_of(grid.count),
        runs=_longest([run for one in found for run in one.runs]),
        cores=tuple(one.cores for one in hit[:MAX_COURSES]),
        more_cores=len(hit[MAX_COURSES:]),
        ran=_most_different(ran),
        more_ran=len(ran[MAX_CLASSES:]),
    )


class _Node(Struct, frozen=True, kw_only=True):
    """What the snapshots of one node come to."""

    counts: NodeBottlenecks
    cores: NodeCores
    #: From the first bottleneck to the end of the last; None without one.
    span_us: tuple[int, int] | None
    #: Its longest, longest first.
    runs: list[BottleneckRun]


class _Timed(Struct, frozen=True, kw_only=True, eq=False):
    """What a node did during bottlenecks and otherwise."""

    node: str
    #: (columns,) percent of bottlenecks, NaN where nothing is known, and the snapshots that are known.
    percent: FloatArray
    known: FloatArray
    #: By class of events, (2, 2) during bottlenecks and otherwise: time in which it ran, and in which it
    #: could have.
    ran: dict[str, FloatArray]


def _longest(runs: Sequence[BottleneckRun]) -> tuple[BottleneckRun, ...]:
    """The longest of all, longest first; of equal ones the first node's."""
    return tuple(sorted(runs, key=lambda run: run.start_us - run.end_us)[:MAX_RUNS])


def _node(part: Job, asked: BottleneckCriteria) -> Iterator[_Node]:
    found = asked.snapshots(part)
    if found is None:
        return
    node = found.node
    (gpu,) = part.panels_of(Metric.GPU_UTILIZATION)
    yield _Node(
        counts=_counts(found, gpu, asked.gpu_threshold, part.loop_us(node.name)),
        cores=_cores(node),
        span_us=(int(node.hit_us[0]), int(node.hit_us[-1]) + node.interval_us) if len(node.hit_us) else None,
        runs=[_placed(run, part.steps) for run in node.runs],
    )


def _timed(part: Job, asked: BottleneckCriteria, grid: Columns) -> Iterator[_Timed]:
    if found := asked.snapshots(part):
        percent, known = _course(found, grid)
        ran = _ran_on_node(part.events, found)
        yield _Timed(node=found.node.name, percent=percent, known=known, ran=ran)


def _counts(found: Snapshots, gpu: Panel, low_below: float, loop: tuple[int, int] | None) -> NodeBottlenecks:
    node = found.node
    first, end = np.searchsorted(found.time_us, loop).tolist() if loop else (0, 0)
    part = slice(first, end) if end > first else slice(None)
    values, hit, sampled = gpu.values[part], found.hit[part], found.sampled[part]
    is_low = values < low_below
    lows = is_low.sum(axis=1)
    busy = int(np.count_nonzero((values > BUSY) & ~is_low))
    return NodeBottlenecks.of(
        node=node.name,
        reason=str(node.reason or ""),
        snapshots=node.seen,
        low=node.low,
        no_core_sample=int(np.count_nonzero(found.low & ~found.sampled)),
        bottlenecks=len(node.hit_us),
        in_loop=end > first,
        busy=busy,
        partly=int(np.count_nonzero(~np.isnan(values))) - int(lows.sum()) - busy,
        idle_unsaturated=int(lows[sampled & ~hit].sum()),
        idle_no_core_sample=int(lows[~sampled].sum()),
        bottleneck=int(lows[hit].sum()),
    )


def _courses(
    timed: Sequence[_Timed], hit: Sequence[_Node], grid: Columns, limit: float
) -> tuple[BottlenecksOverTime, ...]:
    shares = {one.node: one.percent for one in timed}
    spans = {one.counts.node: one.span_us for one in hit}
    spans[""] = span_of(spans.values())
    if len(timed) <= MAX_COURSES:
        chosen = shares
    else:
        chosen = {"": _together(timed)}
        chosen |= {one.counts.node: shares[one.counts.node] for one in hit[: MAX_COURSES - 1]}
    return tuple(
        BottlenecksOverTime.of(
            name,
            known(values, 1),
            limit=limit,
            grid=grid,
            span_us=spans.get(name),
        )
        for name, values in chosen.items()
    )


def _course(found: Snapshots, grid: Columns) -> tuple[FloatArray, FloatArray]:
    """As in ``_Timed``; of a snapshot with a low GPU and no sample of a core nothing is known."""
    known = found.sampled | ~found.low
    if not known.any():
        return np.full(grid.count, np.nan), np.zeros(grid.count)
    time_us, hit = found.time_us[known], np.where(found.hit[known], 100.0, 0.0)
    column = (time_us - grid.start_us) // grid.width_us
    percent, _, _ = reduce(grid, time_us, hit, hit, hit)
    return percent, np.bincount(column, minlength=grid.count).astype(np.float64)


def _together(timed: Sequence[_Timed]) -> FloatArray:
    """(columns,) of all nodes, each by its snapshots; a column between two slow samples counts as one."""
    percent, weight = np.stack([one.percent for one in timed]), np.stack([one.known for one in timed])
    known = ~np.isnan(percent)
    weight = np.where(known, np.maximum(weight, 1), 0)
    whole = weight.sum(axis=0)
    summed = np.where(known, percent * weight, 0).sum(axis=0)
    return np.asarray(np.divide(summed, whole, out=np.full(len(whole), np.nan), where=whole > 0))


def _placed(run: dict[str, Any], steps: Steps) -> BottleneckRun:
    """A run with its place among the steps of its node, and which these are."""
    start_us, end_us = run["start_us"], run["end_us"]
    during = (steps.start_us < end_us) & (steps.end_us > start_us)
    if during.any():
        return BottleneckRun(**run, place="in", steps=_spans(steps.where(during)))
    before, after = np.flatnonzero(steps.end_us <= start_us), np.flatnonzero(steps.start_us >= end_us)
    # The last to end before, and the first to start after; of equal ones the first row.
    last = before[steps.end_us[before].argmax()] if len(before) else None
    first = after[steps.start_us[after].argmin()] if len(after) else None
    place = {(True, True): "between", (True, False): "after", (False, True): "before"}
    around = tuple(
        _spans(steps.where(np.arange(len(steps)) == row))[0] for row in (last, first) if row is not None
    )
    return BottleneckRun(**run, place=place.get((last is not None, first is not None), ""), steps=around)


def _spans(steps: Steps) -> tuple[StepSpan, ...]:
    """The steps by mode, in the order of their first start."""
    spans = []
    by_mode = rows_by_mode(steps)
    for mode in sorted(by_mode, key=lambda mode: (steps.start_us[by_mode[mode][0]], mode)):
        numbers = steps.number[by_mode[mode]]
        numbers = numbers[numbers >= 0]
        first, last = (int(numbers.min()), int(numbers.max())) if len(numbers) else (None, None)
        spans.append(StepSpan(mode=mode, first=first, last=last))
    return tuple(spans)


def _cores(node: NodeSnapshots) -> NodeCores:
    return NodeCores(
        node=node.name,
        bottlenecks=len(node.hit_us),
        cores=tuple(
            CoreShare(core=core, percent=round(100 * often, 1)) for core, often in node.busiest.items()
        ),
        ever=node.core_hits,
        count=node.core_count,
    )


def _most_different(ran: Sequence[Ran]) -> tuple[Ran, ...]:
    most = sorted(ran, key=lambda one: (-abs(one.points), one.name))[:MAX_CLASSES]
    return tuple(sorted(most, key=lambda one: (-one.points, one.name)))


def _ran(timed: Sequence[_Timed]) -> tuple[Ran, ...]:
    """How much of the time of bottlenecks, and of the rest, each class of events ran on their node."""
    sums: dict[str, FloatArray] = {}
    for one in timed:
        for name, both in one.ran.items():
            sums[name] = sums.get(name, 0.0) + both
    return tuple(
        Ran.of(name, during, otherwise)
        for name, both in sums.items()
        if both[:, 1].all()
        for during, otherwise in [(100 * both[:, 0] / both[:, 1]).tolist()]
    )


def _ran_on_node(events: Events, found: Snapshots) -> dict[str, FloatArray]:
    """As in ``_Timed``.

    Several events of a class at once count once: operators lie inside one another and in several
    threads, and the sum of their times would say nothing. Only the time from the first event of a class
    on a node to its last counts, as a profiler may have recorded a few steps only.
    """
    times = _times(found)
    ran = {}
    for name, rows in rows_by_lane(events, _class_of).items():
        one = time_of(events, rows)
        if len(one.start):
            recorded = one.start[:1], one.end[-1:]
            both = [(one.shared(some), some.overlap(*recorded)[0]) for some in times]
            ran[name] = np.array(both, np.float64)
    return ran


def _class_of(lane: Lane) -> str | None:
    """The event type; lives of processes have no class."""
    return None if kind_of(lane) in (Kind.LIFETIME, Kind.DEVICE_STEP) else event_type_of(lane)


def _times(found: Snapshots) -> tuple[Intervals, Intervals]:
    """Time of bottlenecks, and the rest of the sampled time: a snapshot holds for at most one interval."""
    time_us, hit = found.time_us, found.hit
    end_us = time_us + found.node.interval_us
    end_us[:-1] = np.minimum(end_us[:-1], time_us[1:])
    return union(time_us[hit], end_us[hit]), union(time_us[~hit], end_us[~hit])
