"""Compare the nodes of a job: which differ, in which metric, and which are drawn. ``measures.quartiles`` has the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.analyses.time_lines import Columns, Places
from jobrules.measures.clock_offsets import offsets
from jobrules.measures.quartiles import odd_limit
from jobrules.measures.sample_weights import PAUSE_US
from jobrules.measures.stopped import STOPPED_SHARE, STOPPED_US
from jobrules.measures.work_span import worked
from jobrules.model import FloatArray, IntArray, Job, Metric, Panel, Severity
from jobrules.model.names import NodeName, OwnText
from jobrules.model.order import median
from jobrules.text import NBSP, clock, count, duration
from jobrules.verdict.phases import JobPhases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Nodes that are drawn side by side; more are ranked first.
MAX_DRAWN = 4
#: Points of the mean that a node must differ by at least.
MIN_POINTS = {
    Metric.GPU_UTILIZATION: 5.0,
    Metric.CPU_UTILIZATION: 10.0,
    Metric.IO_WAIT: 5.0,
    Metric.GPU_MEMORY_ACTIVITY: 10.0,
    Metric.HOST_MEMORY: 10.0,
}
#: Columns of a small line, and nodes that have one.
MAX_COLUMNS = 120
MAX_LINES = 32
#: A fall: below ``FALL`` percent for so long and so many samples, while the median is at least ``HIGH``.
FALL, HIGH = 10.0, 30.0
FALL_US, FALL_SAMPLES = 5_000_000, 3
#: More falls, or falls over a larger share of the time, are how the job runs.
MAX_FALLS, MAX_FALLEN = 20, 0.25

_ORDER = (Severity.CRITICAL, Severity.WARNING, Severity.INFO, None)


class NodeDifference(Struct, frozen=True, kw_only=True):
    """A node among the others."""

    node: NodeName
    #: None where the node is like most others.
    severity: Severity | None
    #: What differs, in words; empty for a node like the others.
    reasons: tuple[OwnText, ...]
    #: Mean use over its snapshots in percent, and points above the median node; None without samples of it.
    mean: float | None
    against: float | None
    #: Mean use per column in whole percent, None where not measured; empty past the first 32 nodes.
    line: tuple[int | None, ...] = ()


class StartUp(Struct, frozen=True, kw_only=True):
    """What the machines did before the first step: means over the nodes that were sampled then."""

    #: Percent of a core and of a snapshot; None where not sampled.
    cpu: float | None
    io_wait: float | None
    #: Bytes per second and node.
    received: float | None


class PhaseUtilization(Struct, frozen=True, kw_only=True):
    """Mean use in one phase of the job."""

    #: As ``Phase.key``.
    phase: OwnText
    #: Percent.
    mean: float


class NodeUtilization(Struct, frozen=True, kw_only=True):
    """The use of the GPUs of the drawn nodes, or of their CPUs where no GPU was sampled."""

    #: ``GPU`` or ``CPU``.
    label: OwnText
    #: Over all samples in percent: of each drawn node that has some, and of these nodes together.
    means: dict[NodeName, float]
    mean: float
    #: The same in each phase that has samples.
    phases: tuple[PhaseUtilization, ...]
    #: How often it fell under 10 % in the training loop, or from the first to the last GPU work, of a job
    #: with one node; 0 where it did so all the time. And the length of a fall, the median.
    falls: int = 0
    fall_us: int = 0


class NodeComparison(Struct, frozen=True, kw_only=True):
    """The nodes of a job; ranked where they are more than four."""

    #: The nodes that are drawn: all of at most four, else the oddest, or of equal ones two.
    drawn: tuple[NodeName, ...]
    #: None where no phase before the loop is known, or nothing was sampled in it.
    start_up: StartUp | None
    #: None where neither GPU nor CPU use was sampled.
    use: NodeUtilization | None = None
    #: ``GPU`` or ``CPU``: what ``mean`` is the use of.
    label: OwnText = ""
    #: Mean use of the median node in percent, and the points beyond which a node is odd.
    median: float | None = None
    limit: float | None = None
    #: Odd nodes first, the worst of them first; empty for at most four nodes.
    ranks: tuple[NodeDifference, ...] = ()
    #: Columns of the small lines; lowest and highest mean of the similar nodes in each, in whole percent.
    columns: Columns | None = None
    low: tuple[int | None, ...] = ()
    high: tuple[int | None, ...] = ()

    @property
    def odd(self) -> tuple[NodeDifference, ...]:
        """The nodes that differ."""
        return tuple(rank for rank in self.ranks if rank.severity)

    @property
    def similar(self) -> tuple[NodeDifference, ...]:
        """The nodes that do not."""
        return tuple(rank for rank in self.ranks if not rank.severity)


class _Node(Struct, frozen=True, kw_only=True, eq=False):
    """What the samples of a node come to; the use is that of its GPUs, or of its CPU without any."""

    node: str
    #: Mean over all snapshots of each metric.
    means: dict[Metric, float]
    #: (GPUs,) time of the last sample above 0 %, -1 of one that was never used; and of the last sample.
    last_work_us: IntArray
    last_us: int
    #: Mean use per column; empty where no columns were given.
    line: FloatArray
    #: Mean use in each phase that has samples, and mean of each metric before the loop.
    phases: dict[str, float]
    before: dict[Metric, float]
    #: As in ``Use``; of a node alone.
    falls: tuple[int, int]


def node_comparison(job: Job, grid: Columns, in_time: JobPhases) -> NodeComparison:
    """Rank the nodes of a job; ``grid`` are the columns of its time lines, which the small lines bundle."""
    metric = Metric.GPU_UTILIZATION if job.gpu_count else Metric.CPU_UTILIZATION
    ranked = len(job.nodes) > MAX_DRAWN
    columns = grid.bundled(MAX_COLUMNS)
    nodes = job.each(_seen, metric, in_time, columns if ranked else None, len(job.nodes) == 1)
    start_up = _start_up(nodes)
    if not ranked:
        return NodeComparison(drawn=job.nodes, start_up=start_up, use=_use(metric, nodes, in_time))
    means = {m: {node.node: node.means[m] for node in nodes if m in node.means} for m in MIN_POINTS}
    uses = means[metric]
    middle = median(list(uses.values())) if uses else None
    differences = (*_gpus_at_zero(job, nodes), *_uses(means), *_unmeasured(job, in_time), *_others(job))
    ranks = _ranked(job.nodes, differences, uses, middle)
    lines = {node.node: node.line for node in nodes}
    similar = [lines[r.node] for r in ranks if not r.severity and r.mean is not None]
    drawn = _drawn(job, ranks, middle)
    compared = sorted((node for node in nodes if node.node in drawn), key=lambda node: drawn.index(node.node))
    return NodeComparison(
        drawn=drawn,
        start_up=start_up,
        use=_use(metric, compared, in_time),
        label=metric.label,
        median=middle,
        limit=odd_limit(list(uses.values()), MIN_POINTS[metric]) if uses else None,
        ranks=tuple(
            replace(r, line=_whole(lines[r.node]) if i < MAX_LINES else ()) for i, r in enumerate(ranks)
        ),
        columns=columns,
        low=_whole(np.fmin.reduce(similar, axis=0)) if similar else (),
        high=_whole(np.fmax.reduce(similar, axis=0)) if similar else (),
    )


def _ranked(
    nodes: Sequence[str],
    differences: Sequence[_Difference],
    means: Mapping[str, float],
    middle: float | None,
) -> list[NodeDifference]:
    """All nodes: those that differ first, the worst and the farthest from the median before others."""
    found: dict[str, list[tuple[Severity, str]]] = {node: [] for node in nodes}
    for node, difference in differences:
        found[node].append(difference)
    ranks = []
    for node, reasons in found.items():
        reasons.sort(key=lambda one: _ORDER.index(one[0]))
        mean = means.get(node)
        ranks.append(
            NodeDifference(
                node=node,
                severity=reasons[0][0] if reasons else None,
                reasons=tuple(words for _, words in reasons),
                mean=mean,
                against=None if mean is None or middle is None else mean - middle,
            )
        )
    # The sort is stable: nodes of one kind stay in natural order unless one is farther from the median.
    return sorted(
        ranks, key=lambda r: (_ORDER.index(r.severity), -abs(r.against or 0.0) if r.severity else 0.0)
    )


def _seen(part: Job, metric: Metric, in_time: JobPhases, columns: Columns | None, alone: bool) -> _Node:
    panels = {panel.metric: panel for panel in part.panels}
    gpu, use = panels.get(Metric.GPU_UTILIZATION), panels.get(metric)
    line = np.full(columns.count if columns else 0, np.nan)
    phases, falls = {}, (0, 0)
    if use:
        for phase in in_time.phases:
            inside = use.mean[slice(*np.searchsorted(use.time_us, (phase.start_us, phase.end_us)))]
            if len(inside):
                phases[phase.key] = float(inside.mean())
        if columns:
            line = Places.of(columns, use.time_us).means(use.mean)
        if alone:
            falls = _falls(use, part.loop_us(use.node) or _work_us(in_time))
    before = {}
    for wanted in _BEFORE:
        panel, end_us = panels.get(wanted), _begin_us(in_time)
        if panel and (rows := int(np.searchsorted(panel.time_us, end_us))):
            before[wanted] = float(panel.mean[:rows].mean())
    return _Node(
        node=part.nodes[0],
        means={m: float(panels[m].mean.mean()) for m in MIN_POINTS if m in panels},
        last_work_us=_last_work(gpu.time_us, gpu.values) if gpu else np.empty(0, np.int64),
        last_us=gpu.last_us if gpu else 0,
        line=line,
        phases=phases,
        before=before,
        falls=falls,
    )


def _begin_us(in_time: JobPhases) -> int:
    """When the loop began; 0 where no phase before it is known."""
    return next((phase.end_us for phase in in_time.phases if phase.key == "before"), 0)


def _work_us(in_time: JobPhases) -> tuple[int, int] | None:
    first_us, last_us = in_time.first_work_us, in_time.last_work_us
    return None if first_us is None or last_us is None else (first_us, last_us)


#: A node, how much it matters, and what differs in words.
_Difference = tuple[str, tuple[Severity, str]]


def _uses(means: Mapping[Metric, Mapping[str, float]]) -> Iterator[_Difference]:
    """Nodes whose mean of a metric is odd."""
    for metric, least in MIN_POINTS.items():
        values = list(means[metric].values())
        if len(values) <= MAX_DRAWN:
            continue
        limit, middle = odd_limit(values, least), median(values)
        for node, mean in means[metric].items():
            off = mean - middle
            if abs(off) > limit:
                harmless = metric is Metric.GPU_UTILIZATION and off > 0
                side = "above" if off > 0 else "below"
                words = f"mean {metric.label} {abs(off):.1f}{NBSP}points {side} the median node"
                yield node, (Severity.INFO if harmless else Severity.WARNING, words)


def _gpus_at_zero(job: Job, nodes: Sequence[_Node]) -> Iterator[_Difference]:
    """Nodes with more GPUs than most that never worked, and GPUs that stopped long before most others."""
    nodes = [node for node in nodes if len(node.last_work_us)]
    last = [node.last_work_us for node in nodes]
    worked = np.concatenate([times[times >= 0] for times in last]) if last else ()
    if not len(worked):
        return
    usual = median([(times < 0).sum() for times in last])
    end_us = median(worked)
    start_us, stop_us = job.span_us
    least_us = max(STOPPED_US, STOPPED_SHARE * (stop_us - start_us))
    for node, times in zip(nodes, last, strict=True):
        gpus = count(len(times), "GPU")
        never = int((times < 0).sum())
        if never > usual:
            yield node.node, (Severity.CRITICAL, f"{never} of {gpus} never used")
        # Where the samples end soon after the work, the node was lost and not the GPU.
        stopped = (times >= 0) & (end_us - times > least_us) & (node.last_us - times > least_us)
        if stopped.any():
            since = clock(int(times[stopped].min()))
            words = f"{int(stopped.sum())} of {gpus} at 0% after {since}"
            yield node.node, (Severity.CRITICAL, words)


def _last_work(time_us: IntArray, values: FloatArray) -> IntArray:
    """(devices,) time of the last sample above 0%, -1 of a GPU that was never used."""
    work = values > 0
    last = len(work) - 1 - np.argmax(work[::-1], axis=0)
    return np.where(worked(values), time_us[last], -1)


def _unmeasured(job: Job, in_time: JobPhases) -> Iterator[_Difference]:
    """Nodes that were not sampled for a minute longer than the median node."""
    lost = dict.fromkeys(_sampled(job), 0)
    for gap in in_time.gaps:
        lost[gap.node] += gap.end_us - gap.start_us
    usual = median(list(lost.values())) if lost else 0.0
    for node, us in lost.items():
        if us - usual > PAUSE_US:
            yield node, (Severity.INFO, f"no samples for {duration(us)}")
    for node in job.nodes:
        if node not in lost:
            yield node, (Severity.INFO, "no samples")


def _sampled(job: Job) -> list[str]:
    return [part.node for part in job.facts if part.panels]


def _others(job: Job) -> Iterator[_Difference]:
    """Nodes with another number of GPUs than most, or another clock."""
    gpus = {
        part.node: sum(len(panel.devices) for panel in part.panels if panel.metric == Metric.GPU_UTILIZATION)
        for part in job.facts
        if part.panels
    }
    if gpus:
        numbers, times = np.unique(list(gpus.values()), return_counts=True)
        usual = int(numbers[times.argmax()])
        for node, number in gpus.items():
            if number != usual:
                words = f"{count(number, 'GPU') if number else 'no GPU'} sampled, on most nodes {usual}"
                yield node, (Severity.INFO, words)
    for one in offsets(job):
        side = "ahead" if one.offset_us > 0 else "behind"
        words = f"clock {duration(abs(one.offset_us))} {side}, inferred from its steps"
        yield one.node, (Severity.INFO, words)


def _whole(values: FloatArray) -> tuple[int | None, ...]:
    return tuple(None if np.isnan(v) else round(v) for v in values.tolist())


def _drawn(job: Job, ranks: Sequence[NodeDifference], middle: float | None) -> tuple[str, ...]:
    """The oddest nodes that were sampled; of equal ones the one in the middle and the lowest."""
    sampled = set(_sampled(job))
    odd = [r.node for r in ranks if r.severity and r.node in sampled]
    if odd:
        return tuple(odd[:MAX_DRAWN])
    known = [(r.mean, r.node) for r in ranks if r.mean is not None]
    if middle is None or not known:
        return tuple(node for node in job.nodes if node in sampled)[:1]
    typical = min(known, key=lambda one: abs(one[0] - middle))[1]
    lowest = min(known, key=lambda one: one[0])[1]
    return tuple(dict.fromkeys((typical, lowest)))


def _use(metric: Metric, nodes: Sequence[_Node], in_time: JobPhases) -> NodeUtilization | None:
    nodes = [node for node in nodes if metric in node.means]
    if not nodes:
        return None
    means = {node.node: round(node.means[metric], 3) for node in nodes}
    phases = tuple(
        PhaseUtilization(phase=phase.key, mean=round(sum(values) / len(values), 3))
        for phase in in_time.phases
        if (values := [node.phases[phase.key] for node in nodes if phase.key in node.phases])
    )
    falls, fall_us = nodes[0].falls
    return NodeUtilization(
        label=metric.label,
        means=means,
        mean=round(sum(means.values()) / len(means), 3),
        phases=phases,
        falls=falls,
        fall_us=fall_us,
    )


def _falls(panel: Panel, span: tuple[int, int] | None) -> tuple[int, int]:
    """How often the mean of the devices fell in the loop, and for how long, the median."""
    if span is None:
        return 0, 0
    inside = slice(*np.searchsorted(panel.time_us, span))
    time_us, values = panel.time_us[inside], panel.mean[inside]
    if len(values) < 2 or median(values) < HIGH:
        return 0, 0
    edges = np.flatnonzero(np.diff((values < FALL).astype(np.int8), prepend=0, append=0))
    first, stop = edges[::2], np.minimum(edges[1::2], len(values) - 1)
    lengths = (time_us[stop] - time_us[first])[(edges[1::2] - first >= FALL_SAMPLES)]
    lengths = lengths[lengths >= FALL_US]
    if not 0 < len(lengths) <= MAX_FALLS or lengths.sum() > MAX_FALLEN * (time_us[-1] - time_us[0]):
        return 0, 0
    return len(lengths), int(median(lengths))


_BEFORE = (Metric.CPU_UTILIZATION, Metric.IO_WAIT, Metric.NETWORK_RECEIVE)


def _start_up(nodes: Sequence[_Node]) -> StartUp | None:
    def mean(metric: Metric) -> float | None:
        means = [node.before[metric] for node in nodes if metric in node.before]
        return sum(means) / len(means) if means else None

    cpu, io_wait, received = map(mean, _BEFORE)
    if cpu is None and io_wait is None and received is None:
        return None
    return StartUp(cpu=cpu, io_wait=io_wait, received=received)
