"""Snapshots in which a GPU is idle while a core of its node is saturated or waits for I/O."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobrules.measures.data_loading import ENOUGH_PERCENT, Loading
from jobrules.measures.framework_time import breakdown_of, summed, weights_by_lane
from jobrules.measures.intervals import time_of, union
from jobrules.measures.minutes import Seen, Windows
from jobrules.measures.rows import rows_by_lane
from jobrules.measures.sample_weights import pauses
from jobrules.model import (
    SECOND_US,
    DeviceStatus,
    Inferred,
    Measure,
    Metric,
    Note,
    Panel,
    Reason,
    ReasonKind,
    RuleResult,
    Status,
    When,
    Where,
)
from jobrules.rule import in_samples, not_recorded, reason_few_samples, severity_of
from jobrules.text import capitalized, count, escape_name, join_names, number, share, some_of
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.measures.framework_time import Sums
    from jobrules.measures.intervals import Intervals
    from jobrules.model import BoolArray, Finding, FloatArray, IntArray, Job
    from jobrules.rule import Amount, Rule

#: Smallest share of snapshots without a core sample that a result names.
WORTH_NAMING = 0.01
#: Most of the cores, in most of the bottlenecks: the machine is saturated, not one thread.
NEARLY = 0.8
#: Up to this part of the cores at once, the GPU waits for the work of single threads.
FEW = 0.25
#: Training waits for batches if it did so for more of the time than this.
WAITED = 0.5
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
    #: What a core did that counts, in the past tense, and what several did: "was saturated", "were saturated".
    core_did: str
    cores_did: str
    #: Advice if nearly all cores count at once (``{cores}`` names them), and if few do.
    many_advice: tuple[str, ...]
    few_advice: tuple[str, ...]

    def snapshots(self, part: Job) -> Snapshots | None:
        """The snapshots of a node; None if it lacks samples of GPU or cores."""
        (name,) = part.nodes
        gpu, cores = part.panel(name, Metric.GPU_UTILIZATION), part.panel(name, self.metric)
        if gpu is None or cores is None:
            return None
        return Snapshots.of(gpu, cores, self)

    def result(self, rule: Rule, job: Job) -> RuleResult:
        """Result of ``rule``; counts are of GPU snapshots, on all nodes that have samples of both kinds."""
        grid = Windows.of(job)
        found = job.gathered(self._node, grid)
        nodes = [node for node, _ in found]
        checks = _Checks.of(nodes, [seen for _, seen in found], self.threshold, grid)
        known = {
            node.name: node.status(*seen)
            for node, *seen in zip(nodes, checks.checks, checks.violations, strict=True)
        }
        devices = tuple(
            known.get(one.node)
            or _without(
                one.node, self.metric if Metric.GPU_UTILIZATION in sampled else Metric.GPU_UTILIZATION
            )
            for one in job.facts
            if (sampled := {panel.metric for panel in one.panels} & {Metric.GPU_UTILIZATION, self.metric})
        )
        if not nodes:
            what = f"node recorded both GPU and {self.metric.label}"
            return rule.not_evaluated(Reason(kind=ReasonKind.NO_DEVICE, what=what), devices=devices)
        judged = [node for node in nodes if node.judged]
        facts: dict[str, Any] = {
            "violations": sum(len(node.hit_us) for node in nodes),
            "datapoints": sum(node.seen for node in nodes),
            "datapoints_per_series": {node.name: node.seen for node in nodes},
            "counted": "checks",
            "devices": devices,
            "evaluated": len(checks.percent),
            "violating": checks.triggered,
            "details": _details(nodes, job),
        }
        if not judged:
            most = max(nodes, key=lambda node: node.seen)
            return rule.not_evaluated(most.missing, **facts)
        hits = [node.hit_us for node in judged if len(node.hit_us)]
        if hits:
            facts["first_us"] = min(int(times[0]) for times in hits)
            facts["last_us"] = max(int(times[-1]) for times in hits)
        part = sum(len(node.hit_us) for node in judged) / sum(node.seen for node in judged)
        facts["measure"] = Measure(
            value=round(100 * part, 1),
            limits=(self.threshold,),
            scale=100.0,
            unit="% of snapshots",
            limit_text=f"threshold {self.threshold:g}%",
        )
        headline = f"A GPU was idle while a CPU core {self.core_did} in {share(part)} of snapshots"
        limits = [*_without_cores(judged, self.metric), *_left_out(devices)]
        if not checks.triggered:
            passed = f"{headline} (threshold {self.threshold:g}%)"
            return rule.passed("; ".join([passed, *limits]), **facts)
        named = [node for node, over in zip(nodes, checks.violations, strict=True) if over]
        activity = job.each(self._activity, frozenset(node.name for node in named))
        if job.event_count:
            facts["details"] |= breakdown_of([one.events for one in activity])
        by_node = dict(zip(job.nodes, activity, strict=True))
        finding = self._finding(rule, headline, named, checks, part, limits, by_node)
        return rule.triggered(finding, triggered=checks.triggered, **facts)

    def _node(self, part: Job, grid: Windows) -> list[tuple[NodeSnapshots, Seen]]:
        """A node's snapshots, and how many there were by each window; empty if it lacks any."""
        found = self.snapshots(part)
        return [(found.node, grid.seen(found.time_us))] if found else []

    def _activity(self, part: Job, named: frozenset[str]) -> _Activity:
        """Events during the bottlenecks of a node, and if it is one of ``named`` its data loading."""
        found, (name,) = self.snapshots(part), part.nodes
        moments = found.node.moments if found else None
        events = summed(part.events, weights_by_lane(part.events, lambda _: moments))
        if moments is None or name not in named:
            return _Activity(events=events)
        loading = Loading.of(part.events, name)
        return _Activity(
            events=events,
            loaders=loading.busy.median if loading and loading.busy.seconds else None,
            lasted_us=moments.total_us,
            fetched_us=tuple(_fetching(loading, moments)) if loading else (),
        )

    def _finding(
        self,
        rule: Rule,
        title: str,
        named: Sequence[NodeSnapshots],
        checks: _Checks,
        part: float,
        limits: Sequence[str],
        activity: dict[str, _Activity],
    ) -> Finding:
        start_us = min(int(node.hit_us[0]) for node in named)
        end_us = max(int(node.hit_us[-1]) + node.interval_us for node in named)
        most = max(named, key=lambda node: len(node.hit_us))
        lasted_us = sum(activity[node.name].lasted_us for node in named)
        fetched_us = sum(us for node in named for us in activity[node.name].fetched_us)
        fetching = fetched_us / lasted_us if lasted_us else 0.0
        cores = most.core_use(self.core_did, self.cores_did)
        notes = [f"On {escape_name(most.name)} {cores}" if len(named) > 1 else capitalized(cores)]
        if fetching > WAITED:
            notes.append(f"Training waited for a batch in {share(fetching)} of that time")
        if 100 * part <= self.threshold:
            notes.append(checks.history(self.threshold, part))
        return rule.finding(
            title,
            Where(tuple(node.name for node in named)),
            When(start_us, end_us),
            *(Note(capitalized(text)) for text in (*notes, *limits)),
            Inferred("simultaneous samples"),
            advice=self._advice(rule, named, {node.name: activity[node.name].loaders for node in named}),
            severity=severity_of(part),
            devices=tuple(f"{node.name}/{gpu}" for node in named for gpu in node.gpu_names),
            share=part,
            share_of="of snapshots",
            start_us=start_us,
            end_us=end_us,
        )

    def _advice(
        self, rule: Rule, named: Sequence[NodeSnapshots], loaders: dict[str, int | None]
    ) -> tuple[str, ...]:
        """Advice for the number of cores that count and of the loader processes that were recorded."""
        if any(node.core_count < 2 for node in named):
            return rule.documentation().advice
        enough = all(
            loaders[node.name] is None or 100 * (loaders[node.name] or 0) >= ENOUGH_PERCENT * node.core_count
            for node in named
        )
        if enough and all(node.crowd >= NEARLY * node.core_count for node in named):
            most = max(named, key=lambda node: len(node.hit_us))
            cores = some_of(most.crowd, most.core_count, "core")
            return tuple(sentence.format(cores=cores) for sentence in self.many_advice)
        if all(node.at_once <= max(1, FEW * node.core_count) for node in named) and all(
            (n or 0) < 2 for n in loaders.values()
        ):
            return self.few_advice
        return rule.documentation().advice


class _Activity(Struct, frozen=True, kw_only=True):
    """What the processes of a node did during its bottlenecks."""

    events: Sums
    #: Median number of active loader processes, over the seconds with any; None if none was recorded.
    loaders: int | None = None
    #: Duration of the bottlenecks, and per training process the time of its fetches in them, divided by their number.
    lasted_us: int = 0
    fetched_us: tuple[float, ...] = ()


def _fetching(loading: Loading, moments: Intervals) -> Iterator[float]:
    """Per training process: the time of its fetches, divided by the number of processes."""
    events = loading.fetches
    by_rank = rows_by_lane(events, lambda lane: lane.rank)
    for rows in by_rank.values():
        yield time_of(events, rows).shared_us(moments) / len(by_rank)


class NodeSnapshots(Struct, frozen=True, kw_only=True, eq=False):
    """Bottlenecks of one node."""

    name: str
    interval_us: int
    patience: int
    gpu_names: tuple[str, ...]
    #: Snapshots; those in which a GPU counts; and those without a sample of any core.
    seen: int
    low: int
    unsampled: int
    #: (bottlenecks,) when, and GPUs and cores that count.
    hit_us: IntArray
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
    #: Cores that counted in nearly all bottlenecks, and the share in which the last of these did.
    crowd: int
    crowd_share: float

    @property
    def moments(self) -> Intervals:
        """The time of the bottlenecks."""
        return union(self.hit_us, self.hit_us + self.interval_us)

    @property
    def at_once(self) -> float:
        """Median of the cores that count in a bottleneck."""
        return float(np.median(self.cores))

    def core_use(self, one_did: str, several_did: str) -> str:
        """Which cores counted in how many of the bottlenecks: those of nearly all, otherwise the first one."""
        (name, often), *_ = self.busiest.items()
        n, part = (self.crowd, self.crowd_share) if self.crowd > 1 else (1, often)
        cores = some_of(n, self.core_count, "core")
        who = f"{cores} {several_did}" if n > 1 else f"core {escape_name(name)} {one_did}"
        return f"{who} in {'every bottleneck' if part == 1 else f'{share(part)} of the bottlenecks'}"

    @property
    def judged(self) -> bool:
        """True if it is past its patience, and most snapshots hold samples of GPU and cores."""
        return self.seen > self.patience and 2 * self.unsampled <= self.seen

    @property
    def reason(self) -> Reason | None:
        """Why it is not evaluated; None if it is."""
        return None if self.judged else self.missing

    @property
    def missing(self) -> Reason:
        """What a node that is not evaluated has too few of."""
        if self.seen <= self.patience:
            return reason_few_samples(self.seen, self.patience)
        snapshots = f"snapshots with both GPU and {self.core_metric.label}"
        return reason_few_samples(self.seen - self.unsampled, -(-self.seen // 2) - 1, snapshots)

    def status(self, checks: int, violations: int) -> DeviceStatus:
        """Result of the node, given its checks and those above the threshold."""
        return DeviceStatus.of(self.name, self.reason, checks, violations)


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
    def of(cls, gpu: Panel, cores: Panel, asked: BottleneckCriteria) -> Snapshots:
        """The snapshots of two panels of one node."""
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
        crowd = often[often >= NEARLY]
        low, full = gpus > 0, in_snapshot > 0
        hit = low & full
        node = NodeSnapshots(
            name=gpu.node,
            interval_us=gpu.interval_us,
            patience=in_samples(asked.patience, gpu.time_us),
            gpu_names=gpu.devices,
            seen=len(gpus),
            low=int(np.count_nonzero(low)),
            unsampled=len(gpus) - int(np.count_nonzero(sampled)),
            hit_us=gpu.time_us[hit],
            gpus=gpus[hit],
            cores=in_snapshot[hit],
            runs=_runs(gpu, hit, in_snapshot),
            core_metric=cores.metric,
            busiest={cores.devices[i]: float(often[i]) for i in most if often[i] > 0},
            core_count=len(cores.devices),
            core_hits=int(np.count_nonzero(often)),
            crowd=len(crowd),
            crowd_share=float(crowd.min(initial=1.0)),
        )
        return cls(node=node, time_us=gpu.time_us, low=low, full=full, sampled=sampled)


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


class _Checks(Struct, frozen=True, kw_only=True, eq=False):
    """The share of bottlenecks so far, once per minute."""

    #: (checks,) percent of the snapshots of nodes past their patience, in minutes with a new snapshot of them.
    percent: FloatArray
    #: How many of them are above the threshold.
    triggered: int
    #: Per node: its checks, and the checks above the threshold in which its own share is above, too.
    checks: tuple[int, ...]
    violations: tuple[int, ...]

    @classmethod
    def of(
        cls, nodes: Sequence[NodeSnapshots], by_window: Sequence[Seen], threshold: float, grid: Windows
    ) -> _Checks:
        if not nodes:
            return cls(percent=np.empty(0), triggered=0, checks=(), violations=())
        windows = [
            seen.judged(node.patience) for node, seen in zip(nodes, by_window, strict=True) if node.judged
        ]
        at = np.unique(np.concatenate(windows)) if windows else np.empty(0, np.int64)
        seen = np.stack([one.by(at) for one in by_window])
        hits = np.stack([grid.seen(node.hit_us).by(at) for node in nodes])
        patience = np.array([[node.patience] for node in nodes])
        judged = np.array([[node.judged] for node in nodes])
        past = judged & (seen > patience)
        percent = 100 * (hits * past).sum(axis=0) / (seen * past).sum(axis=0)
        above = percent > threshold
        own = 100 * hits / np.maximum(1, seen) > threshold
        return cls(
            percent=percent,
            triggered=int(np.count_nonzero(above)),
            checks=tuple(past.sum(axis=1).tolist()),
            violations=tuple((own & past & above).sum(axis=1).tolist()),
        )

    def history(self, threshold: float, part: float) -> str:
        """How often the share was above the threshold, if it has fallen below since."""
        checks = f"{number(self.triggered)} of {count(len(self.percent), 'check')}"
        return f"above {threshold:g}% in {checks}, at most {in_percent(self.percent.max())}; at the end {share(part)}"


def _details(nodes: Sequence[NodeSnapshots], job: Job) -> dict[str, Any]:
    details: dict[str, Any] = {
        "low_gpu_utilization": sum(node.low for node in nodes),
        "bottlenecks": _by_time(nodes),
        "per_node": {
            node.name: {
                "datapoints": node.seen,
                "low_gpu_utilization": node.low,
                "bottlenecks": len(node.hit_us),
                "share": len(node.hit_us) / node.seen,
                "without_core_samples": node.unsampled,
            }
            for node in nodes
        },
        "without_core_samples": sum(node.unsampled for node in nodes),
        "longest": _longest(nodes),
        "cores": {node.name: node.busiest for node in nodes},
    }
    loops = {node.name: job.loop_us(node.name) for node in nodes}
    if any(loops.values()):
        details["bottlenecks_in_training_loop"] = sum(
            int(np.diff(np.searchsorted(node.hit_us, loop))[0])
            for node in nodes
            if (loop := loops[node.name])
        )
    return details


def _by_time(nodes: Sequence[NodeSnapshots]) -> dict[str, dict[str, Any]]:
    """SageMaker Debugger's table: seconds as text → number of GPUs and cores; with the node added."""
    found: dict[str, dict[str, Any]] = {}
    for node in nodes:
        keys = list(map(repr, (node.hit_us / SECOND_US).tolist()))
        if taken := found.keys() & keys:
            keys = [f"{key}#{node.name}" if key in taken else key for key in keys]
        pairs = list(zip(node.gpus.tolist(), node.cores.tolist(), strict=True))
        # A day has 172,800 snapshots, but few different rows: equal ones are one object.
        row = {(gpus, cores): {"GPUs": gpus, "CPUs": cores, "node": node.name} for gpus, cores in set(pairs)}
        found.update(zip(keys, (row[pair] for pair in pairs), strict=True))
    return found


def _longest(nodes: Sequence[NodeSnapshots]) -> list[dict[str, Any]]:
    """The longest runs of all nodes, longest first; of equally long ones the first node's."""
    runs = [run for node in nodes for run in node.runs]
    return sorted(runs, key=lambda run: run["start_us"] - run["end_us"])[:MAX_RUNS]


def _without(node: str, metric: Metric) -> DeviceStatus:
    return DeviceStatus(name=node, status=Status.NOT_EVALUATED, reason=not_recorded(metric))


def _left_out(devices: Sequence[DeviceStatus]) -> list[str]:
    missing = [one.name for one in devices if one.status is Status.NOT_EVALUATED]
    return [f"{count(len(missing), 'node')} not evaluated: {join_names(missing)}"] if missing else []


def _without_cores(nodes: Sequence[NodeSnapshots], metric: Metric) -> list[str]:
    """How many snapshots lack a core sample, unless these are few: the first one of a job often does."""
    missing, whole = (sum(n) for n in zip(*((node.unsampled, node.seen) for node in nodes), strict=True))
    named = missing >= WORTH_NAMING * whole
    return [f"{count(missing, 'snapshot')} without {metric.quantity.noun}"] if named else []
