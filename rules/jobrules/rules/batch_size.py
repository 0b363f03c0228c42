"""BatchSize: CPU, GPU, and GPU memory activity are all low."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.batch_sizes import batch_sizes
from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.core_use import WAITING_PERCENT, CoreUse, one_core_per_gpu
from jobrules.measures.gpu_checks import CheckedGPU, GPUChecks
from jobrules.measures.gpu_conditions import memory_in_use
from jobrules.measures.minutes import Seen, Windows, trailing_below
from jobrules.measures.quartiles import quartiles
from jobrules.measures.work import Work
from jobrules.measures.work_span import IDLE_PERCENT, worked
from jobrules.model import HowMuch, Metric, Reason, ReasonKind
from jobrules.model.claims import Cause, Precedence, moments
from jobrules.model.order import quantiles
from jobrules.rule import Amount, Role, Rule, in_samples, not_recorded, percent, reason_few_samples, samples
from jobrules.text import count, number, some_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import BoolArray, Finding, FloatArray, IntArray, Job, Panel, RuleResult
    from jobrules.model.claims import Claim, Claimed, Samples

NO_CPU = Reason(kind=ReasonKind.NO_DEVICE, what="node recorded both GPU and CPU")
NO_COMMON_MINUTE = Reason(kind=ReasonKind.NO_DEVICE, what="minute has samples of both GPU and CPU")


#: Utilization is steady if less than this part of the samples is idle, and nothing else explains more of the loss; the CPU
#: has room if its cores wait for I/O in less than this part of the samples.
MAX_IDLE, MAX_CLAIMED, MAX_WAITING = 0.1, 0.1, 0.1
#: Memory in use above which a batch cannot grow.
FULL_PERCENT = 80.0


@dataclass(frozen=True, kw_only=True)
class BatchSize(Rule):
    """CPU, GPU, and GPU memory activity are all low.

    What it checks
        Per GPU, once per minute: p95 of the last ``window`` samples below its threshold for CPU, GPU, and, if recorded,
        GPU memory activity.

    Why it matters
        Neither CPU nor GPU is the limit: the batches are probably too small.

    What to do
        * Raise the batch size if memory in use allows it and training still converges.
        * Otherwise use a smaller machine.

    Details
        The first check comes after ``patience`` CPU samples of the node. CPU is the mean of the node's cores. A minute
        without a sample of CPU or GPU has no check; one without a sample of GPU memory activity is checked without it.
    """

    title: ClassVar[str] = "CPU, GPU, and GPU memory activity are all low"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION, Metric.CPU_UTILIZATION)
    section: ClassVar[str] = "batch-size"
    role: ClassVar[Role] = Role.CAUSE

    cpu_threshold_p95: float = percent(70.0, "p95 of CPU utilization below which it is low")
    gpu_threshold_p95: float = percent(70.0, "p95 of GPU utilization below which it is low")
    gpu_memory_threshold_p95: float = percent(70.0, "p95 of GPU memory activity below which it is low")
    patience: Amount = samples(1000, "samples before the first check")
    window: Amount = samples(500, "samples per check")

    def check(self, job: Job) -> RuleResult:
        """Counts are of windows of one GPU."""
        grid = Windows.of(job)
        nodes = [node for node in job.each(self._checked, grid) if node]
        gpus = [gpu for node in nodes for gpu in node.gpus]
        checks = GPUChecks.of(job, grid, gpus)
        cpu_seen = {node.name: node.cpu_samples for node in nodes if node.cpu_samples}
        if not cpu_seen:
            return self.not_evaluated(NO_CPU, devices=checks.answers)
        facts: dict[str, Any] = {
            "datapoints": max(cpu_seen.values()),
            "datapoints_per_series": cpu_seen,
            "counted": "windows",
        }
        if not checks.evaluated:
            longest = max(gpus, key=lambda gpu: cpu_seen.get(gpu.node, -1))
            return self.not_evaluated(longest.reason, devices=checks.answers, **facts)
        if not checks.violating:
            windows = some_of(checks.evaluated, checks.evaluated, "window")
            headline = f"CPU, GPU, or GPU memory activity reached its threshold in {windows}"
            return checks.passed(self, headline, **facts)
        details: dict[str, Any] = {node.name: node.details for node in nodes if node.details}
        details["last_timestamp"] = checks.last_start_us
        with_memory = any(node.with_memory for node in nodes)
        low = "CPU, GPU, and GPU memory activity were all low" if with_memory else "CPU and GPU were both low"
        violating, checked = checks.windows
        headline = f"{low} in {number(violating)} of {count(checked, 'window')}"
        return checks.triggered(self, headline, details=details, **facts)

    def without(self, job: Job, missing: Reason) -> RuleResult:
        """As SageMaker Debugger, the result of a job without GPUs counts its CPU samples."""
        seen = {
            part.node: panel.snapshots
            for part in job.facts
            for panel in part.panels
            if panel.metric is Metric.CPU_UTILIZATION
        }
        counts = {"datapoints": max(seen.values(), default=0), "datapoints_per_series": seen}
        return self.not_evaluated(missing, **counts)

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """Work handed over in small pieces; only if neither the CPU nor waiting explains the loss."""
        work = Work.of(job)
        if work is None:
            return ()
        highest = max(job.gathered(_p95, work), default=100.0)
        if highest >= self.gpu_threshold_p95:
            return ()
        cores = (job.loop_facts and job.loop_facts.cores) or 0
        return (self.cause(job, result, highest, partial(_small, self, work, cores)),)

    def cause(self, job: Job, result: RuleResult, highest: float, claim: Any = None) -> Cause:
        """The cause, where the most used GPU has a p95 of ``highest`` percent."""
        return Cause(
            key="batch-size",
            precedence=Precedence.SMALL_BATCH,
            when="while neither CPU nor GPU was the limit",
            claim=claim,
            finding=partial(self._found, job, result, highest),
        )

    def _found(self, job: Job, result: RuleResult, highest: float, claimed: Claimed) -> Finding:
        in_use = max((highest for _, highest in job.gathered(memory_in_use, Clocks.of(job))), default=None)
        evidence = [*moments(claimed, result), HowMuch("p95 of the most used GPU", highest, "%")]
        advice: tuple[str, ...] = (
            "Raise the batch size if memory in use allows it and training still converges: it was not recorded.",
            "Otherwise use a smaller machine.",
        )
        sizes = [one.typical for one in batch_sizes(job)]
        if sizes and all(sizes):
            evidence.append(HowMuch("Batch size", sum(sizes), "samples"))
        if in_use is not None:
            evidence.append(HowMuch("Highest memory in use", in_use, "%"))
            advice = ("Raise the batch size if training still converges: memory is free.", *advice[1:])
            if in_use > FULL_PERCENT:
                advice = (
                    "The batch cannot grow: GPU memory is in use. Use larger kernels, lower precision, or fused operators.",
                    *advice[1:],
                )
        who = (
            "The GPU worked steadily below its" if job.gpu_count == 1 else "GPUs worked steadily below their"
        )
        return self.finding(
            f"{who} capacity while the CPU had room",
            *evidence,
            advice=advice,
            devices=claimed.devices,
        )

    def _checked(self, part: Job, grid: Windows) -> _Node | None:
        (name,) = part.nodes
        panel, cpu = part.panel(name, Metric.GPU_UTILIZATION), part.panel(name, Metric.CPU_UTILIZATION)
        if panel is None:
            return None
        seen, at, cpu_low, cpu_short = self._cpu(cpu, grid)
        memory = part.panel(name, Metric.GPU_MEMORY_ACTIVITY)
        gpus: list[CheckedGPU] = []
        boxes: dict[str, Any] = {}
        with_memory = False
        for column, device in enumerate(panel.devices):
            time_us, values = panel.series(column)
            window = in_samples(self.window, time_us)
            gpu_seen = grid.seen(time_us)
            at_gpu = gpu_seen.judged(window)
            both = np.intersect1d(at, at_gpu, assume_unique=True)
            low = cpu_low[np.searchsorted(at, both)] & trailing_below(
                values, gpu_seen.by(both), window, 0.95, self.gpu_threshold_p95
            )
            held = _device(memory, device)
            if held:
                # A minute without a new memory sample is checked without memory.
                memory_seen = grid.seen(held[0])
                known = memory_seen.new(both)
                ends = memory_seen.by(both[known])
                memory_window = in_samples(self.window, held[0])
                low[known] &= trailing_below(
                    held[1], ends, memory_window, 0.95, self.gpu_memory_threshold_p95
                )
                with_memory |= bool((low & known).any())
            unused = not worked(values)
            gpu_short = None if len(at_gpu) else reason_few_samples(len(values), window)
            gpu = CheckedGPU(
                node=name,
                device=device,
                checks=len(both),
                violations=both[low],
                unused=unused,
                reason=cpu_short or gpu_short or NO_COMMON_MINUTE,
            )
            gpus.append(gpu)
            if len(gpu.violations):
                last = int(gpu.violations[-1]) + 1
                boxes[device] = quartiles(values[: gpu_seen.before(last)]) | {"unused": unused}
                if held and memory_seen.before(last):
                    boxes[f"{device}_memory"] = quartiles(held[1][: memory_seen.before(last)])
        # That of the CPU ends with the last GPU's.
        details = {"cpu": quartiles(cpu.mean[: seen.before(last)]), **boxes} if cpu and seen and boxes else {}
        return _Node(
            name=name,
            cpu_samples=len(cpu.time_us) if cpu else 0,
            gpus=tuple(gpus),
            with_memory=with_memory,
            details=details,
        )

    def _cpu(
        self, cpu: Panel | None, grid: Windows
    ) -> tuple[Seen | None, IntArray, BoolArray, Reason | None]:
        """Samples seen, windows checked, which of them have low CPU utilization, and why none is checked."""
        if cpu is None:
            no_cpu = not_recorded(Metric.CPU_UTILIZATION)
            return None, np.empty(0, np.int64), np.empty(0, np.bool_), no_cpu
        window = in_samples(self.window, cpu.time_us)
        wanted = max(window, in_samples(self.patience, cpu.time_us))
        seen = grid.seen(cpu.time_us)
        at = seen.judged(wanted)
        low = trailing_below(cpu.mean, seen.by(at), window, 0.95, self.cpu_threshold_p95)
        return seen, at, low, None if len(at) else reason_few_samples(len(cpu.mean), wanted)


class _Node(Struct, frozen=True, kw_only=True, eq=False):
    name: str
    #: Snapshots of its CPU; 0 without any.
    cpu_samples: int
    gpus: tuple[CheckedGPU, ...]
    #: True if a window that violates was checked with GPU memory activity.
    with_memory: bool
    #: For the JSON; empty without a window that violates.
    details: dict[str, Any]


def _device(panel: Panel | None, name: str) -> tuple[IntArray, FloatArray] | None:
    if panel is None or name not in panel.devices:
        return None
    return panel.series(panel.devices.index(name))


def _p95(part: Job, work: Work) -> Iterator[float]:
    """p95 of each GPU's utilization in the work."""
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        inside = work.holds(panel.time_us, panel.node)
        for column in range(len(panel.devices)):
            values = panel.values[inside, column]
            values = values[~np.isnan(values)]
            if len(values):
                yield float(quantiles(values, (0.95,))[0])


def _small(
    rule: BatchSize, work: Work, cores: int, part: Job, panel: Panel, weight_us: FloatArray
) -> Claim | None:
    """Claim the loss while a GPU is active, if it is seldom idle, the CPU has room, and little else claims it.

    The mean of an unknown number of cores clears nobody: one process may be at its limit. Nor does about one core for each
    GPU.
    """
    del weight_us
    cpu = part.panel(panel.node, Metric.CPU_UTILIZATION)
    if cpu is None or (len(cpu.devices) == 1 and not cores) or one_core_per_gpu(part, panel, work, cores):
        return None
    use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, 100.0)
    io = CoreUse.of(part, panel, Metric.IO_WAIT, WAITING_PERCENT)

    def claim(gpus: Sequence[Samples]) -> Sequence[FloatArray]:
        return [_steady(gpu) for gpu in gpus]

    def _steady(gpu: Samples) -> FloatArray:
        none = np.zeros(len(gpu.values))
        if use is None or not gpu.in_work.any():
            return none
        mean = (
            np.nanmean(use.mean[gpu.rows][gpu.in_work])
            if not np.isnan(use.mean[gpu.rows][gpu.in_work]).all()
            else 100.0
        )
        idle = gpu.values < IDLE_PERCENT
        waiting = (io.above[gpu.rows] > 0) if io else np.zeros(len(gpu.values), np.bool_)
        lost_us = float(gpu.lost_us[gpu.in_work].sum())
        if (
            mean >= rule.cpu_threshold_p95
            or np.mean(idle[gpu.in_work]) >= MAX_IDLE
            or np.mean(waiting[gpu.in_work]) >= MAX_WAITING
            or float(gpu.left_us.sum()) < (1 - MAX_CLAIMED) * lost_us
        ):
            return none
        return np.where(idle, 0.0, gpu.left_us)

    return claim
