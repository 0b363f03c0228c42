"""What CPUBottleneck and IOBottleneck share: a GPU is idle while a core of its node counts."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.bottleneck_snapshots import MAX_RUNS, NEARLY, Checks
from jobrules.measures.data_loading import ENOUGH_PERCENT, Loading
from jobrules.measures.framework_time import breakdown_of, summed, weights_by_lane
from jobrules.measures.intervals import time_of
from jobrules.measures.minutes import Windows
from jobrules.measures.rows import rows_by_lane
from jobrules.model import (
    SECOND_US,
    DeviceStatus,
    Inferred,
    Measure,
    Metric,
    Note,
    Reason,
    ReasonKind,
    Status,
    When,
    Where,
)
from jobrules.rule import Rule, not_recorded, severity_of
from jobrules.text import capitalized, count, escape_name, join_names, number, percent, share, some_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.measures.bottleneck_snapshots import BottleneckCriteria, NodeSnapshots
    from jobrules.measures.framework_time import Sums
    from jobrules.measures.intervals import Intervals
    from jobrules.measures.minutes import Seen
    from jobrules.model import Finding, Job, RuleResult

#: Smallest share of snapshots without a core sample that a result names.
WORTH_NAMING = 0.01
#: Up to this part of the cores at once, the GPU waits for the work of single threads.
FEW = 0.25
#: Training waits for batches if it did so for more of the time than this.
WAITED = 0.5


@dataclass(frozen=True, kw_only=True)
class BottleneckRule(Rule):
    """The share of snapshots in which a GPU is idle while a core counts. Rules say what counts."""

    #: What a core that counts did, and what several did: "was saturated", "were saturated".
    core_did: ClassVar[str]
    cores_did: ClassVar[str]
    #: Advice if nearly all cores count at once (``{cores}`` names them), and if few do.
    many_advice: ClassVar[tuple[str, ...]]
    few_advice: ClassVar[tuple[str, ...]]

    @property
    @abstractmethod
    def criteria(self) -> BottleneckCriteria:
        """What makes a snapshot a bottleneck."""

    def check(self, job: Job) -> RuleResult:
        """``triggered`` counts minutes, ``violations`` and ``datapoints`` count snapshots of all nodes."""
        criteria, grid = self.criteria, Windows.of(job)
        found = job.gathered(self._node, grid)
        nodes = [node for node, _ in found]
        checks = Checks.of(nodes, [seen for _, seen in found], criteria.threshold, grid)
        devices = _devices(job, criteria.metric, nodes, checks)
        if not nodes:
            what = f"node recorded both GPU and {criteria.metric.label}"
            return self.not_evaluated(Reason(kind=ReasonKind.NO_DEVICE, what=what), devices=devices)
        facts = _facts(job, nodes, checks, devices)
        evaluated = [node for node in nodes if node.evaluated]
        if not evaluated:
            return self.not_evaluated(max(nodes, key=lambda node: node.seen).missing, **facts)
        part = sum(len(node.hit_us) for node in evaluated) / sum(node.seen for node in evaluated)
        facts["measure"] = Measure(
            value=round(100 * part, 1),
            limits=(criteria.threshold,),
            scale=100.0,
            unit="% of snapshots",
            limit_text=f"threshold {criteria.threshold:g}%",
        )
        headline = f"A GPU was idle while a CPU core {self.core_did} in {share(part)} of snapshots"
        limits = [*_without_cores(evaluated, criteria.metric), *_left_out(devices)]
        if not checks.triggered:
            passed = f"{headline} (threshold {criteria.threshold:g}%)"
            return self.passed("; ".join([passed, *limits]), **facts)
        named = [node for node, over in zip(nodes, checks.violations, strict=True) if over]
        activity = job.each(self._activity, frozenset(node.name for node in named))
        if job.event_count:
            facts["details"] |= breakdown_of([one.events for one in activity])
        by_node = dict(zip(job.nodes, activity, strict=True))
        notes = [*self._notes(named, [by_node[node.name] for node in named])]
        if 100 * part <= criteria.threshold:
            notes.append(_history(checks, criteria.threshold, part))
        advice = self._advice(named, [by_node[node.name].loaders for node in named])
        finding = self._finding(headline, named, part, [*notes, *limits], advice)
        return self.triggered(finding, triggered=checks.triggered, **facts)

    def _node(self, part: Job, grid: Windows) -> list[tuple[NodeSnapshots, Seen]]:
        """A node's snapshots, and how many there were by each window; empty if it lacks any."""
        found = self.criteria.snapshots(part)
        return [(found.node, grid.seen(found.time_us))] if found else []

    def _activity(self, part: Job, named: frozenset[str]) -> _Activity:
        """Events during the bottlenecks of a node, and if it is one of ``named`` its data loading."""
        found, (name,) = self.criteria.snapshots(part), part.nodes
        moments = found.node.moments if found else None
        events = summed(part.events, weights_by_lane(part.events, lambda _: moments))
        if moments is None or name not in named:
            return _Activity(events=events)
        loading = Loading.of(part.events, name)
        return _Activity(
            events=events,
            loaders=loading.busy.median if loading and loading.busy.seconds else None,
            lasted_us=moments.total_us,
            fetched_us=_fetched_us(loading, moments) if loading else 0.0,
        )

    def _notes(self, named: Sequence[NodeSnapshots], activity: Sequence[_Activity]) -> list[str]:
        """Which cores counted, and whether training waited for data."""
        most = max(named, key=lambda node: len(node.hit_us))
        cores = self._cores(most)
        notes = [f"On {escape_name(most.name)} {cores}" if len(named) > 1 else cores]
        lasted_us = sum(one.lasted_us for one in activity)
        fetching = sum(one.fetched_us for one in activity) / lasted_us if lasted_us else 0.0
        if fetching > WAITED:
            notes.append(f"Training waited for a batch in {share(fetching)} of that time")
        return notes

    def _cores(self, node: NodeSnapshots) -> str:
        """Which cores counted in how many bottlenecks: those of nearly all, otherwise the first one."""
        (name, often), *_ = node.busiest.items()
        n, part = (node.crowd, node.crowd_share) if node.crowd > 1 else (1, often)
        cores = some_of(n, node.core_count, "core")
        who = f"{cores} {self.cores_did}" if n > 1 else f"core {escape_name(name)} {self.core_did}"
        return f"{who} in {'every bottleneck' if part == 1 else f'{share(part)} of the bottlenecks'}"

    def _advice(self, named: Sequence[NodeSnapshots], loaders: Sequence[int | None]) -> tuple[str, ...]:
        """Advice for the number of cores that count and of the loader processes that were recorded."""
        if any(node.core_count < 2 for node in named):
            return self.documentation().advice
        enough = all(
            n is None or 100 * n >= ENOUGH_PERCENT * node.core_count
            for n, node in zip(loaders, named, strict=True)
        )
        if enough and all(node.crowd >= NEARLY * node.core_count for node in named):
            most = max(named, key=lambda node: len(node.hit_us))
            cores = some_of(most.crowd, most.core_count, "core")
            return tuple(sentence.format(cores=cores) for sentence in self.many_advice)
        single = all(node.at_once <= max(1, FEW * node.core_count) for node in named)
        if single and all((n or 0) < 2 for n in loaders):
            return self.few_advice
        return self.documentation().advice

    def _finding(
        self,
        title: str,
        named: Sequence[NodeSnapshots],
        part: float,
        notes: Sequence[str],
        advice: tuple[str, ...],
    ) -> Finding:
        start_us = min(int(node.hit_us[0]) for node in named)
        end_us = max(int(node.hit_us[-1]) + node.interval_us for node in named)
        return self.finding(
            title,
            Where(tuple(node.name for node in named)),
            When(start_us, end_us),
            *(Note(capitalized(note)) for note in notes),
            Inferred("simultaneous samples"),
            advice=advice,
            severity=severity_of(part),
            devices=tuple(f"{node.name}/{gpu}" for node in named for gpu in node.gpu_names),
            share=part,
            share_of="of snapshots",
            start_us=start_us,
            end_us=end_us,
        )


class _Activity(Struct, frozen=True, kw_only=True):
    """What the processes of a node did during its bottlenecks."""

    events: Sums
    #: Median number of active loader processes, over the seconds with any; None if none was recorded.
    loaders: int | None = None
    #: Duration of the bottlenecks, and of batch fetches in them, averaged over training processes.
    lasted_us: int = 0
    fetched_us: float = 0.0


def _fetched_us(loading: Loading, moments: Intervals) -> float:
    by_rank = rows_by_lane(loading.fetches, lambda lane: lane.rank)
    shared = [time_of(loading.fetches, rows).shared_us(moments) for rows in by_rank.values()]
    return sum(shared) / len(shared) if shared else 0.0


def _devices(
    job: Job, metric: Metric, nodes: Sequence[NodeSnapshots], checks: Checks
) -> tuple[DeviceStatus, ...]:
    """The result of each node with samples of GPU or cores."""
    known = {
        node.name: DeviceStatus.of(node.name, node.reason, *seen)
        for node, *seen in zip(nodes, checks.checks, checks.violations, strict=True)
    }
    found = []
    for one in job.facts:
        sampled = {panel.metric for panel in one.panels} & {Metric.GPU_UTILIZATION, metric}
        if one.node in known:
            found.append(known[one.node])
        elif sampled:
            lacks = metric if Metric.GPU_UTILIZATION in sampled else Metric.GPU_UTILIZATION
            found.append(DeviceStatus.of(one.node, not_recorded(lacks), 0, 0))
    return tuple(found)


def _facts(
    job: Job, nodes: Sequence[NodeSnapshots], checks: Checks, devices: Sequence[DeviceStatus]
) -> dict[str, Any]:
    """Counters and details of all nodes, whether they are evaluated or not."""
    hits = [node.hit_us for node in nodes if node.evaluated and len(node.hit_us)]
    return {
        "violations": sum(len(node.hit_us) for node in nodes),
        "datapoints": sum(node.seen for node in nodes),
        "datapoints_per_series": {node.name: node.seen for node in nodes},
        "counted": "checks",
        "devices": devices,
        "evaluated": len(checks.percent),
        "violating": checks.triggered,
        "first_us": min((int(times[0]) for times in hits), default=None),
        "last_us": max((int(times[-1]) for times in hits), default=None),
        "details": _details(nodes, job),
    }


def _history(checks: Checks, threshold: float, part: float) -> str:
    """How often the share was above the threshold that it has fallen below since."""
    above = f"{number(checks.triggered)} of {count(len(checks.percent), 'check')}"
    return (
        f"above {threshold:g}% in {above}, at most {percent(checks.percent.max())}; at the end {share(part)}"
    )


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


def _left_out(devices: Sequence[DeviceStatus]) -> list[str]:
    missing = [one.name for one in devices if one.status is Status.NOT_EVALUATED]
    return [f"{count(len(missing), 'node')} not evaluated: {join_names(missing)}"] if missing else []


def _without_cores(nodes: Sequence[NodeSnapshots], metric: Metric) -> list[str]:
    """How many snapshots lack a core sample, unless these are few: the first one of a job often does."""
    missing, whole = (sum(n) for n in zip(*((node.unsampled, node.seen) for node in nodes), strict=True))
    named = missing >= WORTH_NAMING * whole
    return [f"{count(missing, 'snapshot')} without {metric.quantity.noun}"] if named else []
