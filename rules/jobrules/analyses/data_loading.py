"""Data loading: loader processes, batch fetches, and how many loader processes were active over time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobrules.analyses.time_lines import Columns
from jobrules.measures.data_loading import Busy, Loading
from jobrules.measures.rows import rows_by_lane, rows_by_mode
from jobrules.measures.value_counts import Counted
from jobrules.model import (
    SECOND_US,
    DeviceStatus,
    FloatArray,
    IntArray,
    Job,
    Metric,
    Reason,
    ReasonKind,
    RuleResult,
    natural_sorted,
)
from jobrules.model.names import EventName, IteratorName, NodeName, OwnText, RankName
from jobrules.model.order import median
from jobrules.rules.dataloader import between_fetches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobrules.rules.dataloader import Dataloader

#: More columns than a figure has pixels show nothing more.
MAX_COLUMNS = 600
#: With more nodes their loaders are added up.
MAX_LINES = 4
MAX_NODES = 64
MAX_SETUPS = 25
#: Ranks whose fetches are counted apart.
MAX_RANKS = 4
#: Where the p95 is farther from the median, plain bins would put most fetches into the first of them.
LOG_FROM = 20
#: Plain bins end so many times the distance from p25 to p95 above the p95.
_REACH = 1.0
#: A power of ten is parted into so many bins, into fewer where the times span many.
_PER_DECADE, MAX_LOG_BINS = 10, 60
#: Plain bins are at most these, but for the two that rounding may add at the ends.
_PLAIN_BINS = 50

TOO_FEW, ADEQUATE, TOO_MANY = "too few", "adequate", "too many"


class NodeLoading(Struct, frozen=True, kw_only=True):
    """The active loader processes of a node against its cores, as Dataloader compares them."""

    name: NodeName
    #: Whether these are threads of TensorFlow's data pipeline, and not loading processes.
    pipeline: bool
    #: Whether that pipeline fetched ahead; None for loading processes.
    prefetch: bool | None
    #: Cores sampled; 0 without CPU samples.
    cores: int
    gpus: int
    #: Seconds with a known number of loaders; median (rounded down), mean, lowest, highest of it.
    seconds: int
    loaders: int | None
    mean: float | None
    lowest: int | None
    highest: int | None
    #: ``too few``, ``adequate`` or ``too many`` at the end of the job; empty if not evaluated.
    answer: OwnText
    #: Why not.
    reason: OwnText
    #: ``loaders`` in percent of the cores, one digit; None where one of them is not known.
    of_cores_percent: float | None
    #: Checks, one per minute, and those that violate.
    evaluated: int
    violating: int


class LoaderSetup(Struct, frozen=True, kw_only=True):
    """Data loaders of one node with the same settings."""

    node: NodeName
    #: Class of the iterator.
    iterator: IteratorName
    #: Loading processes of each; 0 loads in the training process; None where not recorded.
    num_workers: int | None
    pin_memory: bool | None
    fetches: int


class Spread(Struct, frozen=True, kw_only=True):
    """Times of one kind, over all nodes, in seconds."""

    #: ``fetch``, ``distance`` (from the start of a fetch to the next of its process), ``worker``, ``set-up``.
    key: OwnText
    count: int
    p50_s: float
    p95_s: float
    max_s: float
    total_s: float
    #: How many took longer than twice the median.
    outliers: int


class RankFetches(Struct, frozen=True, kw_only=True):
    """The fetches of one rank, or of all others together: then both names are empty."""

    node: NodeName
    rank: RankName
    p50_s: float
    #: In the bins of all, and at or above the last edge.
    counts: tuple[int, ...]
    beyond: int


class FetchTimes(Struct, frozen=True, kw_only=True):
    """Histogram of the fetch times of all nodes."""

    #: Whether the bins grow by a factor instead of a width.
    log: bool
    #: n + 1 edges in seconds; the first of bins that grow also holds what is faster.
    edges_s: tuple[float, ...]
    #: Width of a bin in seconds, or the factor of bins that grow.
    step: float
    counts: tuple[int, ...]
    #: Fetches at or above the last edge.
    beyond: int
    p25_s: float
    p50_s: float
    p95_s: float
    max_s: float
    #: Slowest first; empty if no rank differs: the middle halves of any two overlap.
    ranks: tuple[RankFetches, ...] = ()


class LoadersAtWork(Struct, frozen=True, kw_only=True):
    """Active loader processes over time; one entry per column, None if no loading was recorded in it."""

    #: Empty where it is the sum of all nodes.
    node: NodeName
    #: Cores of the node, or of all; 0 without CPU samples.
    cores: int
    mean: tuple[float | None, ...]
    low: tuple[int | None, ...]
    high: tuple[int | None, ...]


class StepTime(Struct, frozen=True, kw_only=True):
    """The steps that batches are fetched for: of the mode that took most time."""

    mode: EventName
    count: int
    #: Their median, in seconds.
    p50_s: float


class DataLoading(Struct, frozen=True, kw_only=True):
    """What was recorded of data loading."""

    #: Loaders in percent of the cores that Dataloader asks for.
    min_percent: float
    max_percent: float
    #: Of natural order, and how many are left out.
    nodes: tuple[NodeLoading, ...]
    nodes_left_out: int
    #: By node, those with most fetches first, and how many are left out.
    setups: tuple[LoaderSetup, ...]
    setups_left_out: int
    times: tuple[Spread, ...]
    #: None without a fetch.
    fetches: FetchTimes | None
    #: From the first to the last second with loaders at work; None without.
    columns: Columns | None
    #: Of every node for up to four, else of all together.
    at_work: tuple[LoadersAtWork, ...]
    #: None without steps, and where None of the fetches are of loading processes.
    step: StepTime | None = None


def data_loading(job: Job, rule: Dataloader, result: RuleResult | None = None) -> DataLoading | None:
    """The job's data loading; None where nothing of it was recorded.

    ``result`` is what ``rule`` said of the job; without one, or where the rule failed, no node is judged.
    """
    answers = {one.name: one for one in result.devices} if result else {}
    not_run = Reason(kind=ReasonKind.OTHER, what=f"{rule.name} was not run")
    why_none = (result.reason if result else None) or not_run
    found = [one for one in job.each(_of_node, rule, answers, why_none) if one]
    if not found:
        return None
    setups = [setup for one in found for setup in one.setups]
    grid, at_work = _at_work(
        {one.loading.name: (one.busy, one.loading.cores) for one in found if one.loading.seconds}
    )
    fetched = Counted.joined([one.times["fetch"] for one in found])
    return DataLoading(
        min_percent=rule.min_threshold,
        max_percent=rule.max_threshold,
        nodes=tuple(one.loading for one in found[:MAX_NODES]),
        nodes_left_out=max(0, len(found) - MAX_NODES),
        setups=tuple(setups[:MAX_SETUPS]),
        setups_left_out=max(0, len(setups) - MAX_SETUPS),
        times=_times([one.times for one in found], fetched),
        fetches=_histogram(fetched, {who: times for one in found for who, times in one.ranks.items()}),
        columns=grid,
        at_work=at_work,
        step=_main_step([one.steps for one in found]),
    )


class _Node(Struct, frozen=True, kw_only=True, eq=False):
    loading: NodeLoading
    setups: list[LoaderSetup]
    busy: Busy
    #: By the keys of ``Spread``; of TensorFlow's pipeline only its fetches, as Dataloader counts them.
    times: dict[str, Counted]
    #: Fetches by (node, rank); none of a pipeline.
    ranks: dict[tuple[str, str], Counted]
    #: Durations of the steps that fetches of loading processes are for, by mode; those of a
    #: pipeline may run at the same time as the training.
    steps: dict[str, Counted]


def _of_node(
    part: Job, rule: Dataloader, answers: Mapping[str, DeviceStatus], why_none: Reason
) -> _Node | None:
    """None where nothing of data loading was recorded."""
    (node,) = part.nodes
    loading = Loading.of(part.events, node)
    if loading is None:
        return None
    times = {"fetch": loading.fetches.duration_us}
    steps: dict[str, IntArray] = {}
    if not loading.pipeline:
        times["distance"] = between_fetches(loading.fetches)
        times["worker"] = loading.workers.duration_us
        times["set-up"] = loading.set_up.duration_us
        if len(loading.fetches):
            compared = part.steps.comparable
            steps = {mode: compared.duration_us[rows] for mode, rows in rows_by_mode(compared).items()}
    return _Node(
        loading=_node_loading(
            part, node, loading, rule, answers.get(node) or DeviceStatus.of(node, why_none, 0, 0)
        ),
        setups=[
            LoaderSetup(node=node, iterator=kind, num_workers=workers, pin_memory=pinned, fetches=fetches)
            for kind, workers, pinned, fetches in loading.settings
        ],
        busy=loading.busy,
        times={key: Counted.of(times_us) for key, times_us in times.items()},
        ranks={}
        if loading.pipeline
        else {
            who: Counted.of(loading.fetches.duration_us[rows])
            for who, rows in rows_by_lane(loading.fetches, lambda lane: (node, lane.rank)).items()
        },
        steps={mode: Counted.of(lasted_us) for mode, lasted_us in steps.items()},
    )


def _node_loading(
    part: Job, node: str, loading: Loading, rule: Dataloader, judged: DeviceStatus
) -> NodeLoading:
    cpu, gpus = part.panel(node, Metric.CPU_UTILIZATION), part.panel(node, Metric.GPU_UTILIZATION)
    cores = len(cpu.devices) if cpu else 0
    busy = loading.busy
    seconds = busy.seconds
    loaders = busy.median if seconds else None
    answer = ""
    if judged.evaluated and loaders is not None:
        low, high = (cores * limit / 100 for limit in (rule.min_threshold, rule.max_threshold))
        answer = TOO_FEW if loaders < low else TOO_MANY if loaders > high else ADEQUATE
    return NodeLoading(
        name=node,
        pipeline=loading.pipeline,
        prefetch=loading.prefetch if loading.pipeline else None,
        cores=cores,
        gpus=len(gpus.devices) if gpus else 0,
        seconds=seconds,
        loaders=loaders,
        mean=round(busy.mean, 2) if seconds else None,
        lowest=int(busy.loaders.min()) if seconds else None,
        highest=int(busy.loaders.max()) if seconds else None,
        answer=answer,
        reason=str(judged.reason or ""),
        of_cores_percent=round(100 * loaders / cores, 1) if cores and loaders is not None else None,
        evaluated=judged.evaluated,
        violating=judged.violating,
    )


def _main_step(nodes: Sequence[Mapping[str, Counted]]) -> StepTime | None:
    """The mode that took most time."""
    modes = {
        mode: Counted.joined([one[mode] for one in nodes if mode in one])
        for mode in natural_sorted({mode for one in nodes for mode in one})
    }
    if not modes:
        return None
    mode, most = max(modes.items(), key=lambda item: item[1].total)
    return StepTime(mode=mode, count=len(most), p50_s=most.quantiles(0.5)[0] / SECOND_US)


def _times(nodes: Sequence[Mapping[str, Counted]], fetched: Counted) -> tuple[Spread, ...]:
    """One row a kind of time."""
    others = {
        key: Counted.joined([one[key] for one in nodes if key in one])
        for key in ("distance", "worker", "set-up")
    }
    return tuple(_spread(key, times_us) for key, times_us in {"fetch": fetched, **others}.items() if times_us)


def _spread(key: str, times_us: Counted) -> Spread:
    p50, p95 = times_us.quantiles(0.5, 0.95)
    return Spread(
        key=key,
        count=len(times_us),
        p50_s=p50 / SECOND_US,
        p95_s=p95 / SECOND_US,
        max_s=int(times_us.values[-1]) / SECOND_US,
        total_s=times_us.total / SECOND_US,
        outliers=times_us.above(2 * p50),
    )


def _histogram(times_us: Counted, ranks: Mapping[tuple[str, str], Counted]) -> FetchTimes | None:
    """At most 60 common bins; what lies far above the p95 is counted beyond them."""
    if not times_us:
        return None
    p25, p50, p95 = times_us.quantiles(0.25, 0.5, 0.95)
    least, most = times_us.values[[0, -1]].tolist()
    log = p95 > LOG_FROM * p50
    edges = _log_edges(least, most) if log else _plain_edges(least, min(most, p95 + _REACH * (p95 - p25)))
    counts = _binned(times_us, edges)[:-1]
    # Empty bins at the end are left out, but for those up to the p95, which is marked.
    last = max(int(np.flatnonzero(counts)[-1]), int(np.searchsorted(edges, p95, side="right")) - 1)
    edges = edges[: last + 2]
    return FetchTimes(
        log=log,
        edges_s=tuple((edges / SECOND_US).tolist()),
        step=round(float(edges[1] / edges[0] if log else (edges[1] - edges[0]) / SECOND_US), 6),
        counts=tuple(counts[: len(edges) - 1].tolist()),
        beyond=int(_binned(times_us, edges)[-1]),
        p25_s=p25 / SECOND_US,
        p50_s=p50 / SECOND_US,
        p95_s=p95 / SECOND_US,
        max_s=most / SECOND_US,
        ranks=tuple(
            RankFetches(
                node=node,
                rank=rank,
                p50_s=own.quantiles(0.5)[0] / SECOND_US,
                counts=tuple(counts[:-1].tolist()),
                beyond=int(counts[-1]),
            )
            for (node, rank), own in _apart(ranks).items()
            for counts in [_binned(own, edges)]
        ),
    )


def _binned(times_us: Counted, edges: FloatArray) -> IntArray:
    """How many are in each bin, and beyond the last; the first also holds what is below its edge."""
    place = np.searchsorted(edges, np.maximum(times_us.values, edges[0]), side="right") - 1
    return np.bincount(place, weights=times_us.counts, minlength=len(edges)).astype(np.int64)


def _apart(ranks: Mapping[tuple[str, str], Counted]) -> dict[tuple[str, str], Counted]:
    """Up to four ranks; of more, the three farthest from the median rank, and the others as one. The slowest come first.

    Empty if the middle halves of the times of any two overlap.
    """
    quartiles = {who: times.quantiles(0.25, 0.5, 0.75) for who, times in ranks.items() if times}
    if not quartiles or max(low for low, _, _ in quartiles.values()) <= min(
        high for _, _, high in quartiles.values()
    ):
        return {}
    slowest = sorted(quartiles, key=lambda who: -quartiles[who][1])
    if len(slowest) <= MAX_RANKS:
        return {who: ranks[who] for who in slowest}
    middle = median([p50 for _, p50, _ in quartiles.values()])
    odd = sorted(slowest, key=lambda who: -abs(quartiles[who][1] - middle))[: MAX_RANKS - 1]
    others = Counted.joined([ranks[who] for who in slowest if who not in odd])
    kept = {who: ranks[who] for who in odd} | {("", ""): others}
    return dict(sorted(kept.items(), key=lambda one: -one[1].quantiles(0.5)[0]))


def _plain_edges(least: float, most: float) -> FloatArray:
    """Edges of 1, 2 or 5 times a power of ten microseconds, around ``[least, most]``."""
    wanted = max(1.0, (most - least) / _PLAIN_BINS)
    power = 10 ** math.floor(math.log10(wanted))
    width = next(step * power for step in (1, 2, 5, 10) if step * power >= wanted)
    return np.arange(math.floor(least / width), math.floor(most / width) + 2) * float(width)


def _log_edges(least: float, most: float) -> FloatArray:
    low, high = math.log10(max(1.0, least)), math.log10(most)
    per = next(n for n in (_PER_DECADE, 5, 2, 1) if (high - low) * n <= MAX_LOG_BINS - 2 or n == 1)
    return np.asarray(10 ** (np.arange(math.floor(low * per), math.floor(high * per) + 2) / per))


def _at_work(found: Mapping[str, tuple[Busy, int]]) -> tuple[Columns | None, tuple[LoadersAtWork, ...]]:
    if not found:
        return None, ()
    start_s = min(int(busy.start_s[0]) for busy, _ in found.values())
    stop_s = max(int(busy.stop_s[-1]) for busy, _ in found.values())
    start_us, stop_us = start_s * SECOND_US, stop_s * SECOND_US
    grid = Columns.of(start_us, stop_us - 1, (stop_us - start_us) / MAX_COLUMNS, finest_s=1)
    if len(found) > MAX_LINES:
        cores = [cores for _, cores in found.values()]
        found = {"": (Busy.joined([busy for busy, _ in found.values()]), sum(cores) if all(cores) else 0)}
    return grid, tuple(_reduced(node, busy, cores, grid) for node, (busy, cores) in found.items())


def _reduced(node: str, busy: Busy, cores: int, grid: Columns) -> LoadersAtWork:
    """Lowest, highest and mean over the seconds of each column in which loaders were at work."""
    column, lasted, loaders = busy.in_columns(grid.start_us // SECOND_US, grid.width_us // SECOND_US)
    at = np.flatnonzero(np.diff(column, prepend=-1))
    mean = np.add.reduceat(loaders * lasted, at) / np.add.reduceat(lasted, at)
    filled = column[at].tolist()

    def spread(values: IntArray | FloatArray) -> tuple[Any, ...]:
        cells: list[Any] = [None] * grid.count
        for i, value in zip(filled, values.tolist(), strict=True):
            cells[i] = value
        return tuple(cells)

    return LoadersAtWork(
        node=node,
        cores=cores,
        mean=spread(np.round(mean, 1)),
        low=spread(np.minimum.reduceat(loaders, at)),
        high=spread(np.maximum.reduceat(loaders, at)),
    )
