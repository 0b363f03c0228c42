"""When and where GPUs idled while cores could not go on: over time, in runs, by core, and during what."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from jobrules.bottlenecks import Node, longest
from jobrules.cpu_bottleneck import CPUBottleneck
from jobrules.framework import LIFETIMES
from jobrules.intervals import union
from jobrules.io_bottleneck import IOBottleneck
from jobrules.job import EventSource, Metric
from jobrules.rounding import apportion
from jobrules.timelines import reduce

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.intervals import Intervals
    from jobrules.job import FloatArray, Job, Lane, Panel, Steps
    from jobrules.result import Columns

#: A sample of a GPU above this is good, in percent.
GOOD = 90.0
#: Nodes whose samples are told, courses and nodes whose cores are, and classes of events.
MOST_NODES, MOST_COURSES, MOST_CLASSES = 16, 4, 8
#: Rows of the table of a course.
MOST_STRETCHES = 24
#: What all events of Horovod are called; its lanes have the names of tensors.
HOROVOD = "Horovod"
#: More classes need wider numbers.
_MOST_SHORT = np.iinfo(np.int16).max


@dataclass(frozen=True, kw_only=True)
class NodeStalls:
    """The snapshots and the GPU samples of one node."""

    node: str
    #: Why the rule does not judge it; empty if it does.
    reason: str
    #: Snapshots with a GPU sample; those with a low GPU; of these the ones without any core sample,
    #: and those with a core over its limit, the bottlenecks.
    snapshots: int
    low: int
    blind: int
    bottlenecks: int
    #: Whether the samples below are those of the training loop; else of the whole job.
    in_loop: bool
    #: GPU samples above 90 %; between that and low; low beside no core over its limit, beside no core
    #: that was sampled, and beside a core over its limit.
    good: int
    partly: int
    free: int
    unknown: int
    held_up: int
    #: All of them, and their parts in this order in percent that add up to 100.0.
    samples: int
    percents: tuple[float, ...]

    @classmethod
    def of(cls, *, good: int, partly: int, free: int, unknown: int, held_up: int, **facts: Any) -> NodeStalls:
        """With the GPU samples added up."""
        counts = (good, partly, free, unknown, held_up)
        return cls(
            good=good,
            partly=partly,
            free=free,
            unknown=unknown,
            held_up=held_up,
            samples=sum(counts),
            percents=apportion(counts, 100.0, 1),
            **facts,
        )


@dataclass(frozen=True, kw_only=True)
class StallCourse:
    """The share of bottlenecks over time."""

    #: Empty for all nodes together.
    node: str
    #: Percent of the snapshots of each column of the job's time columns; none where nothing is known.
    percent: tuple[float | None, ...]
    #: Time of the columns of which something is known, and of those above the limit.
    known_us: int
    above_us: int
    #: From the first bottleneck to the end of the last, and of these the part from the first column above the
    #: limit to the last; none without one.
    start_us: int | None
    end_us: int | None
    above_start_us: int | None
    above_end_us: int | None
    #: Mean of each stretch of ``Stalls.stretch`` columns, one digit; none where nothing is known.
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
    ) -> StallCourse:
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
    return max(1, -(-columns // MOST_STRETCHES))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 1) if known else None


@dataclass(frozen=True, kw_only=True)
class SnapshotPart:
    """One part of all snapshots."""

    #: ``fine`` (no GPU was low), ``free`` (no core was over its limit), ``unknown`` (no core was sampled)
    #: or ``bottleneck``.
    key: str
    count: int
    #: The parts add up to 100.0.
    percent: float


@dataclass(frozen=True, kw_only=True)
class Split:
    """All snapshots in parts that add up."""

    parts: tuple[SnapshotPart, ...]
    #: Percent of the snapshots with a low GPU that are bottlenecks.
    of_low_percent: float

    @classmethod
    def of(cls, *, snapshots: int, low: int, blind: int, bottlenecks: int) -> Split:
        """From counts as in ``NodeStalls``."""
        counts = {
            "fine": snapshots - low,
            "free": low - blind - bottlenecks,
            "unknown": blind,
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


@dataclass(frozen=True, kw_only=True)
class StepSpan:
    """Steps of one phase."""

    phase: str
    #: Their lowest and highest number; none where the source numbers none.
    first: int | None
    last: int | None


@dataclass(frozen=True, kw_only=True)
class StallRun:
    """Consecutive snapshots that are bottlenecks."""

    node: str
    start_us: int
    end_us: int
    snapshots: int
    #: Most cores that were over the limit at once.
    most_cores: int
    #: ``in`` steps, ``between`` two, ``before`` the first, ``after`` the last; empty where the node has none.
    place: str
    #: The steps that ran; the two around the run; the first; the last.
    steps: tuple[StepSpan, ...]


@dataclass(frozen=True, kw_only=True)
class CoreShare:
    """How often one core was over its limit."""

    core: str
    #: Percent of its node's bottlenecks, one digit.
    percent: float


@dataclass(frozen=True, kw_only=True)
class NodeCores:
    """The cores of one node that were over their limit in bottlenecks."""

    node: str
    bottlenecks: int
    #: Most often first, 16 at most.
    cores: tuple[CoreShare, ...]
    #: Cores that ever were, and all that were sampled.
    ever: int
    count: int


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How much of the time a class of events ran, from its first event on a node to its last."""

    name: str
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


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """The bottlenecks of one kind."""

    #: ``cpu`` or ``io``.
    key: str
    #: A GPU is low below this, a core is over its limit above that; percent.
    gpu_below: float
    core_above: float
    #: Percent of the snapshots above which the rule triggers.
    limit: float
    #: Of all nodes with samples of GPU and cores, as in ``NodeStalls``.
    snapshots: int
    low: int
    blind: int
    bottlenecks: int
    #: The same in parts.
    split: Split
    #: Highest share of samples that were held up first, 16 at most; and how many are left out.
    nodes: tuple[NodeStalls, ...]
    more_nodes: int
    #: Nodes with GPUs of which no core was sampled.
    without_cores: tuple[str, ...]
    #: All nodes up to four; of more, all together and then the three with most bottlenecks. Empty without any.
    courses: tuple[StallCourse, ...]
    #: Columns that each of their means is of.
    stretch: int
    #: The ten longest, longest first.
    runs: tuple[StallRun, ...]
    #: Of the four nodes with most bottlenecks.
    cores: tuple[NodeCores, ...]
    more_cores: int
    #: The eight classes that differ most, from those that ran more during bottlenecks to those that ran less.
    ran: tuple[Ran, ...]
    more_ran: int


def stalls(job: Job, rule: CPUBottleneck | IOBottleneck, grid: Columns) -> Stalls | None:
    """The bottlenecks that a rule looks for; none where no node has samples of GPU and cores."""
    if isinstance(rule, CPUBottleneck):
        key, metric, core_above = "cpu", Metric.CPU_USE, rule.cpu_threshold
    else:
        key, metric, core_above = "io", Metric.IO_WAIT, rule.io_threshold
    nodes, told, without = [], [], []
    for gpu in job.panels_of(Metric.GPU_USE):
        cores = job.panel(gpu.node, metric)
        if cores is None:
            without.append(gpu.node)
            continue
        node = Node.of(
            gpu,
            cores,
            gpu_threshold=rule.gpu_threshold,
            core_threshold=core_above,
            patience=rule.patience,
        )
        nodes.append(node)
        told.append(_node(node, gpu, rule.gpu_threshold, job.loop_us(node.name)))
    if not nodes:
        return None
    worst = sorted(told, key=lambda one: -one.held_up / max(1, one.samples))
    hit = sorted((node for node in nodes if len(node.hit_us)), key=lambda node: -len(node.hit_us))
    ran = _ran(job, nodes) if hit else ()
    counts = {
        name: sum(getattr(one, name) for one in told) for name in ("snapshots", "low", "blind", "bottlenecks")
    }
    return Stalls(
        key=key,
        gpu_below=rule.gpu_threshold,
        core_above=core_above,
        limit=rule.threshold,
        **counts,
        split=Split.of(**counts),
        nodes=tuple(worst[:MOST_NODES]),
        more_nodes=len(worst[MOST_NODES:]),
        without_cores=tuple(without),
        courses=_courses(nodes, hit, grid, rule.threshold) if hit else (),
        stretch=stretch_of(grid.count),
        runs=_runs(job, hit),
        cores=tuple(_cores(node) for node in hit[:MOST_COURSES]),
        more_cores=len(hit[MOST_COURSES:]),
        ran=_most_different(ran),
        more_ran=len(ran[MOST_CLASSES:]),
    )


def _node(node: Node, gpu: Panel, low_below: float, loop: tuple[int, int] | None) -> NodeStalls:
    low = node.gpus > 0
    first, end = np.searchsorted(node.time_us, loop).tolist() if loop else (0, 0)
    part = slice(first, end) if end > first else slice(None)
    values, hit, sampled = gpu.values[part], node.hit[part], node.sampled[part]
    is_low = values < low_below
    lows = is_low.sum(axis=1)
    good = int(np.count_nonzero((values > GOOD) & ~is_low))
    return NodeStalls.of(
        node=node.name,
        reason=node.reason,
        snapshots=len(node.time_us),
        low=int(np.count_nonzero(low)),
        blind=int(np.count_nonzero(low & ~node.sampled)),
        bottlenecks=len(node.hit_us),
        in_loop=end > first,
        good=good,
        partly=int(np.count_nonzero(~np.isnan(values))) - int(lows.sum()) - good,
        free=int(lows[sampled & ~hit].sum()),
        unknown=int(lows[~sampled].sum()),
        held_up=int(lows[hit].sum()),
    )


def _courses(
    nodes: Sequence[Node], hit: Sequence[Node], grid: Columns, limit: float
) -> tuple[StallCourse, ...]:
    shares = {node.name: _course(node, grid) for node in nodes}
    spans = {node.name: (int(node.hit_us[0]), int(node.hit_us[-1]) + node.interval_us) for node in hit}
    spans[""] = (min(start for start, _ in spans.values()), max(end for _, end in spans.values()))
    if len(nodes) <= MOST_COURSES:
        chosen = {node.name: shares[node.name][0] for node in nodes}
    else:
        chosen = {"": _together(list(shares.values()))}
        chosen |= {node.name: shares[node.name][0] for node in hit[: MOST_COURSES - 1]}
    return tuple(
        StallCourse.of(
            name,
            tuple(None if np.isnan(v) else v for v in np.round(values, 1).tolist()),
            limit=limit,
            grid=grid,
            span_us=spans.get(name),
        )
        for name, values in chosen.items()
    )


def _course(node: Node, grid: Columns) -> tuple[FloatArray, FloatArray]:
    """(columns,) percent of bottlenecks, NaN where nothing is known, and the snapshots that are known.

    Of a snapshot with a low GPU and no sample of a core nothing is known.
    """
    known = node.sampled | (node.gpus == 0)
    if not known.any():
        return np.full(grid.count, np.nan), np.zeros(grid.count)
    time_us, hit = node.time_us[known], 100.0 * node.hit[known]
    column = (time_us - grid.start_us) // grid.width_us
    percent, _, _ = reduce(grid, time_us, hit, hit, hit)
    return percent, np.bincount(column, minlength=grid.count).astype(np.float64)


def _together(shares: Sequence[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """(columns,) of all nodes, each by its snapshots; a column between two slow samples counts as one."""
    percent, weight = (np.stack(arrays) for arrays in zip(*shares, strict=True))
    known = ~np.isnan(percent)
    weight = np.where(known, np.maximum(weight, 1), 0)
    whole = weight.sum(axis=0)
    summed = np.where(known, percent * weight, 0).sum(axis=0)
    return np.asarray(np.divide(summed, whole, out=np.full(len(whole), np.nan), where=whole > 0))


def _runs(job: Job, hit: Sequence[Node]) -> tuple[StallRun, ...]:
    by_name = sorted(hit, key=lambda node: job.nodes.index(node.name))
    runs, steps = longest(by_name), {}
    for name in {run["node"] for run in runs}:
        mine = job.steps.node == name
        steps[name] = job.steps.where(mine)
    found = []
    for run in runs:
        place, spans = _steps_at(steps[run["node"]], run["start_us"], run["end_us"])
        found.append(StallRun(**run, place=place, steps=spans))
    return tuple(found)


def _steps_at(steps: Steps, start_us: int, end_us: int) -> tuple[str, tuple[StepSpan, ...]]:
    """Where a time lies among the steps of its node, and which these are."""
    if not len(steps):
        return "", ()
    running = (steps.start_us < end_us) & (steps.end_us > start_us)
    if running.any():
        return "in", _spans(steps.where(running))
    before, after = steps.end_us <= start_us, steps.start_us >= end_us
    around = []
    if before.any():
        around.append(int(np.argmax(np.where(before, steps.end_us, np.iinfo(np.int64).min))))
    if after.any():
        around.append(int(np.argmin(np.where(after, steps.start_us, np.iinfo(np.int64).max))))
    place = "between" if len(around) == 2 else "after" if before.any() else "before"
    return place, tuple(_spans(steps.where(np.arange(len(steps)) == i))[0] for i in around)


def _spans(steps: Steps) -> tuple[StepSpan, ...]:
    """The steps by phase, in the order of their first start."""
    phases, first = np.unique(steps.phase, return_index=True)
    begun = [int(steps.start_us[steps.phase == phase].min()) for phase in phases.tolist()]
    spans = []
    for i in sorted(range(len(first)), key=begun.__getitem__):
        numbers = steps.number[(steps.phase == phases[i]) & (steps.number >= 0)]
        low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (None, None)
        spans.append(StepSpan(phase=str(phases[i]), first=low, last=high))
    return tuple(spans)


def _cores(node: Node) -> NodeCores:
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
    most = sorted(ran, key=lambda one: (-abs(one.points), one.name))[:MOST_CLASSES]
    return tuple(sorted(most, key=lambda one: (-one.points, one.name)))


def _ran(job: Job, nodes: Sequence[Node]) -> tuple[Ran, ...]:
    """How much of the time of bottlenecks, and of the rest, each class of events ran on their node.

    Several events of a class at once count once: operators lie inside one another and in several
    threads, and the sum of their times would say nothing. Only the time from the first event of a class
    on a node to its last counts, as a profiler may have recorded a few steps only.
    """
    moments = {node.name: _moments(node) for node in nodes}
    # During bottlenecks and otherwise: time in which it ran, and in which it could have.
    sums: defaultdict[str, FloatArray] = defaultdict(lambda: np.zeros((2, 2)))
    for node, name, one in _classes(job):
        if node in moments:
            start, end = one.start_us, one.end_us
            for i, chosen in enumerate(moments[node]):
                sums[name][i, 0] += _shared_us(one, chosen)
                sums[name][i, 1] += chosen.overlap_us(start[:1], end[-1:]).sum()
    return tuple(
        Ran.of(name, during, otherwise)
        for name, both in sums.items()
        if both[:, 1].all()
        for during, otherwise in [(100 * both[:, 0] / both[:, 1]).tolist()]
    )


def _shared_us(one: Intervals, other: Intervals) -> int:
    """How long both hold; the fewer intervals are looked up in the more."""
    few, many = sorted((one, other), key=lambda some: len(some.start_us))
    return int(many.overlap_us(few.start_us, few.end_us).sum())


def _moments(node: Node) -> tuple[Intervals, Intervals]:
    """The time of bottlenecks and the rest of the sampled time: each snapshot holds for one interval at most."""
    end_us = node.time_us + node.interval_us
    end_us[:-1] = np.minimum(end_us[:-1], node.time_us[1:])
    hit = node.hit
    return union(node.time_us[hit], end_us[hit]), union(node.time_us[~hit], end_us[~hit])


def _classes(job: Job) -> Iterator[tuple[str, str, Intervals]]:
    """(node, class, when any event of it ran), without classes that never ran."""
    events = job.events
    keys: dict[tuple[str, str], int] = {}
    of_lane = np.array([_number(lane, keys) for lane in events.lanes], np.int32)
    if not keys:
        return
    # Short numbers are sorted in one pass over their bytes.
    code = of_lane.astype(np.int16 if len(keys) < _MOST_SHORT else np.int32)[events.lane]
    order = np.argsort(code, kind="stable")
    edges = np.searchsorted(code[order], np.arange(len(keys) + 1)).tolist()
    for (node, name), first, stop in zip(keys, edges[:-1], edges[1:], strict=True):
        rows = order[first:stop]
        one = union(events.start_us[rows], events.end_us[rows])
        if len(one.start_us):
            yield node, name, one


def _number(lane: Lane, keys: dict[tuple[str, str], int]) -> int:
    """A number for the class of a lane; lives of processes belong to none."""
    if lane.phase in LIFETIMES:
        return -1
    name = HOROVOD if lane.source is EventSource.HOROVOD else lane.phase
    return keys.setdefault((lane.node, name), len(keys))
