"""What CPUBottleneck and IOBottleneck share: a GPU is idle while a core of its node counts."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.bottleneck_snapshots import MAX_RUNS, Checks
from jobrules.measures.framework_time import DEBUGGER_KEYS, breakdown_of, summed, weights_by_lane
from jobrules.measures.minutes import Windows
from jobrules.model import (
    SECOND_US,
    DeviceStatus,
    Inferred,
    Measure,
    Metric,
    Reason,
    ReasonKind,
    Status,
)
from jobrules.rule import Role, Rule, not_recorded
from jobrules.text import count, join_names, number, percent, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.measures.bottleneck_snapshots import BottleneckCriteria, NodeSnapshots
    from jobrules.measures.framework_time import Sums
    from jobrules.measures.minutes import Seen
    from jobrules.model import Job, RuleResult, Stalls

#: Smallest share of snapshots without a core sample that a result names.
WORTH_NAMING = 0.01
#: Details without a node that has both samples.
_NO_DETAILS: dict[str, Any] = {"low_gpu_utilization": 0, "bottlenecks": {}}


@dataclass(frozen=True, kw_only=True)
class BottleneckRule(Rule):
    """The share of snapshots in which a GPU is idle while a core counts. Rules say what counts."""

    role: ClassVar[Role] = Role.CAUSE
    #: What a core that counts did: "was saturated".
    core_did: ClassVar[str]

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
            missing = Reason(kind=ReasonKind.NO_DEVICE, what=what)
            return self.not_evaluated(missing, devices=devices, details=_NO_DETAILS)
        facts = _facts(job, nodes, checks, devices)
        evaluated = [node for node in nodes if node.evaluated]
        if not evaluated:
            return self.not_evaluated(max(nodes, key=lambda node: node.seen).missing, **facts)
        part = sum(len(node.hit_us) for node in evaluated) / sum(node.seen for node in evaluated)
        headline, facts["measure"] = self.said(part, criteria.threshold)
        limits = [*_without_cores(evaluated, criteria.metric), *_left_out(devices)]
        if not checks.triggered:
            passed = f"{headline} (threshold {criteria.threshold:g}%)"
            return self.passed("; ".join([passed, *limits]), **facts)
        breakdown = breakdown_of(job.each(self._events), with_lifetimes=True)
        for key, table in breakdown.items():
            facts["details" if key in DEBUGGER_KEYS else "more"][key] = table
        if 100 * part <= criteria.threshold:
            limits.insert(0, _history(checks, criteria.threshold))
        return self.triggered("; ".join([headline, *limits]), triggered=checks.triggered, **facts)

    def said(self, part: float, threshold: float) -> tuple[str, Measure]:
        """The headline on a share of the snapshots, and that share next to a threshold in percent."""
        measure = Measure(
            value=round(100 * part, 1),
            limits=(threshold,),
            bad="above",
            scale=100.0,
            unit="% of snapshots",
            limit_text=f"threshold {threshold:g}%",
        )
        return f"A GPU was idle while a CPU core {self.core_did} in {share(part)} of snapshots", measure

    def stalls(self, job: Job) -> Stalls | None:
        """The stalls that another source lists, where no node has samples of its single cores."""
        metric = self.criteria.metric
        panels = (panel for part in job.facts for panel in part.panels if panel.metric is metric)
        if job.loop_facts is None or any(len(panel.devices) > 1 for panel in panels):
            return None
        return job.loop_facts.stalls.get(self.criteria.key)

    def placed_stalls(self, job: Job) -> Stalls | None:
        """The same, if there is one node that they can be of."""
        found = self.stalls(job)
        return found if found and found.of_one_node and len(job.nodes) == 1 else None

    def evidence(self, job: Job) -> Inferred:
        """What a cause is inferred from."""
        if self.placed_stalls(job) and job.loop_facts:
            return Inferred(f"{job.loop_facts.source}: entries of {self.name}")
        return Inferred("simultaneous samples")

    def without(self, job: Job, missing: Reason) -> RuleResult:
        """The result has SageMaker Debugger's details, with nothing in them."""
        del job
        return self.not_evaluated(missing, details=_NO_DETAILS)

    def _node(self, part: Job, grid: Windows) -> list[tuple[NodeSnapshots, Seen]]:
        """A node's snapshots, and how many there were by each window; empty if it lacks any."""
        found = self.criteria.snapshots(part)
        return [(found.node, grid.seen(found.time_us))] if found else []

    def _events(self, part: Job) -> Sums:
        """Events during the bottlenecks of a node."""
        found = self.criteria.snapshots(part)
        moments = found.node.moments if found else None
        return summed(part.events, weights_by_lane(part.events, lambda _: moments))


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
    bottlenecks, of_nodes = _by_time(nodes)
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
        "details": {
            "low_gpu_utilization": sum(node.low for node in nodes),
            "bottlenecks": bottlenecks,
        },
        "more": {"bottlenecks": of_nodes} | _more(nodes, job),
    }


def _history(checks: Checks, threshold: float) -> str:
    """How often the share was above the threshold that it has fallen below since."""
    above = f"{number(checks.triggered)} of {count(len(checks.percent), 'check')}"
    return f"above {threshold:g}% in {above}, at most {percent(checks.percent.max())}"


def _more(nodes: Sequence[NodeSnapshots], job: Job) -> dict[str, Any]:
    """What SageMaker Debugger does not have; some of its readers count the keys of ``Details``."""
    more: dict[str, Any] = {
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
        more["bottlenecks_in_training_loop"] = sum(
            int(np.diff(np.searchsorted(node.hit_us, loop))[0])
            for node in nodes
            if (loop := loops[node.name])
        )
    return more


def _by_time(nodes: Sequence[NodeSnapshots]) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, Any]]]:
    """SageMaker Debugger's table: seconds as text → number of GPUs and cores; and the same of each node."""
    found: dict[str, dict[str, int]] = {}
    of_nodes: dict[str, dict[str, Any]] = {}
    for node in nodes:
        pairs = list(zip(node.gpus.tolist(), node.cores.tolist(), strict=True))
        # A day has 172,800 snapshots, but few different rows: equal ones are one object.
        row = {(gpus, cores): {"GPUs": gpus, "CPUs": cores} for gpus, cores in set(pairs)}
        own = {pair: {node.name: counts} for pair, counts in row.items()}
        for seconds, pair in zip(map(repr, (node.begun_us / SECOND_US).tolist()), pairs, strict=True):
            if other := found.get(seconds):
                found[seconds] = {what: other[what] + n for what, n in row[pair].items()}
                of_nodes[seconds] = of_nodes[seconds] | own[pair]
            else:
                found[seconds], of_nodes[seconds] = row[pair], own[pair]
    return found, of_nodes


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
