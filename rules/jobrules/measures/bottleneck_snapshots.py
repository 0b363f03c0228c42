"""Snapshots in which a GPU is idle while a core of its node is saturated or waits for I/O."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobrules.measures.intervals import union
from jobrules.measures.sample_weights import pauses
from jobrules.model import Metric, Panel, Reason
from jobrules.model.order import distinct
from jobrules.rule import in_samples, reason_few_samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.measures.intervals import Intervals
    from jobrules.measures.minutes import Seen, Windows
    from jobrules.model import BoolArray, FloatArray, IntArray, Job
    from jobrules.rule import Amount

#: Runs and cores that a result lists.
MAX_RUNS, MAX_CORES = 10, 16


class BottleneckCriteria(Struct, frozen=True, kw_only=True):
    """What makes a snapshot a bottleneck, and how many are too many; thresholds in percent."""

    #: ``cpu`` or ``io``.
    key: str
    #: What is sampled of each core, and the value above which a core counts.
    metric: Metric
    core_threshold: float
    #: A GPU counts below this.
    gpu_threshold: float
    #: Share of bottlenecks among the snapshots of the nodes past their patience.
    threshold: float
    patience: Amount

    def snapshots(self, part: Job) -> Snapshots | None:
        """The snapshots of a node; None if it lacks samples of GPU or cores."""
        (name,) = part.nodes
        gpu, cores = part.panel(name, Metric.GPU_UTILIZATION), part.panel(name, self.metric)
        if gpu is None or cores is None:
            return None
        return Snapshots.of(gpu, cores, self, part.panels)


class NodeSnapshots(Struct, frozen=True, kw_only=True, eq=False):
    """Bottlenecks of one node."""

    name: str
    interval_us: int
    patience: int
    #: Snapshots; those in which a GPU counts; and those without a sample of any core.
    seen: int
    low: int
    unsampled: int
    #: (bottlenecks,) first GPU sample, first sample of anything, and GPUs and cores that count.
    hit_us: IntArray
    begun_us: IntArray
    gpus: IntArray
    cores: IntArray
    #: The longest runs of bottlenecks, longest first; a sampling pause ends a run.
    runs: list[dict[str, Any]]
    #: What was sampled of the cores.
    core_metric: Metric
    #: Share of the bottlenecks in which a core counted, most first, those above 0.
    busiest: dict[str, float]
    #: Cores with a sample, and those that counted in any bottleneck.
    core_count: int
    core_hits: int

    @property
    def moments(self) -> Intervals:
        """The time of the bottlenecks."""
        return union(self.hit_us, self.hit_us + self.interval_us)

    @property
    def evaluated(self) -> bool:
        """True if it is past its patience, and most snapshots hold samples of GPU and cores."""
        return self.seen > self.patience and 2 * self.unsampled <= self.seen

    @property
    def reason(self) -> Reason | None:
        """Why it is not evaluated; None if it is."""
        return None if self.evaluated else self.missing

    @property
    def missing(self) -> Reason:
        """What a node that is not evaluated has too few of."""
        if self.seen <= self.patience:
            return reason_few_samples(self.seen, self.patience)
        snapshots = f"snapshots with both GPU and {self.core_metric.label}"
        return reason_few_samples(self.seen - self.unsampled, -(-self.seen // 2) - 1, snapshots)


class Snapshots(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The GPU snapshots of one node."""

    node: NodeSnapshots
    #: (n,) first GPU sample of each.
    time_us: IntArray
    #: (n,) whether a GPU counts, whether a core does, and whether any core was sampled.
    low: BoolArray
    full: BoolArray
    sampled: BoolArray

    @cached_property
    def hit(self) -> BoolArray:
        """(n,) which are bottlenecks."""
        return self.low & self.full

    @classmethod
    def of(cls, gpu: Panel, cores: Panel, asked: BottleneckCriteria, panels: Sequence[Panel]) -> Snapshots:
        """The snapshots of two panels of one node; ``panels`` are all of its panels."""
        # Comparisons with NaN, a device without a sample, are false.
        gpus = (gpu.values < asked.gpu_threshold).sum(axis=1)
        counts = cores.values > asked.core_threshold
        _, at, rows = np.intersect1d(gpu.snapshot, cores.snapshot, assume_unique=True, return_indices=True)
        in_snapshot = np.zeros(len(gpus), np.int64)
        in_snapshot[at] = counts.sum(axis=1)[rows]
        sampled = np.zeros(len(gpus), np.bool_)
        sampled[at] = True
        hits = counts[rows[(gpus[at] > 0) & (in_snapshot[at] > 0)]]
        often = hits.sum(axis=0) / max(1, len(hits))
        most = np.argsort(-often, kind="stable")[:MAX_CORES].tolist()
        low, full = gpus > 0, in_snapshot > 0
        hit = low & full
        node = NodeSnapshots(
            name=gpu.node,
            interval_us=gpu.interval_us,
            patience=in_samples(asked.patience, gpu.time_us),
            seen=len(gpus),
            low=int(np.count_nonzero(low)),
            unsampled=len(gpus) - int(np.count_nonzero(sampled)),
            hit_us=gpu.time_us[hit],
            begun_us=_begun_us(gpu.snapshot[hit], panels),
            gpus=gpus[hit],
            cores=in_snapshot[hit],
            runs=_runs(gpu, hit, in_snapshot),
            core_metric=cores.metric,
            busiest={cores.devices[i]: float(often[i]) for i in most if often[i] > 0},
            core_count=len(cores.devices),
            core_hits=int(np.count_nonzero(often)),
        )
        return cls(node=node, time_us=gpu.time_us, low=low, full=full, sampled=sampled)


def _begun_us(snapshots: IntArray, panels: Sequence[Panel]) -> IntArray:
    """(n,) time of the first sample of each snapshot, of any metric."""
    begun_us = np.full(len(snapshots), np.iinfo(np.int64).max)
    for panel in panels:
        rows = np.minimum(np.searchsorted(panel.snapshot, snapshots), len(panel.snapshot) - 1)
        there = panel.snapshot[rows] == snapshots
        begun_us[there] = np.minimum(begun_us[there], panel.time_us[rows[there]])
    return begun_us


def _runs(gpu: Panel, hit: BoolArray, cores: IntArray) -> list[dict[str, Any]]:
    time_us, interval_us = gpu.time_us, gpu.interval_us
    joined = hit[:-1] & hit[1:] & ~pauses(time_us)
    first = np.flatnonzero(hit & ~np.append(False, joined))
    last = np.flatnonzero(hit & ~np.append(joined, False))
    chosen = np.argsort(time_us[first] - time_us[last], kind="stable")[:MAX_RUNS]
    return [
        {
            "node": gpu.node,
            "start_us": int(time_us[a]),
            "end_us": int(time_us[b]) + interval_us,
            "snapshots": b - a + 1,
            "most_cores": int(cores[a : b + 1].max()),
        }
        for a, b in zip(first[chosen].tolist(), last[chosen].tolist(), strict=True)
    ]


class Checks(Struct, frozen=True, kw_only=True, eq=False):
    """The share of bottlenecks so far, once per minute."""

    #: (checks,) percent of the snapshots of nodes past their patience, in minutes with a new one.
    percent: FloatArray
    #: How many of them are above the threshold.
    triggered: int
    #: Per node: its checks, and the checks above the threshold in which its own share is above, too.
    checks: tuple[int, ...]
    violations: tuple[int, ...]

    @classmethod
    def of(
        cls, nodes: Sequence[NodeSnapshots], by_window: Sequence[Seen], threshold: float, grid: Windows
    ) -> Checks:
        """From the nodes of a job, and how many snapshots of each there were by each window."""
        if not nodes:
            return cls(percent=np.empty(0), triggered=0, checks=(), violations=())
        windows = [
            seen.judged(node.patience) for node, seen in zip(nodes, by_window, strict=True) if node.evaluated
        ]
        at = distinct(np.concatenate(windows)) if windows else np.empty(0, np.int64)
        seen = np.stack([one.by(at) for one in by_window])
        hits = np.stack([grid.seen(node.hit_us).by(at) for node in nodes])
        patience = np.array([[node.patience] for node in nodes])
        evaluated = np.array([[node.evaluated] for node in nodes])
        past = evaluated & (seen > patience)
        percent = 100 * (hits * past).sum(axis=0) / (seen * past).sum(axis=0)
        above = percent > threshold
        own = 100 * hits / np.maximum(1, seen) > threshold
        return cls(
            percent=percent,
            triggered=int(np.count_nonzero(above)),
            checks=tuple(past.sum(axis=1).tolist()),
            violations=tuple((own & past & above).sum(axis=1).tolist()),
        )
