"""The tables of a job as columns: samples, steps, and events that a call asks for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.library.frames import DURATION, UTC_TIME, coded, or_missing
from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.framework_time import self_us
from jobrules.measures.rows import rows_by_lane, series_of
from jobrules.measures.sample_weights import sample_weights
from jobrules.model import Events, Metric, Steps, natural_sorted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from jobreport.tables.parts import JobInParts
    from jobrules.model import BoolArray, FloatArray, IntArray, Job, Lane, Panel
    from jobrules.rules.step_outlier import StepOutlier

    #: From a moment to another, [start, end).
    Window = tuple[int, int]

_VALUES = {
    "time": UTC_TIME, "time_us": "int64", "since_start": DURATION, "node": "category", "device": "category",
    "metric": "category", "value": "float64", "unit": "category",
}  # fmt: skip
SAMPLES = {**_VALUES, "snapshot": "int64"}
#: With ``every``.
MEANS = {**_VALUES, "covered": "float64"}
STEPS = {
    "node": "category", "worker": "category", "phase": "category", "step": "int64", "start": UTC_TIME,
    "start_us": "int64", "since_start": DURATION, "end_us": "int64", "duration_us": "int64", "gap_us": "float64",
    "first": "bool", "outlier": "bool",
}  # fmt: skip
EVENTS = {
    "node": "category", "worker": "category", "process": "Int64", "thread": "Int64", "source": "category",
    "phase": "category", "name": "category", "start": UTC_TIME, "start_us": "int64", "since_start": DURATION,
    "end_us": "int64", "duration_us": "int64", "self_us": "int64", "step": "Int64",
}  # fmt: skip
#: What ``every`` may ask for: more rows than that are a mistake.
MAX_BINS = 10_000_000
ALWAYS = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)


def common(one: Window, other: Window) -> Window:
    """The time in both."""
    return max(one[0], other[0]), min(one[1], other[1])


class Names(Struct, frozen=True, kw_only=True):
    """The names in the tables of a job, in natural order; operators in that of the nodes."""

    nodes: tuple[str, ...]
    workers: tuple[str, ...]
    #: Phases of steps, and of events.
    step_phases: tuple[str, ...]
    phases: tuple[str, ...]
    sources: tuple[str, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, job: JobInParts) -> Names:
        """Those of all nodes."""
        every: list[tuple[Sequence[tuple[str, str, str]], Sequence[Lane], Sequence[str]]] = job.each(_names)
        series = [one for found, _, _ in every for one in found]
        lanes = [one for _, found, _ in every for one in found]
        return cls(
            nodes=job.nodes,
            workers=natural_sorted({rank for _, rank, _ in series} | {lane.rank for lane in lanes}),
            step_phases=natural_sorted({mode for _, _, mode in series}),
            phases=natural_sorted({lane.event_type for lane in lanes}),
            sources=natural_sorted({str(lane.source) for lane in lanes}),
            names=tuple(dict.fromkeys(name for _, _, found in every for name in found)),
        )


def _names(part: Job) -> tuple[Sequence[tuple[str, str, str]], Sequence[Lane], Sequence[str]]:
    events = part.events
    used = np.flatnonzero(np.bincount(events.name, minlength=len(events.names)))
    return part.steps.series, events.lanes, [events.names[i] for i in used.tolist()]


# Samples, by device


class Series(Struct, frozen=True, kw_only=True, eq=False):
    """Samples of one metric of one device."""

    node: str
    device: str
    metric: Metric
    time_us: IntArray
    value: FloatArray
    #: Number of the snapshot on its node, of all metrics the same; not of means.
    snapshot: IntArray
    #: Share of the time that was measured, where these are means.
    covered: FloatArray | None = None

    @classmethod
    def of(cls, panel: Panel, column: int) -> Series:
        """Those of a device."""
        time_us, value = panel.series(column)
        return cls(
            node=panel.node,
            device=panel.devices[column],
            metric=panel.metric,
            time_us=time_us,
            value=value,
            snapshot=panel.snapshot[np.searchsorted(panel.time_us, time_us)],
        )


def series(
    job: JobInParts,
    metrics: Collection[str],
    devices: Collection[str],
    windows: Mapping[str, Window],
    every_us: int = 0,
) -> Iterator[Series]:
    """By node, device, and metric; of nodes with a window. With ``every_us``, a mean for each such time."""
    for part in job.one_by_one(windows):
        for panel, column in _columns(part, metrics, devices):
            found = Series.of(panel, column)
            start_us, end_us = windows[panel.node]
            if every_us:
                yield _means(found, job, (start_us, end_us), every_us)
            else:
                inside = slice(*np.searchsorted(found.time_us, (start_us, end_us)).tolist())
                columns = ("time_us", "value", "snapshot")
                yield replace(found, **{name: getattr(found, name)[inside] for name in columns})


def _columns(part: Job, metrics: Collection[str], devices: Collection[str]) -> Iterator[tuple[Panel, int]]:
    """Panels and columns in the order of the devices."""
    panels = [panel for panel in part.panels if panel.metric in metrics]
    for device in natural_sorted({one for panel in panels for one in panel.devices if one in devices}):
        yield from ((panel, panel.devices.index(device)) for panel in panels if device in panel.devices)


class Held(Struct, frozen=True, kw_only=True, eq=False):
    """The time [start, end) that each sample of a series stands for, as the page counts it: disjoint and ascending."""

    start_us: IntArray
    end_us: IntArray
    value: FloatArray

    @classmethod
    def of(cls, one: Series, job: Job) -> Held:
        """Over the whole job."""
        shared = sample_weights(one.time_us, *Clocks.of(job).span_us(one.node))
        start_us = one.time_us.copy()
        start_us[0] -= int(shared.before_us)
        return cls(start_us=start_us, end_us=start_us + shared.weight_us.astype(np.int64), value=one.value)

    def within(self, start_us: IntArray, end_us: IntArray) -> tuple[Held, IntArray]:
        """The parts that lie in ascending and disjoint times; and (n,) in which of them each lies."""
        first = np.searchsorted(self.end_us, start_us, side="right")
        many = np.maximum(np.searchsorted(self.start_us, end_us) - first, 0)
        window = np.repeat(np.arange(len(many)), many)
        row = np.arange(len(window)) + np.repeat(first - np.cumsum(many) + many, many)
        parts = Held(
            start_us=np.maximum(self.start_us[row], start_us[window]),
            end_us=np.minimum(self.end_us[row], end_us[window]),
            value=self.value[row],
        )
        return parts, window

    @property
    def length_us(self) -> IntArray:
        """(n,) how long each holds."""
        return self.end_us - self.start_us


def _means(one: Series, job: Job, window: Window, every_us: int) -> Series:
    """Means of the window in bins that begin with the job."""
    origin = job.span_us[0]
    span = Clocks.of(job).span_us(one.node)
    start_us, end_us = max(window[0], span[0]), min(window[1], span[1])
    first, last = (start_us - origin) // every_us, math.ceil((end_us - origin) / every_us)
    if last - first > MAX_BINS:
        raise ValueError(f"every: more than {MAX_BINS:,} rows for each device")
    edges_us = origin + every_us * np.arange(first, max(first, last) + 1, dtype=np.int64)
    inside_us = np.clip(edges_us, start_us, max(start_us, end_us))
    held, place = Held.of(one, job).within(inside_us[:-1], inside_us[1:])
    known, total = (
        np.bincount(place, own, len(edges_us) - 1) for own in (held.length_us, held.value * held.length_us)
    )
    with np.errstate(invalid="ignore"):
        value = np.where(known > 0, total / known, np.nan)
    return replace(one, time_us=edges_us[:-1], value=value, covered=known / every_us)


def means(job: Job, every_us: int, panel: Panel, window: Window) -> tuple[IntArray, FloatArray]:
    """(n,) when each bin begins in which something was measured, and (n, devices) the means; both in the time of the node."""
    found = [_means(Series.of(panel, i), job, window, every_us) for i in range(len(panel.devices))]
    value = np.column_stack([one.value for one in found])
    some = ~np.isnan(value).all(axis=1)
    # The first one may begin before the window, or the job.
    start_us = np.maximum(found[0].time_us, max(window[0], Clocks.of(job).span_us(panel.node)[0]))
    return start_us[some], value[some]


def sample_columns(found: Sequence[Series], nodes: Sequence[str]) -> dict[str, Any]:
    """The columns of samples, by time, then node, device, and metric."""
    lengths = [len(one.time_us) for one in found]
    if not sum(lengths):
        return {}
    time_us = np.concatenate([one.time_us for one in found])
    order = np.argsort(time_us, kind="stable")
    owner = np.repeat(np.arange(len(found)), lengths)[order]
    columns: dict[str, Any] = {
        "time_us": time_us[order],
        "value": np.concatenate([one.value for one in found])[order],
    }
    name = "snapshot" if found[0].covered is None else "covered"
    columns[name] = np.concatenate([getattr(one, name) for one in found])[order]
    metrics = [one for one in Metric if any(one is row.metric for row in found)]
    places = _Places(
        node=nodes,
        device=natural_sorted({one.device for one in found}),
        metric=[str(one) for one in metrics],
        unit=list(dict.fromkeys(one.unit for one in metrics)),
    )
    of_series = [(one.node, one.device, str(one.metric), one.metric.unit) for one in found]
    return places.named(columns | places.of(of_series, owner))


# Steps


def steps_of(part: Job) -> Steps:
    """The steps of a node."""
    return part.steps


def step_columns(
    job: JobInParts, nodes: Collection[str], known: Names, outlier: StepOutlier
) -> dict[str, Any]:
    """The columns of all steps of these nodes, by start, then node, worker, and phase."""
    places = _Places(node=known.nodes, worker=known.workers, phase=known.step_phases)
    found: list[dict[str, Any]] = []
    for part in job.one_by_one(nodes):
        steps = part.steps
        first, gap_us = _firsts_and_gaps(steps)
        slow = np.zeros(len(steps), np.bool_)
        compared = steps.comparable
        limits = {
            names: limit
            for names, rows in series_of(compared).items()
            if (limit := outlier.limit_us(names[2], compared.duration_us[rows])) is not None
        }
        for names, rows in series_of(steps).items():
            slow[rows] = steps.duration_us[rows] > limits.get(names, np.inf)
        if len(compared) < len(steps):
            slow &= steps.mark == 0
        found.append(
            places.of(steps.series, steps.code)
            | {
                "step": steps.number,
                "start_us": steps.start_us,
                "end_us": steps.end_us,
                "duration_us": steps.duration_us,
                "gap_us": gap_us,
                "first": first,
                "outlier": slow,
            }
        )
    columns = joined(found)
    if not columns:
        return {}
    keys = ("phase", "worker", "node", "start_us")
    order = np.lexsort([columns[key] for key in keys])
    return places.named({name: column[order] for name, column in columns.items()})


def _firsts_and_gaps(steps: Steps) -> tuple[BoolArray, FloatArray]:
    """(n,) whether a step is the first of its series; and the time from the end of the worker's step before, or NaN."""
    first, gap_us = np.zeros(len(steps), np.bool_), np.full(len(steps), np.nan)
    by_worker: dict[tuple[str, str], list[IntArray]] = {}
    for (node, worker, _), rows in series_of(steps).items():
        first[rows[0]] = True
        by_worker.setdefault((node, worker), []).append(rows)
    for several in by_worker.values():
        rows = np.sort(np.concatenate(several))
        gap_us[rows[1:]] = steps.start_us[rows[1:]] - steps.end_us[rows[:-1]]
    return first, gap_us


# Events


class Wanted(Struct, frozen=True, kw_only=True):
    """The events that are asked for."""

    workers: frozenset[str]
    phases: frozenset[str]
    sources: frozenset[str]
    #: None for all.
    names: frozenset[str] | None
    thread: int | None
    #: By node and worker, the empty worker for events of the node; those that are not there have no event.
    windows: Mapping[tuple[str, str], Window] | None
    window: Window
    #: Whether events count that began before the window; whether these are cut to it.
    overlap: bool
    clip: bool
    #: Phase of the steps that number events.
    of_steps: str

    def window_of(self, lane: Lane) -> Window:
        """The time in which events of a lane are asked for; an empty one for no time."""
        if self.windows is None:
            return self.window
        return common(self.windows.get((lane.node, lane.rank), (0, 0)), self.window)

    def takes(self, lane: Lane) -> bool:
        """Whether events of a lane are asked for."""
        return lane.rank in self.workers and lane.event_type in self.phases and lane.source in self.sources


def event_columns(parts: Iterable[Job], wanted: Wanted, known: Names) -> dict[str, Any]:
    """By start, then node, then end."""
    places = _Places(node=known.nodes, worker=known.workers, phase=known.phases, source=known.sources)
    operators = {name: i for i, name in enumerate(known.names)}
    found = []
    for part in parts:
        events, step, own_us = _wanted_events(part, wanted)
        series = [(lane.node, lane.rank, lane.event_type, str(lane.source)) for lane in events.lanes]
        columns = places.of(series, events.lane)
        columns["name"] = np.array([operators.get(one, -1) for one in events.names], np.int32)[events.name]
        columns |= {"process": events.pid, "thread": events.thread, "step": step, "self_us": own_us}
        found.append(columns | {one: getattr(events, one) for one in ("start_us", "end_us", "duration_us")})
    columns = joined(found)
    if not columns:
        return {}
    if (np.diff(columns["start_us"]) < 0).any():
        order = np.argsort(columns["start_us"], kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
    columns |= {name: or_missing(columns[name]) for name in ("process", "thread", "step")}
    columns["name"] = coded(columns["name"], known.names)
    return places.named(columns)


def _wanted_events(part: Job, wanted: Wanted) -> tuple[Events, IntArray, IntArray]:
    """The events of a node that are wanted, with the number of the step, and the own time, of each."""
    events = part.events
    windows = np.array([wanted.window_of(lane) for lane in events.lanes], np.int64).reshape(-1, 2)
    first_us, stop_us = windows[events.lane].T
    rows = events.start_us < stop_us
    # What takes no time touches where it lies.
    begun = events.start_us >= first_us
    rows &= (events.end_us > first_us) | begun if wanted.overlap else begun
    whole = events
    if wanted.clip:
        whole, first_us, stop_us = events.where(rows), first_us[rows], stop_us[rows]
        events = replace(
            whole,
            start_us=np.maximum(whole.start_us, first_us),
            end_us=np.minimum(whole.end_us, stop_us),
        )
        rows = np.ones(len(events), np.bool_)
    rows &= events.in_lanes(wanted.takes)
    if wanted.names is not None:
        rows &= events.named(wanted.names.__contains__)
    if wanted.thread is not None:
        rows &= events.thread == wanted.thread
    found = _where(events, rows)
    step = _step_of(_where(whole, rows), part.steps, wanted.of_steps)
    if not len(found):
        return found, step, step
    # What runs within them begins within them.
    near = (events.start_us >= found.start_us.min()) & (events.start_us <= found.end_us.max())
    near &= events.in_lanes(wanted.takes)
    within = _where(events, near)
    return found, step, self_us(within, within.duration_us)[rows[near]]


def _where(events: Events, rows: BoolArray) -> Events:
    """As ``Events.where``, without a copy of all."""
    return events if rows.all() else events.where(rows)


def _step_of(events: Events, steps: Steps, phase: str) -> IntArray:
    """(n,) number of the step of its own worker that holds the start of an event, or -1."""
    found = np.full(len(events), -1, np.int64)
    of_events = rows_by_lane(events, lambda lane: (lane.node, lane.rank, phase))
    for names, own in series_of(steps).items():
        rows = of_events.get(names)
        if rows is not None:
            at = np.searchsorted(steps.start_us[own], events.start_us[rows], side="right") - 1
            begun = own[np.maximum(at, 0)]
            holds = (at >= 0) & (events.start_us[rows] < steps.end_us[begun])
            found[rows[holds]] = steps.number[begun[holds]]
    return found


# Columns


class _Places:
    """Columns of names, such as node, worker, and phase, as places among all names."""

    def __init__(self, **known: Sequence[str]) -> None:
        self._known = known
        self._place = [{name: i for i, name in enumerate(names)} for names in self._known.values()]

    def of(self, series: Sequence[tuple[str, ...]], code: Any) -> dict[str, Any]:
        """Of rows that are places among series."""
        of_series = [[place[name] for place, name in zip(self._place, one, strict=True)] for one in series]
        columns = np.array(of_series, np.int32).reshape(-1, len(self._known))[code].T
        return dict(zip(self._known, columns, strict=True))

    def named(self, columns: dict[str, Any]) -> dict[str, Any]:
        """The columns with categories."""
        return columns | {name: coded(columns[name], known) for name, known in self._known.items()}


def joined(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Columns of several nodes; none without rows."""
    some = [one for one in several if one and len(one["start_us"])]
    if len(some) < 2:
        return some[0] if some else {}
    return {name: np.concatenate([one[name] for one in some]) for name in some[0]}
