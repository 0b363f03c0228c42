"""How many cores of a node are above a threshold in each GPU snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from jobrules.measures.rows import rows_by_rank
from jobrules.measures.snapshots import TOLERANCE_US
from jobrules.measures.work_span import IDLE_PERCENT
from jobrules.model import SECOND_US, BoolArray, FloatArray, IntArray, Job, Metric, Panel

if TYPE_CHECKING:
    from jobrules.measures.work import Work
    from jobrules.model.claims import Samples

#: The CPU is saturated if this part of the cores is, or if their mean is at this many percent,
CROWDED_PART, CROWDED_MEAN = 0.5, 80.0
#: or, while the GPU is below this, at this many.
SLOWED_GPU, SLOWED_MEAN = 70.0, 90.0
#: A core above this is saturated.
SATURATED_PERCENT = 90.0
#: A core that waits for I/O more than this is held up by it.
WAITING_PERCENT = 50.0
#: Saturated cores explain idle moments if they are this many times as frequent in them as in the others: then more than
#: half of the idle moments with such cores are no coincidence.
TELLING_LIFT = 2.0
#: A process that is the limit uses so many cores on average.
OF_ONE_PROCESS = (0.9, 1.3)
#: Of so many cores, what the system does on its own may be as much: what is in use outside of the work does not count.
MANY_CORES = 48


class CoreUse(Struct, frozen=True, kw_only=True, eq=False):
    """The cores of a node at the moments of its GPU samples."""

    cores: int
    #: (n,) cores above the threshold, and the mean of all in percent; 0 and NaN where no core was sampled.
    above: IntArray
    mean: FloatArray

    @classmethod
    def of(cls, part: Job, gpu: Panel, metric: Metric, threshold: float) -> CoreUse | None:
        """None if the node has no samples of the metric."""
        panel = part.panel(gpu.node, metric)
        if panel is None:
            return None
        rows, near = _nearest(gpu, panel)
        # Comparisons with NaN, a core without a sample, are false.
        above = np.where(near, (panel.values > threshold).sum(axis=1)[rows], 0)
        mean = np.where(near, panel.mean[rows], np.nan)
        return cls(cores=len(panel.devices), above=above, mean=mean)

    @property
    def crowded(self) -> BoolArray:
        """(n,) whether half of the cores or more are above the threshold, or their mean is high.

        A single series of CPU utilization is the mean of an unknown number of cores.
        """
        half = (self.above >= CROWDED_PART * self.cores) if self.cores > 1 else False
        return np.asarray(half | (self.mean >= CROWDED_MEAN))

    @property
    def few(self) -> BoolArray:
        """(n,) whether some core is above the threshold, but the CPU is not saturated."""
        return (
            np.asarray((self.above > 0) & ~self.crowded)
            if self.cores > 1
            else np.zeros(len(self.above), np.bool_)
        )

    def telling(self, gpu: Samples, idle: BoolArray) -> BoolArray:
        """(m,) which ``idle`` samples of a GPU have a few cores above the threshold, more than its other samples have.

        A thread that spins while it waits for the GPU saturates a core in idle and other moments. So moments with k such
        cores and more count, for the smallest k that is ``TELLING_LIFT`` times as frequent in the idle samples of the
        work as in its others. One more of these counts as saturated: where there is none, nothing is known.
        """
        above, known = self.above[gpu.rows], gpu.in_work & ~np.isnan(self.mean[gpu.rows])
        often = _at_least(above[known & idle], self.cores)
        usual = _at_least(np.append(above[known & ~idle], self.cores), self.cores)
        (found,) = np.nonzero((often > 0) & (often >= TELLING_LIFT * usual))
        least = found[0] if len(found) else self.cores + 1
        return np.asarray(idle & self.few[gpu.rows] & (above >= least))


class FewCores(Struct, frozen=True, kw_only=True):
    """How often a few cores are saturated in the work: while a GPU of their node is idle, and while it is not."""

    #: Samples of GPUs, and those of them with a saturated core.
    idle: int
    idle_saturated: int
    others: int
    others_saturated: int

    @classmethod
    def sum(cls, nodes: Iterable[FewCores]) -> FewCores:
        """Of all nodes together."""
        counts = np.array([astuple(node) for node in nodes], np.int64).reshape(-1, 4).sum(axis=0).tolist()
        return cls(**dict(zip(cls.__struct_fields__, counts, strict=True)))

    @property
    def in_idle(self) -> float:
        """Share of the idle samples with a saturated core."""
        return self.idle_saturated / max(1, self.idle)

    @property
    def in_others(self) -> float:
        """Share of the other samples with a saturated core."""
        return self.others_saturated / max(1, self.others)


def few_cores(part: Job, work: Work) -> Iterator[FewCores]:
    """Of each node with samples of GPUs and of single cores."""
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, SATURATED_PERCENT)
        if use is None or use.cores == 1:
            continue
        known = work.holds(panel.time_us, panel.node) & ~np.isnan(use.mean)
        values, few = panel.values[known], use.few[known][:, None]
        # Comparisons with NaN, a GPU without a sample, are false.
        idle, others = values < IDLE_PERCENT, values >= IDLE_PERCENT
        yield FewCores(
            idle=int(idle.sum()),
            idle_saturated=int((idle & few).sum()),
            others=int(others.sum()),
            others_saturated=int((others & few).sum()),
        )


class ProcessUse(Struct, frozen=True, kw_only=True):
    """Cores in use on a node while its GPUs are idle or low."""

    used: float
    cores: int
    #: Processes that may use one core each; 1 if a single one of them may.
    processes: int = 1

    @property
    def at_limit(self) -> bool:
        """True if that is about one for each process, of more."""
        return self.cores > self.processes and bool(near_one(self.used / self.processes))


def near_one(cores: FloatArray | float) -> BoolArray:
    """Whether so many cores may be those of one process without threads."""
    least, most = OF_ONE_PROCESS
    # A mean of the cores times their number is rounded.
    known = np.round(cores, 9)
    return (least <= known) & (known <= most)


def process_use(part: Job, work: Work, cores: int = 0) -> Iterator[ProcessUse]:
    """Of a node whose processes are at their limit; it has so many ``cores`` where their mean alone was sampled, 0 is
    unknown.
    """
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        if found := one_core_each(part, panel, work, cores):
            yield found[0]


def one_core_each(part: Job, panel: Panel, work: Work, cores: int = 0) -> tuple[ProcessUse, BoolArray] | None:
    """Cores in use, and (n,) the moments: those in which no GPU of a node works as much as it could.

    None unless that is about one core for each training process, or one, on average and in most of these moments.
    Where the others show the same as often, it is what the node does on its own: then it says nothing of low moments, or of
    idle ones only, if the GPUs are steadily low.
    """
    use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, SATURATED_PERCENT)
    cores = use.cores if use and use.cores > 1 else cores
    if use is None or not cores:
        return None
    in_work = work.holds(panel.time_us, panel.node)
    # Moments of a saturated CPU are those of CPUBottleneck.
    known = use.mean < CROWDED_MEAN
    all_low = ~(panel.values >= SLOWED_GPU).any(axis=1) & (known | np.isnan(use.mean))
    used = use.mean / 100 * cores
    if cores >= MANY_CORES:
        outside = used[known & ~in_work]
        used = used - (outside.mean() if len(outside) else np.nan)
    low, others = known & in_work & all_low, known & in_work & ~all_low
    idle = low & (panel.values < IDLE_PERCENT).all(axis=1)
    steady = low.sum() >= others.sum() and 2 * idle.sum() <= low.sum()
    rare = idle if steady else low
    for processes in sorted({max(1, len(rows_by_rank(part.steps))), 1}):
        at_limit = near_one(used / processes)
        none = rare if _part(at_limit, rare) < TELLING_LIFT * _part(at_limit, others) else np.zeros_like(rare)
        left = low & ~none
        mean = float(used[left].mean()) if left.any() else 0.0
        found = ProcessUse(used=mean, cores=cores, processes=processes)
        if found.at_limit and _part(at_limit, left) > 0.5:
            return found, all_low & ~none
    return None


def one_core_per_gpu(part: Job, panel: Panel, work: Work, cores: int = 0) -> bool:
    """Whether about one core was in use for each GPU of a node during the work, on average.

    Each GPU may have a process at its limit: often the first of them alone records steps.
    """
    use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, SATURATED_PERCENT)
    cores = use.cores if use and use.cores > 1 else cores
    if use is None or not cores:
        return False
    mean = use.mean[work.holds(panel.time_us, panel.node) & ~np.isnan(use.mean)]
    return bool(len(mean) and near_one(float(mean.mean()) / 100 * cores / len(panel.devices)))


def may_be_at_limit(part: Job, work: Work) -> Iterator[bool]:
    """The same of each node with samples of its single cores."""
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        yield one_core_per_gpu(part, panel, work)


def _part(holds: BoolArray, rows: BoolArray) -> float:
    """Share of some moments in which something holds; 0 of none."""
    return float(holds[rows].mean()) if rows.any() else 0.0


def stalls_s(part: Job, work: Work) -> Iterator[FloatArray]:
    """Lengths in seconds of the stretches in which a GPU idles while a few cores are saturated, for each GPU."""
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, SATURATED_PERCENT)
        if use is None:
            continue
        few = use.few & work.holds(panel.time_us, panel.node)
        for values in panel.values.T:
            edges = np.flatnonzero(np.diff(few & (values < IDLE_PERCENT), prepend=False, append=False))
            start_us, stop_us = (
                panel.time_us[np.minimum(rows, len(values) - 1)] for rows in (edges[::2], edges[1::2])
            )
            yield (stop_us - start_us) / SECOND_US


def _at_least(above: IntArray, cores: int) -> FloatArray:
    """(cores + 1,) share of the moments with k cores and more; 1 for k = 0."""
    counts = np.bincount(above, minlength=cores + 1)
    return np.asarray(np.cumsum(counts[::-1])[::-1] / max(1, len(above)))


def _nearest(gpu: Panel, other: Panel) -> tuple[IntArray, BoolArray]:
    """(n,) the row of another panel that is nearest in time, and whether it is within the longer sampling interval."""
    after = np.searchsorted(other.time_us, gpu.time_us)
    before, after = np.maximum(after - 1, 0), np.minimum(after, len(other.time_us) - 1)
    is_before = gpu.time_us - other.time_us[before] <= other.time_us[after] - gpu.time_us
    rows = np.where(is_before, before, after)
    near = np.abs(other.time_us[rows] - gpu.time_us) <= max(gpu.interval_us, other.interval_us, TOLERANCE_US)
    return rows, near
