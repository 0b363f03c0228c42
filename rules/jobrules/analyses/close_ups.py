"""Close-ups: the first steps, the worst minute of training, the last steps.

Each is a short stretch of one node, with what its samples and its processes did in full. Many samples
and many events are reduced so that every peak survives: the lowest and the highest sample of a column,
and one bar for the short events of a lane that lie in the same five-hundredth of the stretch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.measures.collective_kinds import SYNCHRONIZING
from jobrules.measures.collective_kinds import kind_of as collective_of
from jobrules.measures.data_loading import FETCH, PIPELINE, SET_UP
from jobrules.measures.framework_time import Kind, event_type_of, kind_of, rows_of
from jobrules.measures.intervals import union
from jobrules.measures.rows import rows_by_lane, rows_by_rank
from jobrules.measures.sample_weights import gaps
from jobrules.measures.work_span import worked
from jobrules.model import SECOND_US, Metric, natural_key
from jobrules.model.names import EventName, NodeName, OwnText, RankName, ShownName
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobrules.measures.bottleneck_snapshots import BottleneckCriteria
    from jobrules.measures.sample_weights import Gap
    from jobrules.model import BoolArray, Events, FloatArray, IntArray, Job, Lane, Panel, Steps
    from jobrules.rules.cpu_bottleneck import CPUBottleneck
    from jobrules.rules.io_bottleneck import IOBottleneck

#: Steps in the first and in the last stretch.
FIRST_STEPS, LAST_STEPS = 10, 30
MINUTE_US = 60 * SECOND_US
#: A minute without bottlenecks is chosen if its GPU utilization is so far below the mean, in points.
BELOW_MEAN = 5.0
#: Samples of a curve, lanes besides those of steps, all lanes, and bars of a stretch that are kept.
MAX_SAMPLES, MAX_LANES, MAX_ROWS, MAX_BARS = 400, 12, 16, 600
#: Short events of a lane within one of so many equal parts of the stretch are one bar.
CELLS = 500
#: Two stretches that share this much of what they cover are one.
REPEATED = 0.9
MAX_NAME = 60
#: In the order in which they are chosen.
_KEYS = ("first-steps", "first-events", "worst-minute", "last-steps")
_CURVES = (Metric.GPU_UTILIZATION, Metric.CPU_UTILIZATION, Metric.IO_WAIT)
_WAITING = frozenset({FETCH, SET_UP, PIPELINE})
#: Largest offset that is written, in ticks of the stretch.
MAX_TICKS = 1 << 30


class Curve(Struct, frozen=True, kw_only=True):
    """A metric of the stretch, the mean over the node's devices in each snapshot."""

    #: The metric's key, as ``gpu_utilization``, and what a reader calls it.
    key: OwnText
    label: OwnText
    devices: int
    #: Snapshots in the stretch, and their mean in percent; None without any.
    samples: int
    mean: float | None
    #: (n,) int32 ticks from the start of the stretch and (n,) float32 percent, little endian;
    #: NaN where a pause of the sampler breaks the curve.
    ticks: bytes
    percents: bytes

    def points(self, close_up: CloseUp) -> tuple[IntArray, FloatArray]:
        """(n,) times in microseconds since the epoch and (n,) percents; NaN breaks the curve."""
        at = np.frombuffer(self.ticks, "<i4").astype(np.int64)
        return close_up.start_us + at * close_up.tick_us, np.frombuffer(self.percents, "<f4").astype(
            np.float64
        )


class BottleneckCount(Struct, frozen=True, kw_only=True):
    """The snapshots of a minute that one rule counts."""

    #: ``cpu`` (a core was saturated) or ``io`` (a core waited for I/O).
    kind: OwnText
    snapshots: int
    #: The rule's thresholds in percent: a GPU is below the first, a core above the second.
    gpu_threshold: float
    core_threshold: float


class WorstMinute(Struct, frozen=True, kw_only=True):
    """Why a minute was chosen, and what it is compared with."""

    #: Whether it was looked for in the training loop; else from the first GPU work to the last.
    in_loop: bool
    #: Mean GPU utilization of all that time on the node, in percent.
    usual: float
    #: Snapshots with samples of GPU and cores, and those that are bottlenecks of either kind.
    snapshots: int
    hits: int
    #: By kind, most first; empty where the minute is the one with the lowest GPU utilization.
    bottlenecks: tuple[BottleneckCount, ...]


class CloseUpLane(Struct, frozen=True, kw_only=True):
    """What one process did of one kind: a row of bars."""

    rank: RankName
    event_type: EventName
    #: ``steps``, ``waiting`` (for data), ``communication`` (with other ranks, which it waits for), or ``work``.
    kind: OwnText
    events: int
    #: Microseconds inside the stretch: of all events together, and in which any of them ran.
    total_us: int
    covered_us: int
    #: The latter in percent of the stretch, one digit.
    percent: float


class CloseUp(Struct, frozen=True, kw_only=True):
    """A short stretch of one node in full detail."""

    #: ``first-steps``, ``worst-minute``, ``last-steps`` or ``first-events``.
    key: OwnText
    node: NodeName
    start_us: int
    end_us: int
    #: Unit of the offsets in curves and bars, in microseconds.
    tick_us: int
    curves: tuple[Curve, ...]
    #: By rank: its steps, if any, then by the time they take; 12 besides steps, and 16 in all at most.
    lanes: tuple[CloseUpLane, ...]
    #: How many other lanes had events.
    lanes_left: int
    #: Lifetimes of loader processes, which are not drawn.
    lifetimes: int
    #: Names of bars, 60 characters at most.
    names: tuple[ShownName, ...]
    #: (n, 5) int32, little endian: position in ``lanes``, start and length in ticks, position in
    #: ``names`` (-1 for different names), events. 600 rows at most; lane by lane, starts ascend.
    bars: bytes
    #: Short events of a lane within as many microseconds are one bar; 0 where none were joined.
    cell_us: int
    #: Steps of the first rank, and the longest of them: its name, as ``TRAIN 12``, and
    #: how long it took in whole; empty and 0 without steps.
    steps: int
    longest_step: ShownName
    longest_us: int
    #: Only of the worst minute.
    worst: WorstMinute | None = None
    #: Stretches without samples of the node, as (start, end).
    unmeasured_us: tuple[tuple[int, int], ...] = ()

    @property
    def table(self) -> IntArray:
        """``bars`` as numbers, starts and lengths in microseconds, starts since the epoch."""
        found = np.frombuffer(self.bars, "<i4").reshape(-1, 5).astype(np.int64)
        found[:, 1:3] *= self.tick_us
        found[:, 1] += self.start_us
        return found


class _Stretch(Struct, frozen=True, kw_only=True):
    key: str
    node: str
    start_us: int
    end_us: int
    worst: WorstMinute | None = None
    #: Of the stretches of one key, the lowest is chosen; of equal ones, the first node's.
    order: tuple[float, ...] = ()

    def repeats(self, other: _Stretch) -> bool:
        shared = min(self.end_us, other.end_us) - max(self.start_us, other.start_us)
        whole = max(self.end_us, other.end_us) - min(self.start_us, other.start_us)
        return self.node == other.node and shared >= REPEATED * whole

    def holds(self, start_us: IntArray, end_us: IntArray) -> BoolArray:
        """(n,) which intervals reach into it; an empty one does where it stands."""
        return np.asarray((start_us < self.end_us) & ((end_us > self.start_us) | (start_us >= self.start_us)))

    def clipped(self, start_us: IntArray, end_us: IntArray) -> tuple[IntArray, IntArray]:
        """The sides of intervals that reach into it, as far as they do."""
        return np.maximum(start_us, self.start_us), np.minimum(end_us, self.end_us)


def close_ups(job: Job, cpu: CPUBottleneck, io: IOBottleneck) -> tuple[CloseUp, ...]:
    """The chosen stretches, at most three; empty if neither steps, events, nor GPU samples cover a time.

    The first ten and the last thirty steps of the first rank; the minute of the training loop with most
    bottlenecks by the thresholds of the two rules, else the one with the lowest GPU utilization, if that is
    5 points below the mean; without steps the first minute of events. One that nearly repeats another is
    left out.
    """
    with_steps = next((part.node for part in job.facts if part.steps), None)
    found = job.gathered(_stretches, with_steps, (cpu.criteria, io.criteria))
    chosen: list[_Stretch] = []
    for key in _KEYS:
        one = min((one for one in found if one.key == key), key=lambda one: one.order, default=None)
        if one and one.end_us > one.start_us and not any(one.repeats(other) for other in chosen):
            chosen.append(one)
    missing = gaps(job) if chosen else ()
    made = {one.key: one for one in job.gathered(_of_node, chosen, missing)}
    return tuple(made[one.key] for one in chosen)


def _stretches(part: Job, with_steps: str | None, asked: Sequence[BottleneckCriteria]) -> Iterator[_Stretch]:
    """Those of one node; of steps where it is the first node with steps, of events where no node has any."""
    (node,) = part.nodes
    events = part.events
    if node == with_steps:
        rows = next(iter(rows_by_rank(part.steps).values()))
        for key, some in (("first-steps", rows[:FIRST_STEPS]), ("last-steps", rows[-LAST_STEPS:])):
            start_us, end_us = int(part.steps.start_us[some].min()), int(part.steps.end_us[some].max())
            yield _Stretch(key=key, node=node, start_us=start_us, end_us=end_us)
    elif with_steps is None and len(events):
        start_us = int(events.start_us[0])
        end_us = min(int(events.end_us.max()), start_us + MINUTE_US)
        order = start_us, int(events.end_us[0])
        yield _Stretch(key="first-events", node=node, start_us=start_us, end_us=end_us, order=order)
    gpu = part.panel(node, Metric.GPU_UTILIZATION)
    span = _Span.of(part, gpu) if gpu else None
    worst = span and (span.busiest(part, asked) or span.calmest())
    if worst:
        yield worst


class _Span(Struct, frozen=True, kw_only=True, eq=False):
    """The GPU snapshots of one node among which a minute is looked for."""

    gpu: Panel
    start_us: int
    end_us: int
    #: Whether that is the training loop.
    in_loop: bool
    #: Its snapshots, and their mean GPU utilization.
    rows: slice
    usual: float

    @classmethod
    def of(cls, part: Job, gpu: Panel) -> _Span | None:
        """The training loop, else first to last GPU work; None without a snapshot in it."""
        loop = part.loop_us(gpu.node)
        start_us, end_us = loop or _worked(gpu)
        rows = slice(*np.searchsorted(gpu.time_us, (start_us, end_us)).tolist())
        if rows.start == rows.stop:
            return None
        return cls(
            gpu=gpu,
            start_us=start_us,
            end_us=end_us,
            in_loop=loop is not None,
            rows=rows,
            usual=round(float(gpu.mean[rows].mean()), 3),
        )

    def busiest(self, part: Job, asked: Sequence[BottleneckCriteria]) -> _Stretch | None:
        """The minute with most bottlenecks of any kind; None where there is none."""
        known = [(one, found) for one in asked if (found := one.snapshots(part))]
        if not known:
            return None
        bottleneck = np.any([found.hit[self.rows] for _, found in known], axis=0)
        sampled = np.any([found.sampled[self.rows] for _, found in known], axis=0)
        if not bottleneck.any():
            return None
        minutes = self.gpu.time_us[self.rows] // MINUTE_US
        held, counts = np.unique(minutes[bottleneck], return_counts=True)
        minute, hits = int(held[counts.argmax()]), int(counts.max())
        here = minutes == minute
        by_kind = [
            BottleneckCount(
                kind=one.key,
                snapshots=int(np.count_nonzero(found.hit[self.rows] & here)),
                gpu_threshold=float(one.gpu_threshold),
                core_threshold=float(one.core_threshold),
            )
            for one, found in known
        ]
        most_first = sorted((one for one in by_kind if one.snapshots), key=lambda one: -one.snapshots)
        snapshots = int(np.count_nonzero(sampled & here))
        return self._minute(minute, (0, -hits), snapshots, hits, tuple(most_first))

    def calmest(self) -> _Stretch | None:
        """The minute with the lowest mean; None where it is not much below all others.

        Of the minutes with at least half as many samples as the fullest.
        """
        minutes, of, counts = np.unique(
            self.gpu.time_us[self.rows] // MINUTE_US, return_inverse=True, return_counts=True
        )
        sums = np.bincount(of, weights=self.gpu.mean[self.rows])
        usual = 2 * counts >= counts.max()
        # Rounded, so that equal samples in another order are equal minutes.
        means = np.where(usual, np.round(sums / counts, 6), np.inf)
        best = int(means.argmin())
        if means[best] > self.usual - BELOW_MEAN:
            return None
        return self._minute(int(minutes[best]), (1, float(means[best])))

    def _minute(
        self,
        minute: int,
        order: tuple[float, ...],
        snapshots: int = 0,
        hits: int = 0,
        bottlenecks: tuple[BottleneckCount, ...] = (),
    ) -> _Stretch:
        """A minute of the clock, as far as the loop reaches."""
        worst = WorstMinute(
            in_loop=self.in_loop, usual=self.usual, snapshots=snapshots, hits=hits, bottlenecks=bottlenecks
        )
        return _Stretch(
            key="worst-minute",
            node=self.gpu.node,
            start_us=max(minute * MINUTE_US, self.start_us),
            end_us=min((minute + 1) * MINUTE_US, self.end_us),
            worst=worst,
            order=order,
        )


def _worked(gpu: Panel) -> tuple[int, int]:
    """First to last sample in which a GPU worked; all samples where none did."""
    work = gpu.time_us[(gpu.values[:, worked(gpu.values)] > 0).any(axis=1)]
    return (int(work[0]), int(work[-1])) if len(work) else (int(gpu.time_us[0]), gpu.last_us)


class _Lane(Struct, frozen=True, kw_only=True, eq=False):
    """One lane and its bars, whose starts ascend."""

    rank: str
    event_type: str
    kind: str
    start_us: IntArray
    end_us: IntArray
    #: Position among the names of events, or after them among those of steps; -1 for different ones.
    name: IntArray
    #: Events in each bar.
    events: IntArray

    @property
    def total_us(self) -> int:
        return int((self.end_us - self.start_us).sum())

    def summary(self, whole_us: int) -> CloseUpLane:
        """What is said of a lane whose bars are an event each."""
        covered_us = union(self.start_us, self.end_us).total
        return CloseUpLane(
            rank=self.rank,
            event_type=self.event_type,
            kind=self.kind,
            events=len(self.start_us),
            total_us=self.total_us,
            covered_us=covered_us,
            percent=round(100 * covered_us / whole_us, 1),
        )

    def joined(self, origin_us: int, cell_us: int) -> _Lane:
        """The same, with one bar for all that lie in the same cell of the stretch."""
        cell = (self.start_us - origin_us) // cell_us
        # An end is no part of its bar; an empty bar lies in the cell of its start.
        last_cell = (np.maximum(self.end_us - 1, self.start_us) - origin_us) // cell_us
        long = last_cell > cell
        short = ~long
        if np.count_nonzero(short) < 2:
            return self
        first = np.flatnonzero(np.diff(cell[short], prepend=-1))
        name = self.name[short]
        low, high = np.minimum.reduceat(name, first), np.maximum.reduceat(name, first)
        start_us = np.append(self.start_us[long], self.start_us[short][first])
        end_us = np.append(self.end_us[long], np.maximum.reduceat(self.end_us[short], first))
        order = np.lexsort((-end_us, start_us))
        return replace(
            self,
            start_us=start_us[order],
            end_us=end_us[order],
            name=np.append(self.name[long], np.where(low == high, low, -1))[order],
            events=np.append(self.events[long], np.add.reduceat(self.events[short], first))[order],
        )


def _of_node(part: Job, chosen: Sequence[_Stretch], missing: tuple[Gap, ...]) -> Iterator[CloseUp]:
    return (_close_up(part, one, missing) for one in chosen if one.node in part.nodes)


def _close_up(part: Job, chosen: _Stretch, missing: tuple[Gap, ...]) -> CloseUp:
    whole_us = chosen.end_us - chosen.start_us
    tick_us = 1 + whole_us // MAX_TICKS
    steps = part.steps
    by_rank = {
        rank: rows[chosen.holds(steps.start_us[rows], steps.end_us[rows])]
        for rank, rows in rows_by_rank(steps).items()
    }
    own = next(iter(by_rank), "")
    own_rows = by_rank.get(own, np.empty(0, np.int64))
    longest = own_rows[steps.duration_us[own_rows].argmax()] if len(own_rows) else None
    names = (*part.events.names, *(_name_of(steps, row) for rows in by_rank.values() for row in rows))
    of_steps = _step_lanes(steps, by_rank, chosen, len(part.events.names))
    of_events, lifetimes = _event_lanes(part.events, chosen, own)
    lanes = _drawn(of_steps, of_events, own)
    few, cell_us = _few(lanes, chosen)
    kept_names, bars = _packed(few, names, chosen.start_us, tick_us)
    return CloseUp(
        key=chosen.key,
        node=chosen.node,
        start_us=chosen.start_us,
        end_us=chosen.end_us,
        tick_us=tick_us,
        curves=tuple(
            _curve(panel, chosen, tick_us, missing)
            for metric in _CURVES
            if (panel := part.panel(chosen.node, metric))
        ),
        lanes=tuple(lane.summary(whole_us) for lane in lanes),
        lanes_left=sum(lane not in lanes for lane in of_events),
        lifetimes=lifetimes,
        names=kept_names,
        bars=bars,
        cell_us=cell_us,
        steps=len(own_rows),
        longest_step="" if longest is None else _name_of(steps, longest),
        longest_us=0 if longest is None else int(steps.duration_us[longest]),
        worst=chosen.worst,
        unmeasured_us=_clipped(chosen, missing),
    )


def _name_of(steps: Steps, row: int) -> str:
    """The name of a step, as ``TRAIN 12``."""
    mode, number = steps.series[steps.code[row]][2], int(steps.number[row])
    return escape_name(mode, MAX_NAME) if number < 0 else f"{escape_name(mode, MAX_NAME // 2)} {number}"


def _step_lanes(
    steps: Steps, by_rank: Mapping[str, IntArray], chosen: _Stretch, first_name: int
) -> list[_Lane]:
    """The steps of each rank; their names have numbers from ``first_name`` on."""
    lanes = []
    for rank, rows in by_rank.items():
        start_us, end_us = chosen.clipped(steps.start_us[rows], steps.end_us[rows])
        name = first_name + np.arange(len(rows))
        first_name += len(rows)
        if len(rows):
            lane = _Lane(
                rank=rank,
                event_type="Steps",
                kind="steps",
                start_us=start_us,
                end_us=end_us,
                name=name,
                events=np.ones(len(rows), np.int64),
            )
            lanes.append(lane)
    return lanes


def _kind(event_type: str) -> str:
    if event_type in _WAITING:
        return "waiting"
    return "communication" if collective_of(event_type) in SYNCHRONIZING else "work"


def _event_lanes(events: Events, chosen: _Stretch, own: str) -> tuple[list[_Lane], int]:
    """A lane for each rank and event type, those of the rank ``own`` first, then by the time that they take.

    And the number of lifetimes of loader processes, which have no lane.
    """
    near = events.where(chosen.holds(events.start_us, events.end_us))
    start_us, end_us = chosen.clipped(near.start_us, near.end_us)
    lanes = [
        _Lane(
            rank=rank,
            event_type=event_type,
            kind=_kind(event_type),
            start_us=start_us[rows],
            end_us=end_us[rows],
            name=near.name[rows].astype(np.int64),
            events=np.ones(len(rows), np.int64),
        )
        for (rank, event_type), rows in rows_by_lane(near, _rank_and_event_type).items()
    ]
    lanes.sort(key=lambda one: (one.rank != own, -one.total_us, natural_key(one.rank), one.event_type))
    return lanes, int(np.count_nonzero(rows_of(near, Kind.LIFETIME)))


def _rank_and_event_type(lane: Lane) -> tuple[str, str] | None:
    return None if kind_of(lane) in {Kind.STEP, Kind.LIFETIME} else (lane.rank, event_type_of(lane))


def _drawn(of_steps: Sequence[_Lane], of_events: Sequence[_Lane], own: str) -> list[_Lane]:
    """The steps of the rank ``own``, and the lanes of events that fit, each with the steps of its rank.

    Rank by rank, ``own`` first: its steps, then events by their time.
    """
    drawn = [one for one in of_steps if one.rank == own]
    for lane in of_events[:MAX_LANES]:
        steps = [one for one in of_steps if one.rank == lane.rank and one not in drawn]
        if len(drawn) + len(steps) < MAX_ROWS:
            drawn += [*steps, lane]
    # The sort is stable: events of one rank stay in the order of their time.
    return sorted(drawn, key=lambda one: (one.rank != own, natural_key(one.rank), one.kind != "steps"))


def _few(lanes: list[_Lane], chosen: _Stretch) -> tuple[list[_Lane], int]:
    """The lanes with their bars joined until they are few enough; and the width within which they were."""
    before = sum(len(one.start_us) for one in lanes)
    cells = CELLS
    while True:
        cell_us = -(-(chosen.end_us - chosen.start_us) // cells)
        lanes = [one.joined(chosen.start_us, cell_us) for one in lanes]
        count = sum(len(one.start_us) for one in lanes)
        if count <= MAX_BARS or cells == 1:
            return lanes, cell_us if count < before else 0
        cells //= 2


def _packed(
    lanes: list[_Lane], names: Sequence[str], start_us: int, tick_us: int
) -> tuple[tuple[str, ...], bytes]:
    """Names that occur, and the bars of all lanes as bytes."""
    if not lanes:
        return (), b""
    lane = np.repeat(np.arange(len(lanes)), [len(one.start_us) for one in lanes])
    begin, end, name, events = (
        np.concatenate([getattr(one, column) for one in lanes])
        for column in ("start_us", "end_us", "name", "events")
    )
    used = np.unique(name[name >= 0])
    place = np.where(name >= 0, np.searchsorted(used, name), -1)
    first, last = (begin - start_us) // tick_us, (end - start_us) // tick_us
    bars = np.stack((lane, first, last - first, place, events), axis=1)
    return tuple(escape_name(names[i], MAX_NAME) for i in used.tolist()), bars.astype("<i4").tobytes()


def _curve(panel: Panel, chosen: _Stretch, tick_us: int, missing: tuple[Gap, ...]) -> Curve:
    a, b = np.searchsorted(panel.time_us, (chosen.start_us, chosen.end_us))
    time_us, values = panel.time_us[a:b], panel.mean[a:b]
    samples, mean = len(time_us), float(values.mean()) if len(values) else None
    if samples > MAX_SAMPLES:
        rows = _extremes(values, MAX_SAMPLES // 2)
        time_us, values = time_us[rows], values[rows]
    # A sample that no other follows for long ends the curve.
    breaks = [start for start, _ in _clipped(chosen, missing)]
    at = np.searchsorted(time_us, breaks, side="right")
    time_us, values = np.insert(time_us, at, breaks), np.insert(values.astype(np.float64), at, np.nan)
    return Curve(
        key=panel.metric.value,
        label=panel.metric.label,
        devices=len(panel.devices),
        samples=samples,
        mean=None if mean is None else round(mean, 3),
        ticks=((time_us - chosen.start_us) // tick_us).astype("<i4").tobytes(),
        percents=np.round(values, 1).astype("<f4").tobytes(),
    )


def _extremes(values: FloatArray, parts: int) -> IntArray:
    """Positions of the lowest and the highest value in each of as many equal parts, ascending."""
    edges = np.linspace(0, len(values), parts + 1).astype(np.int64)
    order = np.lexsort((values, np.searchsorted(edges, np.arange(len(values)), side="right")))
    return np.unique(np.concatenate((order[edges[:-1]], order[edges[1:] - 1])))


def _clipped(chosen: _Stretch, missing: tuple[Gap, ...]) -> tuple[tuple[int, int], ...]:
    """The gaps of the node inside the stretch."""
    spans = [
        (max(gap.start_us, chosen.start_us), min(gap.end_us, chosen.end_us))
        for gap in missing
        if gap.node == chosen.node
    ]
    return tuple((start, end) for start, end in spans if end > start)
