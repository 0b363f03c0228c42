"""LoadBalancing: GPU utilization differs within a node."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.measures.histograms import distance, growing, normalized
from jobrules.measures.minutes import Windows
from jobrules.measures.stopped import STOPPED_US, Stretch, in_stretches, stretches
from jobrules.measures.work import Work, use_in_work
from jobrules.model import (
    ByNode,
    DeviceStatus,
    Finding,
    HowMuch,
    Measure,
    Metric,
    Note,
    Reason,
    ReasonKind,
    RuleResult,
    Status,
)
from jobrules.model.claims import Cause, Precedence, moments
from jobrules.rule import Amount, Role, Rule, in_samples, number, reason_few_samples, samples
from jobrules.text import clock, count, escape_name, without_check
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import BoolArray, FloatArray, IntArray, Job, Panel
    from jobrules.model.claims import Claim, Claimed, Samples

#: Bins of 2 %: 0, 2, …, 100, the last one closed.
BINS = 50
#: Samples of the training loop, nine per bin, that a histogram needs: the distance of equal GPUs is up to 0.29 with
#: 200 samples and below 0.2 with 500 (eight GPUs of a healthy job, twelve seeds).
MIN_IN_LOOP = 9 * BINS
#: Nodes that are compared with each other: their half a million pairs are 25 MB of JSON.
MAX_NODES = 1000
#: Distance of two histograms that share no bin.
MAX_DISTANCE = float(np.sqrt(np.log(2)))
IDLE_END_ADVICE = (
    "Look at the logs of the processes on these GPUs around that time: they may have crashed, hung, or run out of data.",
    "If the processes train together, give each equal data.",
)
#: Of processes that nothing shows to train together.
APART_ADVICE = (
    "If the processes train together, give each equal data and batch size.",
    "If they are independent, give the less used GPU more of them, or a smaller GPU.",
)
#: Reasons of a GPU that has enough samples.
ALONE = Reason(kind=ReasonKind.NOT_APPLICABLE, what="every node has 1 GPU")
NO_SECOND = Reason(kind=ReasonKind.NOT_APPLICABLE, what="the node has 1 GPU")
NO_OTHER = Reason(kind=ReasonKind.NO_DEVICE, what="other GPU of the node has enough samples")


@dataclass(frozen=True, kw_only=True)
class LoadBalancing(Rule):
    """GPU utilization differs within a node.

    What it checks
        The Jensen–Shannon distance of the utilization histograms of any two GPUs of a node (0: equal, 0.83: no
        overlap), in the training loop if known. Triggers above ``threshold``.

    Why it matters
        GPUs that train together wait for the slowest.

    What to do
        * Give every rank equal data and batch size.
        * Keep logging and evaluation off single ranks.

    Details
        Checked once per minute, over all samples so far, in bins of 2%. Both GPUs need more than ``patience`` samples,
        450 of them in the loop, or ``patience`` if that is less. A minute without a new sample of either has no check.
        GPUs with equal means work at different times: look at the order of work.
    """

    title: ClassVar[str] = "GPU utilization differs within a node"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION,)
    section: ClassVar[str] = "balance"
    role: ClassVar[Role] = Role.CAUSE

    threshold: float = number(0.2, "largest distance that counts as similar", high=1)
    patience: Amount = samples(1000, "samples before the first check")

    def check(self, job: Job) -> RuleResult:
        """Counts are of comparisons of two GPUs, one per minute; the finding is about the end of the job."""
        grid = Windows.of(job)
        nodes = job.gathered(self._compared, grid)
        seen = {name: n for node in nodes for name, n in zip(node.names, node.seen.tolist(), strict=True)}
        facts: dict[str, Any] = {
            "datapoints": max(seen.values()),
            "datapoints_per_series": seen,
            "counted": "comparisons",
            "devices": tuple(answer for node in nodes for answer in node.answers()),
            "details": _details(nodes, self.threshold),
            "evaluated": sum(int(node.judged.sum()) for node in nodes) // 2,
            "violating": sum(int(node.hits.sum()) for node in nodes) // 2,
        }
        if all(len(node.names) == 1 for node in nodes):
            return self.not_evaluated(ALONE, **facts)
        if not facts["evaluated"]:
            return self.not_evaluated(_reason_without_pair(facts["devices"]), **facts)
        worst = max((pair for node in nodes for pair in node.pairs), key=lambda pair: pair.distance)
        facts["measure"] = Measure(
            value=round(worst.distance, 2),
            limits=(self.threshold,),
            bad="above",
            scale=MAX_DISTANCE,
            unit="",
            limit_text=f"largest distance at the end, threshold {self.threshold:g}",
        )
        if not facts["violating"]:
            limit = without_check(
                sum(answer.status is Status.NOT_EVALUATED for answer in facts["devices"]), "GPU"
            )
            largest = f"largest distance {worst.distance:.2f} (threshold {self.threshold:g})"
            headline = f"GPU utilization is similar within each node: {largest}{limit}"
            return self.passed(headline, **facts)
        windows = np.concatenate([node.violating for node in nodes])
        return self.triggered(
            _headline(worst, self.threshold),
            triggered=facts["violating"],
            violations=facts["violating"],
            first_us=grid.begin_us(windows.min()),
            last_us=min(grid.begin_us(windows.max() + 1), job.span_us[1]),
            **facts,
        )

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """Idle GPUs before or after others, and the difference to the most used GPU as far as nothing else explains it."""
        work = Work.of(job)
        if work is None:
            return ()
        used = [gpu for gpu in job.gathered(use_in_work, work) if gpu.worked]
        idle = stretches(job, work)
        of_part = {one.name for one in idle}
        # What was measured for a part only may be the busy part.
        longest_us = max((gpu.measured_us for gpu in used), default=0.0)
        known = [gpu for gpu in used if 2 * gpu.measured_us >= longest_us]
        means = sorted((gpu.mean, f"{gpu.node} {gpu.device}") for gpu in known if gpu.name not in of_part)
        found = [
            self._idle_cause(result, key, chosen, len(used))
            for key, at_end in (("gpu-late", False), ("gpu-stopped", True))
            if (chosen := [one for one in idle if one.at_end is at_end])
        ]
        if len(means) < 2:
            return found
        cause = self.uneven(result, means[0], means[-1], ranks=are_ranks(job))
        return (*found, replace(cause, claim=partial(_below, means[-1][0])))

    def uneven(
        self, result: RuleResult, least: tuple[float, str], most: tuple[float, str], *, ranks: bool
    ) -> Cause:
        """The difference to the most used GPU; mean utilization and name of both."""
        return Cause(
            key="load-balancing",
            precedence=Precedence.UNEVEN_LOAD,
            when="to uneven load",
            finding=partial(self._uneven, result, least, most, ranks),
        )

    def _idle_cause(self, result: RuleResult, key: str, idle: Sequence[Stretch], gpus: int) -> Cause:
        """GPUs of so many that were used, which are idle at one end of the work."""
        by_node = ByNode[list[Stretch]]()
        for one in idle:
            by_node.setdefault(one.node, []).append(one)
        when = "after GPUs stopped" if idle[0].at_end else "before GPUs began"
        return Cause(
            key=key,
            precedence=Precedence.NEVER_USED,
            when=f"{when}, while others worked",
            claim=partial(in_stretches, by_node),
            finding=partial(self._idle_end, result, key, idle, gpus),
        )

    def _idle_end(
        self, result: RuleResult, key: str, idle: Sequence[Stretch], gpus: int, claimed: Claimed
    ) -> Finding:
        at_end, rest = idle[0].at_end, gpus - len(idle)
        times_us = sorted(one.start_us if at_end else one.end_us for one in idle)
        nodes = {escape_name(one.node) for one in idle}
        who = escape_name(f"{idle[0].node} {idle[0].device}")
        if len(idle) > 1:
            who = f"{count(len(idle), 'GPU')} of {nodes.pop() if len(nodes) == 1 else count(len(nodes), 'node')}"
        others = "the other GPU" if rest == 1 else f"the other {count(rest, 'GPU')}"
        at = "at" if times_us[-1] - times_us[0] < STOPPED_US else "one by one, the first at"
        moment = clock(times_us[0])
        return self.finding(
            f"{who} stopped {at} {moment}; {others} worked on"
            if at_end
            else f"{who} did not work until {moment}; {others} did",
            *moments(claimed, result, claimed.names),
            key=key,
            advice=IDLE_END_ADVICE,
            devices=claimed.devices,
        )

    def _uneven(
        self,
        result: RuleResult,
        least: tuple[float, str],
        most: tuple[float, str],
        ranks: bool,
        claimed: Claimed,
    ) -> Finding:
        return self.finding(
            f"GPU utilization differs: {in_percent(least[0])} to {in_percent(most[0])} on average",
            *moments(claimed, result),
            HowMuch("Mean utilization", most[0], "%", of=most[1]),
            HowMuch("Mean utilization", least[0], "%", of=least[1]),
            Note("The amount is the difference to the most used GPU, without what other causes explain"),
            advice=self.documentation().advice if ranks else APART_ADVICE,
            devices=claimed.devices,
        )

    def _compared(self, part: Job, grid: Windows) -> list[_Node]:
        """The GPUs of one node; empty where it has none."""
        return [
            self._node(panel, part.loop_us(panel.node), grid)
            for panel in part.panels_of(Metric.GPU_UTILIZATION)
        ]

    def _node(self, panel: Panel, loop: tuple[int, int] | None, grid: Windows) -> _Node:
        gpus = len(panel.devices)
        patience = in_samples(self.patience, panel.time_us)
        counted, code = binned(panel, loop)
        seen = grid.seen(panel.time_us)
        windows, ends = seen.windows, seen.ends
        samples = np.add.reduceat(~np.isnan(panel.values), np.append(0, ends[:-1]), axis=0, dtype=np.int64)
        new, so_far = samples > 0, np.cumsum(samples, axis=0)
        old_enough = so_far > patience
        judged = np.zeros((gpus, gpus), np.int64)
        hits = np.zeros((gpus, gpus), np.int64)
        violating = np.zeros(len(windows), np.bool_)
        histogram = np.zeros((gpus, BINS), np.int64)
        for part, table in growing(code.ravel(), gpus * (BINS + 1), ends * gpus):
            histograms = table.reshape(-1, gpus, BINS + 1)[:, :, :BINS]
            shares = normalized(histograms)
            ready = old_enough[part] & (histograms.sum(axis=2) >= max(1, min(patience, MIN_IN_LOOP)))
            for one in range(gpus - 1):
                others = slice(one + 1, gpus)
                compared = ready[:, one : one + 1] & ready[:, others]
                compared &= new[part, one : one + 1] | new[part, others]
                if not compared.any():
                    continue
                over = compared & (distance(shares[:, one : one + 1], shares[:, others]) > self.threshold)
                judged[one, others] += compared.sum(axis=0)
                hits[one, others] += over.sum(axis=0)
                violating[part] |= over.any(axis=1)
            histogram = histograms[-1]
        # Added row after row, so that the sum does not depend on how the table lies in memory.
        total = np.ascontiguousarray(np.where(counted, panel.values, 0)).sum(axis=0)
        return _Node(
            name=panel.node,
            devices=panel.devices,
            basis="training loop" if loop else "whole job",
            seen=so_far[-1],
            patience=patience,
            histogram=histogram,
            mean=total / np.maximum(1, counted.sum(axis=0)),
            judged=judged + judged.T,
            hits=hits + hits.T,
            violating=windows[violating],
        )


def _headline(worst: _Pair, threshold: float) -> str:
    if worst.distance <= threshold:
        return "GPU utilization differed for a time, not at the end"
    pair = escape_name(f"{worst.node} {worst.one_device} and {worst.other_device}")
    means = f"means {in_percent(worst.mean)} and {in_percent(worst.other_mean)}"
    return f"Utilization of {pair} differs: distance {worst.distance:.2f}, {means}"


def binned(panel: Panel, loop: tuple[int, int] | None) -> tuple[BoolArray, IntArray]:
    """(n, gpus) which samples are compared, and the number of the bin of each.

    A GPU has ``BINS`` bins and one past them, of what is not compared; those of the next GPU follow.
    """
    counted = ~np.isnan(panel.values)
    if loop:
        counted &= ((panel.time_us >= loop[0]) & (panel.time_us < loop[1]))[:, None]
    place = np.where(counted, np.clip(panel.values / 2, 0, BINS - 1), BINS).astype(np.int64)
    return counted, place + (BINS + 1) * np.arange(len(panel.devices))


def are_ranks(job: Job) -> bool:
    """True if processes count as ranks do: from 0 on, at least two."""
    ranks = {*job.gathered(_ranks)}
    return len(ranks) > 1 and ranks == {*map(str, range(len(ranks)))}


def _ranks(part: Job) -> list[str]:
    return [rank for _, rank, _ in part.steps.series]


class _Pair(Struct, frozen=True, kw_only=True):
    node: str
    one_device: str
    other_device: str
    mean: float
    other_mean: float
    distance: float


class _Node(Struct, frozen=True, kw_only=True, eq=False):
    name: str
    devices: tuple[str, ...]
    #: ``training loop`` or ``whole job``.
    basis: str
    #: (gpus,) samples, whatever the basis.
    seen: IntArray
    patience: int
    #: (gpus, BINS) and (gpus,) at the end of the job, on the basis.
    histogram: IntArray
    mean: FloatArray
    #: (gpus, gpus) windows in which a pair was compared, and in which it violated; symmetric.
    judged: IntArray
    hits: IntArray
    #: Windows in which any pair violated.
    violating: IntArray

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}/{device}" for device in self.devices)

    @property
    def distances(self) -> dict[str, dict[str, float]]:
        """Of all pairs with samples, at the end of the job."""
        shares, filled = normalized(self.histogram), np.flatnonzero(self.histogram.any(axis=1))
        found: dict[str, dict[str, float]] = {}
        for i in filled.tolist():
            others = filled[filled > i]
            if len(others):
                far = distance(shares[i], shares[others]).tolist()
                found[self.devices[i]] = {
                    self.devices[j]: d for j, d in zip(others.tolist(), far, strict=True)
                }
        return found

    @property
    def pairs(self) -> list[_Pair]:
        """The pairs that were compared, at the end of the job."""
        number_of = {device: i for i, device in enumerate(self.devices)}
        return [
            _Pair(
                node=self.name,
                one_device=one,
                other_device=other,
                mean=float(self.mean[number_of[one]]),
                other_mean=float(self.mean[number_of[other]]),
                distance=far,
            )
            for one, row in self.distances.items()
            for other, far in row.items()
            if self.judged[number_of[one], number_of[other]]
        ]

    def answers(self) -> list[DeviceStatus]:
        """What became of each GPU."""
        judged, hits = self.judged.sum(axis=1).tolist(), self.hits.sum(axis=1).tolist()
        found = []
        for i, name in enumerate(self.names):
            reason = None
            if len(self.names) == 1:
                reason = NO_SECOND
            elif self.seen[i] <= self.patience:
                reason = reason_few_samples(int(self.seen[i]), self.patience)
            elif (inside := int(self.histogram[i].sum())) < (needed := min(self.patience, MIN_IN_LOOP)):
                reason = reason_few_samples(inside, needed - 1, "samples in the training loop")
            elif not judged[i]:
                reason = NO_OTHER
            found.append(DeviceStatus.of(name, reason, judged[i], hits[i]))
        return found


def _details(nodes: Sequence[_Node], threshold: float) -> dict[str, Any]:
    # A node's histogram is the mean of its GPUs'; each GPU counts the same, however many samples it has.
    usual = {
        node.name: normalized(normalized(node.histogram).sum(axis=0))
        for node in nodes
        if node.histogram.any()
    }
    names = list(usual) if len(usual) <= MAX_NODES else []
    place = {name: i for i, name in enumerate(names)}
    shares = np.array([usual[name] for name in names]).reshape(-1, BINS)
    details: dict[str, Any] = {}
    for node in nodes:
        # Readers draw the 49 bins of SageMaker Debugger, whose edges end at 98.
        drawn = np.column_stack([node.histogram[:, :-2], node.histogram[:, -2:].sum(axis=1)])
        block: dict[str, Any] = {"workloads": dict(zip(node.devices, drawn.tolist(), strict=True))}
        uneven: dict[str, dict[str, float]] = {}
        for pair in node.pairs:
            if pair.distance > threshold:
                uneven.setdefault(pair.one_device, {})[pair.other_device] = pair.distance
        # A reader takes the key for a finding.
        if uneven:
            block["distances"] = uneven
        exact = dict(zip(node.devices, node.histogram.tolist(), strict=True))
        block |= {"all_workloads": exact, "all_distances": node.distances, "basis": node.basis}
        others = slice(place.get(node.name, len(names)) + 1, None)
        if names[others]:
            far = distance(usual[node.name], shares[others]).tolist()
            block["node_distances"] = dict(zip(names[others], far, strict=True))
        details[node.name] = block
    return details


def _reason_without_pair(answers: Sequence[DeviceStatus]) -> Reason:
    """Reason why no pair was compared: the first that names missing samples, otherwise that no other GPU has enough."""
    reasons = [answer.reason for answer in answers if answer.reason]
    return next((reason for reason in reasons if reason.kind is not ReasonKind.NO_DEVICE), NO_OTHER)


def _below(highest: float, part: Job, panel: Panel, weight_us: FloatArray) -> Claim:
    """Claim what a GPU lost more than the most used one: of its node, or of the job as far as causes do not explain it."""
    del part, panel, weight_us

    def claim(gpus: Sequence[Samples]) -> Sequence[FloatArray]:
        # A GPU without a sample in the work was not the most used one.
        most = max(gpus, key=lambda gpu: (gpu.work_us > 0, gpu.mean))
        lost_part = 1 - most.mean / 100
        behind = (highest - most.mean) / 100 - (lost_part - most.left_part)
        usual = most.left_part - min(max(0.0, behind), most.left_part)
        return [
            gpu.left_us * max(0.0, 1 - usual / gpu.left_part) if gpu.left_part else gpu.left_us
            for gpu in gpus
        ]

    return claim
