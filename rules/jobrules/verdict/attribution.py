"""The causes of lost GPU time: each lost moment of each GPU goes to the first cause that applies.

A sample of u percent that represents t seconds loses t * (1 - u/100). That time goes to the first of these causes that
claims it, as far as the causes before left any:

1. the GPU was never used;
2. the GPU was idle and no step had started, unless the GPUs were active by then: steps that are recorded late do not say
   when the work started;
3. before the first work of any GPU;
4. after the last work of any GPU;
5. and 6. this GPU was idle while a core of its node waited for I/O (IOBottleneck), or was saturated (CPUBottleneck). I/O
   comes first: many samplers count I/O wait as utilization of the core;
7. the snapshot's share inside outlier steps (StepOutlier);
8. the difference to the GPU of its node with the highest mean utilization (LoadBalancing);
9. the time of batch fetches, averaged over the training processes (Dataloader, too few loaders);
10. the GPU was active while CPU, GPU, and GPU memory activity were all low (BatchSize);
11. all GPUs of the node were idle at once (IdleGaps). That names the time and not the reason, so it counts as
    unexplained.

Rules that did not trigger claim nothing, nor do others on GPUs that their finding does not name. The rest is unexplained.
That two things happen at once does not show that one causes the other: amounts are upper bounds.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.batch_size import BatchSize
from jobrules.cpu_bottleneck import CPUBottleneck
from jobrules.dataloader import Dataloader
from jobrules.idle_gaps import Gaps, IdleGaps
from jobrules.io_bottleneck import IOBottleneck
from jobrules.load_balancing import LoadBalancing
from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.data_loading import Loading
from jobrules.measures.intervals import union
from jobrules.measures.minutes import Windows
from jobrules.measures.rows import series_of
from jobrules.measures.work_span import IDLE_PERCENT, work_span_us
from jobrules.model import SECOND_US, Metric, Status, span_of
from jobrules.overall_framework_metrics import STEP
from jobrules.rule import in_samples
from jobrules.step_outlier import StepOutlier
from jobrules.text import duration
from jobrules.verdict.device_time import Cause, edges

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobrules.measures.bottleneck_snapshots import BottleneckCriteria
    from jobrules.measures.intervals import Intervals
    from jobrules.model import Events, FloatArray, IntArray, Job, Panel, RuleResult
    from jobrules.rule import Rule
    from jobrules.verdict.device_time import Claim, Samples

#: Keys of the causes that no rule reports.
NEVER, BEFORE_STEP, START, END = "gpu-never-used", "before-first-step", "idle-before", "idle-after"
#: Fetches recorded for less of the job than this say little about the job.
MOSTLY = 0.5
#: Between fetches at a larger distance than this, nothing was recorded.
BRIDGED_US = 60 * SECOND_US
#: GPUs that were active for longer than this before the first step, and with this part of their mean utilization in the
#: loop, were training: the profiler started late.
EARLY_US, EARLY_USE = 60 * SECOND_US, 0.5

_ORDER: tuple[type[Rule], ...] = (
    IOBottleneck,
    CPUBottleneck,
    StepOutlier,
    LoadBalancing,
    Dataloader,
    BatchSize,
    IdleGaps,
)


class Ends(Struct, frozen=True, kw_only=True):
    """Start and end of the job and of its GPU work, corrected for clock offsets between nodes."""

    clocks: Clocks
    #: First and last sample above 0% of any GPU.
    first_work_us: int
    last_work_us: int
    #: Start of the first step; None without steps.
    first_step_us: int | None
    #: True if the GPUs were as active before it as in the steps: these were recorded late.
    recorded_late: bool

    @classmethod
    def of(cls, job: Job) -> Ends | None:
        """None if no GPU was ever used."""
        clocks = Clocks.of(job)
        work = work_span_us(job, clocks=clocks)
        if work is None:
            return None
        loop, late = loop_us(job, clocks), False
        if loop and loop[0] - work[0] > EARLY_US:
            before = _mean_use(job, clocks, work[0], loop[0])
            late = before >= EARLY_USE * _mean_use(job, clocks, loop[0], loop[1] + 1)
        return cls(
            clocks=clocks,
            first_work_us=work[0],
            last_work_us=work[1],
            first_step_us=loop[0] if loop else None,
            recorded_late=late,
        )

    @property
    def start_up_us(self) -> int:
        """End of start-up."""
        if self.first_step_us is None or self.recorded_late:
            return self.first_work_us
        return max(self.first_step_us, self.first_work_us)


def loop_us(job: Job, clocks: Clocks) -> tuple[int, int] | None:
    """First start and last end of all steps, corrected for clock offsets; None without steps."""
    steps_us = {part.node: part.steps_us for part in job.facts if part.steps_us}
    late_us = clocks.clock_offset_us
    return span_of((a - late_us.get(node, 0), b - late_us.get(node, 0)) for node, (a, b) in steps_us.items())


def _mean_use(job: Job, clocks: Clocks, start_us: int, end_us: int) -> float:
    """Mean utilization of all GPUs in percent, in [start, end); 0 without a sample."""
    sums = job.gathered(_use, clocks, start_us, end_us)
    n = sum(n for _, n in sums)
    return sum(total for total, _ in sums) / n if n else 0.0


def _use(part: Job, clocks: Clocks, start_us: int, end_us: int) -> Iterator[tuple[float, int]]:
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        time_us = panel.time_us - clocks.clock_offset_us.get(panel.node, 0)
        first, stop = np.searchsorted(time_us, (start_us, end_us)).tolist()
        values = panel.values[first:stop]
        yield float(np.nansum(values)), int(np.count_nonzero(~np.isnan(values)))


def causes_of(job: Job, results: Sequence[tuple[Rule, RuleResult]], ends: Ends | None) -> tuple[Cause, ...]:
    """Causes that may claim lost GPU time, in order of priority.

    The key of a rule's cause is that of its first finding.
    """
    triggered = [
        (rule, result)
        for kind in _ORDER
        for rule, result in results
        if isinstance(rule, kind) and result.status is Status.TRIGGERED and result.findings
    ]
    causes = {one.key: one for rule, result in triggered if (one := _cause(job, rule, result, ends))}
    never = Cause(key=NEVER, label="Lost: GPUs never used", claim=_never, when="on never-used GPUs")
    return (never, *_edges(ends), *causes.values())


def _cause(job: Job, rule: Rule, result: RuleResult, ends: Ends | None) -> Cause | None:
    """The cause that a triggered rule names."""
    key, named = result.findings[0].key, frozenset(result.findings[0].devices)
    if isinstance(rule, IOBottleneck | CPUBottleneck):
        bottleneck = partial(_bottleneck, rule.criteria, named)
        label, when = "Lost: CPU saturated", "while the CPU was saturated"
        if isinstance(rule, IOBottleneck):
            label, when = "Lost: CPU waiting for I/O", "while the CPU waited for I/O"
        return Cause(key=key, label=label, claim=bottleneck, when=when)
    if isinstance(rule, StepOutlier):
        counts = "The amount is the GPU time that a node lost during these steps"
        violating = frozenset(one.name for one in result.devices if one.status is Status.TRIGGERED)
        slow = partial(_slow_steps, _limits(result), violating)
        return Cause(key=key, label="Lost: outlier steps", claim=slow, when="in outlier steps", counts=counts)
    if isinstance(rule, LoadBalancing):
        counts = "The amount is the difference to the busiest GPU of the node, snapshot by snapshot"
        below = partial(_imbalance, named)
        label, when = "Lost: GPU utilization differs", "to differences between GPUs"
        return Cause(key=key, label=label, claim=below, when=when, counts=counts)
    if isinstance(rule, BatchSize):
        counts = (
            f"The amount leaves out samples below {IDLE_PERCENT:g}%: an idle GPU waits for something else"
        )
        small = partial(_small_batch, rule, result.runs, Windows.of(job))
        label, when = (
            "Lost: CPU, GPU, and GPU memory activity low",
            "while CPU, GPU, and GPU memory activity were low",
        )
        return Cause(key=key, label=label, claim=small, when=when, counts=counts)
    if isinstance(rule, IdleGaps):
        between = partial(_between_work, rule.min_samples, named)
        return Cause(key=key, label="Lost: unexplained, idle gaps", claim=between, when="")
    return _waiting(job, key, rule, result, ends) if isinstance(rule, Dataloader) else None


def _waiting(job: Job, key: str, rule: Dataloader, result: RuleResult, ends: Ends | None) -> Cause | None:
    few = frozenset(
        node
        for node, block in result.details.get("per_node", {}).items()
        if block["violations"] and block["dataloaders"] < block["cores"] * rule.min_threshold / 100
    )
    recorded = job.gathered(_recorded_us, few) if few else []
    if not recorded or ends is None:
        return None
    little = max(recorded) < MOSTLY * (ends.last_work_us - ends.first_work_us)
    counts = "The amount is the GPU time that was lost while training processes fetched data"
    counts += f", recorded for {duration(max(recorded))}" if little else ""
    return Cause(
        key=key,
        label="Lost: waiting for data",
        when="while waiting for data",
        claim=partial(_fetching, few),
        counts=counts,
        partial=little,
    )


def _never(_: Job, __: Panel, ___: FloatArray) -> Claim:
    return lambda samples: None if samples.worked else samples.weight_us


def _edges(ends: Ends | None) -> tuple[Cause, ...]:
    """Start-up and wind-down."""
    if ends is None:
        return ()
    found = edges((ends.first_work_us, ends.last_work_us), ends.clocks)
    if ends.first_step_us is None or ends.recorded_late:
        return found
    claim = partial(_before_step, ends.first_step_us, ends.clocks.clock_offset_us)
    label = "Lost: start-up, before the first step"
    return Cause(key=BEFORE_STEP, label=label, claim=claim, when="in start-up"), *found


def _before_step(step_us: int, late_us: Mapping[str, int], _: Job, panel: Panel, __: FloatArray) -> Claim:
    until_us = step_us + late_us.get(panel.node, 0)

    def claim(samples: Samples) -> FloatArray:
        early = samples.time_us < until_us
        return np.where(early & (samples.values < IDLE_PERCENT), samples.weight_us, 0.0)

    return claim


def _bottleneck(
    criteria: BottleneckCriteria, named: frozenset[str], part: Job, panel: Panel, _: FloatArray
) -> Claim | None:
    """Claim the time in which a GPU is idle in the same snapshot in which a core counts."""
    found = criteria.snapshots(part)
    if found is None or named.isdisjoint(f"{panel.node}/{device}" for device in panel.devices):
        return None

    def claim(samples: Samples) -> FloatArray:
        idle = samples.values < criteria.gpu_threshold
        return np.where(idle & found.full[samples.rows], samples.weight_us, 0.0)

    return claim


def _limits(result: RuleResult) -> dict[tuple[str, str], float]:
    """Seconds above which a step is an outlier, by ``node-rank`` and mode, over all steps."""
    return {
        (who, phase): block["threshold_s"]
        for who, one in result.details.get("step_details", {}).items()
        for phase, block in one.get("phases", {}).items()
        if "threshold_s" in block
    }


def _slow_steps(
    limits: Mapping[tuple[str, str], float],
    violating: frozenset[str],
    part: Job,
    panel: Panel,
    weight: FloatArray,
) -> Claim | None:
    """Claim the time in outlier steps, of the series that violate."""
    steps, slow = part.steps, []
    for (node, worker, phase), rows in series_of(steps).items():
        limit_s = limits.get((f"{node}-{worker}", STEP + phase))
        if limit_s is not None and f"{node}/{worker} {phase}" in violating:
            slow.append(rows[steps.end_us[rows] - steps.start_us[rows] > limit_s * SECOND_US])
    if not slow:
        return None
    rows = np.concatenate(slow)
    covered = _covered(panel, weight, union(steps.start_us[rows], steps.end_us[rows]))
    share = covered / np.maximum(weight, 1.0)
    return lambda samples: np.asarray(samples.lost_us * share[samples.rows])


def _imbalance(named: frozenset[str], part: Job, panel: Panel, _: FloatArray) -> Claim | None:
    """Claim the difference to the GPU with the highest mean utilization, among the named GPUs of the node.

    Mean and claim are of the samples that the rule compares: of the training loop, if known.
    """
    own = [i for i, device in enumerate(panel.devices) if f"{panel.node}/{device}" in named]
    loop = part.loop_us(panel.node)
    inside = (panel.time_us >= loop[0]) & (panel.time_us < loop[1]) if loop else slice(None)
    values = panel.values[inside][:, own]
    if not values.size:
        return None
    n = np.maximum(1, np.count_nonzero(~np.isnan(values), axis=0))
    most = own[int(np.argmax(np.nansum(values, axis=0) / n))]
    # NaN, a sample that is missing or not compared, is no difference.
    busiest = np.full(len(panel.time_us), np.nan)
    busiest[inside] = panel.values[inside, most]

    def claim(samples: Samples) -> FloatArray | None:
        if samples.name not in named:
            return None
        below = np.nan_to_num(busiest[samples.rows] - samples.values)
        return np.asarray(samples.weight_us * np.maximum(0.0, below) / 100)

    return claim


def _fetches(part: Job, few: frozenset[str]) -> Events | None:
    """Batch fetches of a node of ``few`` that has GPUs; None without any."""
    (node,) = part.nodes
    loading = Loading.of(part.events, node) if node in few and part.gpu_count else None
    return loading.fetches if loading and len(loading.fetches) else None


def _recorded_us(part: Job, few: frozenset[str]) -> list[int]:
    """How long batch fetches were recorded on a node of ``few``."""
    events = _fetches(part, few)
    if events is None:
        return []
    bridged = union(events.start_us, events.end_us + BRIDGED_US - 1)
    return [bridged.total_us - len(bridged.start_us) * (BRIDGED_US - 1)]


def _fetching(few: frozenset[str], part: Job, panel: Panel, weight: FloatArray) -> Claim | None:
    """Claim the time that training processes spent on batch fetches, averaged over the node's processes."""
    events = _fetches(part, few)
    if events is None:
        return None
    processes = np.unique([lane.rank for lane in events.lanes], return_inverse=True)[1][events.lane]
    present = np.unique(processes).tolist()
    fetched = np.zeros(len(panel.time_us))
    for one in present:
        own = processes == one
        times = union(events.start_us[own], events.end_us[own])
        fetched += _covered(panel, weight, times) / len(present)
    return lambda samples: fetched[samples.rows]


def _covered(panel: Panel, weight: FloatArray, times: Intervals) -> FloatArray:
    """(n,) how much of the time that each snapshot represents lies in some intervals, in microseconds."""
    end_us = panel.time_us + weight.astype(np.int64)
    return times.overlap_us(panel.time_us, end_us).astype(np.float64)


def _small_batch(
    rule: BatchSize,
    runs: Mapping[str, Sequence[tuple[int, int]]],
    grid: Windows,
    part: Job,
    panel: Panel,
    _: FloatArray,
) -> Claim | None:
    """Claim the minute of each window that violates; with the first check, all samples of that check.

    Samples below 10% are left out: an idle GPU waits for something that a larger batch would not bring.
    """
    cpu = part.panel(panel.node, Metric.CPU_UTILIZATION)
    if cpu is None:
        return None
    wanted = max(in_samples(amount, cpu.time_us) for amount in (rule.window, rule.patience))
    cpu_judged = grid.seen(cpu.time_us).judged(wanted)

    def claim(samples: Samples) -> FloatArray | None:
        own = runs.get(samples.name)
        if not own:
            return None
        seen = grid.seen(samples.time_us)
        window = in_samples(rule.window, samples.time_us)
        first_judged = int(np.intersect1d(cpu_judged, seen.judged(window))[0])
        inside = np.zeros(len(samples.time_us), np.bool_)
        for first, last in own:
            begin = seen.before(first)
            if first == first_judged:
                series = [samples.time_us, cpu.time_us, *_memory_us(part, samples)]
                since_us = max(_trailing_us(one, grid, first, rule) for one in series)
                begin = min(begin, int(np.searchsorted(samples.time_us, since_us)))
            inside[begin : seen.before(last + 1)] = True
        return np.where(inside & (samples.values >= IDLE_PERCENT), samples.weight_us, 0.0)

    return claim


def _between_work(least: int, named: frozenset[str], part: Job, panel: Panel, _: FloatArray) -> Claim | None:
    """Claim the idle gaps of the nodes that violate."""
    if named.isdisjoint(f"{panel.node}/{device}" for device in panel.devices):
        return None
    inside = Gaps.of(part, panel, least).inside(len(panel.time_us))
    return lambda samples: np.where(inside[samples.rows], samples.weight_us, 0.0)


def _memory_us(part: Job, samples: Samples) -> list[IntArray]:
    """Times of the GPU's samples of memory activity; empty without any."""
    memory, device = (
        part.panel(samples.panel.node, Metric.GPU_MEMORY_ACTIVITY),
        samples.panel.devices[samples.column],
    )
    if memory is None or device not in memory.devices:
        return []
    return [memory.series(memory.devices.index(device))[0]]


def _trailing_us(time_us: IntArray, grid: Windows, window: int, rule: BatchSize) -> int:
    """Time of the first sample of a check; the start of the grid if the window has no new sample."""
    seen = grid.seen(time_us)
    end = seen.before(window + 1)
    if end == seen.before(window):
        return grid.start_us
    return int(time_us[max(0, end - in_samples(rule.window, time_us))])
