"""What the bottleneck rules share: a GPU idles in the same snapshot in which a core cannot go on."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobrules.measures.data_loading import ENOUGH_PERCENT, Loading
from jobrules.measures.framework_time import breakdown_of, summed, weights_within
from jobrules.measures.intervals import union
from jobrules.measures.minutes import Seen, Windows
from jobrules.measures.sample_weights import pauses
from jobrules.model import SECOND_US, DeviceStatus, Measure, Metric, Panel, RuleResult, Status
from jobrules.rule import in_samples, reason_few_samples, severity_of
from jobrules.text import between, count, escape_name, join_names, number, share
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.measures.framework_time import Sums
    from jobrules.measures.intervals import Intervals
    from jobrules.model import BoolArray, Finding, FloatArray, IntArray, Job
    from jobrules.rule import Amount, Rule

#: Share of snapshots without a core sample that is told.
WORTH_TELLING = 0.01
#: Most of the cores, in most of the bottlenecks: then the machine is at its limit, and not one thread.
NEARLY = 0.8
#: Up to this part of the cores at once, the work of single threads holds the GPU up.
FEW = 0.25
#: Training waits for batches where it did so for more of the time than this.
WAITED = 0.5
#: Runs and cores that are listed.
MOST_RUNS, MOST_CORES = 10, 16


class BottleneckCriteria(Struct, frozen=True, kw_only=True):
    """What makes a snapshot a bottleneck, and how many of them are too many; limits in percent."""

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
    #: What a core did that counts, in the past tense, and what several did: "was full", "were full".
    core_did: str
    cores_did: str
    #: Advice where nearly all cores count at once (``{cores}`` says which), and where few do.
    many_advice: str
    few_advice: str

    def snapshots(self, part: Job) -> Snapshots | None:
        """The snapshots of a node; none where it lacks samples of GPU or cores."""
        (name,) = part.nodes
        gpu, cores = part.panel(name, Metric.GPU_UTILIZATION), part.panel(name, self.metric)
        if gpu is None or cores is None:
            return None
        return Snapshots.of(gpu, cores, self)

    def answer(self, rule: Rule, job: Job) -> RuleResult:
        """Judge a job; counts are of GPU snapshots, on all nodes that have samples of both kinds."""
        grid = Windows.of(job)
        found = job.gathered(self._node, grid)
        nodes = [node for node, _ in found]
        scans = _Checks.of(nodes, [seen for _, seen in found], self.threshold, grid)
        known = {
            node.name: node.status(*seen)
            for node, *seen in zip(nodes, scans.checks, scans.violations, strict=True)
        }
        devices = tuple(
            known.get(one.node)
            or _lacks(one.node, self.metric if Metric.GPU_UTILIZATION in sampled else Metric.GPU_UTILIZATION)
            for one in job.facts
            if (sampled := {panel.metric for panel in one.panels} & {Metric.GPU_UTILIZATION, self.metric})
        )
        if not nodes:
            both = f"no node has both GPU and {self.metric.label} samples"
            return rule.not_evaluated(both, devices=devices)
        judged = [node for node in nodes if node.judged]
        facts: dict[str, Any] = {
            "violations": sum(len(node.hit_us) for node in nodes),
            "datapoints": sum(node.seen for node in nodes),
            "datapoints_per_series": {node.name: node.seen for node in nodes},
            "counted": "one-minute scans",
            "devices": devices,
            "evaluated": len(scans.percent),
            "violating": scans.triggered,
            "details": _details(nodes, job),
        }
        if not judged:
            most = max(nodes, key=lambda node: node.seen)
            return rule.not_evaluated(most.reason, **facts)
        hits = [node.hit_us for node in judged if len(node.hit_us)]
        if hits:
            facts["first_us"] = min(int(times[0]) for times in hits)
            facts["last_us"] = max(int(times[-1]) for times in hits)
        part = sum(len(node.hit_us) for node in judged) / sum(node.seen for node in judged)
        facts["measure"] = Measure(
            value=round(100 * part, 1),
            limits=(self.threshold,),
            scale=100.0,
            unit="% of GPU snapshots",
            limit_text=f"limit {self.threshold:g}% at any minute; shown: at the end",
        )
        asides = [_unsampled(judged, self.metric), _not_judged(devices)]
        if not scans.triggered:
            limit = f"{share(part)} of GPU snapshots, limit {self.threshold:g}%"
            headline = f"A GPU idled while a CPU core {self.core_did} in {limit}"
            return rule.passed("; ".join(filter(None, (headline, *asides))), **facts)
        told = [node for node, over in zip(nodes, scans.violations, strict=True) if over]
        beside = job.each(self._beside, frozenset(node.name for node in told))
        if job.event_count:
            facts["details"] |= breakdown_of([one.events for one in beside])
        finding = self._finding(rule, told, scans, part, asides, dict(zip(job.nodes, beside, strict=True)))
        return rule.triggered(finding, triggered=scans.triggered, **facts)

    def _node(self, part: Job, grid: Windows) -> list[tuple[NodeSnapshots, Seen]]:
        """What a node's snapshots come to, and how many there were by each window; nothing where it lacks any."""
        found = self.snapshots(part)
        return [(found.node, grid.seen(found.time_us))] if found else []

    def _beside(self, part: Job, told: frozenset[str]) -> _Beside:
        """What the processes of a node did during its bottlenecks, and of one to be told how they loaded."""
        found, (name,) = self.snapshots(part), part.nodes
        moments = {name: found.node.moments} if found else {}
        events = summed(part.events, weights_within(part.events, moments))
        if found is None or name not in told:
            return _Beside(events=events)
        loading = Loading.of(part.events, name)
        return _Beside(
            events=events,
            loaders=_loaders(loading) if loading else None,
            lasted_us=moments[name].total_us,
            fetched_us=tuple(_fetching(loading, moments[name])) if loading else (),
        )

    def _finding(
        self,
        rule: Rule,
        told: Sequence[NodeSnapshots],
        scans: _Checks,
        part: float,
        asides: Sequence[str],
        beside: dict[str, _Beside],
    ) -> Finding:
        start_us = min(int(node.hit_us[0]) for node in told)
        end_us = max(int(node.hit_us[-1]) + node.interval_us for node in told)
        most = max(told, key=lambda node: len(node.hit_us))
        lasted_us = sum(beside[node.name].lasted_us for node in told)
        fetched_us = sum(us for node in told for us in beside[node.name].fetched_us)
        fetching = fetched_us / lasted_us if lasted_us else 0.0
        clauses = [
            f"{join_names([node.name for node in told])}, {between(start_us, end_us)}",
            "" if part * 100 > self.threshold else scans.told(self.threshold),
            *asides,
        ]
        waited = f", while training waited for a batch ({share(fetching)} of that time)"
        cores = most.cores_told(self.core_did, self.cores_did)
        where = f"On {escape_name(most.name)} {cores}" if len(told) > 1 else cores[0].upper() + cores[1:]
        return rule.finding(
            f"In {share(part)} of the snapshots a GPU idled while a CPU core {self.core_did}",
            f"{'; '.join(filter(None, clauses))}. {where}{waited if fetching > WAITED else ''}, "
            "inferred from simultaneous samples.",
            advice=self._advice(rule, told, {node.name: beside[node.name].loaders for node in told}),
            severity=severity_of(part),
            devices=tuple(f"{node.name}/{gpu}" for node in told for gpu in node.gpu_names),
            share=part,
            share_of="of snapshots",
            start_us=start_us,
            end_us=end_us,
        )

    def _advice(self, rule: Rule, told: Sequence[NodeSnapshots], loaders: dict[str, int | None]) -> str:
        """What fits the cores that count, and the loading processes that were recorded."""
        if any(node.core_count < 2 for node in told):
            return rule.documentation().advice
        enough = all(
            loaders[node.name] is None or 100 * (loaders[node.name] or 0) >= ENOUGH_PERCENT * node.core_count
            for node in told
        )
        if enough and all(node.crowd >= NEARLY * node.core_count for node in told):
            most = max(told, key=lambda node: len(node.hit_us))
            return self.many_advice.format(cores=_of_all(most.crowd, most.core_count))
        if all(node.at_once <= max(1, FEW * node.core_count) for node in told) and all(
            (n or 0) < 2 for n in loaders.values()
        ):
            return self.few_advice
        return rule.documentation().advice


class _Beside(Struct, frozen=True, kw_only=True):
    """What the processes of a node did during its bottlenecks."""

    events: Sums
    #: Median of the loading processes at work, over the seconds with any; none where none was recorded.
    loaders: int | None = None
    #: The time of the bottlenecks; and of each process's fetches in it, the processes' share.
    lasted_us: int = 0
    fetched_us: tuple[float, ...] = ()


def _loaders(loading: Loading) -> int | None:
    busy = loading.busy
    if not len(busy.loaders):
        return None
    order = np.argsort(busy.loaders, kind="stable")
    lasted = np.cumsum((busy.stop_s - busy.start_s)[order])
    return int(busy.loaders[order][np.searchsorted(lasted, lasted[-1] / 2)])


def _fetching(loading: Loading, moments: Intervals) -> Iterator[float]:
    """How long each training process fetched, over how many there are."""
    events = loading.fetches
    processes = np.unique([lane.rank for lane in events.lanes], return_inverse=True)[1][events.lane]
    present = np.unique(processes).tolist()
    for one in present:
        own = union(events.start_us[processes == one], events.end_us[processes == one])
        yield float(own.overlap_us(moments.start_us, moments.end_us).sum()) / len(present)


def _of_all(n: int, cores: int) -> str:
    """``all 8 cores``, ``7 of 8 cores``."""
    return f"{f'{number(n)} of' if n < cores else 'all'} {count(cores, 'core')}"


class NodeSnapshots(Struct, frozen=True, kw_only=True, eq=False):
    """What the GPU snapshots of one node come to."""

    name: str
    interval_us: int
    patience: int
    gpu_names: tuple[str, ...]
    #: Snapshots; those in which a GPU counted; and those without a sample of any core.
    seen: int
    low: int
    unsampled: int
    #: (bottlenecks,) when, and GPUs and cores that count.
    hit_us: IntArray
    gpus: IntArray
    cores: IntArray
    #: The longest runs of bottlenecks, longest first; a pause of the sampler ends a run.
    runs: list[dict[str, Any]]
    #: What was sampled of the cores.
    core_label: str
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

    def cores_told(self, one_did: str, several_did: str) -> str:
        """Which cores counted in how many of the bottlenecks: those of nearly all, else the first one."""
        (name, often), *_ = self.busiest.items()
        n, part = (self.crowd, self.crowd_share) if self.crowd > 1 else (1, often)
        who = (
            f"{_of_all(n, self.core_count)} {several_did}" if n > 1 else f"core {escape_name(name)} {one_did}"
        )
        return f"{who} in {'every bottleneck' if part == 1 else f'{share(part)} of the bottlenecks'}"

    @property
    def judged(self) -> bool:
        """Whether it is past its patience, and most snapshots hold samples of GPU and cores."""
        return self.seen > self.patience and 2 * self.unsampled <= self.seen

    @property
    def reason(self) -> str:
        """Why it is not judged; empty if it is."""
        if self.judged:
            return ""
        if self.seen <= self.patience:
            return reason_few_samples(self.seen, self.patience)
        sampled = self.seen - self.unsampled
        return f"only {number(sampled)} of {count(self.seen, 'GPU snapshot')} hold {self.core_label} samples"

    def status(self, looks: int, hits: int) -> DeviceStatus:
        """What became of the node, given the scans in which it was looked at and was over the limit."""
        return DeviceStatus.of(self.name, self.reason, looks, hits)


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
        most = np.argsort(-often, kind="stable")[:MOST_CORES].tolist()
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
            core_label=cores.metric.label,
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
    chosen = np.argsort(time_us[first] - time_us[last], kind="stable")[:MOST_RUNS]
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
    """The share of bottlenecks so far, looked at once a minute."""

    #: (scans,) those with a new GPU snapshot of a node past its patience; percent of these nodes' snapshots.
    percent: FloatArray
    #: How many of them are above the limit.
    triggered: int
    #: Of each node: its scans, and those of the pool above the limit in which its own share is so too.
    checks: tuple[int, ...]
    violations: tuple[int, ...]

    @classmethod
    def of(
        cls, nodes: Sequence[NodeSnapshots], by_window: Sequence[Seen], threshold: float, grid: Windows
    ) -> _Checks:
        if not nodes:
            return cls(percent=np.empty(0), triggered=0, checks=(), violations=())
        looks = [
            seen.judged(node.patience) for node, seen in zip(nodes, by_window, strict=True) if node.judged
        ]
        at = np.unique(np.concatenate(looks)) if looks else np.empty(0, np.int64)
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

    def told(self, threshold: float) -> str:
        """How often the limit was passed, for a share that has fallen below it since."""
        looks = f"{number(self.triggered)} of {number(len(self.percent))} looks"
        return f"above {threshold:g}% so far in {looks}, at most {in_percent(self.percent.max())}"


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
    """The vendor's table: seconds as text → how many GPUs and cores; our addition is the node."""
    found: dict[str, dict[str, Any]] = {}
    for node in nodes:
        keys = list(map(repr, (node.hit_us / SECOND_US).tolist()))
        if taken := found.keys() & keys:
            keys = [f"{key}#{node.name}" if key in taken else key for key in keys]
        pairs = list(zip(node.gpus.tolist(), node.cores.tolist(), strict=True))
        # A day has 172 800 snapshots, but few different rows: equal ones are one object.
        row = {(gpus, cores): {"GPUs": gpus, "CPUs": cores, "node": node.name} for gpus, cores in set(pairs)}
        found.update(zip(keys, (row[pair] for pair in pairs), strict=True))
    return found


def _longest(nodes: Sequence[NodeSnapshots]) -> list[dict[str, Any]]:
    """The longest runs of all nodes, longest first; of equal ones the first node's."""
    runs = [run for node in nodes for run in node.runs]
    return sorted(runs, key=lambda run: run["start_us"] - run["end_us"])[:MOST_RUNS]


def _lacks(node: str, metric: Metric) -> DeviceStatus:
    return DeviceStatus(name=node, status=Status.NOT_EVALUATED, reason=f"{metric.label} was not sampled")


def _not_judged(devices: Sequence[DeviceStatus]) -> str:
    missing = [one.name for one in devices if one.status is Status.NOT_EVALUATED]
    return f"{count(len(missing), 'node')} not judged: {join_names(missing)}" if missing else ""


def _unsampled(nodes: Sequence[NodeSnapshots], metric: Metric) -> str:
    """How many snapshots lacked a core sample, where that could matter; the first one of a job often does."""
    missing, whole = (sum(n) for n in zip(*((node.unsampled, node.seen) for node in nodes), strict=True))
    told = f"{count(missing, 'snapshot')} had no {metric.label} sample"
    return told if missing >= WORTH_TELLING * whole else ""
