"""What the bottleneck rules share: a GPU idles in the same snapshot in which a core cannot go on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from jobrules.coverage import pauses
from jobrules.framework import breakdown, weights_within
from jobrules.intervals import union
from jobrules.job import SECOND_US, Metric
from jobrules.loading import ENOUGH_PERCENT, Loading
from jobrules.result import DeviceStatus, Measure, RuleResult, Status
from jobrules.rule import in_samples, severity_of, too_few
from jobrules.windows import Windows
from jobrules.words import between, count, listed, number, share, shown
from jobrules.words import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.job import BoolArray, FloatArray, IntArray, Job, Panel
    from jobrules.result import Finding
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


@dataclass(frozen=True, kw_only=True)
class Question:
    """What makes a snapshot a bottleneck, and how many of them are too many; limits in percent."""

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

    def answer(self, rule: Rule, job: Job) -> RuleResult:
        """Judge a job; counts are of GPU snapshots, on all nodes that have samples of both kinds."""
        panels = [(job.panel(name, Metric.GPU_USE), job.panel(name, self.metric)) for name in job.nodes]
        nodes = [
            Node.of(
                gpu,
                cores,
                gpu_threshold=self.gpu_threshold,
                core_threshold=self.core_threshold,
                patience=self.patience,
            )
            for gpu, cores in panels
            if gpu and cores
        ]
        scans = _Scans.of(nodes, self.threshold, Windows.of(job))
        known = {
            node.name: node.status(*seen) for node, *seen in zip(nodes, scans.looks, scans.hits, strict=True)
        }
        devices = tuple(
            known[some.node] if gpu and cores else _lacks(some.node, Metric.GPU_USE if cores else self.metric)
            for gpu, cores in panels
            if (some := gpu or cores)
        )
        if not nodes:
            both = f"no node has both GPU and {self.metric.label} samples"
            return rule.not_evaluated(both, devices=devices)
        judged = [node for node in nodes if node.judged]
        facts: dict[str, Any] = {
            "violations": sum(len(node.hit_us) for node in nodes),
            "datapoints": sum(len(node.time_us) for node in nodes),
            "datapoints_per_series": {node.name: len(node.time_us) for node in nodes},
            "counted": "one-minute scans",
            "devices": devices,
            "evaluated": len(scans.percent),
            "violating": scans.triggered,
            "details": _details(nodes, job),
        }
        if not judged:
            most = max(nodes, key=lambda node: len(node.time_us))
            return rule.not_evaluated(most.reason, **facts)
        hits = [node.hit_us for node in judged if len(node.hit_us)]
        if hits:
            facts["first_us"] = min(int(times[0]) for times in hits)
            facts["last_us"] = max(int(times[-1]) for times in hits)
        part = sum(len(node.hit_us) for node in judged) / sum(len(node.time_us) for node in judged)
        facts["measure"] = Measure(
            value=round(100 * part, 1),
            limits=(self.threshold,),
            scale=100.0,
            unit="% of GPU snapshots",
            limit_text=f"limit {self.threshold:g}\u00a0% at any minute; shown: at the end",
        )
        asides = [_unsampled(judged, self.metric), _not_judged(devices)]
        if not scans.triggered:
            limit = f"{share(part)} of GPU snapshots, limit {self.threshold:g}\u00a0%"
            headline = f"A GPU idled while a CPU core {self.core_did} in {limit}"
            return rule.passed("; ".join(filter(None, (headline, *asides))), **facts)
        if len(job.events):
            moments = {node.name: union(node.hit_us, node.hit_us + node.interval_us) for node in nodes}
            facts["details"] |= breakdown(job.events, weights_within(job.events, moments))
        told = [node for node, over in zip(nodes, scans.hits, strict=True) if over]
        finding = self._finding(rule, job, told, scans, part, asides)
        return rule.triggered(finding, triggered=scans.triggered, **facts)

    def _finding(
        self, rule: Rule, job: Job, told: Sequence[Node], scans: _Scans, part: float, asides: Sequence[str]
    ) -> Finding:
        start_us = min(int(node.hit_us[0]) for node in told)
        end_us = max(int(node.hit_us[-1]) + node.interval_us for node in told)
        most = max(told, key=lambda node: len(node.hit_us))
        fetching = _fetching(job, told)
        clauses = [
            f"{listed([node.name for node in told])}, {between(start_us, end_us)}",
            "" if part * 100 > self.threshold else scans.told(self.threshold),
            *asides,
        ]
        waited = f", while training waited for a batch ({share(fetching)} of that time)"
        cores = most.cores_told(self.core_did, self.cores_did)
        where = f"On {shown(most.name)} {cores}" if len(told) > 1 else cores[0].upper() + cores[1:]
        return rule.finding(
            f"In {share(part)} of the snapshots a GPU idled while a CPU core {self.core_did}",
            f"{'; '.join(filter(None, clauses))}. {where}{waited if fetching > WAITED else ''}, "
            "inferred from simultaneous samples.",
            advice=self._advice(rule, job, told),
            severity=severity_of(part),
            devices=tuple(f"{node.name}/{gpu}" for node in told for gpu in node.gpu_names),
            share=part,
            share_of="of snapshots",
            start_us=start_us,
            end_us=end_us,
        )

    def _advice(self, rule: Rule, job: Job, told: Sequence[Node]) -> str:
        """What fits the cores that count, and the loading processes that were recorded."""
        loaders = {node.name: _loaders(job, node.name) for node in told}
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


def _loaders(job: Job, node: str) -> int | None:
    """Median of the loading processes at work, over the seconds with any; none where none was recorded."""
    loading = Loading.of(job.events, node)
    busy = loading.busy if loading else None
    if busy is None or not len(busy.loaders):
        return None
    order = np.argsort(busy.loaders, kind="stable")
    lasted = np.cumsum((busy.stop_s - busy.start_s)[order])
    return int(busy.loaders[order][np.searchsorted(lasted, lasted[-1] / 2)])


def _fetching(job: Job, told: Sequence[Node]) -> float:
    """Share of the bottlenecks' time in which training processes fetched, on average over them."""
    fetched = whole = 0.0
    for node in told:
        moments = union(node.hit_us, node.hit_us + node.interval_us)
        whole += moments.total_us
        loading = Loading.of(job.events, node.name)
        if loading is None:
            continue
        events = loading.fetches
        processes = np.unique([lane.worker for lane in events.lanes], return_inverse=True)[1][events.lane]
        present = np.unique(processes).tolist()
        for one in present:
            own = union(events.start_us[processes == one], events.end_us[processes == one])
            fetched += float(own.overlap_us(moments.start_us, moments.end_us).sum()) / len(present)
    return fetched / whole if whole else 0.0


def _of_all(n: int, cores: int) -> str:
    """``all 8 cores``, ``7 of 8 cores``."""
    return f"{f'{number(n)} of' if n < cores else 'all'} {count(cores, 'core')}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    """The GPU snapshots of one node."""

    name: str
    #: (n,) first GPU sample of each snapshot.
    time_us: IntArray
    interval_us: int
    patience: int
    gpu_names: tuple[str, ...]
    #: (n,) GPUs and cores that count; no core where no core was sampled.
    gpus: IntArray
    cores: IntArray
    #: (n,) whether any core was sampled.
    sampled: BoolArray
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

    @classmethod
    def of(
        cls, gpu: Panel, cores: Panel, *, gpu_threshold: float, core_threshold: float, patience: Amount
    ) -> Node:
        """The snapshots of two panels of one node, by the limits of a ``Question``."""
        # Comparisons with NaN, a device without a sample, are false.
        gpus = (gpu.values < gpu_threshold).sum(axis=1)
        counts = cores.values > core_threshold
        _, at, rows = np.intersect1d(gpu.snapshot, cores.snapshot, assume_unique=True, return_indices=True)
        in_snapshot = np.zeros(len(gpus), np.int64)
        in_snapshot[at] = counts.sum(axis=1)[rows]
        sampled = np.zeros(len(gpus), np.bool_)
        sampled[at] = True
        hits = counts[rows[(gpus[at] > 0) & (in_snapshot[at] > 0)]]
        often = hits.sum(axis=0) / max(1, len(hits))
        most = np.argsort(-often, kind="stable")[:MOST_CORES].tolist()
        crowd = often[often >= NEARLY]
        return cls(
            name=gpu.node,
            gpu_names=gpu.devices,
            core_label=cores.metric.label,
            time_us=gpu.time_us,
            interval_us=gpu.interval_us,
            patience=in_samples(patience, gpu.time_us),
            gpus=gpus,
            cores=in_snapshot,
            sampled=sampled,
            busiest={cores.devices[i]: float(often[i]) for i in most if often[i] > 0},
            core_count=len(cores.devices),
            core_hits=int(np.count_nonzero(often)),
            crowd=len(crowd),
            crowd_share=float(crowd.min(initial=1.0)),
        )

    @property
    def unsampled(self) -> int:
        """Snapshots without a sample of any core."""
        return len(self.sampled) - int(np.count_nonzero(self.sampled))

    @cached_property
    def hit(self) -> BoolArray:
        """(n,) which snapshots are bottlenecks."""
        return (self.gpus > 0) & (self.cores > 0)

    @cached_property
    def hit_us(self) -> IntArray:
        """Times of the bottlenecks."""
        return self.time_us[self.hit]

    @property
    def at_once(self) -> float:
        """Median of the cores that count in a bottleneck."""
        return float(np.median(self.cores[self.hit]))

    def cores_told(self, one_did: str, several_did: str) -> str:
        """Which cores counted in how many of the bottlenecks: those of nearly all, else the first one."""
        (name, often), *_ = self.busiest.items()
        n, part = (self.crowd, self.crowd_share) if self.crowd > 1 else (1, often)
        who = f"{_of_all(n, self.core_count)} {several_did}" if n > 1 else f"core {shown(name)} {one_did}"
        return f"{who} in {'every bottleneck' if part == 1 else f'{share(part)} of the bottlenecks'}"

    @property
    def low(self) -> int:
        """Snapshots in which a GPU counted."""
        return int(np.count_nonzero(self.gpus))

    @property
    def judged(self) -> bool:
        """Whether it is past its patience, and most snapshots hold samples of GPU and cores."""
        return len(self.time_us) > self.patience and 2 * self.unsampled <= len(self.time_us)

    @property
    def reason(self) -> str:
        """Why it is not judged; empty if it is."""
        seen = len(self.time_us)
        if self.judged:
            return ""
        if seen <= self.patience:
            return too_few(seen, self.patience)
        return f"only {number(seen - self.unsampled)} of {count(seen, 'GPU snapshot')} hold {self.core_label} samples"

    def status(self, looks: int, hits: int) -> DeviceStatus:
        """What became of the node, given the scans in which it was looked at and was over the limit."""
        return DeviceStatus.of(self.name, self.reason, looks, hits)

    def runs(self) -> list[dict[str, Any]]:
        """The longest runs of bottlenecks, longest first; a pause of the sampler ends a run."""
        hit = self.hit
        joined = hit[:-1] & hit[1:] & ~pauses(self.time_us)
        first = np.flatnonzero(hit & ~np.append(False, joined))
        last = np.flatnonzero(hit & ~np.append(joined, False))
        lasted = self.time_us[last] - self.time_us[first]
        chosen = np.argsort(-lasted, kind="stable")[:MOST_RUNS]
        return [
            {
                "node": self.name,
                "start_us": int(self.time_us[a]),
                "end_us": int(self.time_us[b]) + self.interval_us,
                "snapshots": b - a + 1,
                "most_cores": int(self.cores[a : b + 1].max()),
            }
            for a, b in zip(first[chosen].tolist(), last[chosen].tolist(), strict=True)
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scans:
    """The share of bottlenecks so far, looked at once a minute."""

    #: (scans,) those with a new GPU snapshot of a node past its patience; percent of these nodes' snapshots.
    percent: FloatArray
    #: How many of them are above the limit.
    triggered: int
    #: Of each node: its scans, and those of the pool above the limit in which its own share is so too.
    looks: tuple[int, ...]
    hits: tuple[int, ...]

    @classmethod
    def of(cls, nodes: Sequence[Node], threshold: float, grid: Windows) -> _Scans:
        if not nodes:
            return cls(percent=np.empty(0), triggered=0, looks=(), hits=())
        seen = np.stack([grid.seen(node.time_us) for node in nodes])
        hits = np.stack([grid.seen(node.hit_us) for node in nodes])[:, 1:]
        patience = np.array([[node.patience] for node in nodes])
        judged = np.array([[node.judged] for node in nodes])
        past = judged & (seen[:, 1:] > patience)
        at = (past & (np.diff(seen) > 0)).any(axis=0)
        past, seen, hits = past[:, at], seen[:, 1:][:, at], hits[:, at]
        percent = 100 * (hits * past).sum(axis=0) / (seen * past).sum(axis=0)
        above = percent > threshold
        own = 100 * hits / np.maximum(1, seen) > threshold
        return cls(
            percent=percent,
            triggered=int(np.count_nonzero(above)),
            looks=tuple(past.sum(axis=1).tolist()),
            hits=tuple((own & past & above).sum(axis=1).tolist()),
        )

    def told(self, threshold: float) -> str:
        """How often the limit was passed, for a share that has fallen below it since."""
        looks = f"{number(self.triggered)} of {number(len(self.percent))} looks"
        return f"above {threshold:g}\u00a0% so far in {looks}, at most {in_percent(self.percent.max())}"


def _details(nodes: Sequence[Node], job: Job) -> dict[str, Any]:
    details: dict[str, Any] = {
        "low_gpu_utilization": sum(node.low for node in nodes),
        "bottlenecks": _by_time(nodes),
        "per_node": {
            node.name: {
                "datapoints": len(node.time_us),
                "low_gpu_utilization": node.low,
                "bottlenecks": len(node.hit_us),
                "share": len(node.hit_us) / len(node.time_us),
                "without_core_samples": node.unsampled,
            }
            for node in nodes
        },
        "without_core_samples": sum(node.unsampled for node in nodes),
        "longest": longest(nodes),
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


def _by_time(nodes: Sequence[Node]) -> dict[str, dict[str, Any]]:
    """The vendor's table: seconds as text → how many GPUs and cores; our addition is the node."""
    found: dict[str, dict[str, Any]] = {}
    for node in nodes:
        hit = node.hit
        keys = list(map(repr, (node.time_us[hit] / SECOND_US).tolist()))
        if taken := found.keys() & keys:
            keys = [f"{key}#{node.name}" if key in taken else key for key in keys]
        pairs = list(zip(node.gpus[hit].tolist(), node.cores[hit].tolist(), strict=True))
        # A day has 172 800 snapshots, but few different rows: equal ones are one object.
        row = {(gpus, cores): {"GPUs": gpus, "CPUs": cores, "node": node.name} for gpus, cores in set(pairs)}
        found.update(zip(keys, (row[pair] for pair in pairs), strict=True))
    return found


def longest(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """The longest runs of all nodes, longest first; of equal ones the first node's."""
    runs = [run for node in nodes for run in node.runs()]
    return sorted(runs, key=lambda run: run["start_us"] - run["end_us"])[:MOST_RUNS]


def _lacks(node: str, metric: Metric) -> DeviceStatus:
    return DeviceStatus(name=node, status=Status.NOT_EVALUATED, reason=f"no {metric.label} samples")


def _not_judged(devices: Sequence[DeviceStatus]) -> str:
    missing = [one.name for one in devices if one.status is Status.NOT_EVALUATED]
    return f"{count(len(missing), 'node')} not judged: {listed(missing)}" if missing else ""


def _unsampled(nodes: Sequence[Node], metric: Metric) -> str:
    """How many snapshots lacked a core sample, where that could matter; the first one of a job often does."""
    missing, whole = (
        sum(n) for n in zip(*((node.unsampled, len(node.time_us)) for node in nodes), strict=True)
    )
    told = f"{count(missing, 'snapshot')} had no {metric.label} sample"
    return told if missing >= WORTH_TELLING * whole else ""
