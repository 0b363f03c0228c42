"""Why GPU time was lost: every lost moment of every GPU goes to exactly one cause.

A sample of u percent that stands for t seconds loses t * (1 - u/100). That time goes to the first of
these that claims it, as far as the ones before left any:

1. the GPU never worked;
2. no GPU had worked yet; where MaxInitializationTime triggered: no step had begun;
3. no GPU worked any more;
4. and 5. this GPU idled while a core of its node waited for I/O (IOBottleneck), or was full
   (CPUBottleneck). I/O comes first: many samplers count a wait for it as use of the core;
6. the snapshot's share inside steps that are outliers (StepOutlier);
7. by how much this GPU was used less than the busiest one of its node (LoadBalancing);
8. as long as training processes fetched data, on average over them (Dataloader, too few loaders);
9. CPU, GPU and GPU memory were all little used (BatchSize).

Rules that did not trigger claim nothing, nor do others on GPUs that their finding does not tell of.
What is left is unexplained. That two things happened at once does not show that one caused the other:
the amounts say what a cause can explain at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jobrules.batch_size import BatchSize
from jobrules.bottlenecks import Node
from jobrules.coverage import held
from jobrules.cpu_bottleneck import CPUBottleneck
from jobrules.dataloader import Dataloader
from jobrules.framework import grouped
from jobrules.intervals import union
from jobrules.io_bottleneck import IOBottleneck
from jobrules.job import SECOND_US, Metric
from jobrules.load_balancing import LoadBalancing
from jobrules.loading import Loading
from jobrules.max_initialization_time import MaxInitializationTime
from jobrules.overall_framework_metrics import STEP
from jobrules.result import Status
from jobrules.rule import in_samples
from jobrules.step_outlier import StepOutlier
from jobrules.usage import Cause, edges, work_span_us
from jobrules.windows import Windows, judged
from jobrules.words import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.intervals import Intervals
    from jobrules.job import FloatArray, IntArray, Job, Panel
    from jobrules.result import Finding, RuleResult
    from jobrules.rule import Rule
    from jobrules.usage import Claim, Samples

#: Keys of the causes that no rule looks for.
NEVER, START, END = "gpu-never-used", "idle-before", "idle-after"
#: Fetches recorded for less of the job than this say little of all of it.
MOSTLY = 0.5

_ORDER: tuple[type[Rule], ...] = (
    MaxInitializationTime,
    IOBottleneck,
    CPUBottleneck,
    StepOutlier,
    LoadBalancing,
    Dataloader,
    BatchSize,
)
_INFERRED = "inferred from simultaneous samples"


def causes_of(job: Job, judged: Sequence[tuple[Rule, RuleResult]]) -> tuple[Cause, ...]:
    """The causes that lost GPU time is shared out to, in the order in which they claim.

    The key of a rule's cause is that of its first finding.
    """
    told = [
        _Told(job=job, rule=rule, result=result, finding=result.findings[0])
        for kind in _ORDER
        for rule, result in judged
        if isinstance(rule, kind) and result.status is Status.TRIGGERED and result.findings
    ]
    late = any(isinstance(one.rule, MaxInitializationTime) for one in told)
    causes = {one.finding.key: cause for one in told if (cause := _cause(one))}
    return (_never(), *_edges(job, late=late), *causes.values())


@dataclass(frozen=True, kw_only=True)
class _Told:
    """A rule that triggered."""

    job: Job
    rule: Rule
    result: RuleResult
    finding: Finding

    def cause(self, label: str, claim: Claim, counts: str, *, partial: bool = False) -> Cause:
        told = f"The amount is {counts}."
        return Cause(key=self.finding.key, label=label, claim=claim, counts=told, partial=partial)


def _cause(told: _Told) -> Cause | None:
    rule, found = told.rule, None
    if isinstance(rule, IOBottleneck):
        stalled = _stalled(told, Metric.IO_WAIT, rule, rule.io_threshold)
        counts = f"what idle GPUs lost while a core of their node waited for I/O, {_INFERRED}"
        found = told.cause("Lost: idle while cores waited for I/O", stalled, counts)
    elif isinstance(rule, CPUBottleneck):
        stalled = _stalled(told, Metric.CPU_USE, rule, rule.cpu_threshold)
        counts = f"what idle GPUs lost while a core of their node was full, {_INFERRED}"
        found = told.cause("Lost: idle while cores were full", stalled, counts)
    elif isinstance(rule, StepOutlier):
        counts = "what the GPUs of a node lost during these steps of its workers"
        found = told.cause("Lost in outlier steps", _slow_steps(told), counts)
    elif isinstance(rule, LoadBalancing):
        counts = "how much less GPUs were used than the busiest of their node in the same snapshot"
        found = told.cause("Lost: used less than the busiest GPU", _imbalance(told), counts)
    elif isinstance(rule, Dataloader):
        found = _fetching(told, rule)
    elif isinstance(rule, BatchSize):
        counts = "what these GPUs lost in the windows in violation, where nothing else explains it"
        found = told.cause("Lost: CPU, GPU and memory little used", _small_batch(told, rule), counts)
    return found


def _never() -> Cause:
    def claim(samples: Samples) -> FloatArray | None:
        return None if samples.worked else samples.weight_us

    return Cause(key=NEVER, label="Lost: GPUs that never worked", claim=claim)


def _edges(job: Job, *, late: bool) -> tuple[Cause, ...]:
    """The start and the end; where the first step came ``late``, the start lasts until then."""
    work = work_span_us(job)
    if work is None:
        return ()
    first_us, last_us = work
    if not late or not len(job.steps):
        return edges(first_us, last_us)
    before, after = edges(max(first_us, int(job.steps.start_us.min())), last_us)
    counts = "The amount is what the GPUs lost before the first step."
    return Cause(key=START, label="Lost before the first step", claim=before.claim, counts=counts), after


def _stalled(told: _Told, metric: Metric, rule: IOBottleneck | CPUBottleneck, limit: float) -> Claim:
    """A GPU idles in the same snapshot in which a core counts."""
    named = set(told.finding.devices)
    held_up = {}
    for gpu in told.job.panels_of(Metric.GPU_USE):
        cores = told.job.panel(gpu.node, metric)
        if cores and not named.isdisjoint(f"{gpu.node}/{device}" for device in gpu.devices):
            node = Node.of(
                gpu,
                cores,
                gpu_threshold=rule.gpu_threshold,
                core_threshold=limit,
                patience=rule.patience,
            )
            held_up[gpu.node] = node.cores > 0

    def claim(samples: Samples) -> FloatArray | None:
        mask = held_up.get(samples.panel.node)
        if mask is None:
            return None
        idle = samples.values < rule.gpu_threshold
        return np.where(idle & mask[samples.rows], samples.weight_us, 0.0)

    return claim


def _slow_steps(told: _Told) -> Claim:
    outliers = _outliers(told)
    shares = {}
    for panel in told.job.panels_of(Metric.GPU_USE):
        if panel.node in outliers:
            weight, covered = _covered(told.job, panel, outliers[panel.node])
            shares[panel.node] = covered / np.maximum(weight, 1.0)

    def claim(samples: Samples) -> FloatArray | None:
        share = shares.get(samples.panel.node)
        return None if share is None else np.asarray(samples.lost_us * share[samples.rows])

    return claim


def _outliers(told: _Told) -> dict[str, Intervals]:
    """By node, the time in steps that the rule calls outliers in the end."""
    steps, known = told.job.steps, told.result.details.get("step_details", {})
    lasted = steps.end_us - steps.start_us
    found: dict[str, list[IntArray]] = {}
    for (node, worker, phase), rows in grouped(steps.node, steps.worker, steps.phase).items():
        block = known.get(f"{node}-{worker}", {}).get("phases", {}).get(STEP + phase, {})
        if "threshold_s" in block:
            slow = rows[lasted[rows] > block["threshold_s"] * SECOND_US]
            found.setdefault(node, []).append(slow)
    spans = {node: np.concatenate(rows) for node, rows in found.items()}
    return {node: union(steps.start_us[rows], steps.end_us[rows]) for node, rows in spans.items()}


def _imbalance(told: _Told) -> Claim:
    """The busiest GPU by its mean use is what the others of its node are held against."""
    named = set(told.finding.devices)
    busiest = {
        panel.node: panel.values[:, int(np.argmax(np.nanmean(panel.values, axis=0)))]
        for panel in told.job.panels_of(Metric.GPU_USE)
    }

    def claim(samples: Samples) -> FloatArray | None:
        if samples.name not in named:
            return None
        # NaN, where the busiest GPU gave no sample, is no difference.
        below = np.nan_to_num(busiest[samples.panel.node][samples.rows] - samples.values)
        return np.asarray(samples.weight_us * np.maximum(0.0, below) / 100)

    return claim


def _fetching(told: _Told, rule: Dataloader) -> Cause | None:
    fetched: dict[str, FloatArray] = {}
    recorded_us = 0
    for panel in told.job.panels_of(Metric.GPU_USE):
        block = told.result.details.get("per_node", {}).get(panel.node)
        few = (
            block and block["violations"] and block["dataloaders"] < block["cores"] * rule.min_threshold / 100
        )
        loading = Loading.of(told.job.events, panel.node) if few else None
        if loading is None or not len(loading.fetches):
            continue
        events = loading.fetches
        processes = np.unique([lane.worker for lane in events.lanes], return_inverse=True)[1][events.lane]
        present = np.unique(processes).tolist()
        fetched[panel.node] = np.zeros(len(panel.time_us))
        for one in present:
            own = processes == one
            times = union(events.start_us[own], events.end_us[own])
            fetched[panel.node] += _covered(told.job, panel, times)[1] / len(present)
        recorded_us = max(recorded_us, int(events.end_us.max() - events.start_us[0]))
    work = work_span_us(told.job)
    if not fetched or work is None:
        return None

    def claim(samples: Samples) -> FloatArray | None:
        most = fetched.get(samples.panel.node)
        return None if most is None else np.asarray(most[samples.rows])

    partial = recorded_us < MOSTLY * (work[1] - work[0])
    counts = "lost GPU time for as long as training processes fetched data"
    if partial:
        counts += f", in the {duration(recorded_us)} that fetches were recorded for"
    return told.cause("Lost: waiting for data", claim, counts, partial=partial)


def _covered(job: Job, panel: Panel, times: Intervals) -> tuple[FloatArray, FloatArray]:
    """(n,) time that each snapshot stands for, and how much of it lies in some intervals, in microseconds."""
    weight = held(panel.time_us, *job.span_us).weight_us
    end_us = panel.time_us + weight.astype(np.int64)
    return weight, times.overlap_us(panel.time_us, end_us).astype(np.float64)


def _small_batch(told: _Told, rule: BatchSize) -> Claim:
    grid = Windows.of(told.job)

    def claim(samples: Samples) -> FloatArray | None:
        runs = told.result.runs.get(samples.name)
        cpu = told.job.panel(samples.panel.node, Metric.CPU_USE)
        if not runs or cpu is None:
            return None
        window = in_samples(rule.window, samples.time_us)
        wanted = max(in_samples(amount, cpu.time_us) for amount in (rule.window, rule.patience))
        seen = grid.seen(samples.time_us)
        at = np.intersect1d(judged(grid.seen(cpu.time_us), wanted), judged(seen, window))
        inside = np.zeros(len(samples.time_us), np.bool_)
        for first, last in runs:
            # A window is judged by the samples before its end. Of what came before the first one that
            # was judged nothing else is known: the answer on that one is the best there is.
            begin = max(0, int(seen[first + 1]) - window) if (at < first).any() else 0
            inside[begin : seen[last + 1]] = True
        return np.where(inside, samples.weight_us, 0.0)

    return claim
