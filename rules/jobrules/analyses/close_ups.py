"""Close-ups: the first steps, the worst minute of training, the last steps.

Each is a short stretch of one node, with what its samples and its processes did in full. Many samples
and many events are reduced so that every peak survives: the lowest and the highest sample of a column,
and one bar for the short events of a lane that lie in the same five-hundredth of the stretch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.measures.data_loading import FETCH, PIPELINE, SET_UP
from jobrules.measures.framework_time import Kind, rows_of
from jobrules.measures.intervals import union
from jobrules.measures.rows import series_of
from jobrules.measures.sample_weights import gaps
from jobrules.model import SECOND_US, Events, EventSource, Metric, natural_key
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from jobrules.cpu_bottleneck import CPUBottleneck
    from jobrules.io_bottleneck import IOBottleneck
    from jobrules.measures.bottleneck_snapshots import BottleneckCriteria, Snapshots
    from jobrules.measures.sample_weights import Gap
    from jobrules.model import BoolArray, FloatArray, IntArray, Job, Lane, Panel, Steps

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
#: Name of the one lane of all tensors that a process exchanged.
HOROVOD = "Horovod"
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
    key: str
    label: str
    devices: int
    #: Snapshots in the stretch, and their mean in percent; none without any.
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
    kind: str
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

    rank: str
    event_type: str
    #: ``steps``, ``waiting`` (for data) or ``work``.
    kind: str
    events: int
    #: Microseconds inside the stretch: of all events together, and in which any of them ran.
    total_us: int
    covered_us: int
    #: The latter in percent of the stretch, one digit.
    percent: float


class CloseUp(Struct, frozen=True, kw_only=True):
    """A short stretch of one node in full detail."""

    #: ``first-steps``, ``worst-minute``, ``last-steps`` or ``first-events``.
    key: str
    node: str
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
    names: tuple[str, ...]
    #: (n, 5) int32, little endian: position in ``lanes``, start and length in ticks, position in
    #: ``names`` (-1 for different names), events. 600 rows at most; lane by lane, starts ascend.
    bars: bytes
    #: Short events of a lane within as many microseconds are one bar; 0 where none were joined.
    cell_us: int
    #: Steps of the first rank, and the longest of them: its name, as ``TRAIN 12``, and
    #: how long it took in whole; empty and 0 without steps.
    steps: int
    longest_step: str
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
    #: Whose steps are shown; None for the first of the node.
    rank: str | None
    start_us: int
    end_us: int
    worst: WorstMinute | None = None
    #: Of several nodes' stretches of one key the one with the lowest is chosen, of equal ones the first node's.
    order: tuple[float, ...] = ()

    def repeats(self, other: _Stretch) -> bool:
        shared = min(self.end_us, other.end_us) - max(self.start_us, other.start_us)
        whole = max(self.end_us, other.end_us) - min(self.start_us, other.start_us)
        return self.node == other.node and shared >= REPEATED * whole


def close_ups(job: Job, cpu: CPUBottleneck, io: IOBottleneck) -> tuple[CloseUp, ...]:
    """The chosen stretches, at most three; none where neither steps, events nor GPU samples cover a time.

    The first ten and the last thirty steps of the first rank; the minute of the training loop with most
    bottlenecks by the limits of the two rules, else the one with the lowest GPU utilization, if that is 5 points
    below the mean; without steps the first minute of events. One that nearly repeats another is left out.
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
        rank = _first_rank(part.steps)
        mine = [rows for (_, one, _), rows in series_of(part.steps).items() if one == rank]
        rows = np.sort(np.concatenate(mine))
        rows = rows[np.lexsort((part.steps.end_us[rows], part.steps.start_us[rows]))]
        yield _around(part.steps, rows[:FIRST_STEPS], "first-steps", node, rank)
        yield _around(part.steps, rows[-LAST_STEPS:], "last-steps", node, rank)
    elif with_steps is None and len(events):
        start_us = int(events.start_us[0])
        end_us = min(int(events.end_us.max()), start_us + MINUTE_US)
        order = start_us, int(events.end_us[0])
        yield _Stretch(
            key="first-events", node=node, rank=None, start_us=start_us, end_us=end_us, order=order
        )
    gpu = part.panel(node, Metric.GPU_UTILIZATION)
    span = _Span.of(part, gpu) if gpu else None
    worst = span and (span.busiest([(one, one.snapshots(part)) for one in asked]) or span.calmest())
    if worst:
        yield worst


def _around(steps: Steps, rows: IntArray, key: str, node: str, rank: str) -> _Stretch:
    start_us, end_us = int(steps.start_us[rows].min()), int(steps.end_us[rows].max())
    return _Stretch(key=key, node=node, rank=rank, start_us=start_us, end_us=end_us)


def _first_rank(steps: Steps) -> str:
    """The first rank in natural order; empty without steps."""
    return min({rank for _, rank, _ in series_of(steps)}, key=natural_key, default="")


class _Span(Struct, frozen=True, kw_only=True, eq=False):
    """The GPU snapshots of one node among which a minute is looked for."""

    gpu: Panel
    start_us: int
    end_us: int
    #: Whether that is the training loop.
    in_loop: bool
    #: Mean GPU utilization of its snapshots.
    usual: float

    @classmethod
    def of(cls, part: Job, gpu: Panel) -> _Span | None:
        """The training loop, else first to last GPU work; none without a snapshot in it."""
        loop = part.loop_us(gpu.node)
        start_us, end_us = loop or _worked(gpu)
        a, b = np.searchsorted(gpu.time_us, (start_us, end_us))
        if a == b:
            return None
        usual = round(float(gpu.mean[a:b].mean()), 3)
        return cls(gpu=gpu, start_us=start_us, end_us=end_us, in_loop=loop is not None, usual=usual)

    @property
    def rows(self) -> slice:
        """The snapshots in it."""
        a, b = np.searchsorted(self.gpu.time_us, (self.start_us, self.end_us))
        return slice(int(a), int(b))

    def busiest(self, asked: Sequence[tuple[BottleneckCriteria, Snapshots | None]]) -> _Stretch | None:
        """The minute with most bottlenecks of any kind; none where there is none."""
        minutes = self.gpu.time_us[self.rows] // MINUTE_US
        hits = np.zeros(len(minutes), np.bool_)
        both = hits.copy()
        known = [(one, snapshots) for one, snapshots in asked if snapshots]
        for _, snapshots in known:
            hits |= snapshots.hit[self.rows]
            both |= snapshots.sampled[self.rows]
        if not hits.any():
            return None
        held, counts = np.unique(minutes[hits], return_counts=True)
        minute = int(held[counts.argmax()])
        here = minutes == minute
        found = [
            BottleneckCount(
                kind=one.key,
                snapshots=int(np.count_nonzero(snapshots.hit[self.rows] & here)),
                gpu_threshold=float(one.gpu_threshold),
                core_threshold=float(one.core_threshold),
            )
            for one, snapshots in known
        ]
        worst = WorstMinute(
            in_loop=self.in_loop,
            usual=self.usual,
            snapshots=int(np.count_nonzero(both & here)),
            hits=int(counts.max()),
            bottlenecks=tuple(
                sorted((one for one in found if one.snapshots), key=lambda one: -one.snapshots)
            ),
        )
        return self._minute(minute, worst, (0, -worst.hits))

    def calmest(self) -> _Stretch | None:
        """The minute with the lowest mean; none where it is not much below all others.

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
        worst = WorstMinute(in_loop=self.in_loop, usual=self.usual, snapshots=0, hits=0, bottlenecks=())
        return self._minute(int(minutes[best]), worst, (1, float(means[best])))

    def _minute(self, minute: int, worst: WorstMinute, order: tuple[float, ...]) -> _Stretch:
        """A minute of the clock, as far as the loop reaches."""
        return _Stretch(
            key="worst-minute",
            node=self.gpu.node,
            rank=None,
            start_us=max(minute * MINUTE_US, self.start_us),
            end_us=min((minute + 1) * MINUTE_US, self.end_us),
            worst=worst,
            order=order,
        )


def _worked(gpu: Panel) -> tuple[int, int]:
    """First to last sample in which a GPU worked; all samples where none did."""
    work = gpu.time_us[(gpu.values > 0).any(axis=1)]
    return (int(work[0]), int(work[-1])) if len(work) else (int(gpu.time_us[0]), gpu.last_us)


class _Bars(Struct, frozen=True, kw_only=True, eq=False):
    """Bars of one lane, starts ascend; names are numbers, -1 for different ones."""

    start_us: IntArray
    end_us: IntArray
    name: IntArray
    events: IntArray

    def joined(self, origin_us: int, cell_us: int) -> _Bars:
        """The same, with one bar for all that lie in the same cell of the stretch."""
        cell = (self.start_us - origin_us) // cell_us
        long = (np.maximum(self.end_us - 1, self.start_us) - origin_us) // cell_us > cell
        short = ~long
        if np.count_nonzero(short) < 2:
            return self
        cell = cell[short]
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        name = self.name[short]
        low, high = np.minimum.reduceat(name, first), np.maximum.reduceat(name, first)
        joined = (
            self.start_us[short][first],
            np.maximum.reduceat(self.end_us[short], first),
            np.where(low == high, low, -1),
            np.add.reduceat(self.events[short], first),
        )
        kept = self.start_us[long], self.end_us[long], self.name[long], self.events[long]
        start, end, name, events = (np.concatenate(both) for both in zip(kept, joined, strict=True))
        order = np.lexsort((-end, start))
        return _Bars(start_us=start[order], end_us=end[order], name=name[order], events=events[order])


def _of_node(part: Job, chosen: Sequence[_Stretch], missing: tuple[Gap, ...]) -> Iterator[CloseUp]:
    return (_close_up(part, one, missing) for one in chosen if one.node in part.nodes)


def _close_up(part: Job, chosen: _Stretch, missing: tuple[Gap, ...]) -> CloseUp:
    start_us, end_us = chosen.start_us, chosen.end_us
    tick_us = 1 + (end_us - start_us) // MAX_TICKS
    own = _first_rank(part.steps) if chosen.rank is None else chosen.rank
    steps = _steps_within(part.steps, chosen)
    lanes = _lanes(part, chosen, own, steps)
    tables, cell_us = _few(lanes.bars, start_us, end_us)
    numbered = np.concatenate(list(steps.values())) if steps else np.empty(0, np.int64)
    step_names = [_name_of(part.steps, row) for row in numbered.tolist()]
    names, bars = _packed(tables, part.events.names, step_names, start_us, tick_us)
    rows = steps.get(own, np.empty(0, np.int64))
    lasted = part.steps.end_us[rows] - part.steps.start_us[rows]
    longest = rows[lasted.argmax()] if len(rows) else -1
    return CloseUp(
        key=chosen.key,
        node=chosen.node,
        start_us=start_us,
        end_us=end_us,
        tick_us=tick_us,
        curves=tuple(
            _curve(panel, chosen, tick_us, missing)
            for metric in _CURVES
            if (panel := part.panel(chosen.node, metric))
        ),
        lanes=lanes.lanes,
        lanes_left=lanes.left_out,
        lifetimes=lanes.lifetimes,
        names=names,
        bars=bars,
        cell_us=cell_us,
        steps=len(rows),
        longest_step=_name_of(part.steps, int(longest)) if len(rows) else "",
        longest_us=int(lasted.max()) if len(rows) else 0,
        worst=chosen.worst,
        unmeasured_us=_clipped(chosen, missing),
    )


def _steps_within(steps: Steps, chosen: _Stretch) -> dict[str, IntArray]:
    """Rank → rows of its steps that reach into the stretch, in the order of their starts."""
    inside = _within(steps.start_us, steps.end_us, chosen.start_us, chosen.end_us)
    here = np.flatnonzero(inside)
    here = here[np.lexsort((steps.end_us[here], steps.start_us[here]))]
    ranks = np.array([rank for _, rank, _ in steps.series], np.str_)[steps.code[here]]
    return {rank: here[ranks == rank] for rank in sorted(set(ranks.tolist()), key=natural_key)}


def _name_of(steps: Steps, row: int) -> str:
    return _step_name(steps.series[steps.code[row]][2], int(steps.number[row]))


def _step_name(mode: str, number: int) -> str:
    return escape_name(mode, MAX_NAME) if number < 0 else f"{escape_name(mode, MAX_NAME // 2)} {number}"


def _within(begin: IntArray, end: IntArray, start_us: int, end_us: int) -> BoolArray:
    """(n,) which intervals reach into the stretch; an empty one does where it stands."""
    return np.asarray((begin < end_us) & ((end > start_us) | (begin >= start_us)))


class _EventRows(Struct, frozen=True, kw_only=True, eq=False):
    """The events that reach into a stretch, in lanes: one per rank and event type."""

    #: Rank, event type, and kind of each lane.
    keys: tuple[tuple[str, str, str], ...]
    #: (n,) lane of each event, its sides inside the stretch, and its name.
    lane: IntArray
    start_us: IntArray
    end_us: IntArray
    name: IntArray
    #: Lifetimes of loader processes, which have no lane.
    lifetimes: int

    @classmethod
    def of(cls, events: Events, chosen: _Stretch) -> _EventRows:
        one_each = Events(lanes=events.lanes, lane=np.arange(len(events.lanes), dtype=np.int32))
        lifetime, step = rows_of(one_each, Kind.LIFETIME), rows_of(one_each, Kind.STEP)
        numbers: dict[tuple[str, str, str], int] = {}
        number_of = np.full(len(events.lanes), -1)
        for i in np.flatnonzero(~lifetime & ~step).tolist():
            lane = events.lanes[i]
            number_of[i] = numbers.setdefault((lane.rank, *_event_type(lane)), len(numbers))
        reach = int(np.searchsorted(events.start_us, chosen.end_us))
        inside = _within(events.start_us[:reach], events.end_us[:reach], chosen.start_us, chosen.end_us)
        rows = np.flatnonzero(inside)
        lifetimes = int(np.count_nonzero(lifetime[events.lane[rows]]))
        rows = rows[number_of[events.lane[rows]] >= 0]
        return cls(
            keys=tuple(numbers),
            lane=number_of[events.lane[rows]],
            start_us=np.maximum(events.start_us[rows], chosen.start_us),
            end_us=np.minimum(events.end_us[rows], chosen.end_us),
            name=events.name[rows].astype(np.int64),
            lifetimes=lifetimes,
        )

    def by_time(self, own: str) -> list[int]:
        """The lanes with events, those of the rank ``own`` first, then by the time that they take."""
        time_us = np.bincount(self.lane, weights=self.end_us - self.start_us, minlength=len(self.keys))

        def place(lane: int) -> tuple[bool, float, tuple[tuple[int, str], ...], str]:
            rank, event_type, _ = self.keys[lane]
            return rank != own, -time_us[lane], natural_key(rank), event_type

        return sorted(np.unique(self.lane).tolist(), key=place)

    def bars(self, lane: int) -> _Bars:
        rows = np.flatnonzero(self.lane == lane)
        return _Bars(
            start_us=self.start_us[rows],
            end_us=self.end_us[rows],
            name=self.name[rows],
            events=np.ones(len(rows), np.int64),
        )


class _Lanes(Struct, frozen=True, kw_only=True):
    """The lanes of a close-up with their bars, rank by rank; and how many are left out."""

    lanes: tuple[CloseUpLane, ...]
    bars: list[_Bars]
    left_out: int
    lifetimes: int


def _lanes(part: Job, chosen: _Stretch, own: str, steps: Mapping[str, IntArray]) -> _Lanes:
    """Of each rank, ``own`` first: its steps, whose names follow those of events, then events by their time."""
    whole_us = chosen.end_us - chosen.start_us
    rows = _EventRows.of(part.events, chosen)
    by_time = rows.by_time(own)
    kept, ranks = _kept([rows.keys[lane][0] for lane in by_time], own, steps.keys())
    drawn: list[tuple[CloseUpLane, _Bars]] = []
    name = len(part.events.names)
    for rank, mine in steps.items():
        if rank in ranks:
            bars = _step_bars(part.steps, mine, chosen, name)
            drawn.append((_lane(rank, "Steps", "steps", bars, whole_us), bars))
        name += len(mine)
    for i in kept:
        bars = rows.bars(by_time[i])
        drawn.append((_lane(*rows.keys[by_time[i]], bars, whole_us), bars))
    # The sort is stable: events of one rank stay in the order of their time.
    drawn.sort(key=lambda one: (one[0].rank != own, natural_key(one[0].rank), one[0].kind != "steps"))
    return _Lanes(
        lanes=tuple(lane for lane, _ in drawn),
        bars=[bars for _, bars in drawn],
        left_out=len(by_time) - len(kept),
        lifetimes=rows.lifetimes,
    )


def _kept(lane_ranks: Sequence[str], own: str, with_steps: Collection[str]) -> tuple[list[int], set[str]]:
    """The lanes of events that there is room for, and the ranks whose steps are drawn with them."""
    ranks = {own}.intersection(with_steps)
    kept: list[int] = []
    for i, rank in enumerate(lane_ranks[:MAX_LANES]):
        more = {rank}.intersection(with_steps) - ranks
        if len(kept) + 1 + len(ranks) + len(more) <= MAX_ROWS:
            kept.append(i)
            ranks |= more
    return kept, ranks


def _step_bars(steps: Steps, rows: IntArray, chosen: _Stretch, first_name: int) -> _Bars:
    return _Bars(
        start_us=np.maximum(steps.start_us[rows], chosen.start_us),
        end_us=np.minimum(steps.end_us[rows], chosen.end_us),
        name=first_name + np.arange(len(rows)),
        events=np.ones(len(rows), np.int64),
    )


def _event_type(lane: Lane) -> tuple[str, str]:
    """Event type and kind of a lane; the tensors of Horovod share one."""
    if lane.source is EventSource.HOROVOD:
        return HOROVOD, "work"
    return lane.event_type, "waiting" if lane.event_type in _WAITING else "work"


def _lane(rank: str, event_type: str, kind: str, bars: _Bars, whole_us: int) -> CloseUpLane:
    covered_us = union(bars.start_us, bars.end_us).total_us
    return CloseUpLane(
        rank=rank,
        event_type=event_type,
        kind=kind,
        events=len(bars.start_us),
        total_us=int((bars.end_us - bars.start_us).sum()),
        covered_us=covered_us,
        percent=round(100 * covered_us / whole_us, 1),
    )


def _few(tables: list[_Bars], start_us: int, end_us: int) -> tuple[list[_Bars], int]:
    """The bars of all lanes, joined until they are few enough; and the width within which they were."""
    before = sum(len(one.start_us) for one in tables)
    cells = CELLS
    while True:
        cell_us = -(-(end_us - start_us) // cells)
        tables = [one.joined(start_us, cell_us) for one in tables]
        count = sum(len(one.start_us) for one in tables)
        if count <= MAX_BARS or cells == 1:
            return tables, cell_us if count < before else 0
        cells //= 2


def _packed(
    tables: list[_Bars], of_events: tuple[str, ...], of_steps: list[str], start_us: int, tick_us: int
) -> tuple[tuple[str, ...], bytes]:
    """Names that occur, and the bars of all lanes as bytes."""
    if not tables:
        return (), b""
    lane = np.repeat(np.arange(len(tables)), [len(one.start_us) for one in tables])
    begin, end, name, events = (
        np.concatenate([getattr(one, column) for one in tables])
        for column in ("start_us", "end_us", "name", "events")
    )
    used = np.unique(name[name >= 0])
    known = [
        escape_name(of_events[i], MAX_NAME) if i < len(of_events) else of_steps[i - len(of_events)]
        for i in used.tolist()
    ]
    place = np.where(name >= 0, np.searchsorted(used, name), -1)
    first, last = (begin - start_us) // tick_us, (end - start_us) // tick_us
    return tuple(known), np.stack((lane, first, last - first, place, events), axis=1).astype("<i4").tobytes()


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
