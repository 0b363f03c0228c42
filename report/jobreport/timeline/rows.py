"""The rows of a trace: what each node, process, and lane is called, and where each event and sample goes."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.timeline.nesting import nested
from jobrules.measures.data_loading import FETCH, PIPELINE, SET_UP
from jobrules.measures.framework_time import Kind, kind_of
from jobrules.measures.rows import TRAIN, rows_by_lane, series_of
from jobrules.measures.sample_weights import sample_weights
from jobrules.model import EventSource, natural_sorted

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import TypeAlias

    from jobrules.measures.clock_offsets import Clocks
    from jobrules.model import BoolArray, FloatArray, IntArray, Job, Lane, Metric, Panel

    #: Of a panel and a time on the clock of its node: (n,) times, and (n, devices) values.
    Means: TypeAlias = Callable[[Panel, tuple[int, int]], tuple[IntArray, FloatArray]]
    #: How many of what are not in the file, and why.
    LeftOut: TypeAlias = Counter[tuple[str, str]]

#: Processes of the file: nodes, and from each thousand the training processes of one.
NODES, PROCESSES = 2_000_000, 1000
#: Between a lane and those beside it, which hold what does not nest in it.
BESIDE = 10_000
#: Lanes of a process.
_STEPS = {"TRAIN": 1, "EVAL": 2, "PREDICT": 3, "GLOBAL": 4}
_START_UP, _FORWARD, _BACKWARD, _MODULES, _LOADING = 5, 10, 11, 12, 20
_PASSES = {"Forward": _FORWARD, "Backward": _BACKWARD, "Backward(post-forward)": _BACKWARD}
#: First of the lanes of loader processes, other phases, threads, streams, and tensors; and how many there are, of which
#: the last one holds all the rest.
_LOADERS, _OTHERS, CPU, GPU, _TENSORS = 21, 60, 100, 200, 300
_MOST = {_LOADERS: 39, _OTHERS: 40, CPU: 100, GPU: 100, _TENSORS: 201}
#: What the lanes from a number on hold, as a category of their rows.
CATEGORIES = {
    1: "step",
    _START_UP: "start-up",
    _FORWARD: "phase",
    _LOADING: "data",
    _OTHERS: "phase",
    CPU: "cpu",
    GPU: "gpu",
    _TENSORS: "comm",
}
#: Devices of a counter that are drawn one by one, and characters of a text.
_MAX_DEVICES, _MAX_TEXT = 16, 200


class Name(Struct, frozen=True, kw_only=True):
    """What a process or a lane of the file is called, and its place among the others."""

    pid: int
    #: None for a process.
    tid: int | None = None
    name: str
    sort: int
    labels: str = ""


class Rows(Struct, frozen=True, kw_only=True, eq=False):
    """Rows of one lane, in columns; times are microseconds on the clock of the job."""

    pid: int
    tid: int
    start_us: IntArray
    #: (n,) -1 where a row has no length.
    length_us: IntArray
    #: How rows begin, up to their process, and (n,) the position in them; the same of their arguments, -1 for none.
    heads: Sequence[str]
    head: IntArray
    tails: Sequence[str]
    tail: IntArray


class Chosen(Struct, kw_only=True):
    """What of a job is written."""

    #: In the time of the job; and the numbers of training steps, from one to before another.
    start_us: int
    end_us: int
    steps: tuple[int, int] | None
    metrics: Collection[Metric]
    #: Sources of events; and what gives times and values instead of the samples. None for all of them.
    sources: Collection[str] | None = None
    means: Means | None = None
    #: Rows that may be written, and how many there are.
    limit: int
    count: int = 0
    #: Of processes by node and rank, whether or not they have rows.
    pids: dict[tuple[str, str], int] = {}

    def allows(self, rows: int) -> bool:
        """Whether so many more may be written; they count in any case."""
        self.count += rows
        return self.count <= self.limit


def text(value: str) -> str:
    """As JSON, and not too long."""
    return json.dumps(value if len(value) <= _MAX_TEXT else f"{value[: _MAX_TEXT - 1]}…")


def step_window(part: Job, rank: str, steps: tuple[int, int]) -> tuple[int, int] | None:
    """Begin of the first and end of the last of some training steps of a process, on its clock; None without any."""
    for (_, own, mode), rows in series_of(part.steps).items():
        if (own, mode) == (rank, TRAIN):
            numbers = part.steps.number[rows]
            inside = rows[(numbers >= steps[0]) & (numbers < steps[1])]
            if len(inside):
                return int(part.steps.start_us[inside].min()), int(part.steps.end_us[inside].max())
    return None


def ranks_of(part: Job) -> list[str]:
    """The training processes of a node that steps or events are of."""
    found = {lane.rank for lane in part.events.lanes} | {rank for _, rank, _ in part.steps.series}
    return list(natural_sorted(found))[:PROCESSES]


def of_node(part: Job, number: int, chosen: Chosen, clocks: Clocks) -> tuple[list[Name], list[Rows]]:
    """The names and rows of a node, the ``number``-th of the job."""
    (node,) = part.nodes
    late_us = clocks.late_us(node)
    names: list[Name] = []
    rows: list[Rows] = []
    for place, rank in enumerate(ranks_of(part)):
        pid = chosen.pids[node, rank] = PROCESSES * (number + 1) + place
        window = (chosen.start_us + late_us, chosen.end_us + late_us)
        if chosen.steps:
            if (found := step_window(part, rank, chosen.steps)) is None:
                continue
            window = found
        lanes = [*_step_lanes(part, rank, window, chosen), *_event_lanes(part, rank, window, chosen)]
        if lanes:
            own = np.unique(np.concatenate([lane.process for lane in lanes]))
            labels = f"process {own[-1]}" if len(own[own >= 0]) == 1 else ""
            name = f"{node} rank {rank}" if rank else f"{node} events"
            names.append(Name(pid=pid, name=name, sort=pid, labels=labels))
        for lane in lanes:
            rows += named_rows(lane, pid, late_us, names)
    samples = list(_samples(part, number, chosen, clocks))
    gpus = len({gpu for facts in part.facts for gpu in facts.gpus})
    labels = f"samples, {gpus} GPU{'s' * (gpus != 1)}" if samples else ""
    names.append(Name(pid=NODES + number, name=node, sort=PROCESSES * (number + 1) - 1, labels=labels))
    return names, rows + samples


class LaneRows(Struct, frozen=True, kw_only=True, eq=False):
    """A lane whose rows may overlap, on the clock of its node; columns as of ``Rows``."""

    tid: int
    title: str
    start_us: IntArray
    end_us: IntArray
    #: (n,) process id of the operating system.
    process: IntArray
    heads: Sequence[str]
    head: IntArray
    tails: Sequence[str]
    tail: IntArray


def named_rows(lane: LaneRows, pid: int, late_us: int, names: list[Name]) -> Iterator[Rows]:
    """The lane, and those beside it that its rows need to nest; ``names`` gains what they are called."""
    number = nested(lane.start_us, lane.end_us)
    order = np.argsort(number, kind="stable")
    for beside, rows in enumerate(np.split(order, np.flatnonzero(np.diff(number[order])) + 1)):
        tid = lane.tid + BESIDE * beside
        title = f"{lane.title} ({beside + 1})" if beside else lane.title
        names.append(Name(pid=pid, tid=tid, name=title, sort=10 * lane.tid + min(beside, 9)))
        yield Rows(
            pid=pid,
            tid=tid,
            start_us=lane.start_us[rows] - late_us,
            length_us=(lane.end_us - lane.start_us)[rows],
            heads=lane.heads,
            head=lane.head[rows],
            tails=lane.tails,
            tail=lane.tail[rows],
        )


def _step_lanes(part: Job, rank: str, window: tuple[int, int], chosen: Chosen) -> Iterator[LaneRows]:
    steps = part.steps
    for (_, own, mode), of_series in series_of(steps).items():
        if own != rank:
            continue
        rows = of_series[touches(steps.start_us[of_series], steps.end_us[of_series], window)]
        if chosen.steps and mode == TRAIN:
            rows = rows[(steps.number[rows] >= chosen.steps[0]) & (steps.number[rows] < chosen.steps[1])]
        if not len(rows) or not chosen.allows(len(rows)):
            continue
        numbers = steps.number[rows].tolist()
        names = [f"{mode} {number}" if number >= 0 else mode for number in numbers]
        yield LaneRows(
            tid=_STEPS.get(mode, _STEPS["GLOBAL"]),
            title="steps" if mode == TRAIN else f"steps {mode}",
            start_us=steps.start_us[rows],
            end_us=steps.end_us[rows],
            process=np.full(len(rows), -1),
            heads=[head_of(name, "step") for name in names],
            head=np.arange(len(rows)),
            tails=[f'{{"step":{number},"phase":{text(mode)}}}' for number in numbers],
            tail=np.arange(len(rows)),
        )


def _event_lanes(part: Job, rank: str, window: tuple[int, int], chosen: Chosen) -> Iterator[LaneRows]:
    events = part.events
    sources = chosen.sources
    known = rows_by_lane(
        events,
        lambda lane: (
            _place(lane) if lane.rank == rank and (sources is None or lane.source in sources) else None
        ),
    )
    by_tid: defaultdict[int, list[tuple[str, IntArray]]] = defaultdict(list)
    places: defaultdict[int, int] = defaultdict(int)
    for (first, title), every in known.items():
        rows = every[touches(events.start_us[every], events.end_us[every], window)]
        # Threads, streams, and loader processes have a lane each.
        several = {CPU: events.thread, GPU: events.thread, _LOADERS: events.pid}.get(first)
        codes = np.zeros(len(rows), np.int64) if several is None else several[rows]
        for code in np.unique(codes).tolist():
            shown = f"{title} {code}" if several is not None and code >= 0 else title
            tid = first + min(places[first], _MOST.get(first, 1) - 1)
            places[first] += 1
            by_tid[tid].append((shown, rows[codes == code]))
    for tid, parts in sorted(by_tid.items()):
        rows = np.sort(np.concatenate([rows for _, rows in parts]))
        if not chosen.allows(len(rows)):
            continue
        used, head = np.unique(events.name[rows], return_inverse=True)
        steps, tail = np.unique(events.step[rows], return_inverse=True)
        without = int(steps[0] < 0) if len(steps) else 0
        category = CATEGORIES[max(first for first in CATEGORIES if first <= tid)]
        yield LaneRows(
            tid=tid,
            title=parts[0][0] if len(parts) == 1 else "others",
            start_us=events.start_us[rows],
            end_us=events.end_us[rows],
            process=events.pid[rows],
            heads=[head_of(events.names[code], category) for code in used.tolist()],
            head=head,
            tails=[f'{{"step":{number}}}' for number in steps[without:].tolist()],
            tail=tail - without,
        )


def _place(lane: Lane) -> tuple[int, str] | None:
    """The first lane of its kind, and its title; None for steps, which have a table of their own."""
    kind, name = kind_of(lane), lane.event_type
    if kind is Kind.STEP:
        return None
    if kind is Kind.HOROVOD or lane.source is EventSource.SMDATAPARALLEL:
        return _TENSORS, name
    if kind is Kind.GENERAL and name in _PASSES:
        return _PASSES[name], name
    if name in (FETCH, SET_UP, PIPELINE):
        return _LOADING, "data loading"
    first = {
        Kind.CPU: CPU,
        Kind.GPU: GPU,
        Kind.FORWARD: _MODULES,
        Kind.BACKWARD: _MODULES,
        Kind.LIFETIME: _LOADERS,
        Kind.START_UP: _START_UP,
    }.get(kind, _OTHERS)
    return first, "modules" if first == _MODULES else name


def touches(start_us: IntArray, end_us: IntArray, window: tuple[int, int]) -> BoolArray:
    """(n,) which are in some part within the window, whose end is no part of it."""
    return (start_us < window[1]) & ((end_us > window[0]) | (start_us >= window[0]))


def head_of(name: str, category: str) -> str:
    """How a row with a length begins."""
    return f'{{"name":{text(name)},"cat":"{category}","ph":"X"'


def _samples(part: Job, number: int, chosen: Chosen, clocks: Clocks) -> Iterator[Rows]:
    """Counters, each with a mark where it ends for a while."""
    (node,) = part.nodes
    late_us = clocks.late_us(node)
    for metric in chosen.metrics:
        panel = part.panel(node, metric)
        if panel is None:
            continue
        window = (chosen.start_us + late_us, chosen.end_us + late_us)
        begin, stop = np.searchsorted(panel.time_us, window)
        weight_us = sample_weights(panel.time_us, *clocks.span_us(node)).weight_us
        ends_us = panel.time_us + weight_us.astype(np.int64)
        next_us = np.append(panel.time_us[1:], clocks.end_us + late_us)
        gaps_us = ends_us[begin:stop][(ends_us < next_us - 1)[begin:stop]]
        times_us, values = panel.time_us[begin:stop], panel.values[begin:stop]
        if chosen.means:
            times_us, values = chosen.means(panel, window)
        if not len(times_us) or not chosen.allows(len(times_us) + len(gaps_us)):
            continue
        label = metric.label
        counted, marks = np.arange(len(times_us)), np.full(len(gaps_us), 1)
        yield Rows(
            pid=NODES + number,
            tid=0,
            start_us=np.concatenate([times_us, gaps_us]) - late_us,
            length_us=np.full(len(counted) + len(marks), -1),
            heads=[
                f'{{"name":{text(label)},"ph":"C"',
                f'{{"name":{text(f"{label}: not measured")},"ph":"i","s":"p"',
            ],
            head=np.concatenate([np.zeros(len(counted), np.int64), marks]),
            tails=list(_counters(panel.devices, values)),
            tail=np.concatenate([counted, np.full(len(marks), -1)]),
        )


def _counters(devices: Sequence[str], values: FloatArray) -> Iterator[str]:
    names = [text(device or "node") for device in devices]
    if len(names) > _MAX_DEVICES:
        columns = (np.nanmean(values, axis=1), np.nanmin(values, axis=1), np.nanmax(values, axis=1))
        values, names = np.column_stack(columns), ['"mean"', '"min"', '"max"']
    for row in values.tolist():
        series = (
            f"{name}:{value:.6g}" for name, value in zip(names, row, strict=True) if not math.isnan(value)
        )
        yield f"{{{','.join(series)}}}"
