"""Why GPU time was lost: every lost moment of every GPU goes to exactly one cause.

A sample of u percent that stands for t seconds loses t * (1 - u/100). That time goes to the first of
these that claims it, as far as the ones before left any:

1. the GPU never worked;
2. the GPU idled and no step had begun, unless the GPUs were at work by then: steps that are recorded
   late do not say when the work began;
3. no GPU had worked yet;
4. no GPU worked any more;
5. and 6. this GPU idled while a core of its node waited for I/O (IOBottleneck), or was full
   (CPUBottleneck). I/O comes first: many samplers count a wait for it as use of the core;
7. the snapshot's share inside steps that are outliers (StepOutlier);
8. by how much this GPU was used less than the one of its node with the highest mean (LoadBalancing);
9. as long as training processes fetched data, on average over them (Dataloader, too few loaders);
10. the GPU was at work while CPU, GPU and GPU memory were all little used (BatchSize).

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
from jobrules.clocks import Clocks
from jobrules.coverage import held
from jobrules.cpu_bottleneck import CPUBottleneck
from jobrules.dataloader import Dataloader
from jobrules.framework import grouped
from jobrules.intervals import union
from jobrules.io_bottleneck import IOBottleneck
from jobrules.job import SECOND_US, Metric
from jobrules.load_balancing import LoadBalancing
from jobrules.loading import Loading
from jobrules.overall_framework_metrics import STEP
from jobrules.result import Status
from jobrules.rule import in_samples
from jobrules.step_outlier import StepOutlier
from jobrules.usage import IDLE_PERCENT, Cause, edges, work_span_us
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
NEVER, BEFORE_STEP, START, END = "gpu-never-used", "before-first-step", "idle-before", "idle-after"
#: Fetches recorded for less of the job than this say little of all of it.
MOSTLY = 0.5
#: Fetches further apart than this were not recorded in between.
BRIDGED_US = 60 * SECOND_US
#: GPUs that worked for longer than this before the first step, and with this much of their mean use in
#: the loop, were training: the profiler began late.
EARLY_US, EARLY_USE = 60 * SECOND_US, 0.5

_ORDER: tuple[type[Rule], ...] = (
    IOBottleneck,
    CPUBottleneck,
    StepOutlier,
    LoadBalancing,
    Dataloader,
    BatchSize,
)


@dataclass(frozen=True, kw_only=True)
class Ends:
    """When the job and the work in it began and ended, with the clocks that differ set right."""

    clocks: Clocks
    #: First and last sample above 0 % of any GPU.
    first_work_us: int
    last_work_us: int
    #: Start of the first step; none without steps.
    first_step_us: int | None
    #: Whether the GPUs were at work before it, as in the steps: these were recorded late.
    recorded_late: bool

    @classmethod
    def of(cls, job: Job) -> Ends | None:
        """None where no GPU worked."""
        clocks = Clocks.of(job)
        work = work_span_us(job, clocks=clocks)
        if work is None:
            return None
        first_step_us, late = None, False
        if len(job.steps):
            ahead = clocks.ahead_us(job)
            first_step_us = int((job.steps.start_us - ahead).min())
            loop = first_step_us, int((job.steps.end_us - ahead).max())
            if first_step_us - work[0] > EARLY_US:
                before = _mean_use(job, clocks, work[0], first_step_us)
                late = before >= EARLY_USE * _mean_use(job, clocks, loop[0], loop[1] + 1)
        return cls(
            clocks=clocks,
            first_work_us=work[0],
            last_work_us=work[1],
            first_step_us=first_step_us,
            recorded_late=late,
        )

    @property
    def start_up_us(self) -> int:
        """When the start-up was over."""
        if self.first_step_us is None or self.recorded_late:
            return self.first_work_us
        return max(self.first_step_us, self.first_work_us)


def _mean_use(job: Job, clocks: Clocks, start_us: int, end_us: int) -> float:
    """Of all GPUs, in percent, in [start, end); 0 without a sample."""
    total, n = 0.0, 0
    for panel in job.panels_of(Metric.GPU_USE):
        time_us = panel.time_us - clocks.late_us.get(panel.node, 0)
        first, stop = np.searchsorted(time_us, (start_us, end_us)).tolist()
        values = panel.values[first:stop]
        total, n = total + float(np.nansum(values)), n + int(np.count_nonzero(~np.isnan(values)))
    return total / n if n else 0.0


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
    causes = {one.finding.key: cause for one in told if (cause := _cause(one))}
    return (_never(), *_edges(Ends.of(job)), *causes.values())


@dataclass(frozen=True, kw_only=True)
class _Told:
    """A rule that triggered."""

    job: Job
    rule: Rule
    result: RuleResult
    finding: Finding

    def cause(self, label: str, claim: Claim, counts: str = "", *, partial: bool = False) -> Cause:
        return Cause(key=self.finding.key, label=label, claim=claim, counts=counts, partial=partial)


def _cause(told: _Told) -> Cause | None:
    rule, found = told.rule, None
    if isinstance(rule, IOBottleneck):
        stalled = _stalled(told, Metric.IO_WAIT, rule, rule.io_threshold)
        found = told.cause("Lost: idle while cores waited for I/O", stalled)
    elif isinstance(rule, CPUBottleneck):
        stalled = _stalled(told, Metric.CPU_USE, rule, rule.cpu_threshold)
        found = told.cause("Lost: idle while cores were full", stalled)
    elif isinstance(rule, StepOutlier):
        counts = "The amount is what the GPUs of a node lost during these steps."
        found = told.cause("Lost in outlier steps", _slow_steps(told), counts)
    elif isinstance(rule, LoadBalancing):
        counts = (
            "The amount is how much less these GPUs were used than the GPU of their node with the highest "
            "mean, in the same snapshot."
        )
        found = told.cause("Lost: used less than the busiest GPU", _imbalance(told), counts)
    elif isinstance(rule, Dataloader):
        found = _fetching(told, rule)
    elif isinstance(rule, BatchSize):
        counts = f"Samples below {IDLE_PERCENT:g}\u00a0% are not counted: then a GPU waits."
        found = told.cause("Lost: CPU, GPU and memory little used", _small_batch(told, rule), counts)
    return found


def _never() -> Cause:
    def claim(samples: Samples) -> FloatArray | None:
        return None if samples.worked else samples.weight_us

    return Cause(key=NEVER, label="Lost: GPUs that never worked", claim=claim)


def _edges(ends: Ends | None) -> tuple[Cause, ...]:
    """The start and the end."""
    if ends is None:
        return ()
    found = edges((ends.first_work_us, ends.last_work_us), ends.clocks)
    if ends.first_step_us is None or ends.recorded_late:
        return found
    step_us, late_us = ends.first_step_us, ends.clocks.late_us

    def before(samples: Samples) -> FloatArray:
        early = samples.time_us < step_us + late_us.get(samples.panel.node, 0)
        return np.where(early & (samples.values < IDLE_PERCENT), samples.weight_us, 0.0)

    return Cause(key=BEFORE_STEP, label="Lost: idle before the first step", claim=before), *found


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
    """By node, the time in steps that the rule calls outliers in the end, of the series in violation."""
    violating = {one.name for one in told.result.devices if one.status is Status.TRIGGERED}
    steps, known = told.job.steps, told.result.details.get("step_details", {})
    lasted = steps.end_us - steps.start_us
    found: dict[str, list[IntArray]] = {}
    for (node, worker, phase), rows in grouped(steps.node, steps.worker, steps.phase).items():
        block = known.get(f"{node}-{worker}", {}).get("phases", {}).get(STEP + phase, {})
        if "threshold_s" in block and f"{node}/{worker} {phase}" in violating:
            slow = rows[lasted[rows] > block["threshold_s"] * SECOND_US]
            found.setdefault(node, []).append(slow)
    spans = {node: np.concatenate(rows) for node, rows in found.items()}
    return {node: union(steps.start_us[rows], steps.end_us[rows]) for node, rows in spans.items()}


def _imbalance(told: _Told) -> Claim:
    """The GPU with the highest mean use, of those told, is what the others of its node are held against.

    Mean and claim are of the samples that the rule judges: of the training loop, where steps are known.
    """
    named = set(told.finding.devices)
    busiest: dict[str, FloatArray] = {}
    for panel in told.job.panels_of(Metric.GPU_USE):
        own = [i for i, device in enumerate(panel.devices) if f"{panel.node}/{device}" in named]
        loop = told.job.loop_us(panel.node)
        inside = (panel.time_us >= loop[0]) & (panel.time_us < loop[1]) if loop else slice(None)
        values = panel.values[inside][:, own]
        if not values.size:
            continue
        n = np.maximum(1, np.count_nonzero(~np.isnan(values), axis=0))
        most = own[int(np.argmax(np.nansum(values, axis=0) / n))]
        # NaN, where that GPU gave no sample or is not judged, is no difference.
        busiest[panel.node] = np.full(len(panel.time_us), np.nan)
        busiest[panel.node][inside] = panel.values[inside, most]

    def claim(samples: Samples) -> FloatArray | None:
        if samples.name not in named or samples.panel.node not in busiest:
            return None
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
        bridged = union(events.start_us, events.end_us + BRIDGED_US - 1)
        recorded_us = max(recorded_us, bridged.total_us - len(bridged.start_us) * (BRIDGED_US - 1))
    work = work_span_us(told.job, clocks=Clocks.of(told.job))
    if not fetched or work is None:
        return None

    def claim(samples: Samples) -> FloatArray | None:
        most = fetched.get(samples.panel.node)
        return None if most is None else np.asarray(most[samples.rows])

    partial = recorded_us < MOSTLY * (work[1] - work[0])
    counts = "The amount is lost GPU time for as long as training processes fetched data"
    counts += f", in the {duration(recorded_us)} that fetches were recorded for." if partial else "."
    return told.cause("Lost: waiting for data", claim, counts, partial=partial)


def _covered(job: Job, panel: Panel, times: Intervals) -> tuple[FloatArray, FloatArray]:
    """(n,) time that each snapshot stands for, and how much of it lies in some intervals, in microseconds."""
    weight = held(panel.time_us, *Clocks.of(job).span_us(panel.node)).weight_us
    end_us = panel.time_us + weight.astype(np.int64)
    return weight, times.overlap_us(panel.time_us, end_us).astype(np.float64)


def _small_batch(told: _Told, rule: BatchSize) -> Claim:
    """The minute of each window in violation; with the first one judged, all that it was judged by.

    Not the samples below 10 %, which the report calls idle everywhere: that GPU waits for something that
    a larger batch would not bring.
    """
    grid = Windows.of(told.job)

    def claim(samples: Samples) -> FloatArray | None:
        runs = told.result.runs.get(samples.name)
        panel = samples.panel
        cpu = told.job.panel(panel.node, Metric.CPU_USE)
        if not runs or cpu is None:
            return None
        seen, cpu_seen = grid.seen(samples.time_us), grid.seen(cpu.time_us)
        window = in_samples(rule.window, samples.time_us)
        wanted = max(in_samples(amount, cpu.time_us) for amount in (rule.window, rule.patience))
        first_judged = int(np.intersect1d(judged(cpu_seen, wanted), judged(seen, window))[0])
        inside = np.zeros(len(samples.time_us), np.bool_)
        for first, last in runs:
            begin = int(seen[first])
            if first == first_judged:
                series = [samples.time_us, cpu.time_us, *_memory_us(told.job, samples)]
                since_us = max(_trailing_us(one, grid, first, rule) for one in series)
                begin = min(begin, int(np.searchsorted(samples.time_us, since_us)))
            inside[begin : seen[last + 1]] = True
        return np.where(inside & (samples.values >= IDLE_PERCENT), samples.weight_us, 0.0)

    return claim


def _memory_us(job: Job, samples: Samples) -> list[IntArray]:
    """Times of the GPU's memory samples, if there are any."""
    memory, device = job.panel(samples.panel.node, Metric.GPU_MEMORY), samples.panel.devices[samples.column]
    if memory is None or device not in memory.devices:
        return []
    return [memory.series(memory.devices.index(device))[0]]


def _trailing_us(time_us: IntArray, grid: Windows, window: int, rule: BatchSize) -> int:
    """Time of the first of the samples that a window is judged by; without a new one it is not, since ever."""
    seen = grid.seen(time_us)
    if seen[window + 1] == seen[window]:
        return grid.start_us
    return int(time_us[max(0, int(seen[window + 1]) - in_samples(rule.window, time_us))])
