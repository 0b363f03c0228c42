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
10. the GPU was at work while CPU, GPU and GPU memory were all little used (BatchSize);
11. all GPUs of the node idled at once (IdleGaps). That names the time and not why it was lost, so it counts
    as unexplained.

Rules that did not trigger claim nothing, nor do others on GPUs that their finding does not tell of.
What is left is unexplained. That two things happened at once does not show that one caused the other:
the amounts say what a cause can explain at most.
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
    IdleGaps,
)


class Ends(Struct, frozen=True, kw_only=True):
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
        """When the start-up was over."""
        if self.first_step_us is None or self.recorded_late:
            return self.first_work_us
        return max(self.first_step_us, self.first_work_us)


def loop_us(job: Job, clocks: Clocks) -> tuple[int, int] | None:
    """First start and last end of all steps, with the clocks that differ set right; none without steps."""
    steps_us = {part.node: part.steps_us for part in job.facts if part.steps_us}
    late_us = clocks.clock_offset_us
    return span_of((a - late_us.get(node, 0), b - late_us.get(node, 0)) for node, (a, b) in steps_us.items())


def _mean_use(job: Job, clocks: Clocks, start_us: int, end_us: int) -> float:
    """Of all GPUs, in percent, in [start, end); 0 without a sample."""
    sums = job.gathered(_use, clocks, start_us, end_us)
    n = sum(n for _, n in sums)
    return sum(total for total, _ in sums) / n if n else 0.0


def _use(part: Job, clocks: Clocks, start_us: int, end_us: int) -> Iterator[tuple[float, int]]:
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        time_us = panel.time_us - clocks.clock_offset_us.get(panel.node, 0)
        first, stop = np.searchsorted(time_us, (start_us, end_us)).tolist()
        values = panel.values[first:stop]
        yield float(np.nansum(values)), int(np.count_nonzero(~np.isnan(values)))


def causes_of(job: Job, judged: Sequence[tuple[Rule, RuleResult]], ends: Ends | None) -> tuple[Cause, ...]:
    """The causes that lost GPU time is shared out to, in the order in which they claim.

    The key of a rule's cause is that of its first finding.
    """
    told = [
        (rule, result)
        for kind in _ORDER
        for rule, result in judged
        if isinstance(rule, kind) and result.status is Status.TRIGGERED and result.findings
    ]
    causes = {one.key: one for rule, result in told if (one := _cause(job, rule, result, ends))}
    never = Cause(key=NEVER, label="Lost: GPUs that never worked", claim=_never)
    return (never, *_edges(ends), *causes.values())


def _cause(job: Job, rule: Rule, result: RuleResult, ends: Ends | None) -> Cause | None:
    """The cause that a rule triggered by."""
    key, named = result.findings[0].key, frozenset(result.findings[0].devices)
    if isinstance(rule, IOBottleneck | CPUBottleneck):
        did = "waited for I/O" if isinstance(rule, IOBottleneck) else "were full"
        stalled = partial(_stalled, rule.question, named)
        return Cause(key=key, label=f"Lost: idle while cores {did}", claim=stalled)
    if isinstance(rule, StepOutlier):
        counts = "The amount is what the GPUs of a node lost during these steps."
        violating = frozenset(one.name for one in result.devices if one.status is Status.TRIGGERED)
        slow = partial(_slow_steps, _limits(result), violating)
        return Cause(key=key, label="Lost in outlier steps", claim=slow, counts=counts)
    if isinstance(rule, LoadBalancing):
        counts = (
            "The amount is how much less these GPUs were used than the GPU of their node with the highest "
            "mean, in the same snapshot."
        )
        below = partial(_imbalance, named)
        return Cause(key=key, label="Lost: used less than the busiest GPU", claim=below, counts=counts)
    if isinstance(rule, BatchSize):
        counts = f"Samples below {IDLE_PERCENT:g}% are not counted: then a GPU waits."
        small = partial(_small_batch, rule, result.runs, Windows.of(job))
        return Cause(key=key, label="Lost: CPU, GPU and memory little used", claim=small, counts=counts)
    if isinstance(rule, IdleGaps):
        between = partial(_between_work, rule.min_samples, named)
        return Cause(key=key, label="Unexplained: all GPUs of the node idle at once", claim=between)
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
    counts = "The amount is lost GPU time for as long as training processes fetched data"
    counts += f", in the {duration(max(recorded))} that fetches were recorded for." if little else "."
    return Cause(
        key=key,
        label="Lost: waiting for data",
        claim=partial(_fetching, few),
        counts=counts,
        partial=little,
    )


def _never(_: Job, __: Panel, ___: FloatArray) -> Claim:
    return lambda samples: None if samples.worked else samples.weight_us


def _edges(ends: Ends | None) -> tuple[Cause, ...]:
    """The start and the end."""
    if ends is None:
        return ()
    found = edges((ends.first_work_us, ends.last_work_us), ends.clocks)
    if ends.first_step_us is None or ends.recorded_late:
        return found
    claim = partial(_before_step, ends.first_step_us, ends.clocks.clock_offset_us)
    return Cause(key=BEFORE_STEP, label="Lost: idle before the first step", claim=claim), *found


def _before_step(step_us: int, late_us: Mapping[str, int], _: Job, panel: Panel, __: FloatArray) -> Claim:
    until_us = step_us + late_us.get(panel.node, 0)

    def claim(samples: Samples) -> FloatArray:
        early = samples.time_us < until_us
        return np.where(early & (samples.values < IDLE_PERCENT), samples.weight_us, 0.0)

    return claim


def _stalled(
    asked: BottleneckCriteria, named: frozenset[str], part: Job, panel: Panel, _: FloatArray
) -> Claim | None:
    """A GPU idles in the same snapshot in which a core counts."""
    found = asked.snapshots(part)
    if found is None or named.isdisjoint(f"{panel.node}/{device}" for device in panel.devices):
        return None

    def claim(samples: Samples) -> FloatArray:
        idle = samples.values < asked.gpu_threshold
        return np.where(idle & found.full[samples.rows], samples.weight_us, 0.0)

    return claim


def _limits(result: RuleResult) -> dict[tuple[str, str], float]:
    """Seconds above which a step is an outlier in the end, by ``node-worker`` and phase."""
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
    """The time in steps that the rule calls outliers, of the series in violation."""
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
    """The GPU with the highest mean use, of those told, is what the others of its node are held against.

    Mean and claim are of the samples that the rule judges: of the training loop, where steps are known.
    """
    own = [i for i, device in enumerate(panel.devices) if f"{panel.node}/{device}" in named]
    loop = part.loop_us(panel.node)
    inside = (panel.time_us >= loop[0]) & (panel.time_us < loop[1]) if loop else slice(None)
    values = panel.values[inside][:, own]
    if not values.size:
        return None
    n = np.maximum(1, np.count_nonzero(~np.isnan(values), axis=0))
    most = own[int(np.argmax(np.nansum(values, axis=0) / n))]
    # NaN, where that GPU gave no sample or is not judged, is no difference.
    busiest = np.full(len(panel.time_us), np.nan)
    busiest[inside] = panel.values[inside, most]

    def claim(samples: Samples) -> FloatArray | None:
        if samples.name not in named:
            return None
        below = np.nan_to_num(busiest[samples.rows] - samples.values)
        return np.asarray(samples.weight_us * np.maximum(0.0, below) / 100)

    return claim


def _fetches(part: Job, few: frozenset[str]) -> Events | None:
    """The fetches of one of few nodes that has GPUs; none without any."""
    (node,) = part.nodes
    loading = Loading.of(part.events, node) if node in few and part.gpu_count else None
    return loading.fetches if loading and len(loading.fetches) else None


def _recorded_us(part: Job, few: frozenset[str]) -> list[int]:
    """How long fetches were recorded on one of few nodes."""
    events = _fetches(part, few)
    if events is None:
        return []
    bridged = union(events.start_us, events.end_us + BRIDGED_US - 1)
    return [bridged.total_us - len(bridged.start_us) * (BRIDGED_US - 1)]


def _fetching(few: frozenset[str], part: Job, panel: Panel, weight: FloatArray) -> Claim | None:
    """As long as training processes fetched, on average over those of the node."""
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
    """(n,) how much of the time that each snapshot stands for lies in some intervals, in microseconds."""
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
    """The minute of each window in violation; with the first one judged, all that it was judged by.

    Not the samples below 10%, which the report calls idle everywhere: that GPU waits for something that
    a larger batch would not bring.
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
    """The gaps in which no GPU of a node works, of the nodes in violation."""
    if named.isdisjoint(f"{panel.node}/{device}" for device in panel.devices):
        return None
    inside = Gaps.of(part, panel, least).inside(len(panel.time_us))
    return lambda samples: np.where(inside[samples.rows], samples.weight_us, 0.0)


def _memory_us(part: Job, samples: Samples) -> list[IntArray]:
    """Times of the GPU's memory samples, if there are any."""
    memory, device = (
        part.panel(samples.panel.node, Metric.GPU_MEMORY_ACTIVITY),
        samples.panel.devices[samples.column],
    )
    if memory is None or device not in memory.devices:
        return []
    return [memory.series(memory.devices.index(device))[0]]


def _trailing_us(time_us: IntArray, grid: Windows, window: int, rule: BatchSize) -> int:
    """Time of the first of the samples that a window is judged by; without a new one it is not, since ever."""
    seen = grid.seen(time_us)
    end = seen.before(window + 1)
    if end == seen.before(window):
        return grid.start_us
    return int(time_us[max(0, end - in_samples(rule.window, time_us))])
